"""Reads the logical plan of a streaming DataFrame: what it can promise as a replica, and what would differ on others.

Called by ``publishing``. It handles Spark's plans as plain values and imports no sink and no source.
"""
