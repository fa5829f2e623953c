"""The server: a shell of ``grpc.aio`` around the core, for many merges at once.

Called by ``lmerge serve``, by the simulation and by tests. Imports the wire and the core, never the client.
"""
