"""One module for each streaming call of the wire: Publish, Subscribe, Stage.

Called by ``service.server``. A call reaches its merge through the inbox of the hub, and never calls ``core.merge``
itself. Imports ``merge``, ``output``, ``security`` and the wire.
"""
