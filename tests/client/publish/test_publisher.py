"""AsyncPublisher against a real server: elements arrive, breaks are mended, faults are raised."""

from __future__ import annotations

import asyncio

import pytest
from client_world import MERGE, Reading, World, until

from lmerge.client import AsyncPublisher, AsyncSubscriber, Heartbeat, Origin, PublisherLimits
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Adjust, Insert, Stable
from lmerge.errors import (
    InputTaken,
    InputViolation,
    InvalidBatch,
    LimitExceeded,
    LmergeError,
    PropertiesTooWeak,
    ServerGone,
    StaleIncarnation,
    UsageError,
)

both = pytest.mark.usefixtures("engine")  # what comes and goes in batches; the rest is the same on every engine


@both
async def test_two_publishers_are_merged_into_one_stream() -> None:
    async with World() as world, world.publisher("a") as a, world.publisher("b") as b:
        reading = await Reading(world.subscriber()).begun()
        for publisher in (a, b):
            await publisher.insert("UA 1545", 1, 9)
            await publisher.insert(b"DL 461", 2)
            await publisher.adjust("DL 461", 2, INF, 7)
            await publisher.stable(5)
            await publisher.flush()
        await reading.until_events(("UA 1545", 1, 9), ("DL 461", 2, 7))
        assert a.algorithm == "r4"
        assert a.joined
        await until(lambda: a.merge_stable_point == 5)
        await reading.stop()


async def test_flush_returns_when_everything_is_merged() -> None:
    async with World() as world, world.publisher() as publisher:
        for i in range(50):
            await publisher.insert(str(i), i, i + 10)
            await publisher.flush()
            assert publisher.outbox.acked == i + 1


@both
async def test_large_batches_are_cut_to_the_limits_of_the_server() -> None:
    limits = {"batch_elements": 100, "message_bytes": 4096, "payload_bytes": 1000}
    async with World(**limits) as world, world.publisher() as publisher:
        await publisher.publish(Batch.of([Insert(b"x" * 50, i, INF) for i in range(3000)]))
        await publisher.flush()
        with pytest.raises(LimitExceeded, match="1001 bytes, above the limit of 1000"):
            await publisher.insert(b"x" * 1001, 3001)
        await publisher.flush()


@both
async def test_a_cut_connection_is_mended_and_nothing_is_lost_or_merged_twice() -> None:
    async with World() as world, world.publisher() as publisher:
        reading = await Reading(aside(world)).begun()
        await publisher.insert("frozen", 1, 3)
        await publisher.insert("half frozen", 2, 20)
        await publisher.stable(5)
        await publisher.flush()
        world.link.cut()
        await publisher.insert("published while away", 6, 9)
        await publisher.adjust("half frozen", 2, 20, 30)
        await publisher.stable(7)
        world.link.mend()
        await publisher.flush()
        assert publisher.reconnects == 1
        await reading.until_events(("frozen", 1, 3), ("half frozen", 2, 30), ("published while away", 6, 9))
        await reading.until(lambda tdb: tdb.stable_point == 7)
        await reading.stop()


def aside(world: World) -> AsyncSubscriber:
    """Return a subscriber that the link's cuts do not touch."""
    return AsyncSubscriber(world.target, MERGE)


@both
async def test_a_reconnect_joins_at_the_later_of_its_own_start_and_the_last_ack() -> None:
    async with World() as world, world.publisher("a") as a:
        reading = await Reading(aside(world)).begun()
        await a.insert("long", 1, 500)
        await a.insert("short", 2, 120)
        await a.stable(100)
        await a.flush()
        async with world.publisher("b", origin=Origin(join_at=200)) as b:  # it does not have "short", and declares so
            await b.insert("long", 1, 500)
            await b.flush()
            assert not b.joined
            world.link.cut()
            world.link.mend()
            await b.stable(150)
            await b.flush()
            assert b.reconnects == 1
            assert not b.joined
            await a.stable(150)
            await a.flush()
            await reading.until(lambda tdb: tdb.stable_point == 150)
            await reading.until_events(("long", 1, 500), ("short", 2, 120))
        await reading.stop()


@both
async def test_many_cuts_in_the_middle_of_a_stream_leave_the_same_events() -> None:
    async with World() as world, world.publisher() as publisher:
        reading = await Reading(aside(world)).begun()
        for i in range(400):
            await publisher.insert(f"event {i}", i, i + 5)
            if i % 3 == 0:
                await publisher.adjust(f"event {i}", i, i + 5, i + 8)
            if i % 10 == 9:
                await publisher.stable(i - 5)
            if i % 80 == 40:
                await publisher.flush()
                world.link.cut()
                world.link.mend()
            elif i % 7 == 0:
                await asyncio.sleep(0)
        await publisher.flush()
        expected = [(f"event {i}", i, i + (8 if i % 3 == 0 else 5)) for i in range(400)]
        await reading.until_events(*expected)
        assert publisher.reconnects >= 4
        await reading.stop()


