"""The output of one merge: encoded once, persisted, released in order, delivered to every subscriber.

Called by ``service.merge``. Imports the core's values and the wire, never a hub.
"""
