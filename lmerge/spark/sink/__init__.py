"""Publishes the batches of a query: executors write and stage their parts, the driver commits them.

Called by Spark through ``datasource``, and by ``publishing``. Imports ``spool``, ``plan`` and the client.
"""
