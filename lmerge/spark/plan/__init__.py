"""Reads the logical plan of a streaming DataFrame: what it can promise as a replica, and what would differ on others.

Called by ``publishing``. Knows Spark's plans as values; imports no sink and no source.
"""
