"""Drills: did each pass, when did it last run, and how long did the output pause."""

from __future__ import annotations

from typing import Final

from monitoring.boards.panel import RED, YELLOW, Board, BoardRow, Variable, counted, cutovers, kills, lines, number

_ONE: Final = '{drill=~"$drill"}'
_LAST_RUN: Final = f"lmerge_drill_last_run_timestamp_seconds{_ONE}"
_LAST_SUCCESS: Final = f"lmerge_drill_last_success_timestamp_seconds{_ONE}"
_DAY_S: Final = 86_400.0

_PASSED: Final = BoardRow(
    "Did they pass?",
    (
        number(
            "Drills that did not pass",
            "How many drills failed or were refused when they last ran?",
            counted(f"({_LAST_RUN} > {_LAST_SUCCESS} or {_LAST_RUN} unless {_LAST_SUCCESS})"),
            steps=((1, RED),),
            runbook="drill-failed",
        ),
        number(
            "Longest time without a run",
            "How long ago did the drill run that has waited longest?",
            f"max(time() - {_LAST_RUN})",
            "s",
            steps=((26 * 3600, YELLOW),),
            runbook="drill-overdue",
        ),
        number(
            "Longest pause",
            "How long did the output pause at most, around a fault of the last runs?",
            f"max(lmerge_drill_pause_seconds{_ONE})",
            "s",
        ),
        number("Drills", "How many drills have run?", f"count({_LAST_RUN})"),
        lines(
            "Time since each passed",
            "How long ago did each drill last pass?",
            f"time() - {_LAST_SUCCESS}",
            "{{drill}}",
            "s",
            steps=((26 * 3600, YELLOW), (7 * _DAY_S, RED)),
            runbook="drill-overdue",
        ),
        lines(
            "Pause of the output",
            "How long did the output pause around the faults of each drill's last run?",
            f"lmerge_drill_pause_seconds{_ONE}",
            "{{drill}}",
            "s",
            runbook="drill-failed",
        ),
        lines(
            "Runs that failed",
            "How many runs of each drill have failed?",
            f"lmerge_drill_failed_total{_ONE}",
            "{{drill}}",
            "short",
            runbook="drill-failed",
        ),
        lines(
            "Runs that were refused",
            "How many runs were refused, because the loss would not have been survived?",
            f"lmerge_drill_refused_total{_ONE}",
            "{{drill}}",
            "short",
            runbook="redundancy-lost",
        ),
    ),
)

DRILLS: Final = Board(
    "drills",
    "Drills",
    "Did each drill pass, when did it last run, and how long did the output pause?",
    (Variable("drill", "lmerge_drill_last_run_timestamp_seconds", is_many=True),),
    (_PASSED,),
    (kills(".*"), cutovers(".*")),
)
