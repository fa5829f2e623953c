"""The output of one merge: encoded once, persisted, released in order, delivered to every subscriber.

Called by ``service.merge``. It imports the core's values and the wire, and never a hub.
"""
