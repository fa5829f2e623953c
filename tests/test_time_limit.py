"""A time limit ends what takes too long, and loses no cancellation at any moment."""

from __future__ import annotations

import asyncio

import pytest

from lmerge.time_limit import time_limit


async def test_what_takes_longer_than_its_limit_ends_with_an_error() -> None:
    with pytest.raises(asyncio.TimeoutError):
        async with time_limit(0.0):
            await asyncio.Event().wait()


async def test_what_has_no_limit_ends_by_itself() -> None:
    async with time_limit(None):
        await asyncio.sleep(0)


@pytest.mark.parametrize("turns", range(4))
async def test_a_task_that_is_cancelled_while_its_result_comes_ends(turns: int) -> None:
    """The cancellation comes some turns of the loop before the result, or with it. ``wait_for`` lost the last one."""
    loop = asyncio.get_running_loop()
    came: asyncio.Future[None] = loop.create_future()

    async def await_it() -> None:
        await came

    async def run() -> None:
        async with time_limit(60.0):
            await await_it()
        await asyncio.Event().wait()  # goes on, as a loop would

    task = asyncio.create_task(run())
    for _ in range(4):
        await asyncio.sleep(0)

    def cancel_after(left: int) -> None:
        loop.call_soon(cancel_after, left - 1) if left else task.cancel()

    came.set_result(None)
    cancel_after(turns)
    done, _ = await asyncio.wait([task], timeout=30.0)
    assert done
    assert task.cancelled()
