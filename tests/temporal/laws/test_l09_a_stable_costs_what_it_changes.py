"""L9: a step with one change and a stable costs the same beside many groups and live events as beside few."""

from __future__ import annotations

import sys
from types import FrameType

import pytest
from law_world import CASES, PlanUnderLaw, plan_of

from lmerge.core.engines.selection import PYTHON
from lmerge.temporal.changes import Change, Delta

FEW, MANY = 100, 600
# A predicate is asked for every pair, and ungrouped count windows span the events of one start, which are all of them.
OF_ALL = frozenset(
    case
    for case in CASES
    if "by predicate" in case or "three starts" in case or (case.startswith("two starts, ") and ": point" in case)
)


def calls_of_a_step(case: str, live: int) -> int:
    """Return how many functions a plan calls for one change and a stable, beside ``live`` events of each source."""
    run = PlanUnderLaw(plan_of(CASES[case]), PYTHON)
    for at in range(len(run.names)):
        run.step(at, Delta([Change((key, 1), 100, 100, 140 + key) for key in range(live)], None, 100))
    for stable in (2, 3, 4):
        for at in range(len(run.names)):
            run.step(at, Delta([], stable))
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    change = Change((live // 2, 1), 12, 12, 13)
    deltas = [Delta([change], 6), Delta([], 7)]
    sys.setprofile(count)
    try:
        for delta in deltas:
            run.graph.step([delta, *[Delta([], delta.stable)] * (len(run.names) - 1)])
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("case", [case for case in CASES if case not in OF_ALL])
def test_l9_a_step_costs_what_changes(case: str) -> None:
    few, many = calls_of_a_step(case, FEW), calls_of_a_step(case, MANY)
    assert few > 3
    assert many <= 1.1 * few + 10
