"""A merge as a table that is always as of one stable point: SQL, Arrow, and the live view.

Called by users through ``lmerge.client``. Imports ``subscribe``.
"""