@both
async def test_the_server_restarts_on_its_port_and_the_stream_goes_on() -> None:
    async with World() as world, world.publisher() as publisher:
        await publisher.insert("live", 1, 50)
        await publisher.stable(5)
        await publisher.flush()
        await world.restart()
        await publisher.insert("after", 6, 60)
        await publisher.flush()
        assert publisher.joined
        reading = await Reading(aside(world)).begun()
        await reading.until_events(("live", 1, 50), ("after", 6, 60))
        await reading.stop()


@both
async def test_events_are_kept_until_both_the_merge_and_the_publisher_have_frozen_them() -> None:
    async with World() as world, world.publisher("a") as a, world.publisher("b") as b:
        await a.insert("both", 1, 3)
        await a.stable(10)
        await b.insert("both", 1, 3)
        await a.flush()
        await until(lambda: b.merge_stable_point == 10)  # from an ack that a caused
        assert len(a.outbox.live) == 0
        assert len(b.outbox.live) == 1  # b itself may still adjust it
        await b.stable(4)
        assert len(b.outbox.live) == 0


async def test_a_newer_incarnation_fences_the_older_which_fails() -> None:
    async with World() as world:
        old = await world.publisher(origin=Origin(incarnation=5)).open()
        async with world.publisher(origin=Origin(incarnation=6)) as new:
            await until(lambda: old.failure)
            with pytest.raises(StaleIncarnation, match="fenced"):
                await old.insert("late", 1)
            with pytest.raises(StaleIncarnation):
                await old.close()
            await new.insert("mine", 1)
            await new.flush()


async def test_a_taken_name_is_refused_at_open() -> None:
    async with World() as world, world.publisher(origin=Origin(incarnation=5)):
        with pytest.raises((InputTaken, StaleIncarnation), match="'a'"):
            await world.publisher(origin=Origin(incarnation=5)).open()


@both
async def test_a_broken_promise_is_raised_with_the_message_of_the_server() -> None:
    async with World() as world:
        publisher = await world.publisher(properties=["insert-only", "ordered"]).open()
        await publisher.insert("first", 5)
        await publisher.insert("second", 4)
        with pytest.raises(InputViolation, match=r"second.*ordered") as caught:
            await publisher.flush()
        assert caught.value.code == "out-of-order"
        assert caught.value.index == 1
        with pytest.raises(InputViolation):
            await publisher.insert("third", 9)
        with pytest.raises(InputViolation):
            await publisher.close()


@both
async def test_a_broken_promise_is_raised_by_its_name_though_much_is_on_its_way() -> None:
    async with World() as world:
        publisher = await world.publisher(properties=["key"]).open()
        await publisher.insert("twice", 5)
        await publisher.insert("twice", 5, 9)

        async def publish_more() -> None:
            for i in range(100_000):
                await publisher.insert(b"x" * 1000, 10 + i)

        with pytest.raises(InputViolation, match=r"twice.*key"):
            await publish_more()


async def test_properties_that_are_too_weak_are_refused_at_open() -> None:
    async with World(algorithm="r1") as world:
        with pytest.raises(PropertiesTooWeak, match="r1, which needs"):
            await world.publisher(properties=["key"]).open()


@pytest.mark.parametrize(
    ("element", "code"),
    [
        (Insert(b"x", 9, 8), "end-before-start"),
        (Insert(b"x", 4, 8), "insert-below-stable"),
        (Adjust(b"event", 6, 10, 4), "end-before-start"),
        (Adjust(b"event", 1, 10, 4), "adjust-below-stable"),
        (Adjust(b"unknown", 6, 10, 12), "unknown-event"),
        (Stable(4), "stable-backwards"),
    ],
)
async def test_the_callers_own_mistake_is_raised_at_the_call_and_not_sent(
    element: Insert | Adjust | Stable, code: str
) -> None:
    async with World() as world, world.publisher() as publisher:
        await publisher.insert("event", 6, 10)
        await publisher.stable(5)
        with pytest.raises(InputViolation) as caught:
            await publisher.publish(Batch.of([element]))
        assert caught.value.code == code
        await publisher.insert("the rest goes on", 7)
        await publisher.flush()
        assert publisher.failure is None


@both
async def test_what_stands_before_the_callers_mistake_is_sent_at_once() -> None:
    async with World() as world, world.publisher() as publisher:
        reading = await Reading(aside(world)).begun()
        with pytest.raises(InputViolation) as caught:
            await publisher.publish(Batch.of([Insert(b"fine", 1, 9), Insert(b"wrong", 5, 4), Insert(b"unsent", 6, 9)]))
        assert caught.value.index == 1
        await reading.until_events(("fine", 1, 9))
        await reading.stop()


