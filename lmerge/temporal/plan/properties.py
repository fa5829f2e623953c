"""What a plan's results promise, node by node and with the reason (the paper's IV.G).

A promise is derived from those of the sources through the tree: by operator, window, form and parameters. What is
derived is what a replica promises to the merge, so a rule promises only what every run keeps.

``deterministic-ties`` is lost by an operator whose input's ties come in several batches: an operator orders its output
within a batch, so where batches are cut would decide the order of ties. A window of a grid and cleanse emit all events
of one start in one batch (``is_tied``), and operators event by event keep that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from lmerge.temporal.expressions.injectivity import kept_columns
from lmerge.temporal.expressions.properties import columns_read, plain_column
from lmerge.temporal.operators.join import JoinKind
from lmerge.temporal.plan.applying import ApplyNode
from lmerge.temporal.plan.compiling import chains_of, in_order
from lmerge.temporal.plan.groups import GroupApplyNode, GroupInputNode
from lmerge.temporal.plan.joins import AsOfJoinNode, JoinNode
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.ranking import TopNode
from lmerge.temporal.plan.rewriting import AppliedRewrite, rewrite
from lmerge.temporal.plan.shaping import CleanseNode, CoalesceNode, EdgesNode
from lmerge.temporal.plan.sources import SourceNode
from lmerge.temporal.plan.spans import FilterNode, LifetimeNode, SelectNode, UnionNode
from lmerge.temporal.plan.window_promises import promises_of_windows
from lmerge.temporal.plan.windows import AggregateNode, WindowNode


@dataclass(frozen=True)
class Derived:
    """What a node's stream promises. ``reason``: why, for people.

    ``key``: columns whose values are unique with the start, if the stream promises a key. ``is_tied``: all events of
    one start come in one batch. ``is_behind``: an event can come when the watermark has passed its start, because an
    operator has held it back.
    """

    promises: Properties
    reason: str
    key: frozenset[str] = frozenset()
    is_tied: bool = False
    is_behind: bool = False


def derive(node: PlanNode, group: Derived | None = None) -> dict[PlanNode, Derived]:
    """Return what every node of a plan promises, in the order of their computation.

    ``group``: what the stream of a group promises, if the plan is one for each group.
    """
    found: dict[PlanNode, Derived] = {}
    for one in in_order([node]):
        if isinstance(one, GroupInputNode) and group is not None:
            found[one] = group
            continue
        made = _RULES[type(one)](one, [found[read] for read in one.reads])
        promises = closure(made.promises)
        # Strictly ordered: starts alone are unique.
        key = frozenset() if STRICTLY_ORDERED in promises else made.key
        found[one] = replace(made, promises=promises, key=key if KEY in promises else frozenset())
    return found


def algorithm_of(node: PlanNode) -> Choice:
    """Return the algorithm that a merge of such plans can run, and why."""
    promised = derive(node)[node]
    return choose({node.title: promised.promises})


def explain(node: PlanNode) -> str:
    """Return a plan with what every node promises and why, what modules declare, and the algorithm.

    Then come the nodes that are computed in one pass, those that several others read and that are computed once, and
    the rewrites that would make the plan do less, each with the nodes before and after it: they are not applied.
    """
    choice = algorithm_of(node)
    lines = [*_explained(derive(node)), f"algorithm {choice.case.algorithm}: {choice.reason}"]
    lines += [f"one pass: {', '.join(one.shown for one in chain)}" for _, chain in chains_of([node]) if len(chain) > 1]
    readers = Counter(read for one in in_order([node]) for read in one.reads)
    lines += [f"computed once for {count} readers: {one.shown}" for one, count in readers.items() if count > 1]
    return "\n".join([*lines, *map(_possible, rewrite(node)[1])])


def _possible(found: AppliedRewrite) -> str:
    return f"possible rewrite, .rewritten({found.name!r}): {found.before} -> {found.after}"


def _explained(plan: Mapping[PlanNode, Derived]) -> Iterator[str]:
    for one, derived in plan.items():
        yield one.shown
        yield f"    promises {', '.join(sorted(derived.promises)) or 'nothing'}: {derived.reason}"
        yield from (f"    {declared}" for declared in declarations(one))
        if isinstance(one, GroupApplyNode):
            inner = derive(one.plan, _of_group(one, plan[one.reads[0]]))
            yield from (f"    ╎ {line}" for line in _explained(inner))


def declarations(node: PlanNode) -> list[str]:
    """Return what the modules of a node declare of themselves, a line for each."""
    calls = [node.call] if isinstance(node, ApplyNode) else []
    calls += [call for _, call in node.calls] if isinstance(node, AggregateNode) else []
    found = []
    for module in dict.fromkeys(call.module for call in calls):
        if module is not None:
            found.append(f"{module.shown} declares {', '.join(module.properties.describe()) or 'nothing'}")
    return found


Rule = Callable[[PlanNode, Sequence[Derived]], Derived]


def _of_source(node: PlanNode, inputs: Sequence[Derived]) -> Derived:
    assert isinstance(node, SourceNode)
    why = "its source promises it" if node.promises else "its source promises nothing"
    return Derived(node.promises, why, frozenset(node.schema.names))


def _kept(given: Derived, reason: str, lost: Properties = NOTHING) -> Derived:
    """Return what an operator event by event keeps of its input's promises, less what it loses."""
    promises = given.promises - lost
    if DETERMINISTIC_TIES in promises and STRICTLY_ORDERED not in promises and not given.is_tied:
        return replace(
            given,
            promises=promises - {DETERMINISTIC_TIES},
            reason=f"{reason}; ties of its input can come in several batches, and are ordered in each",
        )
    return replace(given, promises=promises, reason=reason)


