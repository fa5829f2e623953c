"""Pauses belong to their faults, and a verdict names every limit that was exceeded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drill_world import TRUTH, right_stream, stable

from lmerge_controller.drill.judging.judge import ProbeFindings, ProbeJudge
from lmerge_controller.drill.judging.pauses import gaps_ms, longest_pause_ms, percentile
from lmerge_controller.drill.judging.verdict import SETTLE_S, DrillLimits, DrillVerdict, FaultRecord, judged

COUNT = 50
LIMITS = DrillLimits(pause_ms=200.0, stall_ms=400.0, recovery_s=3.0)
FAULT = FaultRecord("kill", "probe-1", 10.0, 11.0, 12.0)


def findings(*arrivals_s: float) -> ProbeFindings:
    judge = ProbeJudge(TRUTH)
    judge.take(right_stream(COUNT), 0.0)
    return replace(judge.findings(COUNT), arrivals_s=arrivals_s, progress_s=arrivals_s)


def steadily(until_s: float, *, without: tuple[float, float] = (0.0, 0.0)) -> list[float]:
    times = [tick / 20 for tick in range(int(until_s * 20))]
    return [time for time in times if not without[0] < time < without[1]]


def verdict(arrivals_s: list[float], *faults: FaultRecord, gaps: int = 0) -> DrillVerdict:
    return judged(findings(*arrivals_s), faults, LIMITS, ended_s=20.0, gaps=gaps)


def test_a_steady_stream_passes() -> None:
    found = verdict(steadily(20.0), FAULT)
    assert found.has_passed
    assert found.windows[0].pause_ms == pytest.approx(50.0)
    assert found.windows[0].recovery_s == 1.0
    assert found.pauses.quiet_p99_ms == pytest.approx(50.0)


def test_a_pause_after_the_fault_is_found_and_named() -> None:
    found = verdict(steadily(20.0, without=(10.1, 10.4)), FAULT)
    assert found.windows[0].pause_ms == pytest.approx(300.0)
    assert found.reasons == ("kill probe-1: the output paused 300 ms, the limit is 200 ms",)


def test_a_stable_point_that_stands_is_found_while_the_output_goes_on() -> None:
    moved = replace(findings(*steadily(20.0)), progress_s=tuple(steadily(20.0, without=(10.5, 11.5))))
    assert judged(moved, [FAULT], LIMITS, ended_s=20.0).reasons == (
        "kill probe-1: the stable point stood 1,000 ms, the limit is 400 ms",
    )


def test_a_pause_before_the_fault_does_not_count() -> None:
    assert verdict(steadily(20.0, without=(9.0, 10.0)), FAULT).has_passed


def test_a_pause_that_began_before_the_fault_counts_from_the_fault_on() -> None:
    assert verdict(steadily(20.0, without=(9.0, 10.15)), FAULT).windows[0].pause_ms == pytest.approx(150.0)


def test_a_pause_that_ends_after_the_window_counts_in_full() -> None:
    end_s = 12.0 + SETTLE_S
    assert verdict(steadily(20.0, without=(end_s - 0.05, end_s + 3.0)), FAULT).windows[0].pause_ms == pytest.approx(
        3050.0
    )


def test_an_output_that_never_goes_on_pauses_to_the_end() -> None:
    assert verdict(steadily(10.5), FAULT).windows[0].pause_ms == pytest.approx(9550.0)


def test_without_any_output_the_whole_recording_is_a_pause() -> None:
    assert verdict([], FAULT).windows[0].pause_ms == pytest.approx(10_000.0)


def test_a_redundancy_that_comes_late_or_never_is_named() -> None:
    steady = steadily(20.0)
    late = verdict(steady, replace(FAULT, recovered_s=15.0))
    assert late.reasons == ("kill probe-1: the redundancy came back after 4.0 s, the limit is 3 s",)
    never = verdict(steady, replace(FAULT, recovered_s=None))
    assert never.reasons == ("kill probe-1: the redundancy did not come back within 3 s",)


def test_a_fault_that_did_not_take_place_is_no_success() -> None:
    steady = steadily(20.0)
    assert verdict(steady).reasons == ("no fault took place",)
    assert verdict(steady, replace(FAULT, problem="no such process")).reasons == ("kill probe-1: no such process",)


def test_gaps_and_flaws_fail_whatever_the_limits_are() -> None:
    steady = steadily(20.0)
    assert verdict(steady, FAULT, gaps=2).reasons == ("2 gaps reported to the reader",)
    judge = ProbeJudge(TRUTH)
    judge.take([stable(TRUTH.end(3))], 0.0)
    lost = replace(judge.findings(3), arrivals_s=tuple(steady))
    assert judged(lost, [FAULT], DrillLimits(), ended_s=20.0).reasons == ("3 lost",)
    nothing = replace(ProbeJudge(TRUTH).findings(0), arrivals_s=tuple(steady))
    assert judged(nothing, [FAULT], DrillLimits(), ended_s=20.0).reasons == ("the probe published nothing",)


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(value) for value in range(1, 201)]
    assert percentile(values, 0.5) == 100.0
    assert percentile(values, 0.99) == 198.0
    assert percentile(values, 1.0) == 200.0
    assert percentile([5.0], 0.99) == 5.0
    assert percentile([], 0.5) == 0.0


def test_pauses_are_those_of_the_window() -> None:
    times = [0.0, 1.0, 3.0, 3.5, 9.0]
    assert longest_pause_ms(times, 0.5, 2.0, ended_s=10.0) == 2000.0
    assert longest_pause_ms(times, 3.1, 3.4, ended_s=10.0) == pytest.approx(400.0)
    assert longest_pause_ms(times, 9.5, 9.6, ended_s=10.0) == 500.0
    assert gaps_ms(times, 0.0, 9.0) == [1000.0, 2000.0, 500.0]