@pytest.mark.parametrize(("vs", "ve"), [(1.5, INF), ("1", INF), (1, 2**63), (-(2**63) - 1, 0), (None, 1)])
async def test_what_is_no_time_is_refused_at_the_call(vs: int, ve: int) -> None:
    async with World() as world, world.publisher() as publisher:
        with pytest.raises(InvalidBatch, match="time"):
            await publisher.insert("x", vs, ve)
        await publisher.insert("fine", 1)
        await publisher.flush()


async def test_a_closed_publisher_raises_that_it_is_closed() -> None:
    async with World() as world:
        async with world.publisher() as publisher:
            await publisher.insert("x", 1)
        with pytest.raises(UsageError, match="publisher 'a' of merge 'flights' is closed"):
            await publisher.insert("y", 1)
        await publisher.close()


@both
async def test_a_full_buffer_makes_the_caller_wait() -> None:
    async with World() as world, world.publisher(limits=PublisherLimits(buffer_bytes_max=1000)) as publisher:
        world.link.cut()
        await until(lambda: not publisher.links[0].is_connected)
        published = 0

        async def publish_all() -> None:
            nonlocal published
            for i in range(100):
                await publisher.insert(b"x" * 100, i)
                published += 1

        publishing = asyncio.create_task(publish_all())
        await until(lambda: publisher.outbox.is_full)
        assert 8 <= published < 20
        assert not publishing.done()
        world.link.mend()
        await publishing
        await publisher.flush()


async def test_attempts_that_fail_make_no_room() -> None:
    """In a long outage the published elements must not grow by a buffer with each attempt to connect."""
    async with World() as world, world.publisher(limits=PublisherLimits(buffer_bytes_max=1000)) as publisher:
        world.link.cut()
        await until(lambda: not publisher.links[0].is_connected)
        for at in range(8):
            await publisher.insert(b"x" * 100, at)
        assert publisher.outbox.is_full
        before = world.link.connections
        await until(lambda: world.link.connections >= before + 4)
        assert publisher.outbox.is_full
        waiting = asyncio.create_task(publisher.insert(b"one more", 9))
        await until(lambda: world.link.connections >= before + 6)
        assert not waiting.done()
        world.link.mend()
        await waiting
        await publisher.flush()
        assert publisher.outbox.acked == 9


async def test_it_gives_up_after_the_given_time() -> None:
    async with World() as world:
        publisher = await world.publisher(limits=PublisherLimits(give_up_after_s=0.05)).open()
        world.link.cut()
        await until(lambda: publisher.failure)
        with pytest.raises(ServerGone, match=world.link.target):
            await publisher.insert("x", 1)


async def test_a_server_that_is_not_there_yet_is_waited_for() -> None:
    async with World() as world:
        world.link.cut()
        publisher = world.publisher()
        await publisher.insert("published before there was a connection", 1)
        await until(lambda: world.link.connections >= 2)
        world.link.mend()
        await publisher.flush()
        assert publisher.reconnects == 0
        await publisher.close()


async def test_incarnations_grow_from_publisher_to_publisher_and_with_each_reconnect() -> None:
    async with World() as world:
        async with world.publisher() as first:
            before = first.incarnation
            world.link.cut()
            world.link.mend()
            await until(lambda: first.reconnects == 1)
            assert first.incarnation > before
        async with world.publisher() as second:
            assert second.incarnation > first.incarnation


@pytest.mark.long
async def test_an_idle_publisher_keeps_its_connection_and_notices_a_server_that_vanished() -> None:
    """The server allows the client's pings; they go on when nothing is published; an answer is not waited for long."""
    async with World() as world, world.publisher() as publisher:
        await publisher.insert("x", 1)
        await publisher.flush()
        before = world.link.reads
        await until(lambda: world.link.reads >= before + 4)  # pings, and answers to those of the server
        assert publisher.reconnects == 0
        world.link.hush()
        await until(lambda: publisher.reconnects == 1)
        await publisher.flush()


async def test_closing_waits_across_a_cut_for_what_was_published() -> None:
    async with World() as world:
        reading = await Reading(aside(world)).begun()
        publisher = await world.publisher().open()
        world.link.cut()
        await publisher.insert("last element", 1)
        closing = asyncio.create_task(publisher.close())
        world.link.mend()
        await closing
        await reading.until_events(("last element", 1, INF))
        await reading.stop()


async def test_a_failing_callback_is_raised_to_the_caller() -> None:
    async with World() as world:
        error = RuntimeError("the user's own")

        def fail() -> int:
            raise error

        publisher = world.publisher(heartbeat=Heartbeat(fail, every_s=0.0))
        publisher.start()
        await until(lambda: publisher.failure)
        with pytest.raises(RuntimeError, match="the user's own"):
            await publisher.flush()


async def test_an_unknown_role_or_property_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="unknown role"):
        AsyncPublisher("127.0.0.1:0", MERGE, "a", role="passive")
    with pytest.raises(LmergeError, match="sorted"):
        AsyncPublisher("127.0.0.1:0", MERGE, "a", properties=["sorted"])
