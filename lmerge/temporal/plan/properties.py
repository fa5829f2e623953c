"""What a plan's results promise, node by node and with the reason (the paper's IV.G).

A promise is derived from those of the sources through the tree: by operator, window, form and parameters. What is
derived is what a replica promises to the merge, so a rule promises only what every run keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from lmerge.core.properties import (
    DETERMINISTIC_TIES,
    INSERT_ONLY,
    KEY,
    NOTHING,
    ORDERED,
    STRICTLY_ORDERED,
    Choice,
    Properties,
    choose,
    closure,
)
from lmerge.temporal.expressions.properties import plain_column
from lmerge.temporal.operators.join import JoinKind
from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.joins import JoinNode
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.sources import SourceNode
from lmerge.temporal.plan.spans import FilterNode, LifetimeNode, SelectNode, UnionNode
from lmerge.temporal.plan.windows import AggregateNode
from lmerge.temporal.windows.kinds import Hopping, Snapshots
from lmerge.temporal.windows.policies import Form


@dataclass(frozen=True)
class Derived:
    """What a node's stream promises. ``keeps``: columns of which the values with the start are unique; None: none are.

    ``reason``: why, for people.
    """

    promises: Properties
    reason: str


def derive(node: PlanNode) -> dict[PlanNode, Derived]:
    """Return what every node of a plan promises, in the order of their computation."""
    found: dict[PlanNode, Derived] = {}
    for one in in_order([node]):
        inputs = [closure(found[read].promises) for read in one.reads]
        promises, reason = _RULES[type(one)](one, inputs)
        found[one] = Derived(closure(promises), reason)
    return found


def algorithm_of(node: PlanNode) -> Choice:
    """Return the algorithm that a merge of such plans can run, and why."""
    promised = derive(node)[node]
    return choose({node.title: promised.promises})


def explain(node: PlanNode) -> str:
    """Return a plan with what every node promises and why, and the algorithm at the end."""
    lines = []
    for one, derived in derive(node).items():
        names = ", ".join(sorted(derived.promises)) or "nothing"
        lines += [f"{one.shown}", f"    promises {names}: {derived.reason}"]
    choice = algorithm_of(node)
    return "\n".join([*lines, f"algorithm {choice.case.algorithm}: {choice.reason}"])


Rule = Callable[[PlanNode, list[Properties]], tuple[Properties, str]]


def _of_source(node: PlanNode, inputs: list[Properties]) -> tuple[Properties, str]:
    assert isinstance(node, SourceNode)
    return node.promises, "its source promises it" if node.promises else "its source promises nothing"


def _of_filter(node: PlanNode, inputs: list[Properties]) -> tuple[Properties, str]:
    return inputs[0], "a filter keeps what its input promises"


def _of_select(node: PlanNode, inputs: list[Properties]) -> tuple[Properties, str]:
    assert isinstance(node, SelectNode)
    kept = {plain_column(expression) for _, expression in node.columns}
    lost = [name for name in node.input_schema.names if name not in kept]
    if not lost or STRICTLY_ORDERED in inputs[0]:
        return inputs[0], "all columns are kept" if not lost else "starts are unique, so rows cannot collapse"
    # Rows that differ in a column that is left out become equal: their order among equal starts can differ.
    return inputs[0] - {KEY, DETERMINISTIC_TIES}, f"rows that differ in {lost[0]} alone become equal"


def _of_lifetime(node: PlanNode, inputs: list[Properties]) -> tuple[Properties, str]:
    assert isinstance(node, LifetimeNode)
    if node.alteration == "at_end":
        kept = inputs[0] & {INSERT_ONLY}
        return (
            NOTHING,
            "events come in the order of their ends, and several of a row can end together" if kept else "as its input",
        )
    if node.alteration == "set_duration":
        return inputs[0], "starts are those of the input, and ends follow from them"
    return inputs[0], "starts are those of the input, in its order"


def _of_union(node: PlanNode, inputs: list[Properties]) -> tuple[Properties, str]:
    if len(inputs) == 1:
        return inputs[0], "a union of one stream"
    common = frozenset.intersection(*inputs)
    return common & {INSERT_ONLY}, "streams are interleaved, and can have the same events"


def _of_join(node: PlanNode, inputs: list[Properties]) -> tuple[Properties, str]:
    assert isinstance(node, JoinNode)
    both = inputs[0] & inputs[1]
    key = both & {KEY}
    if node.how is JoinKind.INNER:
        # A pair starts with the later of its two events, so pairs do not come in the order of one input.
        kept = both & {INSERT_ONLY}
        if KEY in both:
            return kept, "two events of a row can overlap one partner and give one row and start twice"
        return kept, "pairs come when the later event does"
    return NOTHING, "parts without a partner are adjusted when one comes" if key else "parts are adjusted"


def _of_aggregate(node: PlanNode, inputs: list[Properties]) -> tuple[Properties, str]:
    assert isinstance(node, AggregateNode)
    keys = f"one row for each {'group and ' if node.keys else ''}window"
    is_in_order = node.form is Form.WATERMARK and {INSERT_ONLY, ORDERED} <= inputs[0]
    if node.form is not Form.FINAL and not (is_in_order and isinstance(node.window, Hopping)):
        return frozenset({KEY}), f"{keys}; the form {node.form} revises"
    if not node.keys:
        return frozenset({INSERT_ONLY, STRICTLY_ORDERED}), f"{keys}, emitted once in order"
    if isinstance(node.window, Hopping):
        return (
            frozenset({INSERT_ONLY, ORDERED, KEY, DETERMINISTIC_TIES}),
            f"{keys}, emitted once in order of the window, then of the row",
        )
    ends = "their ends" if isinstance(node.window, Snapshots) else "the last of their events"
    return frozenset({INSERT_ONLY, KEY}), f"{keys}, emitted once, but windows of groups come in order of {ends}"


_RULES: Final[Mapping[type[PlanNode], Rule]] = {
    SourceNode: _of_source,
    FilterNode: _of_filter,
    SelectNode: _of_select,
    LifetimeNode: _of_lifetime,
    UnionNode: _of_union,
    JoinNode: _of_join,
    AggregateNode: _of_aggregate,
}
