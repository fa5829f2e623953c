"""Feedback (V.D), roles, heartbeats and seeds: the messages of servers to publishers, and what publishers do."""

from __future__ import annotations

import asyncio
import socket

import pytest
from client_world import MERGE, Cluster, Reading, World, until

from lmerge.client import AsyncPublisher, AsyncSubscriber, FastForward, Heartbeat, Origin, SkippedRange
from lmerge.core.batch import Batch
from lmerge.core.elements import Adjust, Insert, Stable
from lmerge.core.inputs import InputRole
from lmerge.errors import InvalidBatch


def test_what_ends_before_the_point_is_not_needed_and_the_skip_is_sent_first() -> None:
    ff = FastForward()
    skips: list[tuple[int, int]] = []
    ff.bind(lambda until: skips.append((until, ff.count)))  # nothing more has been left out by then
    assert ff.needs(1)
    ff(10)
    assert skips == []
    assert [ff.needs(ve) for ve in (10, 9, 4, 12)] == [True, False, False, True]
    assert skips == [(10, 0)]
    ff(20)
    assert ff.needs(20)
    assert skips == [(10, 0)]
    assert not ff.needs(15)
    assert skips == [(10, 0), (20, 2)]
    assert ff.count == 3
    assert ff.skipped == [SkippedRange(4, 10), SkippedRange(15, 20)]


def test_the_point_never_goes_back() -> None:
    ff = FastForward()
    ff(10)
    ff(5)
    assert ff.until == 10


def test_a_filter_leaves_out_what_is_not_needed() -> None:
    ff = FastForward()
    ff(10)
    assert list(ff.filter([(1, 5), (2, 10), (3, 11)], end=lambda row: row[1])) == [(2, 10), (3, 11)]


async def test_a_replica_that_lags_gets_feedback_and_its_skip_loses_nothing_of_the_others() -> None:
    async with Cluster(2, feedback_lag=100) as cluster:
        ff = FastForward()
        fast = await cluster.publisher("fast").open()
        slow = await cluster.publisher("slow", on_fast_forward=ff).open()
        reading = await Reading(cluster.subscriber()).begun()
        await slow.stable(1)
        await slow.flush()
        rows = [(f"e{at}", at, at + 10) for at in range(5, 1000, 5)]
        for payload, vs, ve in rows:
            await fast.insert(payload, vs, ve)
        await fast.stable(1000)
        await fast.flush()
        await until(lambda: ff.until == 1000)
        for payload, vs, ve in ff.filter(rows, end=lambda row: row[2]):
            await slow.insert(payload, vs, ve)
        await slow.stable(1000)
        await slow.flush()
        assert ff.count == sum(ve < 1000 for _, _, ve in rows)
        await until(lambda: slow.joined)
        await fast.close()
        await slow.insert("goes on", 1000, 2000)
        await slow.stable(1500)
        await reading.until(lambda tdb: tdb.stable_point == 1500)
        await reading.until_events(*rows, ("goes on", 1000, 2000))
        await reading.stop()
        await slow.close()


async def test_only_what_no_server_needs_is_handed_on_once_and_upwards() -> None:
    async with Cluster(2, feedback_lag=100) as cluster:
        received: list[int] = []
        slow = await cluster.publisher("slow", on_fast_forward=received.append).open()
        await slow.stable(1)
        await slow.flush()
        worlds = cluster.worlds
        async with (
            AsyncPublisher(worlds[0].target, MERGE, "one") as one,
            AsyncPublisher(worlds[1].target, MERGE, "other") as other,
        ):
            await one.stable(1000)
            await one.flush()
            await until(lambda: slow.links[0].needed_from == 1000)
            assert received == []
            await other.stable(600)
            await until(lambda: slow.links[1].needed_from == 600)
            assert received == [600]
            await other.stable(2000)
            await until(lambda: slow.links[1].needed_from == 2000)
            assert received == [600, 1000]
        await slow.close()


async def test_a_server_that_is_still_being_called_may_need_more() -> None:
    received: list[int] = []
    async with World(feedback_lag=100) as world, world.publisher("fast") as fast:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            targets = [world.target, f"127.0.0.1:{silent.getsockname()[1]}"]
            slow = AsyncPublisher(targets, MERGE, "slow", on_fast_forward=received.append)
            await slow.stable(1)
            await until(lambda: slow.links[0].is_connected)
            await fast.stable(1000)
            await until(lambda: slow.links[0].needed_from == 1000)
            assert not slow.links[1].was_tried
            assert received == []
        await until(lambda: received == [1000])
        await slow.abort()


