"""L6: the implementations have the same bytes, errors and snapshots. tests/temporal/native has values of all types."""

from __future__ import annotations

import random

import pytest
from law_world import CASES, PlanUnderLaw, history_of, plan_of, random_case, together
from temporal_world import Item

from lmerge.core.engines.selection import NATIVE, PYTHON
from lmerge.temporal.plan.compiling import CompiledPlan


def judge(plan: CompiledPlan, history: list[tuple[str, Item]], seed: int, implementation: str) -> None:
    definition, other = PlanUnderLaw(plan, PYTHON), PlanUnderLaw(plan, implementation)
    for name, items in together(random.Random(seed), history):
        assert other.give(name, items) == definition.give(name, items), (seed, items)
        assert other.packed == definition.packed
        if implementation == NATIVE:
            other.graph = definition.restored(NATIVE)


@pytest.mark.parametrize("case", CASES)
def test_l6_every_case_is_the_definition(case: str, implementation: str) -> None:
    plan = plan_of(CASES[case])
    for seed in range(3):
        judge(plan, history_of(random.Random(seed), plan), seed, implementation)


def test_l6_random_plans_are_the_definition(implementation: str) -> None:
    for seed in range(60):
        judge(*random_case(seed), seed, implementation)
