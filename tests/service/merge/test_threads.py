"""Large turns on the native engine are merged in threads: the same stream, nothing lost, and other merges go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import aiohttp
import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families
from service_world import MERGE, Gate, RawPublisher, RawReader, World, ins, stable

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Element, Event, Stable
from lmerge.core.engines import selection
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.errors import UsageError
from lmerge.service.merge import hub as hubs
from lmerge.service.merge.hub import THREAD_ELEMENTS_MIN, Hub
from lmerge.service.settings import Settings
from lmerge.testing.streams.merge_inputs import MIXED, present, reference
from lmerge.wire.generated import lmerge_pb2 as pb

pytestmark = pytest.mark.usefixtures("native_engine")

ALWAYS, NEVER = 1, 2**62  # the number of elements from which a turn uses a thread


def hub_of(world: World, merge: str = MERGE) -> Hub:
    return world.server._registry.hubs[merge]


def by_hand(streams: list[tuple[str, list[Element]]]) -> list[Element]:
    """Return the output of a merge for these batches, in this order."""
    merge = Merge(MergeConfig(engine="python"))
    for name in sorted({name for name, _ in streams}):
        merge.attach(name, ("key",))
    return [e for name, batch in streams for e in merge.apply(name, Batch.of(batch)).batch.elements()]


def later(element: Element, by: int) -> Element:
    """Return the same element at a later time."""
    shifted: list[Any] = [field if isinstance(field, bytes) or field == INF else field + by for field in element]
    return type(element)(*shifted)


def large_streams() -> tuple[list[Event], list[tuple[str, list[Element]]]]:
    """Return a few hundred events, repeated at later times, and two inputs' streams in small and large batches."""
    random = Random(3)
    events = reference(random, 500, payloads=26)
    streams: list[list[Element]] = []
    for _ in range(2):
        stream = present(random, events, replace(MIXED, invented=0.01, liveliness="open"))
        period = [element for element in stream if not isinstance(element, Stable) or element.vc < 10_000]
        streams.append([later(element, at * 10_000) for at in range(16) for element in period] + [Stable(INF)])
    batches: list[tuple[str, list[Element]]] = []
    while any(streams):
        at = random.choice([at for at in (0, 1) if streams[at]])
        count = random.choice((10, THREAD_ELEMENTS_MIN - 1, THREAD_ELEMENTS_MIN))
        batches.append(("ab"[at], streams[at][:count]))
        del streams[at][:count]
    return sorted(
        Event(e.vs + at * 10_000, e.payload, e.ve if e.ve == INF else e.ve + at * 10_000)
        for at in range(16)
        for e in events
    ), batches


@pytest.mark.parametrize("least", [THREAD_ELEMENTS_MIN, ALWAYS, NEVER])
async def test_a_turn_in_a_thread_emits_what_one_on_the_loop_emits(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "THREAD_ELEMENTS_MIN", least)
    events, batches = large_streams()
    assert {len(batch) >= THREAD_ELEMENTS_MIN for _, batch in batches} == {True, False}
    async with World(merges=(MERGE,)) as world:
        reader = await world.subscriber()
        gate = Gate(hub_of(world))
        gate.open()
        publishers = {name: await world.publisher(name) for name in "ab"}
        for name, batch in batches:
            await publishers[name].merged(*batch)
        assert await reader.until_stable(INF) == events
        assert reader.elements == by_hand(batches)
        in_threads = {name.startswith("merge_") for name in gate.threads}
        assert in_threads == {THREAD_ELEMENTS_MIN: {True, False}, ALWAYS: {True}, NEVER: {False}}[least]
        hub_of(world).state.merge.check()


class AtWork:
    """A world whose merge has merged ``x``, and ``y`` and stable(9) in a thread that is held."""

    def __init__(self, world: World, reader: RawReader, a: RawPublisher, b: RawPublisher, gate: Gate) -> None:
        self.world, self.reader, self.a, self.b, self.gate = world, reader, a, b, gate


