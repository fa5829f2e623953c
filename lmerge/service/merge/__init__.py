"""One merge in a server: the task that owns it, its inputs, and the rules that decide when it goes on.

Called by ``calls``, ``admin`` and ``service.server``. It passes its output to ``service.output``. Imports that, the
core and the wire.
"""
