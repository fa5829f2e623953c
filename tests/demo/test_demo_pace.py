"""The demo's schedule of kills on simulated machines: slow joins, starved processes, processes that never return."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmerge.core.elements import INF, NEG_INF
from lmerge.demo.capacity import DAYS_MIN, Capacity, fitted, measure, usable_cores
from lmerge.demo.clock import BEHIND_S_MAX, not_ahead_of, reading, stopped_at
from lmerge.demo.pace import (
    BACK_S_MAX,
    DOWN_S_MAX,
    KILL,
    PLANNED_KILLS,
    REPLICA,
    SERVER,
    START,
    WHOLE_S_MIN,
    KillSchedule,
    Situation,
    planned_kills,
)
from lmerge_replicas.flights.flight import DAY, HOUR, SECOND
from lmerge_replicas.flights.replay import ReplayClock
from lmerge_replicas.flights.source import Days

TICK_S = 0.5
LAST = 0.97


@dataclass
class Machine:
    """A demo on a machine where the replay takes ``replay_s`` and the nth join takes ``join_s[n]``.

    The first join is that of all processes at the beginning. ``starved``: how much slower the replay is while a process
    starts.
    """

    replay_s: float
    join_s: list[float]
    starved: float = 1.0
    now_s: float = 0.0
    progress: float = 0.0
    back_at_s: float | None = None  # when the process that is away joins
    actions: list[tuple[float, str, str, float]] = field(default_factory=list)
    ended_at_s: float | None = None

    def run(self, schedule: KillSchedule) -> None:
        joins = iter(self.join_s)
        self.back_at_s = next(joins)
        is_down = False
        while self.ended_at_s is None and self.now_s < 5_000:
            is_whole = not is_down and (self.back_at_s is None or self.now_s >= self.back_at_s)
            step = schedule.next(Situation(self.now_s, self.progress, is_whole))
            if step.action:
                self.actions.append((self.now_s, step.action, step.victim, self.progress))
                assert step.action != KILL or is_whole, "nothing is killed while a process is away"
                is_down = step.action == KILL
                if step.action == START:
                    self.back_at_s = self.now_s + next(joins)
            slow = 1.0 if is_whole else self.starved
            limit = 1.0 if step.until is None else step.until
            self.progress = max(self.progress, min(self.progress + TICK_S / self.replay_s / slow, limit))
            if self.progress >= 1.0:
                self.ended_at_s = self.now_s
                assert is_whole or schedule.has_given_up, "it ends when all are back, or none is waited for"
            self.now_s += TICK_S


machines = settings(max_examples=40)
joins = st.lists(st.floats(0.1, BACK_S_MAX - 2), min_size=4, max_size=4)
plans = st.tuples(st.integers(0, 2), st.integers(0, 1))


@machines
@given(replay_s=st.floats(2.0, 120.0), join_s=joins, starved=st.floats(1.0, 8.0), plan=plans)
def test_on_any_machine_all_kills_take_place_and_all_processes_are_back_at_the_end(
    replay_s: float, join_s: list[float], starved: float, plan: tuple[int, int]
) -> None:
    kills = planned_kills(*plan)
    machine, schedule = Machine(replay_s, join_s, starved), KillSchedule(kills, LAST)
    machine.run(schedule)
    assert machine.ended_at_s is not None
    assert not schedule.has_given_up
    assert [(action, victim) for _, action, victim, _ in machine.actions] == [
        (action, kill.victim) for kill in kills for action in (KILL, START)
    ]


@machines
@given(replay_s=st.floats(2.0, 120.0), join_s=joins, starved=st.floats(1.0, 8.0))
def test_every_kill_has_its_place(replay_s: float, join_s: list[float], starved: float) -> None:
    machine = Machine(replay_s, join_s, starved)
    machine.run(KillSchedule(PLANNED_KILLS, LAST))
    kills = [action for action in machine.actions if action[1] == KILL]
    starts = [action for action in machine.actions if action[1] == START]
    for planned, after, (_, _, _, progress) in zip(PLANNED_KILLS, [*PLANNED_KILLS[1:], None], kills, strict=True):
        assert planned.at <= progress <= (after.at if after else LAST)
    for (killed_s, *_), (started_s, _, _, progress), planned in zip(kills, starts, PLANNED_KILLS, strict=True):
        assert progress >= planned.back_at or started_s - killed_s >= DOWN_S_MAX
        assert started_s - killed_s < DOWN_S_MAX + 2 * TICK_S
    for (started_s, *_), (killed_s, *_), join in zip(starts, kills[1:], join_s[1:], strict=False):
        assert killed_s - started_s >= join + WHOLE_S_MIN - TICK_S


@machines
@given(replay_s=st.floats(2.0, 120.0), join_s=joins, never=st.integers(0, 3), starved=st.floats(1.0, 8.0), plan=plans)
def test_a_process_that_never_comes_back_is_not_waited_for_for_ever(
    replay_s: float, join_s: list[float], never: int, starved: float, plan: tuple[int, int]
) -> None:
    kills = planned_kills(*plan)
    machine, schedule = Machine(replay_s, join_s, starved), KillSchedule(kills, LAST)
    machine.join_s[never] = float("inf")
    machine.run(schedule)
    if never > len(kills):
        assert not schedule.has_given_up
        return
    assert schedule.has_given_up
    assert [action for _, action, _, _ in machine.actions] == [KILL, START] * never
    gone_since_s = machine.actions[-1][0] if machine.actions else 0.0
    assert machine.ended_at_s is None or machine.ended_at_s >= gone_since_s + BACK_S_MAX - TICK_S


def test_a_fast_machine_never_waits() -> None:
    machine = Machine(60.0, [0.5, 3.0, 3.0, 3.0])
    machine.run(KillSchedule(PLANNED_KILLS, LAST))
    assert machine.ended_at_s == pytest.approx(60.0, abs=1.0)


def test_kills_can_be_left_out() -> None:
    assert [kill.victim for kill in planned_kills(2, 1)] == [REPLICA, SERVER, REPLICA]
    assert [kill.victim for kill in planned_kills(1, 0)] == [REPLICA]
    assert [kill.victim for kill in planned_kills(0, 1)] == [SERVER]
    assert planned_kills(0, 0) == ()
    assert all(a.at < a.back_at < b.at for a, b in pairwise(PLANNED_KILLS))


clocks = st.builds(
    ReplayClock,
    st.floats(0.0, 1e9),
    st.integers(0, 10**15),
    st.floats(100.0, 1e6),
    st.one_of(st.just(INF), st.integers(10**15, 2 * 10**15)),
)


@given(
    clock=clocks,
    after_s=st.floats(0.0, 1e4),
    left=st.integers(-10 * DAY, 10 * DAY),
    more=st.integers(0, 10 * DAY),
    later_s=st.floats(0.0, 1e4),
)
def test_a_clock_that_has_stood_goes_on_from_there(
    clock: ReplayClock, after_s: float, left: int, more: int, later_s: float
) -> None:
    """``left``: the time to where the clock stops; if negative, the clock has stood still since then."""
    now_s = clock.start + after_s
    running = reading(clock._replace(until=INF), now_s)
    clock = clock._replace(until=max(clock.first, running + left))
    shown = reading(clock, now_s)
    stopped = stopped_at(clock, shown + more, now_s)
    rounding = 1e-6 * max(clock.start, 1.0) * clock.speed * SECOND * 1e-6 + clock.speed
    assert abs(reading(stopped, now_s) - shown) <= rounding
    assert reading(stopped, now_s + later_s) <= shown + more
    assert reading(stopped, now_s + later_s) >= reading(stopped, now_s)


@given(clock=clocks, after_s=st.floats(0.0, 1e4), behind=st.integers(0, 10 * DAY))
def test_a_clock_is_never_far_ahead_of_the_output(clock: ReplayClock, after_s: float, behind: int) -> None:
    now_s = clock.start + after_s
    output = reading(clock, now_s) - behind
    later = not_ahead_of(clock, output, now_s)
    rounding = 1e-6 * max(clock.start, 1.0) * clock.speed * SECOND * 1e-6 + clock.speed
    assert reading(later, now_s) <= output + HOUR + BEHIND_S_MAX * clock.speed * SECOND + rounding
    if behind <= HOUR:
        assert later == clock
    assert not_ahead_of(clock, NEG_INF, now_s) == not_ahead_of(clock, INF, now_s) == clock


YEAR = Days(date(2013, 1, 1), date(2013, 12, 31))


@given(days_per_s=st.floats(0.01, 100.0), seconds=st.floats(2.0, 3600.0), may_shorten=st.booleans())
def test_what_is_replayed_fits_the_machine(days_per_s: float, seconds: float, may_shorten: bool) -> None:
    fit = fitted(YEAR, seconds, days_per_s, may_shorten=may_shorten)
    count = (fit.days.last - fit.days.first).days + 1
    assert fit.days.first == YEAR.first
    assert count / fit.seconds <= days_per_s * 1.0001
    assert fit.seconds >= seconds
    assert count == 365 or (may_shorten and count >= DAYS_MIN)
    if fit.seconds > seconds * 1.0001 and may_shorten:
        assert count == DAYS_MIN
    if days_per_s * seconds >= 365:
        assert fit == (YEAR, seconds)


def test_days_that_were_asked_for_are_never_fewer() -> None:
    february = Days(date(2013, 2, 1), date(2013, 2, 28))
    assert fitted(february, 10.0, 0.5, may_shorten=False) == (february, 56.0)
    assert fitted(Days(february.first, date(2013, 2, 10)), 10.0, 0.5, may_shorten=True).seconds == 20.0


def test_the_measurement_is_of_this_machine() -> None:
    alone, beside_spark = measure(has_spark=False), measure(has_spark=True)
    assert alone.cores == beside_spark.cores == usable_cores()
    assert alone.days_per_s > 0.01
    assert "carries" in str(alone)
    assert str(Capacity(2.0, 1.0, "python")) == "this machine (one core, python engine) carries 2.0 days a second"


@pytest.mark.parametrize(("quota", "expected"), [("50000 100000", 0.5), ("max 100000", None), ("", None)])
def test_a_containers_quota_counts(quota: str, expected: float | None, tmp_path: Path) -> None:
    file = tmp_path / "cpu.max"
    if quota:
        file.write_text(quota + "\n")
    assert usable_cores(file) == (usable_cores(tmp_path / "none") if expected is None else expected)
