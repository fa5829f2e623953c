"""One replica: does it carry the stream, how far is it behind, is what it publishes right."""

from __future__ import annotations

from typing import Final

from monitoring.boards.merge import STATES, states_of
from monitoring.boards.panel import (
    YELLOW,
    Board,
    BoardPanel,
    BoardRow,
    PanelView,
    PromQuery,
    Variable,
    cutovers,
    kills,
    lines,
)

_ONE: Final = 'merge="$merge", input="$input"'
_WON: Final = f"rate(lmerge_input_won_elements_total{{{_ONE}}}[$__rate_interval])"
_WON_BY_ALL: Final = 'rate(lmerge_input_won_elements_total{merge="$merge"}[$__rate_interval])'

_STATE: Final = BoardRow(
    "Does it carry the stream?",
    (
        BoardPanel(
            "State at each server",
            "In which state is the replica at each server?",
            PanelView.STATES,
            (PromQuery(states_of(_ONE, "instance"), "{{instance}}"),),
            "short",
            names=STATES,
            runbook="replica-flapping",
        ),
        lines(
            "Counts as redundant",
            "At which servers could it carry the output alone now? 1 is yes.",
            f"max by (instance) (lmerge_input_joined_bool{{{_ONE}}})",
            "{{instance}}",
            "short",
            runbook="redundancy-lost",
        ),
        lines(
            "Lag",
            "How long ago did the output pass its stable point?",
            f"max by (instance) (lmerge_input_lag_seconds{{{_ONE}}})",
            "{{instance}}",
            "s",
            steps=((60, YELLOW),),
            runbook="replica-lagging",
        ),
        lines(
            "Lag in the time of the stream",
            "How far is its stable point behind that of the furthest input?",
            f"max by (instance) (lmerge_input_lag_time{{{_ONE}}})",
            "{{instance}}",
            "short",
            runbook="replica-lagging",
        ),
    ),
)
_WORK: Final = BoardRow(
    "What does it publish?",
    (
        lines(
            "Rate",
            "How many elements does it send to each server?",
            f"max by (instance) (rate(lmerge_input_elements_total{{{_ONE}}}[$__rate_interval]))",
            "{{instance}}",
            "cps",
        ),
        lines(
            "Share of the output",
            "Which share of the output did it cause at each server?",
            f"sum by (instance) ({_WON}) / sum by (instance) ({_WON_BY_ALL})",
            "{{instance}}",
            "percentunit",
        ),
        lines(
            "Too late",
            "How many of its elements came too late to have an effect?",
            f"max by (instance) (rate(lmerge_input_late_elements_total{{{_ONE}}}[$__rate_interval]))",
            "{{instance}}",
            "cps",
        ),
        lines(
            "Live bytes",
            "How many live payload bytes did it bring first?",
            f"max by (instance) (lmerge_input_live_bytes{{{_ONE}}})",
            "{{instance}}",
            "bytes",
        ),
        lines(
            "Equal intervals",
            "In how many intervals in a row did it equal the others?",
            f"max by (instance) (lmerge_input_equal_intervals{{{_ONE}}})",
            "{{instance}}",
            "short",
            runbook="divergence",
        ),
    ),
)

REPLICA: Final = Board(
    "replica",
    "One replica",
    "Does this replica carry the stream, how far is it behind, is what it publishes right?",
    (
        Variable("merge", "lmerge_survivable_losses", is_many=False),
        Variable("input", "lmerge_input_joined_bool", is_many=False),
    ),
    (_STATE, _WORK),
    (kills("$merge"), cutovers("$merge")),
)