@asynccontextmanager
async def at_work(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> AsyncIterator[AtWork]:
    monkeypatch.setattr(hubs, "THREAD_ELEMENTS_MIN", ALWAYS)
    async with World(merges=(MERGE,), **settings) as world:
        reader = await world.subscriber()
        a, b = await world.publisher("a"), await world.publisher("b")
        await a.merged(ins("x", 1, 20), stable(2))
        gate = Gate(hub_of(world))
        await a.send(ins("y", 6, 20), stable(9))
        await gate.entered.wait()
        try:
            yield AtWork(world, reader, a, b, gate)
        finally:
            gate.open()


async def test_questions_are_answered_from_the_moment_before_while_a_thread_merges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with at_work(monkeypatch, http_port=0) as work:
        world = work.world
        merge = await world.describe()
        assert (merge.summary.stable_point, merge.summary.inputs, merge.live_events) == (2, 2, 1)
        assert (merge.emitted.inserts, merge.emitted.stables, merge.survives_losses) == (1, 1, 0)  # b has no stable
        inputs = [(i.replica, i.received.inserts, i.stable_point) for i in merge.inputs]
        assert inputs == [("a", 1, 2), ("b", 0, NEG_INF)]
        (listed,) = (await world.stub.ListMerges(pb.ListMergesRequest())).merges
        assert (listed.merge, listed.algorithm, listed.stable_point) == (MERGE, "r3", 2)
        url = f"http://127.0.0.1:{world.server.http_port}/metrics"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            assert response.status == 200
            families = {f.name: f for f in text_string_to_metric_families(await response.text())}
        values = {
            name: [s.value for s in families[name].samples]
            for name in (
                "lmerge_live_events",
                "lmerge_stable_point_time",
                "lmerge_attached_inputs",
                "lmerge_input_elements",
            )
        }
        assert values == {
            "lmerge_live_events": [1.0],
            "lmerge_stable_point_time": [2.0],
            "lmerge_attached_inputs": [2.0],
            "lmerge_input_elements": [2.0, 0.0],
        }
        work.gate.open()
        await work.a.acked()
        await world.described(lambda merge: merge.summary.stable_point == 9)
        assert (await world.describe()).live_events == 2


async def test_the_core_can_be_queried_while_a_thread_is_inside_it() -> None:
    """Not held at a gate: while its thread really works, a merge refuses every read."""
    async with World(merges=(MERGE,), http_port=0) as world:
        a = await world.publisher("a")
        done = asyncio.Event()

        async def publish() -> None:
            for at in range(6):
                await a.send(*(ins(b"%d" % i, at, 10_000) for i in range(30_000)), stable(at))
            await a.acked()
            done.set()

        task = asyncio.create_task(publish())
        url = f"http://127.0.0.1:{world.server.http_port}/metrics"
        async with aiohttp.ClientSession() as http:
            while not done.is_set():
                assert (await world.describe()).live_events % 1 == 0
                await world.stub.ListMerges(pb.ListMergesRequest())
                async with http.get(url) as response:
                    assert response.status == 200
        await task
        assert (await world.describe()).live_events == 180_000


async def test_who_comes_and_goes_while_a_thread_merges_waits_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with at_work(monkeypatch) as work:
        world = work.world
        subscriber = asyncio.create_task(world.subscriber())
        newcomer = asyncio.create_task(world.publisher("c", join_at=2))
        leaving = asyncio.create_task(work.b.leave())
        await work.a.send(ins("z", 9, 20))
        hub = hub_of(world)
        while len(hub.task.inbox) < 4:  # until all of them have come: three steps and a batch
            await world.describe()
        assert not any(task.done() for task in (subscriber, newcomer, leaving))
        assert work.a.last_ack.sequence == 1
        work.gate.open()
        reader: RawReader = await subscriber
        assert (await leaving).code is grpc.StatusCode.OK
        c = await newcomer
        assert c.accepted.joined
        assert c.accepted.stable_point == 9
        assert (await work.a.acked()).sequence == 3
        await c.merged(ins("x", 1, 20), ins("y", 6, 20), ins("z", 9, 20), stable(9))
        await work.a.merged(stable(30))
        assert await reader.until_stable(30) == [Event(1, b"x", 20), Event(6, b"y", 20), Event(9, b"z", 20)]
        assert (await world.describe()).summary.inputs == 2


async def test_a_connection_that_dies_while_a_thread_merges_takes_only_its_own_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with at_work(monkeypatch) as work:
        reader = asyncio.create_task(work.world.subscriber())
        work.a.call.cancel()
        while len(hub_of(work.world).task.inbox) < 2:
            await work.world.describe()
        work.gate.open()
        await work.world.described(lambda merge: [i.replica for i in merge.inputs] == ["b"])
        await work.b.merged(ins("x", 1, 20), ins("y", 6, 20), stable(30))
        assert await (await reader).until_stable(30) == [Event(1, b"x", 20), Event(6, b"y", 20)]


async def test_a_drain_waits_for_the_thread_and_for_what_came_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    async with at_work(monkeypatch) as work:
        hub = hub_of(work.world)
        await work.a.send(ins("z", 9, 20), stable(30))
        while len(hub.task.inbox) < 1:
            await work.world.describe()
        stopping = asyncio.create_task(work.world.server.stop(30.0))
        while len(hub.task.inbox) < 2:  # noqa: ASYNC110 - the drain waits behind the batch; no call is answered now
            await asyncio.sleep(0)
        assert not stopping.done()
        work.gate.open()
        ending = await work.a.ending()
        assert (ending.code, work.a.last_ack.sequence) == (grpc.StatusCode.UNAVAILABLE, 3)
        assert "draining" in ending.details
        assert (await work.reader.ending()).code is grpc.StatusCode.UNAVAILABLE
        assert work.reader.tdb.events() == [Event(1, b"x", 20), Event(6, b"y", 20), Event(9, b"z", 20)]
        await stopping


async def test_another_merge_of_the_server_goes_on_while_a_thread_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    async with at_work(monkeypatch, merge_threads=2) as work:
        other = await work.world.publisher("a", merge="other")
        for at in range(20):
            await other.merged(ins("x", at, at + 1), stable(at))
        assert (await work.world.describe("other")).summary.stable_point == 19
        assert (await work.world.describe()).summary.stable_point == 2


async def test_a_merge_that_finds_no_free_thread_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with at_work(monkeypatch, merge_threads=1) as work:
        other = await work.world.publisher("a", merge="other")
        await other.send(ins("x", 1, 2))
        await work.world.described(lambda merge: merge.summary.inputs == 1, merge="other")
        work.gate.open()
        assert (await other.acked()).sequence == 1


async def test_several_merges_at_once_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "THREAD_ELEMENTS_MIN", ALWAYS)
    names = [f"merge-{at}" for at in range(4)]
    async with World(merges=tuple(names), merge_threads=2) as world:

        async def publish(merge: str, replica: str) -> None:
            random = Random(merge + replica)
            stream = present(random, expected[merge])
            publisher = await world.publisher(replica, merge=merge)
            while stream:
                await publisher.send(*stream[:50])
                del stream[:50]
            await publisher.acked()

        expected = {merge: reference(Random(merge), 400, payloads=9) for merge in names}
        readers = {merge: await world.subscriber(merge) for merge in names}
        tasks = [asyncio.create_task(publish(merge, replica)) for merge in names for replica in "ab"]
        for merge in names:
            assert await readers[merge].until_stable(INF) == expected[merge]
        await asyncio.gather(*tasks)


