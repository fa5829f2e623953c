"""Publishing a replica's stream to one server or several, without loss over reconnections.

Users call it through ``lmerge.client``. The sans-I/O modules (outbox, live events) are separate from the asyncio shell.
Imports ``connection``, the wire and the core.
"""
