"""Publishing a replica's stream to one server or several, without loss over reconnections.

Called by users through ``lmerge.client``. The sans-I/O parts (outbox, live events) are apart from the asyncio shell.
"""
