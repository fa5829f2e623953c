"""`lmerge drill`: breaks things on purpose beside a known stream, and gives a verdict.

Called by the command line through the entry point ``drill``. Imports ``lmerge.client`` for the probe stream, the names
and the terminal of ``lmerge``, and nothing of the service.
"""
