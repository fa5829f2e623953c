"""One merge: its inputs, who wins, what it emits, who reads it, whether the inputs agree."""

from __future__ import annotations

from typing import Final

from monitoring.boards.panel import (
    RED,
    YELLOW,
    Board,
    BoardPanel,
    BoardRow,
    PanelView,
    PromQuery,
    Variable,
    cutovers,
    grown,
    kills,
    lines,
    number,
)

ONE: Final = 'merge="$merge", instance=~"$instance"'
STATES: Final = {
    1: ("joining", "blue"),
    2: ("joined", "green"),
    3: ("skipping", YELLOW),
    4: ("held", "orange"),
    5: ("leaving", "purple"),
    6: ("observing", "light-blue"),
    7: ("quarantined", RED),
}
"""What the number of a state means: the states of ``lmerge_input_state``."""


def states_of(selector: str, by: str) -> str:
    """Return the expression of the state of each input as a number of ``STATES``."""
    each = " or ".join(
        f'{number} * (lmerge_input_state{{{selector}, state="{state}"}} == 1)' for number, (state, _) in STATES.items()
    )
    return f"max by ({by}) ({each})"


def share_of(selector: str) -> str:
    """Return the expression of the share of the output that each input caused, from 0 to 1."""
    won = f"rate(lmerge_input_won_elements_total{{{selector}}}[$__rate_interval])"
    return f"sum by (input) ({won}) / ignoring(input) group_left sum({won})"


def quantile(of: float, selector: str) -> str:
    """Return the expression of a quantile of the added latency, in seconds."""
    rate = f"rate(lmerge_added_latency_seconds_bucket{{{selector}}}[$__rate_interval])"
    return f"histogram_quantile({of}, sum by (le) ({rate}))"


_NOW: Final = BoardRow(
    "Now",
    (
        number(
            "Losses that it survives",
            "How many replicas can be lost before the output stops? The least of the servers.",
            f"min(lmerge_survivable_losses{{{ONE}}})",
            steps=((1, "green"),),
            below=RED,
            runbook="redundancy-lost",
        ),
        number(
            "Pause",
            "For how long has the stable point stood still?",
            f"min(lmerge_stable_pause_seconds{{{ONE}}})",
            "s",
            steps=((60, YELLOW), (300, RED)),
            runbook="stream-stalled",
        ),
        number("Added latency, 99 %", "How long does the merge delay a batch?", quantile(0.99, ONE), "s"),
        number(
            "Subscribers",
            "How many read it, at the server that has the most?",
            f"max(lmerge_attached_subscribers{{{ONE}}})",
        ),
    ),
)
_INPUTS: Final = BoardRow(
    "Inputs",
    (
        BoardPanel(
            "State of each input",
            "Which inputs carry the stream, and which do not?",
            PanelView.STATES,
            (PromQuery(states_of(ONE, "input, instance"), "{{input}} at {{instance}}"),),
            "short",
            names=STATES,
            runbook="replica-flapping",
        ),
        BoardPanel(
            "Share of each input",
            "Which replica is first? The share of the output that each input caused.",
            PanelView.BANDS,
            (PromQuery(share_of(ONE), "{{input}}"),),
            "percentunit",
        ),
        lines(
            "Lag of each input",
            "How long ago did the output pass the stable point of the input?",
            f"max by (input) (lmerge_input_lag_seconds{{{ONE}}})",
            "{{input}}",
            "s",
            steps=((60, YELLOW),),
            runbook="replica-lagging",
        ),
        lines(
            "Rate of each input",
            "At which rate does each input send?",
            f"max by (input) (rate(lmerge_input_elements_total{{{ONE}}}[$__rate_interval]))",
            "{{input}}",
            "cps",
        ),
        lines(
            "Inputs that ended",
            "How many inputs ended, and why?",
            grown(f"lmerge_detached_inputs_total{{{ONE}}}", "reason"),
            "{{reason}}",
            "short",
            runbook="replica-flapping",
        ),
        lines(
            "Equal intervals of each input",
            "In how many intervals in a row did each input equal the others?",
            f"min by (input) (lmerge_input_equal_intervals{{{ONE}}})",
            "{{input}}",
            "short",
            runbook="divergence",
        ),
    ),
)
_OUTPUT: Final = BoardRow(
    "Output",
    (
        lines(
            "Elements",
            "How many elements of each kind does the merge emit?",
            f"max by (kind) (rate(lmerge_emitted_elements_total{{{ONE}}}[$__rate_interval]))",
            "{{kind}}",
            "cps",
        ),
        BoardPanel(
            "Added latency",
            "How long does the merge delay a batch, from its arrival to its delivery?",
            PanelView.LINES,
            tuple(PromQuery(quantile(of, ONE), f"{of * 100:g} %") for of in (0.5, 0.99, 0.999)),
            "s",
        ),
        lines(
            "Pause",
            "For how long had the output stood still?",
            f"max by (instance) (lmerge_output_pause_seconds{{{ONE}}})",
            "{{instance}}",
            "s",
            steps=((60, YELLOW), (300, RED)),
            runbook="stream-stalled",
        ),
        lines(
            "Live bytes",
            "How many payload bytes does the merge hold?",
            f"max by (instance) (lmerge_live_bytes{{{ONE}}})",
            "{{instance}}",
            "bytes",
        ),
    ),
)
_READERS: Final = BoardRow(
    "Subscribers",
    (
        lines(
            "Lag of each subscriber",
            "How old is the oldest output that each subscriber has not got?",
            f"max by (subscriber) (lmerge_subscriber_lag_seconds{{{ONE}}})",
            "{{subscriber}}",
            "s",
            steps=((30, YELLOW),),
            runbook="subscriber-behind",
        ),
        lines(
            "Waiting output of each subscriber",
            "How many bytes wait for each subscriber? At 32 MiB it is cut off.",
            f"max by (subscriber) (lmerge_subscriber_lag_bytes{{{ONE}}})",
            "{{subscriber}}",
            "bytes",
            steps=((16 * 2**20, YELLOW),),
            runbook="subscriber-cut-off",
        ),
    ),
)

MERGE: Final = Board(
    "merge",
    "One merge",
    "Which inputs carry this merge, who wins, what does it emit, and who reads it?",
    (
        Variable("merge", "lmerge_survivable_losses", is_many=False),
        Variable("instance", "lmerge_survivable_losses", is_many=True),
    ),
    (_NOW, _INPUTS, _OUTPUT, _READERS),
    (kills("$merge"), cutovers("$merge")),
)