async def test_a_skip_that_a_server_has_asked_for_needs_no_other_connection() -> None:
    async with World(feedback_lag=0, stable_ack_interval_s=3600.0) as world, world.publisher("a") as a:
        received: list[int] = []
        async with world.publisher("b", on_fast_forward=received.append) as b:
            await a.stable(50)
            await until(lambda: received == [50])
            await b.skip(50)
            await b.stable(20)
            await b.flush()
            assert b.reconnects == 0
            described = world.server._registry.get(MERGE).inputs.get("b").life
            assert described.skipped_until == 50


async def test_a_skip_beyond_a_servers_stable_point_makes_the_input_join_there() -> None:
    async with World() as world, world.publisher("a") as a, world.publisher("b") as b:
        reading = await Reading(AsyncSubscriber(world.target, MERGE)).begun()
        await a.insert("a alone", 1, 30)
        await b.skip(50)
        await b.insert("both", 40, 90)
        await b.stable(60)
        await until(lambda: b.reconnects == 1)
        await b.flush()
        assert not b.joined
        await a.insert("both", 40, 90)
        await a.stable(55)
        await until(lambda: b.joined)
        await reading.until_events(("a alone", 1, 30), ("both", 40, 90))
        await reading.stop()


async def test_a_server_changes_the_role_and_the_input_attaches_anew() -> None:
    async with World() as world, world.publisher("new", role="observe") as new:
        await new.insert("x", 1, 9)
        await new.flush()
        incarnation = new.incarnation
        hub = world.server._registry.get(MERGE)
        session = hub.inputs.get("new").session
        session.change_role(InputRole.ACTIVE)
        await until(lambda: new.reconnects == 1)
        assert new.role == "active"
        assert new.incarnation > incarnation
        reading = await Reading(AsyncSubscriber(world.target, MERGE)).begun()
        await reading.until_events(("x", 1, 9))
        await reading.stop()


async def test_an_idle_source_goes_on_publishing_stables_and_a_busy_one_is_left_alone() -> None:
    async with World() as world:
        clock = iter((10, 10, 5, None, 20))
        asked = []

        def heartbeat() -> int | None:
            asked.append(next(clock, 20))
            return asked[-1]

        async with world.publisher(heartbeat=Heartbeat(heartbeat, every_s=0.01)) as publisher:
            await until(lambda: publisher.merge_stable_point == 20)
            assert asked[:5] == [10, 10, 5, None, 20]
        count = len(asked)
        async with world.publisher("busy", heartbeat=Heartbeat(heartbeat, every_s=5.0)) as publisher:
            await publisher.stable(30)
            await publisher.flush()
        assert len(asked) == count


async def test_a_seed_is_published_first_and_the_input_joins_at_its_stable() -> None:
    async with World() as world, world.publisher("old") as old:
        reading = await Reading(AsyncSubscriber(world.target, MERGE)).begun()
        await old.insert("frozen", 1, 5)
        await old.insert("live", 2, 50)
        await old.stable(20)
        await old.flush()
        seed = Batch.of([Insert(b"live", 2, 50), Stable(20)])
        async with world.publisher("new", origin=Origin(seed=seed)) as new:
            await new.adjust("live", 2, 50, 60)
            await new.insert("later", 25, 40)
            await new.stable(30)
            await new.flush()
            assert new.joined
            await old.abort()
            await reading.until_events(("frozen", 1, 5), ("live", 2, 60), ("later", 25, 40))
        await reading.stop()


@pytest.mark.parametrize(
    "elements",
    [[], [Insert(b"x", 1, 2)], [Stable(1), Stable(2)], [Insert(b"x", 1, 5), Adjust(b"x", 1, 5, 6), Stable(1)]],
)
async def test_what_is_no_checkpoint_is_no_seed(elements: list[Insert | Adjust | Stable]) -> None:
    with pytest.raises(InvalidBatch, match="a seed is inserts and then one stable"):
        AsyncPublisher("h:1", MERGE, "a", origin=Origin(seed=Batch.of(elements)))
    await asyncio.sleep(0)
