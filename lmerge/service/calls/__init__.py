"""One module for each streaming call of the wire: Publish, Subscribe, Stage.

Called by ``service.server``. A call talks to its merge through the inbox of the hub, never to the core.
"""