def _of_filter(node: PlanNode, inputs: Sequence[Derived]) -> Derived:
    return _kept(inputs[0], "a filter keeps what its input promises")


def _of_select(node: PlanNode, inputs: Sequence[Derived]) -> Derived:
    assert isinstance(node, SelectNode)
    (given,) = inputs
    if STRICTLY_ORDERED in given.promises:
        return _kept(given, "starts are unique, so rows cannot collapse")
    kept = {name: kept_columns([one], node.input_schema) & given.key for name, one in node.columns}
    lost = [name for name in node.input_schema.names if name in given.key.difference(*kept.values())]
    if lost or KEY not in given.promises:
        # Rows that differ in a column that is left out become equal.
        reason = f"rows that differ in {lost[0]} alone become equal" if lost else "each event keeps its start"
        return _kept(given, reason, frozenset({KEY}))
    key = frozenset(name for name, of_key in kept.items() if of_key)
    return replace(_kept(given, f"what is unique can be computed back from {', '.join(sorted(key))}"), key=key)


def _of_lifetime(node: PlanNode, inputs: Sequence[Derived]) -> Derived:
    assert isinstance(node, LifetimeNode)
    (given,) = inputs
    if node.alteration == "at_end":
        return Derived(NOTHING, "events come in the order of their ends, and several of a row can end together")
    if node.alteration == "set_duration":
        return _kept(given, "starts are those of the input, and ends follow from them")
    return _kept(given, "starts are those of the input, in its order")


def _of_edges(node: PlanNode, inputs: Sequence[Derived]) -> Derived:
    assert isinstance(node, EdgesNode)
    known = frozenset(name for one in node.by for name in columns_read(one))
    return Derived(frozenset({KEY}), "one event of a signal for each start; its end moves when the next comes", known)


def _of_coalesce(node: PlanNode, inputs: Sequence[Derived]) -> Derived:
    return Derived(
        frozenset({KEY}), "stretches of a row are apart; one that grows is adjusted", frozenset(node.schema.names)
    )


