"""The loop of virtual time: it jumps, it holds processes that must not run, and it does not wait for ever."""

from __future__ import annotations

import asyncio
import time

import pytest
from sim_world import SmallNetwork

from lmerge.testing.sim.loop import Deadlock, RunsForever


def test_an_hour_of_waiting_takes_no_time(small: SmallNetwork) -> None:
    small.loop.time_max_s = 10_000.0
    started = time.perf_counter()

    async def wait_an_hour() -> float:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 3600.0)
        return small.loop.time()

    assert small.run(wait_an_hour()) == pytest.approx(3600.0)
    assert time.perf_counter() - started < 5.0


def test_timers_come_in_order_of_their_times(small: SmallNetwork) -> None:
    came: list[int] = []

    async def main() -> None:
        for delay in (3, 1, 2):
            small.loop.call_later(delay, came.append, delay)
        await _later(small, 4.0)

    small.run(main())
    assert came == [1, 2, 3]


def test_no_runnable_process_is_a_deadlock(small: SmallNetwork) -> None:
    with pytest.raises(Deadlock):
        small.run(asyncio.Event().wait())


def test_a_run_ends_at_its_limits(small: SmallNetwork) -> None:
    async def for_ever(delay: float) -> None:
        while True:
            await _later(small, delay)

    with pytest.raises(RunsForever, match="1000 virtual seconds"):
        small.run(for_ever(100.0))
    small.loop.time_max_s = 1e9
    with pytest.raises(RunsForever, match="100000 steps"):
        small.run(for_ever(0.0001))


def test_a_paused_process_does_not_run_and_loses_no_step(small: SmallNetwork) -> None:
    steps: list[tuple[float, int]] = []

    async def count() -> None:
        for number in range(5):
            await _later(small, 1.0)
            steps.append((small.loop.time(), number))

    task = small.server.spawn(count())

    async def main() -> None:
        await _later(small, 1.5)
        small.server.pause()
        await _later(small, 8.5)
        assert steps == [(1.0, 0)]
        small.server.go_on()
        await task

    small.run(main())
    assert steps == [(1.0, 0), (10.0, 1), (11.0, 2), (12.0, 3), (13.0, 4)]


def test_a_killed_process_runs_no_finally(small: SmallNetwork) -> None:
    cleaned: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("too late")

    async def main() -> None:
        small.server.spawn(work())
        await _later(small, 1.0)
        small.server.kill()
        await _later(small, 10.0)
        assert not cleaned

    small.run(main())


def test_a_function_in_a_thread_takes_the_time_of_the_disk_and_its_turn(small: SmallNetwork) -> None:
    small.client.disk_s = (1.0, 1.0)
    ran: list[int] = []

    async def main() -> float:
        executor = object()
        jobs = [small.loop.run_in_executor(executor, ran.append, number) for number in range(3)]
        await asyncio.gather(*jobs)
        return small.loop.time()

    assert small.run(main()) == pytest.approx(3.0, abs=0.01)
    assert ran == [0, 1, 2]


def test_a_new_thread_does_not_wait_for_one_that_has_gone(small: SmallNetwork) -> None:
    small.client.disk_s = (1.0, 1.0)

    async def main() -> float:
        jobs = [small.loop.run_in_executor(object(), int) for _ in range(3)]  # each gone before the next is made
        await asyncio.gather(*jobs)
        return small.loop.time()

    assert small.run(main()) == pytest.approx(1.0, abs=0.01)


def test_an_error_in_a_thread_is_raised_where_it_is_awaited(small: SmallNetwork) -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await small.loop.run_in_executor(None, lambda: 1 // 0)

    small.run(main())


async def _later(small: SmallNetwork, delay: float) -> None:
    passed = small.loop.create_future()
    small.loop.call_later(delay, passed.set_result, None)
    await passed
