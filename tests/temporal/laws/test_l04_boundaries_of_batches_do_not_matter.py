"""L4: table and stable point behind a batch do not depend on where the stream was cut before."""

from __future__ import annotations

import random

import pytest
from law_world import CASES, LEFTS, B, PlanUnderLaw, history_of, plan_of, random_case, together
from temporal_world import Item

from lmerge.temporal.changes import Change
from lmerge.temporal.plan.compiling import CompiledPlan
from lmerge.temporal.plan.stream import count


def judge(plan: CompiledPlan, history: list[tuple[str, Item]], seed: int, implementation: str) -> None:
    random_ = random.Random(seed)
    single, cut = PlanUnderLaw(plan, implementation), PlanUnderLaw(plan, implementation)
    for name, items in together(random_, history):
        for item in items:
            single.give(name, [item])
        cut.give(name, items)
        assert single.place == cut.place, (seed, items)


@pytest.mark.parametrize("case", CASES)
def test_l4_pieces_have_what_single_elements_have(case: str, implementation: str) -> None:
    plan = plan_of(CASES[case])
    for seed in range(5):
        judge(plan, history_of(random.Random(seed), plan), seed, implementation)


def test_l4_a_start_that_has_gone_within_a_batch_moves_the_watermark(implementation: str) -> None:
    """What cancels itself reaches no operator behind the first: the watermark goes with the batch."""
    plan = plan_of(LEFTS.where(B >= 0).tumbling(5).agg(n=count(), form="watermark"))
    row = (0, 1)
    items: list[Item] = [Change(row, 1, 1, 2), Change(row, 13, 13, 14), Change(row, 13, 14, 13)]
    single, cut = PlanUnderLaw(plan, implementation), PlanUnderLaw(plan, implementation)
    for item in items:
        single.give("lefts", [item])
    cut.give("lefts", items)
    assert single.place == cut.place
    assert [(one.vs, one.ve) for one in cut.table.events] == [(0, 5)]


def test_l4_holds_for_random_plans(implementation: str) -> None:
    for seed in range(60):
        judge(*random_case(seed), seed, implementation)