def _of_cleanse(node: PlanNode, inputs: Sequence[Derived]) -> Derived:
    (given,) = inputs
    kept = given.promises & {KEY, STRICTLY_ORDERED}
    promises = frozenset({INSERT_ONLY, ORDERED, DETERMINISTIC_TIES}) | kept
    return Derived(promises, "each event once when it is final, in order of start and row", given.key, True, True)


def _of_union(node: PlanNode, inputs: Sequence[Derived]) -> Derived:
    if len(inputs) == 1:
        return _kept(inputs[0], "a union of one stream")
    assert isinstance(node, UnionNode)
    common = frozenset.intersection(*(given.promises for given in inputs))
    if node.disjoint_by and KEY in common:
        known = frozenset(node.disjoint_by).union(*(given.key for given in inputs))
        reason = f"streams are interleaved; they are disjoint by {', '.join(node.disjoint_by)}, and each keeps its key"
        return Derived(common & {INSERT_ONLY, KEY}, reason, known)
    return Derived(common & {INSERT_ONLY}, "streams are interleaved, and can have the same events")


def _of_join(node: PlanNode, inputs: Sequence[Derived]) -> Derived:
    assert isinstance(node, JoinNode)
    both = inputs[0].promises & inputs[1].promises
    if node.how is JoinKind.INNER:
        # A pair starts with the later of its two events, so pairs do not come in the order of one input.
        kept = both & {INSERT_ONLY}
        if KEY in both:
            return Derived(kept, "two events of a row can overlap one partner and give one row and start twice")
        return Derived(kept, "pairs come when the later event does")
    key = "parts without a partner are adjusted when one comes"
    return Derived(NOTHING, key if KEY in both else "parts are adjusted")


def _of_as_of(node: PlanNode, inputs: Sequence[Derived]) -> Derived:
    assert isinstance(node, AsOfJoinNode)
    left = inputs[0]
    reason = "one event at most for each left event; its sample can come later"
    return Derived(left.promises & {KEY}, reason, left.key)


def _of_group(node: GroupApplyNode, given: Derived) -> Derived:
    """Return what the stream of one group promises; what it is grouped by is the same in all of its rows."""
    kept = _kept(given, "the events of a group keep what the stream promises")
    return replace(kept, key=kept.key - {plain_column(key) for _, key in node.keys})


def _of_group_apply(node: PlanNode, inputs: Sequence[Derived]) -> Derived:
    assert isinstance(node, GroupApplyNode)
    one = derive(node.plan, _of_group(node, inputs[0]))[node.plan]
    kept = one.promises & {INSERT_ONLY, KEY}
    if not node.has_keys:
        return Derived(kept - {KEY}, "groups emit in no common order, and can have the same events")
    keys = frozenset(name for name, _ in node.keys)
    return Derived(kept, "groups emit in no common order; the key of each group is in its rows", one.key | keys)


def _of_windows(node: PlanNode, inputs: Sequence[Derived]) -> Derived:
    assert isinstance(node, WindowNode)
    promises, reason = promises_of_windows(node, inputs[0].promises, is_behind=inputs[0].is_behind)
    keys = frozenset(name for name, _ in node.keys)
    return Derived(promises, reason, keys, is_tied=DETERMINISTIC_TIES in promises, is_behind=True)


_RULES: Final[Mapping[type[PlanNode], Rule]] = {
    SourceNode: _of_source,
    FilterNode: _of_filter,
    SelectNode: _of_select,
    LifetimeNode: _of_lifetime,
    EdgesNode: _of_edges,
    CoalesceNode: _of_coalesce,
    CleanseNode: _of_cleanse,
    UnionNode: _of_union,
    GroupInputNode: _of_source,
    GroupApplyNode: _of_group_apply,
    JoinNode: _of_join,
    AsOfJoinNode: _of_as_of,
    AggregateNode: _of_windows,
    ApplyNode: _of_windows,
    TopNode: _of_windows,
}
