"""One merge in a server: the task that owns it, its inputs, and the rules that decide when it goes on.

Called by ``calls`` and ``admin``. It passes its output to ``service.output``, and imports the core and the wire.
"""
