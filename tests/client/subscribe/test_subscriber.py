"""AsyncSubscriber against a real server: snapshot, deltas, breaks, gaps, and its own end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from client_world import MERGE, Reading, World, until

from lmerge.client import AsyncPublisher, AsyncSubscriber, RowChange, SubscriberLimits, SubscriptionGap
from lmerge.core.batch import AnyBatch, Batch
from lmerge.core.elements import INF, Insert, Stable
from lmerge.errors import ServerGone, SubscriberTooSlow, UnknownMerge

both = pytest.mark.usefixtures("engine")  # what comes and goes in batches; the rest is the same on every engine


def aside(world: World, replica: str = "a", **options: Any) -> AsyncPublisher:
    """Return a publisher that the link's cuts do not touch."""
    return AsyncPublisher(world.target, MERGE, replica, **options)


@both
async def test_three_lines_subscribe() -> None:
    async with World() as world, aside(world) as publisher:
        await publisher.insert("a", 1, 5)
        await publisher.stable(INF)
        await publisher.flush()
        elements = []
        async for element in AsyncSubscriber(world.target, MERGE):
            elements.append(element)
        assert elements == [Stable(INF)] or elements == [Insert(b"a", 1, 5), Stable(INF)]


@both
async def test_the_snapshot_comes_first_and_then_what_happens() -> None:
    async with World() as world, aside(world) as publisher:
        await publisher.insert("frozen", 1, 3)
        await publisher.insert("live", 2, 9)
        await publisher.stable(5)
        await publisher.flush()
        reading = await Reading(world.subscriber()).begun()
        await publisher.insert("new", 6, 8)
        await reading.until_events(("live", 2, 9), ("new", 6, 8))
        assert reading.subscriber.stable_point == 5
        assert [str(event) for event in reading.subscriber.tdb.live_events()] == ["live [2, 9)", "new [6, 8)"]
        await reading.stop()


async def test_the_stream_ends_when_it_is_complete() -> None:
    async with World() as world, aside(world) as publisher:
        reading = await Reading(world.subscriber()).begun()
        await publisher.insert("a", 1, 5)
        await publisher.stable(INF)
        await reading.task
        assert reading.elements[-1] == Stable(INF)


@both
async def test_after_a_cut_only_the_difference_is_delivered() -> None:
    async with World() as world, aside(world) as publisher:
        reading = await Reading(world.subscriber()).begun()
        await publisher.insert("kept", 2, 20)
        await publisher.insert("gone", 6, 9)
        await publisher.stable(5)
        await reading.until(lambda tdb: tdb.stable_point == 5)
        received = len(reading.elements)
        world.link.cut()
        await publisher.adjust("kept", 2, 20, 30)
        await publisher.adjust("gone", 6, 9, 6)
        await publisher.insert("new", 7, 8)
        await publisher.flush()
        world.link.mend()
        await until(lambda: reading.subscriber.reconnects == 1)
        await publisher.stable(8)
        await reading.until(lambda tdb: tdb.stable_point == 8)
        await reading.until_events(("kept", 2, 30), ("new", 7, 8))
        assert sorted(type(e).__name__ for e in reading.elements[received:]) == ["Adjust", "Adjust", "Insert", "Stable"]
        assert reading.subscriber.gaps == []
        await reading.stop()


@both
async def test_a_gap_is_reported_with_its_interval_and_to_the_callback() -> None:
    """The server retains next to nothing."""
    async with World(retain_bytes=1, segment_bytes=1) as world, aside(world) as publisher:
        reported: list[SubscriptionGap] = []
        reading = await Reading(world.subscriber(on_gap=reported.append)).begun()
        await publisher.insert("open", 1, INF)
        await publisher.stable(5)
        await reading.until(lambda tdb: tdb.stable_point == 5)
        world.link.cut()
        await publisher.insert("never seen", 6, 8)
        await publisher.stable(10)
        await publisher.flush()
        world.link.mend()
        await reading.until(lambda tdb: tdb.stable_point == 10)
        assert reading.subscriber.gaps == reported == [SubscriptionGap(5, 10)]
        await reading.until_events(("open", 1, INF))
        await reading.stop()


@both
async def test_the_server_restarts_and_nothing_is_delivered_twice() -> None:
    async with World() as world, world.publisher() as publisher:
        reading = await Reading(world.subscriber()).begun()
        await publisher.insert("frozen", 1, 3)
        await publisher.insert("live", 2, 9)
        await publisher.stable(5)
        await reading.until(lambda tdb: tdb.stable_point == 5)
        await world.restart()
        await publisher.insert("after", 6, 8)
        await publisher.stable(7)
        await reading.until(lambda tdb: tdb.stable_point == 7)
        await reading.until_events(("frozen", 1, 3), ("live", 2, 9), ("after", 6, 8))
        await reading.stop()


@both
async def test_many_cuts_lead_to_the_same_events_where_no_gap_was() -> None:
    async with World() as world, aside(world) as publisher:
        reading = await Reading(world.subscriber()).begun()
        for i in range(300):
            await publisher.insert(f"event {i}", i, i + 1000)
            if i % 60 == 30:
                world.link.cut()
                world.link.mend()
            if i % 15 == 0:
                await publisher.flush()
        await publisher.flush()
        await reading.until_events(*((f"event {i}", i, i + 1000) for i in range(300)))
        assert len([e for e in reading.elements if isinstance(e, Insert)]) == 300
        assert reading.subscriber.gaps == []
        await reading.stop()


