"""L7: after fast_forward(t) the output's events that end at or behind t are what they would have been.

Sources leave out what the plan does not need of them, by chance; what an operator leaves out itself comes back as an
insert when a revision makes it needed.
"""

from __future__ import annotations

import random

import pytest
from law_world import CASES, PlanUnderLaw, history_of, plan_of, random_case
from operator_world import LossyInput, from_then_on
from temporal_world import Item

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.plan.compiling import CompiledPlan


def judge(plan: CompiledPlan, history: list[tuple[str, Item]], seed: int, implementation: str) -> int:
    """Run a plan with feedback beside one without; return how often they were compared behind feedback."""
    random_ = random.Random(seed)
    reference, run = PlanUnderLaw(plan, implementation), PlanUnderLaw(plan, implementation)
    lossy = [LossyInput(random_) for _ in run.names]
    t, needed, compared = NEG_INF, NEG_INF, 0
    for name, item in history:
        at = run.names.index(name)
        if random_.random() < 0.25:
            t = max(t, random_.randint(-8, 20))
            for given, until in zip(lossy, run.graph.fast_forward(0, t), strict=True):
                given.until = max(given.until, until)
                needed = max(needed, t, until)
        for delta in reference.entrances[at].take([item]):
            reference.step(at, delta)
            run.step(at, lossy[at].take(delta)._replace(mark=delta.mark))
        # While something is left out, the stable point waits, and what a stable point releases with it.
        if reference.input_stable > needed + 10 or reference.input_stable == INF:
            assert from_then_on(run.table.events, t) == from_then_on(reference.table.events, t), (seed, item)
            compared += t > NEG_INF
    assert run.table.stable == INF
    return compared


@pytest.mark.parametrize("case", CASES)
def test_l7_what_ends_at_or_behind_the_feedback_is_there(case: str, implementation: str) -> None:
    plan, compared = plan_of(CASES[case]), 0
    for seed in range(7):
        compared += judge(plan, history_of(random.Random(seed), plan), seed, implementation)
    assert compared > 3


def test_l7_holds_for_random_plans(implementation: str) -> None:
    assert sum(judge(*random_case(seed), seed, implementation) for seed in range(80)) > 80
