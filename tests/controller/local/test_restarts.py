"""Waits between restarts: short at first, bounded, anew after a good run, and limited by the minute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmerge_controller.local.restarts import MINUTE_S, RestartPace, RestartRule


def waits(rule: RestartRule, runs_s: list[float]) -> list[float]:
    """Return the wait after each run."""
    pace, now_s, found = RestartPace(rule), 0.0, []
    for ran_s in runs_s:
        pace.started(now_s)
        now_s += ran_s
        found.append(pace.ended(now_s, ran_s))
        now_s += found[-1]
    return found


def test_waits_double_up_to_the_bound() -> None:
    assert waits(RestartRule(0.5, 3.0), [0.1] * 5) == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_good_run_begins_the_waits_anew() -> None:
    assert waits(RestartRule(0.5, 3.0, ran_well_s=10.0), [0.1, 0.1, 10.0, 0.1]) == [0.5, 1.0, 0.5, 1.0]
    assert waits(RestartRule(0.5, 3.0, ran_well_s=10.0), [0.1, 0.1, 9.9]) == [0.5, 1.0, 2.0]


def test_a_process_that_runs_well_and_dies_again_and_again_is_limited_by_the_minute() -> None:
    assert waits(RestartRule(0.5, 3.0, ran_well_s=1.0, per_minute_max=3), [2.0] * 6) == [0.5, 0.5, 53.0] * 2


@given(st.lists(st.floats(0, 100), min_size=1, max_size=60), st.floats(0.01, 5), st.floats(1, 4), st.integers(1, 8))
def test_no_minute_has_more_starts_than_the_limit_and_no_wait_is_longer_than_it_must(
    runs_s: list[float], first_s: float, factor: float, per_minute_max: int
) -> None:
    rule = RestartRule(first_s, first_s * factor, per_minute_max=per_minute_max)
    starts, now_s = [0.0], 0.0
    for ran_s, wait_s in zip(runs_s, waits(rule, runs_s)):
        assert first_s <= wait_s <= max(rule.cap_s, MINUTE_S + 1e-6)
        now_s += ran_s + wait_s
        starts.append(now_s)
    for earlier, later in zip(starts, starts[per_minute_max:]):
        assert later - earlier >= MINUTE_S - 1e-6


@pytest.mark.parametrize(
    "values", [{"first_s": 0.0}, {"first_s": 2.0, "cap_s": 1.0}, {"ran_well_s": 0.0}, {"per_minute_max": 0}]
)
def test_an_impossible_rule_is_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="not a rule"):
        RestartRule(**values)  # type: ignore[arg-type]  # values of a table
