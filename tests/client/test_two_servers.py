"""Publishers and subscribers of two real servers: either can die at any moment, and the readers do not notice it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest
from client_world import MERGE, Cluster, Reading, World, publish_all, until

from lmerge.client import AsyncPublisher, AsyncSubscriber, Origin, PublisherLimits, SubscriberLimits
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Element, Insert, Stable
from lmerge.errors import InputViolation, OutOfRange, ServerGone, StaleIncarnation, UsageError
from lmerge.testing.streams.merge_inputs import MIXED, present, reference

both = pytest.mark.usefixtures("engine")  # what comes and goes in batches; the rest is the same on every engine


def states(subscriber: AsyncSubscriber) -> list[str]:
    return [source.state for source in subscriber.sources]


async def joined(subscriber: AsyncSubscriber) -> None:
    await until(lambda: set(states(subscriber)) == {"joined"})


@both
async def test_each_server_gets_everything_and_the_reader_receives_it_once() -> None:
    async with Cluster(2) as cluster, cluster.publisher() as publisher:
        reading = Reading(cluster.subscriber())
        await publisher.insert("x", 1, 9)
        await publisher.insert("y", 2, 8)
        await publisher.stable(5)
        await publisher.flush()
        await reading.until(lambda tdb: tdb.stable_point == 5)
        await reading.until_events(("x", 1, 9), ("y", 2, 8))
        assert len([e for e in reading.elements if isinstance(e, Insert)]) == 2
        for world in cluster.worlds:
            alone = Reading(AsyncSubscriber(world.target, MERGE))
            await alone.until_events(("x", 1, 9), ("y", 2, 8))
            await alone.stop()
        await reading.stop()


@both
@pytest.mark.parametrize("dies", [0, 1])
async def test_a_server_that_dies_and_comes_back_is_not_noticed_by_the_reader(dies: int) -> None:
    async with Cluster(2) as cluster, cluster.publisher("a") as a, cluster.publisher("b") as b:
        reading = await Reading(cluster.subscriber()).begun()
        await joined(reading.subscriber)
        expected = []
        for at in range(0, 300, 3):
            for publisher in (a, b):
                await publisher.insert(f"e{at}", at, at + 40)
                await publisher.stable(at)
            expected.append((f"e{at}", at, at + 40))
            if at == 90:
                await cluster.kill(dies)
            if at == 180:
                await cluster.revive(dies)
                await until(lambda: all(link.is_connected for link in (*a.links, *b.links)))
                await joined(reading.subscriber)
            if at == 240:  # the one that came back must be as good as the other
                await cluster.kill(1 - dies)
            if at % 30 == 0:
                await a.flush()
                await b.flush()
        await reading.until(lambda tdb: tdb.stable_point == 297)
        await reading.until_events(*expected)
        assert reading.subscriber.gaps == []
        assert len([e for e in reading.elements if isinstance(e, Insert)]) == len(expected)
        await reading.stop()


def is_back(links: Sequence[Any], publishing: Sequence[asyncio.Task[Any]]) -> bool:
    """Return whether all links are connected, or nothing is published any more."""
    return all(link.is_connected for link in links) or all(task.done() for task in publishing)


def is_joined(subscriber: AsyncSubscriber, server: int, publishing: Sequence[asyncio.Task[Any]]) -> bool:
    """Return whether the reader has joined a server, or nothing is published any more."""
    return states(subscriber)[server] == "joined" or all(task.done() for task in publishing)


@both
@pytest.mark.parametrize("seed", range(3))
async def test_servers_that_die_in_turn_under_load_lose_nothing_and_double_nothing(seed: int) -> None:
    random = Random(seed)
    events = reference(random, 200, duplicates=seed == 1)
    policies = random.sample(["lazy", "eager", "half-frozen-only"], 2)
    async with Cluster(2) as cluster:
        for world, policy in zip(cluster.worlds, policies):
            world.settings["policy"] = policy
            await world.restart()
        reading = Reading(cluster.subscriber())
        publishers = [await cluster.publisher(name).open() for name in "ab"]
        shapes = (MIXED, replace(MIXED, places=20, stables=0.1))
        publishing = [
            asyncio.create_task(publish_all(publisher, present(random, events, shape), Random(seed)))
            for publisher, shape in zip(publishers, shapes)
        ]
        dies = 0
        while not all(task.done() for task in publishing):
            await cluster.kill(dies)
            await asyncio.sleep(0)
            await cluster.revive(dies)
            back = [link for publisher in publishers for link in publisher.links[dies : dies + 1]]
            await until(partial(is_back, back, publishing))
            await until(partial(is_joined, reading.subscriber, dies, publishing))
            dies = 1 - dies
        await asyncio.gather(*publishing)
        await asyncio.wait_for(reading.task, 20)
        assert reading.tdb.events() == events
        assert reading.subscriber.gaps == []


async def test_a_server_that_was_never_there_slows_no_client_down() -> None:
    async with World() as world:
        world.link.cut()
        targets = [world.link.target, world.target]
        async with AsyncPublisher(targets, MERGE, "a", limits=PublisherLimits(buffer_bytes_max=10_000)) as publisher:
            reading = Reading(AsyncSubscriber(targets, MERGE))
            for at in range(60):
                await publisher.insert(b"x" * 1000, at, INF)
                await publisher.flush()
            await reading.until(lambda tdb: tdb.live_count == 60)
            await reading.stop()


async def test_a_server_that_hangs_is_started_again_and_delays_no_client() -> None:
    """Its connection stays open and takes nothing, as that of a stopped process."""
    async with Cluster(2) as cluster, cluster.publisher(limits=PublisherLimits(buffer_bytes_max=100_000)) as publisher:
        await until(lambda: all(link.is_connected for link in publisher.links))
        await publisher.insert("first", 0)
        await publisher.flush()
        cluster.worlds[1].link.stall()
        hanging = publisher.links[1]
        at = 0
        while not hanging.lane.was_dropped and hanging.is_connected:
            at += 1
            await publisher.publish(Batch.of([Insert(b"x" * 10_000, at, INF) for _ in range(10)]))
            await until(lambda: not publisher.outbox.is_full)
        published = publisher.outbox.published
        await until(lambda: publisher.links[0].lane.acked == published)
        cluster.worlds[1].link.go_on()
        await publisher.flush()


async def test_flush_and_close_need_one_server_and_wait_for_all_that_are_there() -> None:
    async with Cluster(2) as cluster:
        publisher = await cluster.publisher().open()
        assert [link.is_connected for link in publisher.links] == [True, True]
        await publisher.insert("x", 1, 5)
        await publisher.flush()
        assert [link.lane.acked for link in publisher.links] == [1, 1]
        await cluster.kill(0)
        await publisher.insert("y", 2, 6)
        await until(lambda: not publisher.links[0].is_connected)
        await publisher.flush()
        await publisher.close()


async def test_without_any_server_closing_waits_for_one() -> None:
    async with Cluster(2) as cluster:
        publisher = await cluster.publisher().open()
        await cluster.kill(0)
        await cluster.kill(1)
        await publisher.insert("x", 1, 5)
        closing = asyncio.create_task(publisher.close())
        await until(lambda: not any(link.is_connected for link in publisher.links))
        assert not closing.done()
        await cluster.revive(1)
        await closing


async def test_a_publisher_that_is_fenced_at_one_server_fails_and_names_it() -> None:
    async with Cluster(2) as cluster:
        old = await cluster.publisher(origin=Origin(incarnation=5)).open()
        target = cluster.worlds[1].link.target
        async with AsyncPublisher(target, MERGE, "a", origin=Origin(incarnation=6)):
            await until(lambda: old.failure)
            with pytest.raises(StaleIncarnation, match=rf"fenced.*{target}"):
                await old.insert("late", 1)


async def test_a_broken_promise_is_one_on_every_server() -> None:
    async with Cluster(2) as cluster:
        publisher = await cluster.publisher(properties=["insert-only", "ordered"]).open()
        await publisher.insert("first", 5)
        await publisher.insert("second", 4)
        await until(lambda: publisher.failure)
        with pytest.raises(InputViolation, match=r"second.*ordered.*server 127"):
            await publisher.flush()


async def test_it_gives_up_when_no_server_was_there_for_too_long_and_not_before() -> None:
    async with Cluster(2) as cluster:
        publisher = await cluster.publisher(limits=PublisherLimits(give_up_after_s=0.2)).open()
        reading = await Reading(cluster.subscriber(limits=SubscriberLimits(give_up_after_s=0.2))).begun()
        await joined(reading.subscriber)
        await cluster.kill(0)
        await until(lambda: not publisher.links[0].is_connected and states(reading.subscriber)[0] == "away")
        await asyncio.wait([reading.task], timeout=0.3)
        await publisher.insert("x", 1)
        await publisher.flush()
        assert not reading.task.done()
        await cluster.kill(1)
        with pytest.raises(ServerGone):
            await reading.task
        await until(lambda: publisher.failure)
        assert isinstance(publisher.failure, ServerGone)


async def test_a_list_of_servers_is_checked_at_once() -> None:
    for targets, message in (
        ("", "HOST:PORT"),
        ("a:1,,b:2", "HOST:PORT"),
        ("a:1,a:1", "twice"),
        ([f"h{at}:1" for at in range(17)], "limit of 16"),
    ):
        with pytest.raises(UsageError, match=message):
            AsyncPublisher(targets, MERGE, "a")
        with pytest.raises(UsageError, match=message):
            AsyncSubscriber(targets, MERGE)


# Resuming.


async def read_to(subscriber: AsyncSubscriber, stable: int) -> list[Element]:
    elements = []
    async for element in subscriber:
        elements.append(element)
        if element == Stable(stable):
            break
    return elements


@both
async def test_a_token_from_one_server_is_good_at_another() -> None:
    async with Cluster(2) as cluster, cluster.publisher() as publisher:
        subscriber = AsyncSubscriber(cluster.worlds[0].link.target, MERGE)
        reading = asyncio.create_task(read_to(subscriber, 5))
        await until(lambda: subscriber.follower.final_to is not None)
        await publisher.insert("frozen", 1, 3)
        await publisher.insert("live", 2, 9)
        await publisher.stable(5)
        await reading
        assert subscriber.token == f"{MERGE}@5"
        await publisher.insert("while away", 6, 7)
        await publisher.stable(8)
        await publisher.flush()
        resumed = AsyncSubscriber(cluster.worlds[1].link.target, MERGE, resume=subscriber.token)
        received = [element for element in await read_to(resumed, 8) if not isinstance(element, Stable)]
        assert received == [Insert(b"live", 2, 9), Insert(b"while away", 6, 7)]


@both
async def test_a_reader_that_goes_on_from_a_checkpoint_receives_nothing_twice() -> None:
    async with Cluster(2) as cluster, cluster.publisher() as publisher:
        subscriber = cluster.subscriber()
        reading = asyncio.create_task(read_to(subscriber, 5))
        await until(lambda: subscriber.follower.final_to is not None)
        await publisher.insert("live", 2, 9)
        await publisher.stable(5)
        before = await reading
        data = subscriber.checkpoint()
        await publisher.insert("while away", 6, 7)
        await publisher.stable(8)
        await publisher.flush()
        await cluster.kill(0)
        after = await read_to(cluster.subscriber(resume=data), 8)
        assert (before, after) == ([Insert(b"live", 2, 9), Stable(5)], [Insert(b"while away", 6, 7), Stable(8)])


@pytest.mark.parametrize("count", [1, 2])
async def test_a_token_that_is_too_old_is_an_error_or_a_reported_gap(count: int) -> None:
    async with Cluster(count, retain_bytes=1, segment_bytes=1) as cluster, cluster.publisher() as publisher:
        for at in range(10):
            await publisher.insert("x", at, at + 1)
            await publisher.stable(at)
            await publisher.flush()
        with pytest.raises(OutOfRange, match=r"cannot resume merge 'flights' at 2"):
            await read_to(cluster.subscriber(resume=f"{MERGE}@2"), 9)
        gaps: list[Any] = []
        subscriber = cluster.subscriber(resume=f"{MERGE}@2", if_too_old="snapshot", on_gap=gaps.append)
        await read_to(subscriber, 9)
        assert [(gap.start, gap.end) for gap in gaps] == [(2, 9)]


async def test_a_token_or_checkpoint_of_another_merge_or_a_damaged_one_is_refused_at_once() -> None:
    good = AsyncSubscriber("h:1", MERGE).checkpoint()
    AsyncSubscriber("h:1", MERGE, resume=good)
    for at in range(len(good)):
        damaged = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
        with pytest.raises(UsageError, match=f"cannot resume merge '{MERGE}'"):
            AsyncSubscriber("h:1", MERGE, resume=damaged)
        with pytest.raises(UsageError, match=f"cannot resume merge '{MERGE}'"):
            AsyncSubscriber("h:1", MERGE, resume=good[:at])
    for resume in (good, f"{MERGE}@5"):
        with pytest.raises(UsageError, match=f"of merge '{MERGE}'"):
            AsyncSubscriber("h:1", "another", resume=resume)
    with pytest.raises(UsageError, match="another version"):
        AsyncSubscriber("h:1", MERGE, resume=good.replace(b"checkpoint 1", b"checkpoint 2"))


async def test_in_the_middle_of_a_batch_the_token_covers_no_more_than_what_was_seen() -> None:
    async with World() as world, AsyncPublisher(world.target, MERGE, "a") as publisher:
        subscriber = world.subscriber()
        elements = subscriber.elements()
        await publisher.publish(Batch.of([Insert(b"a", 1, 9), Stable(1), Insert(b"b", 2, 9), Stable(2)]))
        await publisher.flush()
        seen: list[tuple[Element, str]] = []
        async for element in elements:
            seen.append((element, subscriber.token))
            if element == Stable(2):
                break
        for element, token in seen:
            if isinstance(element, Stable):
                assert token == f"{MERGE}@{element.vc}"
        await elements.aclose()  # type: ignore[attr-defined]  # of a generator
