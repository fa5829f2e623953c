"""Replicas in Spark: do their parts reach the servers before the commits, and how far are they behind."""

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

SPARK: Final = Board(
    "spark",
    "Spark",
    "Do the parts of micro-batches reach the servers before their commits, and how far are the queries behind?",
    (Variable("merge", "lmerge_survivable_losses", is_many=True),),
    (_STAGING,),
    (kills("$merge"), cutovers("$merge")),
)
