"""The temporal algebra: continuous queries over events with lifetimes, computed from inserts, adjusts and stables.

Pure: no client, no service, no clock. ``lmerge.replica`` runs a plan as the replica of a merge.
"""