@pytest.mark.parametrize("least", [ALWAYS, NEVER])
async def test_shards_mean_the_same_to_a_subscriber(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "THREAD_ELEMENTS_MIN", least)
    random = Random(8)
    events = reference(random, 700, payloads=26)
    async with World(merges=(MERGE,), shards=3) as world:
        reader = await world.subscriber()
        streams = {name: present(random, events) for name in "abc"}
        publishers = {name: await world.publisher(name) for name in streams}
        half: RawReader | None = None
        while any(streams.values()):
            name = random.choice([name for name, rest in streams.items() if rest])
            await publishers[name].send(*streams[name][:100])
            del streams[name][:100]
            if half is None and len(streams["a"]) < len(events) // 2:
                half = await world.subscriber()
        for publisher in publishers.values():
            await publisher.acked()
        assert await reader.until_stable(INF) == events
        assert half is not None
        late = await half.until_stable(INF)
        assert set(late) <= set(events)
        assert late[-1] == events[-1]
        assert (await world.describe()).engine == selection.NATIVE


def test_shards_need_the_native_engine_and_an_index() -> None:
    Settings(shards=2, algorithm="r3").validate()
    for settings, message in (
        (Settings(shards=2, engine="python"), r"^2 shards need the native engine: the python engine was asked for$"),
        (Settings(shards=2, algorithm="r0"), r"^2 shards need r3 or r4: r0 keeps no index"),
        (Settings(shards=65), r"^a merge has 1 to 64 shards, not 65$"),
        (Settings(shards=0), r"^a merge has 1 to 64 shards, not 0$"),
        (Settings(merge_threads=0), r"^merge_threads must be positive, not 0$"),
        (Settings(turn_elements=0), r"^turn_elements must be positive, not 0$"),
    ):
        with pytest.raises(UsageError, match=message):
            settings.validate()


def test_a_turn_is_as_long_as_its_engine_is_fast_unless_it_was_set() -> None:
    assert Settings().turn_elements_of(selection.PYTHON) < Settings().turn_elements_of(selection.NATIVE)
    settings = Settings(turn_elements=77)
    settings.validate()
    assert {settings.turn_elements_of(engine) for engine in (selection.PYTHON, selection.NATIVE)} == {77}
    assert Settings().turn_elements_of(selection.NATIVE) >= THREAD_ELEMENTS_MIN, "or no turn would be large"


async def test_a_server_has_as_many_threads_for_its_merges_as_were_set(monkeypatch: pytest.MonkeyPatch) -> None:
    async with at_work(monkeypatch, merge_threads=3) as work:
        pool: ThreadPoolExecutor = work.world.server._registry._pool
        assert pool._max_workers == 3
        assert {name.rpartition("_")[0] for name in work.gate.threads} == {"merge"}
