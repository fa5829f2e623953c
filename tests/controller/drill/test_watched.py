"""A user's stream has no truth: its pauses are reported, and what fails a drill is that it does not go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lmerge_controller.drill.judging.verdict import FaultRecord
from lmerge_controller.drill.judging.watched import WatchedStream, has_gone_on, watch_verdict

FAULT = FaultRecord("kill input", "1", 10.0, 11.0, 12.0)
TIMES = tuple(tick / 2 for tick in range(40))
STREAM = WatchedStream("flights", TIMES, TIMES, elements=40)


def without(since_s: float, until_s: float) -> tuple[float, ...]:
    return tuple(time for time in TIMES if not since_s < time < until_s)


def test_pauses_are_reported_beside_those_of_the_quiet_time() -> None:
    found = watch_verdict(replace(STREAM, arrivals_s=without(10.5, 12.0)), [FAULT], ended_s=20.0)
    assert (found.quiet_pause_ms, found.quiet_stall_ms) == (500.0, 500.0)
    assert (found.windows[0].pause_ms, found.windows[0].stall_ms) == (1500.0, 500.0)
    assert found.reasons == ()


def test_a_stable_point_that_stays_after_the_last_fault_fails() -> None:
    stands = replace(STREAM, progress_s=without(10.0, 30.0))
    assert not has_gone_on(stands, [FAULT])
    assert watch_verdict(stands, [FAULT], ended_s=20.0).reasons == (
        "flights: its stable point has not gone on after the last fault",
    )


def test_a_stable_point_that_moves_only_during_the_fault_has_not_gone_on() -> None:
    assert not has_gone_on(replace(STREAM, progress_s=without(10.9, 30.0)), [FAULT])
    assert has_gone_on(replace(STREAM, progress_s=(*without(10.9, 30.0), 11.2)), [FAULT])


@pytest.mark.parametrize("stream", [WatchedStream("f", TIMES, (1.0,)), WatchedStream("f"), STREAM])
def test_a_stream_without_a_pace_is_not_expected_to_move(stream: WatchedStream) -> None:
    assert has_gone_on(stream, [FAULT])
    assert has_gone_on(replace(STREAM, progress_s=without(9.0, 30.0), is_complete=True), [FAULT])


def test_gaps_and_a_reader_that_failed_are_named() -> None:
    found = watch_verdict(replace(STREAM, gaps=2, problem="no right"), [FAULT], ended_s=20.0)
    assert found.reasons == ("flights: its reader has failed: no right", "flights: 2 gaps reported to its reader")
