"""Runs the merge itself as a Spark query: shards that each keep a merge of the core.

Called by users through ``lmerge.spark.merge``. Imports the core, the wire, the Arrow columns of ``sink`` and the files
of ``spool``.
"""
