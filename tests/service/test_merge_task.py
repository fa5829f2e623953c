"""The task of a merge as an actor: steps run in order, and no caller waits for a task that has died."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from lmerge.errors import Draining, StoreDamaged, Unavailable, UsageError
from lmerge.service.merge.merge_task import MergeTask
from lmerge.service.settings import Settings


def started() -> tuple[MergeTask, list[Callable[[], None]]]:
    """Return a task that takes one step after another, and the list of the effects that it hands over."""
    effects: list[Callable[[], None]] = []
    task = MergeTask("flights", Settings(http_port=None), effects.append)

    async def turns() -> None:
        while True:
            await task.inbox.wake.wait()
            more = task.inbox.take_step()()
            if more is not None:
                await more
            task.inbox.settle()

    task.start(turns())
    return task, effects


async def test_steps_run_in_their_order_and_their_callers_get_the_results() -> None:
    task, _ = started()
    seen: list[int] = []
    task.step(lambda: seen.append(1))
    assert await task.call(lambda: list(seen)) == [1]
    await task.close()


async def test_the_error_of_a_step_is_raised_to_its_caller_and_the_task_goes_on() -> None:
    task, _ = started()

    def refuse() -> None:
        raise UsageError("not this")

    with pytest.raises(UsageError, match="not this"):
        await task.call(refuse)
    assert await task.call(lambda: "on") == "on"
    await task.close()


async def test_a_settled_step_is_answered_when_the_output_before_it_is_released() -> None:
    task, effects = started()
    answer = asyncio.ensure_future(task.settled(lambda: 7))
    await task.call(lambda: None)
    assert not answer.done()
    (release,) = effects
    release()
    assert await answer == 7
    await task.close()


async def test_a_caller_of_a_task_that_dies_gets_the_error_with_which_it_failed() -> None:
    task, _ = started()
    waiting = asyncio.ensure_future(task.settled(lambda: None))
    await task.call(lambda: None)
    task.broken = StoreDamaged("the file is damaged")
    task.cancel()
    with pytest.raises(StoreDamaged):
        await waiting
    with pytest.raises(StoreDamaged):
        task.check_open()
    task.broken = None
    with pytest.raises(Unavailable, match="merge 'flights' has failed"):
        await task.call(lambda: None)


async def test_a_draining_task_takes_nothing_new() -> None:
    task, _ = started()
    task.check_open()
    task.is_draining = True
    with pytest.raises(Draining):
        task.check_open()
    await task.close()
