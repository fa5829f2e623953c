"""A merge as a table that is always as of one stable point: SQL, Arrow, and the live view.

Users call it through ``lmerge.client``; ``sinks`` and Spark call ``arrow_tables``. Imports ``subscribe`` and the wire.
"""
