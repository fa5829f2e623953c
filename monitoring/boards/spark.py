"""Replicas in Spark: do their parts reach the servers before the commits, do their drivers keep up."""

from __future__ import annotations

from typing import Final

from monitoring.boards.panel import YELLOW, Board, BoardRow, Variable, cutovers, kills, lines

_ONE: Final = '{merge=~"$merge"}'

_STAGING: Final = BoardRow(
    "Do parts reach the servers?",
    (
        lines(
            "Commits",
            "How many commits found all their parts at the server?",
            f"sum by (instance) (rate(lmerge_staged_commits_total{_ONE}[$__rate_interval]))",
            "{{instance}}",
            "cps",
        ),
        lines(
            "Commits with a missing part",
            "How many commits missed a part, so that the driver sent the elements itself?",
            f"sum by (instance) (rate(lmerge_missed_commits_total{_ONE}[$__rate_interval]))",
            "{{instance}}",
            "cps",
        ),
        lines(
            "Parts that wait",
            "How many parts wait for the commit of their batch?",
            "sum by (instance) (lmerge_staged_parts)",
            "{{instance}}",
            "short",
        ),
        lines(
            "Bytes that wait", "How large are they?", "sum by (instance) (lmerge_staged_bytes)", "{{instance}}", "bytes"
        ),
        lines(
            "Parts that were dropped",
            "How many staged parts were not committed, and why?",
            "sum by (reason) (rate(lmerge_dropped_parts_total[$__rate_interval]))",
            "{{reason}}",
            "cps",
        ),
        lines(
            "Lag of the replicas",
            "How far are the queries behind? Micro-batches show as teeth, of the length of a trigger.",
            f"max by (merge, input) (lmerge_input_lag_seconds{_ONE})",
            "{{merge}} {{input}}",
            "s",
            steps=((60, YELLOW),),
            runbook="replica-lagging",
        ),
    ),
)

_DRIVERS: Final = BoardRow(
    "Do the drivers keep up?",
    (
        lines(
            "Rows",
            "How many rows a second does each query read?",
            "sum by (query) (rate(lmerge_spark_input_rows_total[$__rate_interval]))",
            "{{query}}",
            "rowsps",
        ),
        lines(
            "Duration of a trigger",
            "How long did the last trigger take? Beyond its interval the query falls behind.",
            "max by (query) (lmerge_spark_last_batch_seconds)",
            "{{query}}",
            "s",
        ),
        lines(
            "Share of time in batches",
            "Which share of its time does each query work? At 100 % it has no reserve.",
            "sum by (query) (rate(lmerge_spark_batch_seconds_total[$__rate_interval]))",
            "{{query}}",
            "percentunit",
        ),
        lines(
            "Time since the last trigger",
            "How long ago did the last trigger begin? It grows while a batch runs or hangs.",
            "max by (query) (time() - lmerge_spark_progress_timestamp_seconds)",
            "{{query}}",
            "s",
        ),
        lines(
            "Heap of the JVM",
            "How much heap do the drivers use?",
            'max by (instance) (lmerge_spark_heap_bytes{kind="used"})',
            "{{instance}}",
            "bytes",
        ),
        lines(
            "Garbage collection",
            "Which share of the time do the drivers collect garbage?",
            "sum by (instance) (rate(lmerge_spark_gc_seconds_total[$__rate_interval]))",
            "{{instance}}",
            "percentunit",
        ),
    ),
)

SPARK: Final = Board(
    "spark",
    "Spark",
    "Do the parts of micro-batches reach the servers before their commits, and do the drivers keep up?",
    (Variable("merge", "lmerge_survivable_losses", is_many=True),),
    (_STAGING, _DRIVERS),
    (kills("$merge"), cutovers("$merge")),
)
