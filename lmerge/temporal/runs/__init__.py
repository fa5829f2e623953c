"""What a running query has beside its operators: parts that queries share, snapshots, traces, causes, tables.

Called by ``lmerge.temporal.running``, whose ``QueryRun`` puts them together. Imports plans, their operators and the
graph.
"""
