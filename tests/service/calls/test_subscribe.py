"""Subscribe: a snapshot, then deltas without gap or overlap; slow readers are cut off, others go on."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from service_world import MERGE, RawReader, World, adj, ins, stable

from lmerge.core.elements import NEG_INF, Event, Insert, Stable
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.generated import lmerge_pb2_grpc as pb_grpc

pytestmark = pytest.mark.usefixtures("transport")

both = pytest.mark.usefixtures("engine")  # tests of batches in and out; the rest does not depend on the engine


@both
async def test_a_subscriber_gets_the_live_events_and_then_the_deltas() -> None:
    async with World() as world:
        a = await world.publisher("a")
        await a.merged(ins("gone", 1, 3), ins("x", 2, 30), ins("y", 6, 9), stable(5))
        reader = await world.subscriber()
        assert reader.snapshot == [Insert(b"x", 2, 30), Insert(b"y", 6, 9), Stable(5)]
        assert (reader.begin.stable_point, reader.begin.events) == (5, 2)
        await a.merged(adj("x", 2, 30, 8), ins("z", 7, 8), stable(10))
        assert await reader.until_stable(10) == [Event(2, b"x", 8), Event(6, b"y", 9), Event(7, b"z", 8)]


@both
async def test_the_snapshot_of_an_empty_merge_is_empty() -> None:
    async with World(merges=(MERGE,)) as world:
        reader = await world.subscriber()
        assert (reader.snapshot, reader.begin.events, reader.begin.stable_point) == ([], 0, NEG_INF)


@both
async def test_a_large_snapshot_comes_in_batches_within_the_limits() -> None:
    limits = {"message_bytes": 4_096, "payload_bytes": 1_024, "batch_elements": 50, "subscriber_queue_bytes": 4_096}
    async with World(**limits) as world:
        a = await world.publisher("a")
        for at in range(0, 400, 40):
            await a.merged(*(ins("x", vs, 1_000) for vs in range(at, at + 40)))
        reader = await world.subscriber()
        assert reader.begin.events == 400
        assert reader.snapshot_batches == 8
        assert len(reader.tdb.events()) == 400


@both
async def test_subscribers_that_come_while_elements_flow_miss_nothing_and_get_nothing_twice() -> None:
    async with World(turn_interval_s=0.0001) as world:
        a, b = await world.publisher("a"), await world.publisher("b")
        readers: list[RawReader] = []
        for at in range(200):
            for publisher in (a, b):
                await publisher.send(ins("long", at, 10_000), ins("short", at, at + 3), stable(at - 2))
            if at % 20 == 7:
                readers.append(await world.subscriber())
        await a.merged(stable(5_000))
        for reader in readers:
            events = await reader.until_stable(5_000)
            assert [e.vs for e in events if e.payload == b"long"] == list(range(200))
            assert [e.vs for e in events if e.payload == b"short"][-1] == 199


@both
async def test_all_subscribers_of_a_merge_get_the_same_bytes() -> None:
    async with World(merges=(MERGE,)) as world:
        request = pb.SubscribeRequest(merge=MERGE)
        make: Any = world.channel.unary_stream(
            "/lmerge.v1.Lmerge/Subscribe", request_serializer=pb.SubscribeRequest.SerializeToString
        )
        calls = [make(request), make(request)]
        for call in calls:
            assert [await call.read(), await call.read()]
        await world.described(lambda merge: len(merge.subscribers) == 2)
        await (await world.publisher("a")).merged(ins("x", 1, 2), stable(9))
        first, second = [await call.read() for call in calls]
        assert first == second


async def test_an_unknown_merge_is_not_found() -> None:
    async with World() as world:
        ending = await RawReader(world.subscribe("nowhere")).ending()
        assert ending.code is grpc.StatusCode.NOT_FOUND
        assert "'nowhere'" in ending.details


async def test_a_subscriber_can_wait_for_a_merge() -> None:
    async with World() as world:
        waiting = asyncio.create_task(world.subscriber(wait=True))
        declined = await world.refused("a", properties=["no such word"])
        assert declined.code is grpc.StatusCode.INVALID_ARGUMENT
        a = await world.publisher("a")
        reader = await waiting
        await a.merged(ins("x", 1, 2), stable(5))
        assert await reader.until_stable(5) == [Event(1, b"x", 2)]


async def test_waiting_subscribers_have_a_limit_and_give_their_place_back() -> None:
    async with World(waiting_subscribers=1) as world:
        first = world.subscribe("later", wait=True)
        second = world.subscribe("later", wait=True)
        done, _ = await asyncio.wait(
            [asyncio.create_task(RawReader(call).ending()) for call in (first, second)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert [task.result().code for task in done] == [grpc.StatusCode.RESOURCE_EXHAUSTED]
        first.cancel()
        second.cancel()
        a = await world.publisher("a", merge="later")
        reader = await world.subscriber("later", wait=True)
        await a.merged(stable(5))
        await reader.until_stable(5)


async def test_silence_is_filled_with_progress() -> None:
    async with World(progress_interval_s=0.02) as world:
        a = await world.publisher("a")
        await a.merged(ins("x", 1, 2), stable(7))
        call = world.subscribe()
        kinds: list[str] = []
        while kinds[-2:] != ["progress", "progress"]:
            message = await call.read()
            kinds.append(message.WhichOneof("message"))
        assert message.progress.stable_point == 7


async def test_a_slow_subscriber_is_cut_off_by_name_and_a_fast_one_misses_nothing() -> None:
    limits = {"message_bytes": 65_536, "payload_bytes": 20_000, "subscriber_queue_bytes": 131_072}
    async with World(**limits) as world:
        a = await world.publisher("a")
        channel = world.new_channel()
        slow = await world.subscriber(name="sleepy", stub=pb_grpc.LmergeStub(channel))
        fast = await world.subscriber(name="awake")
        sent = 0
        while len((await world.describe()).subscribers) == 2:
            await a.merged(ins(b"x" * 20_000, sent, sent + 1), stable(sent))
            await fast.until_stable(sent)
            sent += 1
        await a.merged(stable(sent + 1))
        assert len(await fast.until_stable(sent + 1)) == sent
        ending = await slow.ending()
        assert ending.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "subscriber 'sleepy' was cut off" in ending.details
        assert [s.subscriber for s in (await world.describe()).subscribers] == ["awake"]
        again = await world.subscriber(name="sleepy")
        assert again.begin.stable_point == sent + 1
        await channel.close()


async def test_subscribers_above_the_limit_are_refused() -> None:
    async with World(merges=(MERGE,), subscribers_per_merge=1) as world:
        first = await world.subscriber(name="first")
        ending = await RawReader(world.subscribe(name="second")).ending()
        assert ending.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "'second'" in ending.details
        first.call.cancel()
        await world.described(lambda merge: not merge.subscribers)
        await world.subscriber(name="second")
