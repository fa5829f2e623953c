"""Reads the logical plan of a streaming DataFrame: what it can promise as a replica, and what would differ on others.

Called by ``publishing``, ``skipping`` and ``sink``. It handles Spark's plans as plain values. Imports values of the
core, and no sink and no source.
"""
