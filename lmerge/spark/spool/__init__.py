"""Persists in the checkpoint what a query has published, so that a restarted query publishes nothing twice.

Called by ``sink`` and ``skipping``. Imports the wire, the core, and the live events of ``client.publish``.
"""
