"""The decisions of ``make bench-against``: from samples of two commits to verdicts, and to an exit code."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.against import exit_code, verdicts
from bench.probe import PROBES
from bench.verdict import BETTER, MISSING, SAME, WORSE, judge

SAMPLES = st.lists(st.integers(1, 10**9), min_size=1, max_size=9)


@given(SAMPLES, st.booleans(), st.randoms(use_true_random=False))
def test_equal_samples_in_any_order_are_never_worse(values: list[int], more: bool, random: Random) -> None:
    shuffled = sorted(values, key=lambda _: random.random())
    assert judge(values, shuffled, more_is_better=more).outcome == SAME


@given(SAMPLES, st.integers(1, 10**9), st.booleans())
def test_a_shift_beyond_the_spread_is_always_worse_one_way_and_better_the_other(
    values: list[int], beyond: int, more: bool
) -> None:
    shift = max(values) - min(values) + beyond
    shifted = [value + shift for value in values]
    assert judge(values, shifted, more_is_better=more).outcome == (BETTER if more else WORSE)
    assert judge(shifted, values, more_is_better=more).outcome == (WORSE if more else BETTER)


@given(SAMPLES, st.booleans(), st.data())
def test_a_shift_within_the_spread_decides_nothing(values: list[int], more: bool, data: st.DataObject) -> None:
    shift = data.draw(st.integers(0, max(values) - min(values)))
    assert judge(values, [value + shift for value in values], more_is_better=more).outcome == SAME


@given(SAMPLES, SAMPLES)
def test_what_is_worse_as_a_rate_is_better_as_a_latency(before: list[int], now: list[int]) -> None:
    other = {WORSE: BETTER, BETTER: WORSE, SAME: SAME}
    assert judge(before, now, more_is_better=True).outcome == other[judge(before, now, more_is_better=False).outcome]


def test_a_rate_is_better_when_it_is_more_and_a_latency_when_it_is_less() -> None:
    found = verdicts({"core, elements/s": [9.0], "p99, ms": [9.0]}, {"core, elements/s": [8.0], "p99, ms": [8.0]})
    outcomes = {figure: verdict.outcome for figure, verdict in found.items()}
    assert outcomes == {"core, elements/s": WORSE, "p99, ms": BETTER}


def test_what_the_other_commit_cannot_measure_decides_nothing_and_what_this_one_cannot_is_an_error() -> None:
    new, old = {"new, elements/s": [1.0]}, {"old, elements/s": [1.0]}
    assert verdicts({}, new)["new, elements/s"].outcome == MISSING
    assert exit_code(verdicts({}, new), new, is_whole=True) == 0
    assert exit_code(verdicts(old, {}), {}, is_whole=True) == 1
    assert exit_code(verdicts(new, new), new, is_whole=False) == 1


@pytest.mark.parametrize(("before", "now", "code"), [([5.0, 6.0], [5.5, 6.0], 0), ([5.0, 6.0], [3.0, 3.1], 1)])
def test_one_figure_that_is_worse_makes_the_exit_code_1(before: list[float], now: list[float], code: int) -> None:
    old, new = {"a/s": before, "b/s": [1.0]}, {"a/s": now, "b/s": [1.0]}
    assert exit_code(verdicts(old, new), new, is_whole=True) == code


def test_no_figure_at_all_is_no_success() -> None:
    assert exit_code({}, {}, is_whole=True) == 1


def test_a_probe_names_its_figures_so_that_their_direction_is_known() -> None:
    figures = PROBES["core-python-r3"]()
    assert [figure.endswith("/s") for figure in figures] == [True]
    assert all(value > 0 for value in figures.values())
