"""Persists in the checkpoint what a query has published, so that a restarted query publishes nothing twice.

Called by ``sink``. Imports the wire and the core's values.
"""
