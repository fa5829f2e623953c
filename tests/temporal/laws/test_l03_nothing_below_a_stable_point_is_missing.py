"""L3: at stable(t) the output has every event that starts before t; later only ends change."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from law_world import CASES, PlanUnderLaw, history_of, plan_of, random_case

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.values import Values


def starts_before(table: Counter[Lifetime], t: int) -> Counter[tuple[Values, int]]:
    """Return rows and starts of the events that start before a time."""
    found: Counter[tuple[Values, int]] = Counter()
    for (row, vs, _), count in table.items():
        if vs < t:
            found[row, vs] += count
    return found


def judge(run: PlanUnderLaw, history: list[tuple[str, object]]) -> None:
    seen: list[tuple[int, Counter[tuple[Values, int]]]] = []
    for name, item in history:
        for delta in run.give(name, [item]):  # type: ignore[list-item]  # items of a source
            if delta.stable is not None:
                seen.append((delta.stable, starts_before(run.table.events, delta.stable)))
    for t, found in seen:
        assert found == starts_before(run.table.events, t), f"what starts before stable({t}) has changed"


@pytest.mark.parametrize("case", CASES)
def test_l3_what_starts_before_a_stable_point_is_there_and_stays(case: str, implementation: str) -> None:
    plan = plan_of(CASES[case])
    for seed in range(5):
        judge(PlanUnderLaw(plan, implementation), [*history_of(random.Random(seed), plan)])


def test_l3_holds_for_random_plans(implementation: str) -> None:
    for seed in range(60):
        plan, history = random_case(seed)
        judge(PlanUnderLaw(plan, implementation), [*history])
