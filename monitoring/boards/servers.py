"""Servers and their stores: do they run, are they busy, can they persist, whom do they refuse."""

from __future__ import annotations

from typing import Final

from monitoring.boards.panel import RED, YELLOW, Board, BoardRow, Variable, counted, cutovers, kills, lines, number

_ONE: Final = '{instance=~"$instance"}'
_SERVER: Final = '{instance=~"$instance", job=~".*lmerge.*"}'

_RUNNING: Final = BoardRow(
    "Do they run?",
    (
        number(
            "Servers",
            "How many servers answer?",
            'count(up{job=~".*lmerge.*"} == 1)',
            steps=((1, YELLOW), (2, "green")),
            below=RED,
            runbook="server-down",
        ),
        number("Versions", "How many versions run at once?", "count(count by (version) (lmerge_build_info))"),
        number(
            "Stores that fail",
            "How many merges cannot be persisted?",
            counted(f"lmerge_store_stopped_bool{_ONE} == 1"),
            steps=((1, RED),),
            runbook="store-failing",
        ),
        number(
            "Recordings that have stopped",
            "How many recorded sessions have ended for want of room?",
            counted(f"lmerge_recording_stopped_bool{_ONE} == 1"),
            steps=((1, YELLOW),),
        ),
        lines("Up", "Which servers answer? 1 is yes.", 'up{job=~".*lmerge.*"}', "{{instance}}", "short"),
        lines(
            "Busy",
            "Which part of a core do the tasks of the merges take?",
            f"sum by (instance) (rate(lmerge_turn_seconds_total{_ONE}[$__rate_interval]))",
            "{{instance}}",
            "percentunit",
        ),
    ),
)
_LOAD: Final = BoardRow(
    "What do they carry?",
    (
        lines(
            "Received",
            "How many elements do all inputs send to each server?",
            f"sum by (instance) (rate(lmerge_received_elements_total{_ONE}[$__rate_interval]))",
            "{{instance}}",
            "cps",
        ),
        lines(
            "Delivered",
            "How many bytes does each server write to its subscribers?",
            f"sum by (instance) (rate(lmerge_delivered_bytes_total{_ONE}[$__rate_interval]))",
            "{{instance}}",
            "binBps",
        ),
        lines(
            "Live bytes",
            "How many payload bytes do the merges of each server hold?",
            f"sum by (instance) (lmerge_live_bytes{_ONE})",
            "{{instance}}",
            "bytes",
        ),
        lines(
            "Waiting",
            "How many elements wait in front of the merges?",
            f"sum by (instance) (lmerge_queued_elements{_ONE})",
            "{{instance}}",
            "short",
        ),
    ),
)
_STORE: Final = BoardRow(
    "Can they persist?",
    (
        lines(
            "Room on the volume",
            "How much room has the volume of the store left? An alert fires below 1 GiB.",
            f"min by (instance) (lmerge_store_free_bytes{_ONE})",
            "{{instance}}",
            "bytes",
            runbook="store-filling",
        ),
        lines(
            "Size of the store",
            "How large is the store of each merge?",
            f"sum by (instance, merge) (lmerge_store_bytes{_ONE})",
            "{{instance}} {{merge}}",
            "bytes",
            runbook="store-filling",
        ),
        lines(
            "Time of a commit, 99 %",
            "How long does a commit take?",
            "histogram_quantile(0.99, sum by (le, instance) "
            f"(rate(lmerge_store_commit_seconds_bucket{_ONE}[$__rate_interval])))",
            "{{instance}}",
            "s",
            runbook="store-failing",
        ),
        lines(
            "Failed commits",
            "How many commits failed and were tried again?",
            f"sum by (instance) (rate(lmerge_store_errors_total{_ONE}[$__rate_interval]))",
            "{{instance}}",
            "cps",
            runbook="store-failing",
        ),
    ),
)
_PROCESSES: Final = BoardRow(
    "What do they take?",
    (
        lines(
            "Processor",
            "How many cores does each server use?",
            f"rate(process_cpu_seconds_total{_SERVER}[$__rate_interval])",
            "{{instance}}",
            "short",
        ),
        lines(
            "Memory",
            "How much memory does each server use?",
            f"process_resident_memory_bytes{_SERVER}",
            "{{instance}}",
            "bytes",
        ),
    ),
)
_DOORS: Final = BoardRow(
    "Whom do they refuse?",
    (
        lines(
            "Refused calls",
            "How many calls were refused for security, and why?",
            f"sum by (reason) (rate(lmerge_refused_calls_total{_ONE}[$__rate_interval]))",
            "{{reason}}",
            "cps",
        ),
        lines(
            "Fenced elements",
            "How many elements came from older incarnations?",
            f"sum by (instance) (rate(lmerge_refused_elements_total{_ONE}[$__rate_interval]))",
            "{{instance}}",
            "cps",
        ),
    ),
)

SERVERS: Final = Board(
    "servers",
    "Servers and store",
    "Do the servers run, are they busy, can they persist, whom do they refuse?",
    (Variable("instance", "lmerge_build_info", is_many=True),),
    (_RUNNING, _LOAD, _STORE, _PROCESSES, _DOORS),
    (kills(".*"), cutovers(".*")),
)
