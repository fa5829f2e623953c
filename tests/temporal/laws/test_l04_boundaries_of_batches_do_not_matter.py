"""L4: table and stable point behind a batch do not depend on where the stream was cut before."""

from __future__ import annotations

import random

import pytest
from law_world import CASES, PlanUnderLaw, history_of, plan_of, random_case, together
from temporal_world import Item

from lmerge.temporal.plan.compiling import CompiledPlan


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
    for seed in range(6):
        judge(plan, history_of(random.Random(seed), plan), seed, implementation)


def test_l4_holds_for_random_plans(implementation: str) -> None:
    for seed in range(60):
        judge(*random_case(seed), seed, implementation)
