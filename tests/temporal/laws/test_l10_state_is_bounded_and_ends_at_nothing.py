"""L10: state is bounded by what the policies allow, and falls to nothing when the sources end."""

from __future__ import annotations

import random

import msgpack
import pytest
from law_world import CASES, ROWS, PlanUnderLaw, history_of, in_order, plan_of, random_case
from temporal_world import Item

from lmerge.core.elements import INF
from lmerge.temporal.changes import Change
from lmerge.temporal.plan.compiling import CompiledPlan


def size_of(run: PlanUnderLaw) -> int:
    """Return the size of the state, in bytes."""
    return len(msgpack.packb(run.graph.state()))


def judge_end(plan: CompiledPlan, history: list[tuple[str, Item]], implementation: str) -> None:
    run = PlanUnderLaw(plan, implementation)
    run_without_events = PlanUnderLaw(plan, implementation)
    for name, item in history:
        run.give(name, [item])
    for name in run.names:
        run_without_events.give(name, [INF])
    assert run.table.stable == INF
    assert run.graph.live() == 0
    assert size_of(run) <= size_of(run_without_events) + 40 * len(run.graph.steps), "something is left of the events"


@pytest.mark.parametrize("case", CASES)
def test_l10_nothing_is_left_when_the_sources_have_ended(case: str, implementation: str) -> None:
    plan = plan_of(CASES[case])
    for seed in range(3):
        judge_end(plan, history_of(random.Random(seed), plan), implementation)


def test_l10_nothing_is_left_of_random_plans(implementation: str) -> None:
    for seed in range(60):
        judge_end(*random_case(seed), implementation)


def with_pauses(item: Item) -> Item:
    """Return an item later by a pause for every twenty units of time."""
    if not isinstance(item, Change):
        return item + 12 * (item // 20)
    later = 12 * (item.vs // 20)
    return Change(item.row, item.vs + later, item.old + later, item.new + later)


@pytest.mark.parametrize("case", CASES)
def test_l10_state_does_not_grow_with_events_of_bounded_lifetimes(case: str, implementation: str) -> None:
    """There are two keys, for a key keeps its last sample; and pauses, for a session is kept until it ends."""
    plan, random_ = plan_of(CASES[case]), random.Random(10)
    run, sizes = PlanUnderLaw(plan, implementation), list[int]()
    for item in map(with_pauses, in_order(random_, ROWS, 240)):
        for name in run.names:
            run.give(name, [item])
        if not isinstance(item, Change):
            sizes.append(size_of(run))
    third = len(sizes) // 3
    assert max(sizes[-third:]) <= 1.5 * max(sizes[:third]) + 60, "state grows with the stream"
