"""The inbox of a merge: order, bounds in elements and bytes, and wake-ups when there is room or nothing left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lmerge.core.batch import EMPTY, Batch
from lmerge.core.elements import Stable
from lmerge.errors import LmergeError
from lmerge.service.merge.inbox import Inbox, Work
from lmerge.wire.generated import lmerge_pb2 as pb


class SilentSession:
    """A session of which the hub's calls have no effect."""

    def acknowledge(self, sequence: int, stable_point: int, joined: bool) -> None:
        raise AssertionError

    def end(self, error: LmergeError, detached: pb.PublishResponse.Detached | None = None) -> None:
        raise AssertionError


def work(number: int, elements: int = 1, wire_bytes: int = 10) -> Work:
    batch = Batch.of([Stable(at) for at in range(elements)]) if elements else EMPTY
    session: Any = SilentSession()
    return Work(session, batch, number, number, 0, wire_bytes, 0.0)


def taken(inbox: Inbox, elements: int) -> list[int]:
    return [work.number for work in inbox.take_batches(elements)]


def nothing() -> None:
    """A step."""


async def turns_of_the_loop() -> None:
    """Let every task run until it waits."""
    for _ in range(20):
        await asyncio.sleep(0)


async def has_room(inbox: Inbox) -> bool:
    """Whether there is room without waiting."""
    room = asyncio.create_task(inbox.room())
    await turns_of_the_loop()
    try:
        return room.done()
    finally:
        room.cancel()


async def test_batches_and_steps_come_out_in_the_order_in_which_they_were_put() -> None:
    inbox = Inbox(100, 1000)
    for item in (work(1), work(2), nothing, work(3)):
        inbox.put(item)
    assert len(inbox) == 4
    assert taken(inbox, 99) == [1, 2]
    assert taken(inbox, 99) == [], "a step is next"
    assert inbox.take_step() is nothing
    assert taken(inbox, 99) == [3]
    assert len(inbox) == 0


async def test_batches_are_taken_until_they_have_so_many_elements() -> None:
    inbox = Inbox(100, 1000)
    for number in range(1, 6):
        inbox.put(work(number, elements=3))
    assert inbox.elements == 15
    assert taken(inbox, 1) == [1]
    assert taken(inbox, 3) == [2]
    assert taken(inbox, 4) == [3, 4]
    assert inbox.elements == 3
    assert taken(inbox, 0) == []


async def test_an_empty_batch_counts_as_one_so_that_no_turn_is_endless() -> None:
    inbox = Inbox(100, 1000)
    for number in range(1, 5):
        inbox.put(work(number, elements=0))
    assert (inbox.elements, taken(inbox, 3), taken(inbox, 3)) == (0, [1, 2, 3], [4])


@pytest.mark.parametrize(("elements", "wire_bytes"), [(5, 1), (1, 50)], ids=["elements", "bytes"])
async def test_there_is_room_below_both_bounds_and_none_at_either(elements: int, wire_bytes: int) -> None:
    inbox = Inbox(10, 100)
    inbox.put(work(1, elements, wire_bytes))
    assert await has_room(inbox)
    inbox.put(work(2, elements, wire_bytes))
    waiting = asyncio.create_task(inbox.room())
    await turns_of_the_loop()
    assert not waiting.done()
    assert taken(inbox, 1) == [1]
    await turns_of_the_loop()
    assert not waiting.done(), "until the turn has ended"
    inbox.settle()
    await waiting
    assert taken(inbox, 99) == [2]
    assert inbox.elements == 0
    inbox.put(work(3, 9, 99))
    assert await has_room(inbox)


async def test_steps_find_room_in_a_full_inbox() -> None:
    inbox = Inbox(1, 1)
    inbox.put(work(1))
    inbox.put(nothing)
    assert len(inbox) == 2


async def test_all_who_wait_are_woken_and_those_who_find_no_room_wait_again() -> None:
    inbox = Inbox(2, 1000)
    inbox.put(work(0, elements=2))
    done: list[int] = []

    async def publish_one(number: int) -> None:
        await publish(inbox, number)
        done.append(number)

    tasks = [asyncio.create_task(publish_one(number)) for number in range(1, 6)]
    await turns_of_the_loop()
    assert done == []
    for expected in ([1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5]):
        taken(inbox, 99)
        inbox.settle()
        await turns_of_the_loop()
        assert sorted(done) == expected
        assert inbox.elements <= 2, "the bound holds for every waiter"
    await asyncio.gather(*tasks)


async def test_a_waiter_that_was_cancelled_is_forgotten_and_takes_no_place() -> None:
    inbox = Inbox(1, 1000)
    inbox.put(work(1))
    gone, stays = asyncio.create_task(inbox.room()), asyncio.create_task(inbox.room())
    await turns_of_the_loop()
    gone.cancel()
    await turns_of_the_loop()
    taken(inbox, 99)
    inbox.settle()
    await stays
    emptied = asyncio.create_task(inbox.emptied())
    await turns_of_the_loop()
    assert emptied.done()


async def test_wake_is_set_while_something_waits() -> None:
    inbox = Inbox(10, 1000)
    assert not inbox.wake.is_set()
    inbox.put(work(1))
    inbox.put(nothing)
    taken(inbox, 99)
    inbox.settle()
    assert inbox.wake.is_set()
    inbox.take_step()
    inbox.settle()
    assert not inbox.wake.is_set()


async def publish(inbox: Inbox, number: int) -> None:
    await inbox.room()
    inbox.put(work(number))


async def taken_until(emptied: asyncio.Task[None], inbox: Inbox) -> list[int]:
    """Take turns as the hub does, until ``emptied`` has returned."""
    seen: list[int] = []
    for _ in range(20):
        await turns_of_the_loop()
        if emptied.done():
            return seen
        while inbox:
            seen += taken(inbox, 99)
            if inbox:
                inbox.take_step()()
        inbox.settle()
    raise AssertionError("never emptied")


async def test_emptied_waits_for_all_that_waits_and_for_those_who_wait_for_room() -> None:
    inbox = Inbox(1, 1000)
    await inbox.emptied()
    inbox.put(work(1))
    publishers = [asyncio.create_task(publish(inbox, number)) for number in (2, 3)]
    await turns_of_the_loop()
    emptied = asyncio.create_task(inbox.emptied())
    assert sorted(await taken_until(emptied, inbox)) == [1, 2, 3]
    await asyncio.gather(*publishers)


async def test_emptied_in_the_middle_of_a_turn_waits_for_those_who_wait_for_its_end() -> None:
    """While a thread merges what was taken, the inbox is empty, and a publisher can still wait for room."""
    inbox = Inbox(1, 1000)
    inbox.put(work(1))
    publisher = asyncio.create_task(publish(inbox, 2))
    await turns_of_the_loop()
    assert taken(inbox, 99) == [1]
    emptied = asyncio.create_task(inbox.emptied())
    await turns_of_the_loop()
    assert not emptied.done()
    assert await taken_until(emptied, inbox) == [2]
    await publisher
