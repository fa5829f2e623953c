"""The flights of `lmerge_replicas.flights` as a query of PySpark, in two plans: the same table from another engine.

- `news`     the states of flights over time, as a log in a file that can be read again
- `source`   the log as a stream of Spark, as far as the replay clock has come
- `plans`    the query, twice: append mode with a watermark, and update mode with revisions; and why these
- `session`  a quiet session on this machine, and its end
- `__main__` the process: ``python -m lmerge_replicas.spark PLAN --server HOST:PORT --checkpoint DIR``

Unlike the replicas in plain Python this one keeps its place: after a kill it continues from its checkpoint.
"""