@pytest.mark.parametrize("resync", [True, False])
async def test_a_slow_reader_is_cut_off_and_resyncs_if_it_may(resync: bool) -> None:
    limits = {"message_bytes": 65_536, "payload_bytes": 10_000, "subscriber_queue_bytes": 65_536}
    async with World(**limits) as world, aside(world) as publisher:
        subscriber = AsyncSubscriber(world.target, MERGE, resync=resync)
        batches = subscriber.batches()
        await publisher.insert("first", 0, INF)
        assert (await anext_of(batches)).count == 1
        count = 0
        while (await described(world)).subscribers:  # until it is cut off: sockets and queues are full
            await publisher.publish(Batch.of([Insert(b"%09999d" % (count + i), 1, INF) for i in range(100)]))
            await publisher.flush()
            count += 100
        seen = 1

        async def read_all() -> None:
            nonlocal seen
            while seen < count + 1:
                seen += (await anext_of(batches)).count

        if resync:
            await read_all()
            # It subscribes again by itself while the server is still fed, and can be cut off again: each one counts.
            assert subscriber.resyncs == world.server._registry.hubs[MERGE].state.cut_off_count >= 1
            assert subscriber.tdb.live_count == count + 1
        else:
            with pytest.raises(SubscriberTooSlow, match="was cut off"):
                await read_all()
        await batches.aclose()  # type: ignore[attr-defined]  # of a generator


async def test_one_that_is_cut_off_before_anything_was_sent_subscribes_again() -> None:
    async with World() as world, aside(world) as publisher:
        await publisher.insert("x", 1, 9)
        await publisher.flush()
        hub = world.server._registry.hubs[MERGE]
        subscribe = hub.subscriptions.subscribe

        async def overflow_at_once(subscriber: Any, *arguments: Any, **options: Any) -> Any:
            beginning = await subscribe(subscriber, *arguments, **options)
            hub.subscriptions.subscribe = subscribe  # type: ignore[method-assign]  # as it was
            assert not subscriber.offer(b"x" * (world.server.settings.subscriber_queue_bytes + 1), 1)
            return beginning

        hub.subscriptions.subscribe = overflow_at_once  # type: ignore[method-assign]  # once
        reading = Reading(world.subscriber())
        await reading.until_events(("x", 1, 9))  # perhaps of the snapshot that was sent before the cut
        await publisher.insert("y", 2, 9)
        await reading.until_events(("x", 1, 9), ("y", 2, 9))  # certainly of the next one
        assert reading.subscriber.resyncs == 1
        await reading.stop()


async def anext_of(batches: AsyncIterator[AnyBatch]) -> AnyBatch:
    return await batches.__anext__()


async def described(world: World) -> Any:
    from lmerge.client import describe_merge

    return await asyncio.to_thread(describe_merge, world.target, MERGE)


async def test_an_unknown_merge_is_an_error_or_waited_for() -> None:
    async with World() as world:
        with pytest.raises(UnknownMerge, match="'missing'"):
            async for _ in AsyncSubscriber(world.target, "missing", wait_for_merge=False):
                pass
        reading = Reading(AsyncSubscriber(world.target, "later"))
        async with AsyncPublisher(world.target, "later", "a") as publisher:
            await publisher.insert("x", 1, 2)
            await reading.until_events(("x", 1, 2))
        await reading.stop()


async def test_it_gives_up_after_the_given_time_counted_from_the_loss() -> None:
    async with World() as world:
        reading = await Reading(world.subscriber(limits=SubscriberLimits(give_up_after_s=0.05))).begun()
        world.link.cut()
        with pytest.raises(ServerGone, match=world.link.target):
            await reading.task


async def test_closing_ends_an_iteration_that_waits_in_another_task() -> None:
    async with World() as world:
        reading = await Reading(world.subscriber()).begun()
        await reading.stop()
        assert reading.task.exception() is None


async def test_closing_ends_an_iteration_that_waits_to_connect() -> None:
    async with World() as world:
        world.link.cut()
        reading = Reading(world.subscriber())
        await until(lambda: world.link.connections >= 2)
        await reading.stop()


@both
async def test_rows_come_decoded_by_the_schema_of_the_publisher() -> None:
    async with World() as world:
        subscriber = world.subscriber()
        changes: list[RowChange] = []

        async def read() -> None:
            async for change in subscriber.rows():
                changes.append(change)

        reading = asyncio.create_task(read())
        await until(lambda: subscriber.follower.final_to is not None)  # of a merge that has no schema yet
        async with aside(world, schema="infer") as publisher:
            await publisher.publish_rows([{"carrier": "UA", "at": 1, "until": 9}], vs="at", ve="until")
            await publisher.flush()
            await publisher.adjust({"carrier": "UA"}, 1, 9, 7)
            await publisher.stable(INF)
        await reading
        assert changes == [
            RowChange("insert", {"carrier": "UA"}, 1, 9, 0),
            RowChange("adjust", {"carrier": "UA"}, 1, 7, 9),
            RowChange("stable", None, INF, 0, 0),
        ]
