"""Publishing a replica's stream to one server or several, without loss over reconnections.

Users call it through ``lmerge.client``; Spark calls it as well. The sans-I/O modules (``outbox``, ``live_events``) are
separate from the asyncio shell (``publisher``, ``link``). Imports ``connection``, the wire and the core.
"""
