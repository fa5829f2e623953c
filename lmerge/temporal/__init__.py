"""The temporal algebra: continuous queries over events with lifetimes, computed from inserts, adjusts and stables.

Pure: no client, no service, no clock. Called by ``lmerge.replica``, which runs a plan as the replica of a merge, and by
users in their own programs. Imports the core and, for schemas and rows, the wire.
"""
