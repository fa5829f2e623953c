"""The flights of `lmerge_replicas.flights` as plans of `lmerge.temporal`: the same table once more.

- `source`   the news of the flights as a source of a plan, from its beginning or from a join in the middle
- `plans`    the query, in plans of different physical form; and why these
- `__main__` the process: ``python -m lmerge_replicas.temporal PLAN --server HOST:PORT``

Like the replicas in plain Python this one keeps nothing on disk: after a kill it joins where the merge is.
"""
