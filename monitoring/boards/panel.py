"""What a panel is: a question, the queries that answer it, a unit, and from which value on the answer is bad.

Queries use the variables of the dashboard (``$merge``) and Grafana's ``$__rate_interval``. ``runbook``: the page that
explains what to do if the answer is bad.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

GREEN: Final = "green"
YELLOW: Final = "yellow"
RED: Final = "red"


class PanelView(Enum):
    """How an answer is drawn: its type in Grafana."""

    NUMBER = "stat"
    LINES = "timeseries"
    BANDS = "bands"  # lines that are stacked to a whole
    STATES = "state-timeline"


class PromQuery(NamedTuple):
    """An expression of PromQL and the name of its series, with ``{{label}}`` in it."""

    expression: str
    legend: str = ""


class BoardPanel(NamedTuple):
    """A panel. ``unit``: of Grafana. ``steps``: from which value on which colour, in rising order; below it is green.

    ``width``: of 24 columns. ``names``: what a value means, for states. ``below``: the colour below the first step.
    """

    title: str
    question: str
    view: PanelView
    queries: tuple[PromQuery, ...]
    unit: str
    steps: tuple[tuple[float, str], ...] = ()
    runbook: str = ""
    width: int = 12
    names: Mapping[int, tuple[str, str]] = {}
    below: str = GREEN


class BoardRow(NamedTuple):
    """Panels under one heading."""

    title: str
    panels: tuple[BoardPanel, ...]


class Variable(NamedTuple):
    """A choice on top of a dashboard: the values of a label of a metric."""

    name: str
    metric: str
    is_many: bool


class Mark(NamedTuple):
    """A vertical line at each moment at which an expression has a result."""

    name: str
    expression: str
    colour: str


class Board(NamedTuple):
    """A dashboard. ``uid``: its name in addresses and files, with ``lmerge-`` in front."""

    uid: str
    title: str
    question: str
    variables: tuple[Variable, ...]
    rows: tuple[BoardRow, ...]
    marks: tuple[Mark, ...]


def number(title: str, question: str, expression: str, unit: str = "short", **more: Any) -> BoardPanel:
    """Return a panel with one number, a quarter of the page wide."""
    return BoardPanel(title, question, PanelView.NUMBER, (PromQuery(expression, title),), unit, width=6)._replace(
        **more
    )


def lines(title: str, question: str, expression: str, legend: str, unit: str, **more: Any) -> BoardPanel:
    """Return a panel with lines over time, half the page wide."""
    return BoardPanel(title, question, PanelView.LINES, (PromQuery(expression, legend),), unit)._replace(**more)


def counted(expression: str) -> str:
    """Return an expression that counts the results of another one, and is 0 if there are none."""
    return f"count({expression}) or vector(0)"


def grown(selected: str, by: str) -> str:
    """Return the expression of how much counters have grown, also those that began within the interval.

    ``increase`` does not see the first value of a new series, and a reason is one when it first occurs.
    """
    now = f"sum by ({by}) ({selected})"
    before = f"sum by ({by}) ({selected} offset $__rate_interval)"
    return f"clamp_min({now} - ({before} or 0 * {now}), 0)"


def kills(merge: str) -> Mark:
    """Return the marks of inputs that ended without leaving."""
    ended = f'lmerge_detached_inputs_total{{merge=~"{merge}", reason!~"left|detached|quarantined|replaced"}}'
    return Mark("Kills", f"{grown(ended, 'merge, reason')} > 0", RED)


def cutovers(merge: str) -> Mark:
    """Return the marks of inputs that were replaced: by an operator, by a cutover, by a newer incarnation."""
    ended = f'lmerge_detached_inputs_total{{merge=~"{merge}", reason=~"detached|quarantined|replaced"}}'
    return Mark("Cutovers", f"{grown(ended, 'merge, reason')} > 0", "blue")
