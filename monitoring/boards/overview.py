"""The first page: is every stream alive, how many losses does it survive, who is behind."""

from __future__ import annotations

from typing import Final

from monitoring.boards.panel import RED, YELLOW, Board, BoardRow, Variable, counted, cutovers, kills, lines, number

_MERGE: Final = '{merge=~"$merge"}'
_NOT_ENDED: Final = f"lmerge_stable_point_time{_MERGE} < +Inf"
_LATENCY: Final = f"sum by (le, merge) (rate(lmerge_added_latency_seconds_bucket{_MERGE}[$__rate_interval]))"

_ALIVE: Final = BoardRow(
    "Is every stream alive?",
    (
        number(
            "Streams that stand still",
            "How many merges have had the same stable point for a minute on every server?",
            counted(f"min by (job, merge) (lmerge_stable_pause_seconds{_MERGE} and {_NOT_ENDED}) > 60"),
            steps=((1, RED),),
            runbook="stream-stalled",
        ),
        number(
            "Streams without redundancy",
            "How many merges does the next loss of a replica stop, at one server at least?",
            counted(f"min by (job, merge) (lmerge_survivable_losses{_MERGE} and {_NOT_ENDED}) < 1"),
            steps=((1, RED),),
            runbook="redundancy-lost",
        ),
        number(
            "Servers down",
            "How many servers does Prometheus not reach?",
            counted('up{job=~".*lmerge.*"} == 0'),
            steps=((1, RED),),
            runbook="server-down",
        ),
        number(
            "Alerts",
            "How many alerts of lmerge fire now?",
            counted('ALERTS{alertname=~"Lmerge.*", alertstate="firing"}'),
            steps=((1, YELLOW),),
        ),
        lines(
            "Losses that each stream survives",
            "How many replicas can be lost before the output stops? The least of the servers.",
            f"min by (merge) (lmerge_survivable_losses{_MERGE})",
            "{{merge}}",
            "short",
            steps=((1, "green"),),
            below=RED,
            runbook="redundancy-lost",
        ),
        lines(
            "Pause of the output",
            "For how long has the stable point of each merge stood still? The least of the servers.",
            f"min by (merge) (lmerge_stable_pause_seconds{_MERGE})",
            "{{merge}}",
            "s",
            steps=((60, YELLOW), (300, RED)),
            runbook="stream-stalled",
        ),
    ),
)
_BEHIND: Final = BoardRow(
    "Who is behind?",
    (
        lines(
            "Replicas that lag most",
            "How long ago did the output pass the stable point of each replica?",
            f"topk(10, max by (merge, input) (lmerge_input_lag_seconds{_MERGE}))",
            "{{merge}} {{input}}",
            "s",
            steps=((60, YELLOW),),
            runbook="replica-lagging",
        ),
        lines(
            "Subscribers that lag most",
            "How old is the oldest output that each subscriber has not got?",
            f"topk(10, max by (merge, subscriber) (lmerge_subscriber_lag_seconds{_MERGE}))",
            "{{merge}} {{subscriber}}",
            "s",
            steps=((30, YELLOW),),
            runbook="subscriber-behind",
        ),
    ),
)
_RATE: Final = BoardRow(
    "How much, and how fast?",
    (
        lines(
            "Output",
            "How many elements does each merge emit? The most of the servers, since all emit the same.",
            "max by (merge) (sum by (instance, merge) "
            f"(rate(lmerge_emitted_elements_total{_MERGE}[$__rate_interval])))",
            "{{merge}}",
            "cps",
        ),
        lines(
            "Added latency, 99 %",
            "How long does each merge delay a batch, from its arrival to its delivery?",
            f"histogram_quantile(0.99, {_LATENCY})",
            "{{merge}}",
            "s",
        ),
    ),
)
_RIGHT: Final = BoardRow(
    "Is it right?",
    (
        lines(
            "Intervals in which replicas differ",
            "How many intervals were found in which replicas contradict each other?",
            f"max by (merge) (increase(lmerge_divergent_intervals_total{_MERGE}[$__rate_interval]))",
            "{{merge}}",
            "short",
            steps=((1, RED),),
            runbook="divergence",
        ),
        lines(
            "Gaps and quarantined replicas",
            "What has a merge lost, and which names does it refuse?",
            f"max by (merge) (lmerge_output_gaps_total{_MERGE} + lmerge_quarantined_inputs{_MERGE})",
            "{{merge}}",
            "short",
            steps=((1, RED),),
            runbook="gap",
        ),
    ),
)

OVERVIEW: Final = Board(
    "overview",
    "Overview",
    "Is every stream alive, how many losses does it survive, who is behind?",
    (Variable("merge", "lmerge_survivable_losses", is_many=True),),
    (_ALIVE, _BEHIND, _RATE, _RIGHT),
    (kills("$merge"), cutovers("$merge")),
)
