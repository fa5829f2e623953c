"""The gRPC port of a server: gRPC's own, or that of the native module.

Called by ``server``. Imports the guard, settings and the native module; no merge.
"""
