"""The output of one merge: encoded once, persisted, released in order, delivered to every subscriber.

Called by ``service.merge``, and by ``calls`` for the queue of a subscriber. Imports the core and the wire, never a hub.
"""
