"""L12: what is derived of a plan is kept by every run, whatever its sources are promised to be."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from law_world import CASES, ROWS, PlanUnderLaw, history_of, in_order, plan_of, random_case
from temporal_world import Item

from lmerge.core.elements import INF
from lmerge.core.properties import INSERT_ONLY, KEY, ORDERED, STRICTLY_ORDERED, Properties, closure
from lmerge.temporal.changes import Delta
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.compiling import CompiledPlan, compile_plan
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.properties import derive
from lmerge.temporal.plan.sources import SourceNode
from lmerge.temporal.plan.stream import source


def promises_of(node: PlanNode) -> Properties:
    return closure(derive(node)[node].promises)


class KeptPromises:
    """Judges batches of a plan by its promises."""

    def __init__(self, promises: Properties) -> None:
        self._promises = promises
        self._last: int | None = None

    def judge(self, run: PlanUnderLaw, delta: Delta) -> None:
        for change in delta.changes:
            assert change.is_insert or INSERT_ONLY not in self._promises
            if ORDERED in self._promises and change.is_insert:
                assert self._last is None or change.vs >= self._last
                assert STRICTLY_ORDERED not in self._promises or change.vs != self._last
                self._last = change.vs
        if KEY in self._promises:
            starts = [(one.row, one.vs) for one in run.table.events.elements()]
            assert len(starts) == len(set(starts))


def judge(plan: CompiledPlan, node: PlanNode, history: list[tuple[str, Item]], implementation: str) -> None:
    run, kept = PlanUnderLaw(plan, implementation), KeptPromises(promises_of(node))
    for name, item in history:
        for delta in run.give(name, [item]):
            kept.judge(run, delta)


def with_promises(node: PlanNode, promises: Properties) -> PlanNode:
    """Return a plan whose sources promise this."""
    if isinstance(node, SourceNode):
        return replace(node, promises=promises)
    return replace(node, reads=tuple(with_promises(read, promises) for read in node.reads))


@pytest.mark.parametrize("case", CASES)
def test_l12_promises_hold_over_any_stream(case: str, implementation: str) -> None:
    node = CASES[case].node
    for seed in range(3):
        plan = plan_of(CASES[case])
        judge(plan, node, history_of(random.Random(seed), plan), implementation)


@pytest.mark.parametrize("promises", [(INSERT_ONLY, ORDERED), (INSERT_ONLY, STRICTLY_ORDERED, KEY), (KEY,)], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_l12_promises_hold_over_streams_that_keep_their_own(
    case: str, promises: tuple[str, ...], implementation: str
) -> None:
    node = with_promises(CASES[case].node, closure(frozenset(promises)))
    plan = compile_plan([node])
    for seed in range(2):
        random_ = random.Random(seed)
        streams = {one.label: [*in_order(random_, ROWS, 20), INF] for one in plan.sources}
        history: list[tuple[str, Item]] = []
        while any(streams.values()):
            name = random_.choice([name for name, items in streams.items() if items])
            history.append((name, streams[name].pop(0)))
        judge(plan, node, history, implementation)


@pytest.mark.parametrize("promises", [(KEY,), (KEY, INSERT_ONLY, ORDERED)], ids=str)
def test_l12_a_union_that_is_declared_disjoint_keeps_a_key(promises: tuple[str, ...], implementation: str) -> None:
    """Both streams have the same rows; a predicate on ``a``, or a constant of each, tells them apart."""
    left, right = (source(name, {"a": "int", "b": "int"}) for name in ("lefts", "rights"))
    by_predicate = left.where(col.a > 0).union(right.where(col.a <= 0), disjoint_by="a")
    by_constant = left.with_columns(of="l").union(right.with_columns(of="r"), disjoint_by=["of"])
    for union in (by_predicate, by_constant, by_constant.shift(2).where(col.b < 2)):
        node = with_promises(union.node, closure(frozenset(promises)))
        assert KEY in promises_of(node)
        plan = compile_plan([node])
        for seed in range(20):
            random_ = random.Random(seed)
            streams = {one.label: [*in_order(random_, ROWS, 20), INF] for one in plan.sources}
            places = [name for name, items in streams.items() for _ in items]
            random_.shuffle(places)
            judge(plan, node, [(name, streams[name].pop(0)) for name in places], implementation)


def test_l12_promises_of_random_plans_hold(implementation: str) -> None:
    for seed in range(60):
        plan, history = random_case(seed)
        place = plan.outputs[0] - len(plan.sources)
        node = plan.sources[plan.outputs[0]] if place < 0 else plan.steps[place].nodes[-1]
        judge(plan, node, history, implementation)
