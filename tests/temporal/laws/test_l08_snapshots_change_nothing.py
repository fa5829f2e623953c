"""L8: a plan that is snapshot and restored at every batch boundary goes on alike, on either implementation."""

from __future__ import annotations

import random

import pytest
from law_world import CASES, PlanUnderLaw, history_of, plan_of, random_case, together
from temporal_world import Item

from lmerge.core.engines.selection import PYTHON
from lmerge.temporal.plan.compiling import CompiledPlan


def judge(plan: CompiledPlan, history: list[tuple[str, Item]], seed: int, implementation: str) -> None:
    random_ = random.Random(seed)
    steady, moved = PlanUnderLaw(plan, PYTHON), PlanUnderLaw(plan, implementation)
    for name, items in together(random_, history):
        moved.graph = moved.restored(random_.choice((PYTHON, implementation)))
        moved.graph.check()
        if random_.random() < 0.1:
            t = random_.randint(-5, 20)
            assert moved.graph.fast_forward(0, t) == steady.graph.fast_forward(0, t)
        assert moved.give(name, items) == steady.give(name, items), (seed, items)
        assert moved.packed == steady.packed


@pytest.mark.parametrize("case", CASES)
def test_l8_a_plan_that_is_restored_before_every_batch_goes_on_alike(case: str, implementation: str) -> None:
    plan = plan_of(CASES[case])
    for seed in range(3):
        judge(plan, history_of(random.Random(seed), plan), seed, implementation)


def test_l8_holds_for_random_plans(implementation: str) -> None:
    for seed in range(40):
        judge(*random_case(seed), seed, implementation)
