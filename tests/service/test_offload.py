"""A merge with many live events lists and frees them in a thread. Others are served, and the output is the same.

The tests hold a thread at a gate and measure no time: while the thread of one merge is held, others take turns.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import grpc
import msgpack
import pytest
from service_world import MERGE, Gate, RawPublisher, RawReader, World, ins, stable

from lmerge.core.elements import INF, NEG_INF, Element, Event
from lmerge.core.engines.selection import NATIVE
from lmerge.service import offload
from lmerge.service.merge import row_check
from lmerge.service.merge.hub import Hub
from lmerge.service.output.fanout import SubscriberQueue
from lmerge.service.output.journal import Journal
from lmerge.testing.streams.merge_inputs import present, reference
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.token import format_token

pytestmark = pytest.mark.usefixtures("native_engine")

EVENTS = 50


def hub_of(world: World) -> Hub:
    return world.server._registry.hubs[MERGE]


def live(n: int = EVENTS) -> list[Element]:
    return [ins(f"event {at}", at, 1_000 + at) for at in range(n)]


async def others_go_on(world: World, other: RawPublisher, *, turns: int = 20) -> None:
    """Check that another merge of the server takes ``turns`` turns, and that calls are answered."""
    for at in range(turns):
        await other.merged(ins("x", at, at + 1), stable(at))
    assert (await world.describe("other")).emitted.inserts == turns
    await world.stub.ListMerges(pb.ListMergesRequest())


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a few live events count as many."""
    monkeypatch.setattr(offload, "LIVE_EVENTS_MIN", EVENTS)


@pytest.mark.usefixtures("many")
async def test_others_are_served_while_a_snapshot_is_taken_and_it_is_of_one_moment() -> None:
    async with World(merges=(MERGE,), merge_threads=2) as world:
        a, other = await world.publisher("a"), await world.publisher("a", merge="other")
        await a.merged(*live())
        gate = Gate(hub_of(world), "live_events")
        subscribing = asyncio.create_task(world.subscriber())
        await gate.entered.wait()
        assert {name.split("_")[0] for name in gate.threads} == {"merge"}
        await a.send(ins("late", EVENTS, 2_000), stable(10))  # it waits, so it comes behind the snapshot
        await others_go_on(world, other)
        assert (await world.describe()).live_events == EVENTS
        assert not subscribing.done()
        gate.open()
        reader = await subscribing
        await a.merged(stable(INF))
        expected = [Event(at, b"event %d" % at, 1_000 + at) for at in range(EVENTS)] + [Event(EVENTS, b"late", 2_000)]
        assert await reader.until_stable(INF) == sorted(expected)
        assert reader.begin.events == EVENTS


@pytest.mark.usefixtures("many")
async def test_a_subscriber_that_leaves_while_its_snapshot_is_taken_takes_no_place() -> None:
    async with World(merges=(MERGE,)) as world:
        a = await world.publisher("a")
        await a.merged(*live())
        gate = Gate(hub_of(world), "live_events")
        subscriber = SubscriberQueue("gone", "here", 2**20)
        subscribing = asyncio.create_task(hub_of(world).subscriptions.subscribe(subscriber))
        await gate.entered.wait()
        subscribing.cancel()
        hub_of(world).subscriptions.unsubscribe(subscriber)  # as its call does
        gate.open()
        await a.merged(stable(5))
        assert not hub_of(world).state.subscribers


@pytest.mark.usefixtures("many")
async def test_others_are_served_while_a_stable_visits_many_events() -> None:
    async with World(merges=(MERGE,), merge_threads=2) as world:
        reader = await world.subscriber()
        a, other = await world.publisher("a"), await world.publisher("a", merge="other")
        await a.merged(*live())
        gate = Gate(hub_of(world))
        await a.send(stable(INF))
        await gate.entered.wait()
        await others_go_on(world, other)
        gate.open()
        assert len(await reader.until_stable(INF)) == EVENTS


async def test_others_are_served_while_rows_of_many_bytes_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_check, "LOOP_BYTES_MAX", {NATIVE: EVENTS})
    schema = pb.Schema(columns=[pb.Schema.Column(name="id", type="int")])
    rows = [ins(msgpack.packb([at]), at, INF) for at in range(EVENTS)]
    async with World(merges=(MERGE,), merge_threads=2) as world:
        reader = await world.subscriber()
        a, b = await world.publisher("a", schema=schema), await world.publisher("b")
        other = await world.publisher("a", merge="other")
        gate = Gate(hub_of(world))
        await a.send(*rows)
        await gate.entered.wait()
        assert {name.split("_")[0] for name in gate.threads} == {"merge"}
        await others_go_on(world, other)
        gate.open()
        await b.send(*(ins(b"no row", at, INF) for at in range(EVENTS)))
        assert (await b.ending()).code is grpc.StatusCode.INVALID_ARGUMENT
        await a.merged(stable(INF))
        assert len(await reader.until_stable(INF)) == EVENTS


@pytest.mark.usefixtures("many")
async def test_others_are_served_while_a_stable_that_was_agreed_on_visits_many_events() -> None:
    async with World(merges=(MERGE,), merge_threads=2, divergence="majority", certify_interval=10) as world:
        reader = await world.subscriber()
        a, b = [await world.publisher(name) for name in "ab"]
        other = await world.publisher("a", merge="other")
        for publisher in (a, b):
            await publisher.merged(*live())
        gate = Gate(hub_of(world))
        await asyncio.gather(a.send(stable(INF)), b.send(stable(INF)))
        await gate.entered.wait()
        await others_go_on(world, other)
        gate.open()
        assert len(await reader.until_stable(INF)) == EVENTS


@pytest.mark.usefixtures("many")
async def test_others_are_served_while_a_held_stable_is_released() -> None:
    async with World(merges=(MERGE,), merge_threads=2, policy="lazy+lead:5") as world:
        reader = await world.subscriber()
        a, b = [await world.publisher(name) for name in "ab"]
        other = await world.publisher("a", merge="other")
        await b.merged(stable(1))
        await a.merged(*(ins(f"event {at}", 1 + at, 1_000 + at) for at in range(EVENTS)), stable(900))
        gate = Gate(hub_of(world), "excuse")
        releasing = asyncio.create_task(_released(world, "a"))
        await gate.entered.wait()
        await others_go_on(world, other)
        assert not releasing.done()
        gate.open()
        assert await releasing == "the stable of a is not held any more"
        assert len(await reader.until_stable(900)) == EVENTS


async def _released(world: World, replica: str) -> str:
    return (await world.stub.ReleaseInput(pb.ReleaseInputRequest(merge=MERGE, replica=replica))).words


@pytest.mark.usefixtures("many")
async def test_others_are_served_while_the_store_gets_what_is_live(tmp_path: Path) -> None:
    async with World(store=str(tmp_path), retain_bytes=1_000, merge_threads=2) as world:
        a, other = await world.publisher("a"), await world.publisher("a", merge="other")
        await a.merged(*live())
        gate = Gate(hub_of(world), "live_events")
        for at in range(20):  # until the segment has grown to more than is retained
            await a.send(*(ins(f"more {at} {n}", 2_000 + at, 3_000) for n in range(20)), stable(at))
        await gate.entered.wait()
        await others_go_on(world, other)
        gate.open()
        await a.acked()
        merge = hub_of(world).state.merge
        expected = list(merge.live_events().rows())
    async with World(store=str(tmp_path)) as again:
        assert list(hub_of(again).state.merge.live_events().rows()) == expected


@pytest.mark.parametrize("seed", range(3))
async def test_in_a_thread_or_on_the_loop_the_same_is_emitted_kept_and_resumed(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random streams, subscribers at random points with and without a token, and a restart at the end."""
    known = []
    for least in (1, 2**62):
        monkeypatch.setattr(offload, "LIVE_EVENTS_MIN", least)
        known.append(await played(Random(seed), tmp_path / str(least)))
    assert known[0] == known[1]


async def played(random: Random, path: Path) -> Any:
    events = reference(random, 300, payloads=30)
    begun: list[tuple[int, int]] = []
    settings: dict[str, Any] = {"store": str(path), "retain_bytes": 20_000, "segment_bytes": 1_000}
    async with World(**settings) as world:
        publishers = {name: await world.publisher(name) for name in "ab"}
        streams = {name: present(random, events) for name in publishers}
        readers: list[RawReader] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Journal, "begin", noted(Journal.begin, begun))
            while any(streams.values()):
                name = random.choice([name for name, rest in streams.items() if rest])
                await publishers[name].merged(*streams[name][:15])
                del streams[name][:15]
                if random.random() < 0.2:
                    t = (await world.describe()).summary.stable_point
                    token: dict[str, Any] = {}
                    if t != NEG_INF and random.random() >= 0.5:
                        token = {"resume_token": format_token(MERGE, t)}
                    readers.append(await world.subscriber(**token))
        read = [(reader.begin.stable_point, await reader.until_stable(INF)) for reader in readers]
        retained = hub_of(world).state.retained_from
    async with World(**settings) as again:
        rows = list(hub_of(again).state.merge.live_events().rows())
        assert hub_of(again).state.retained_from == retained
    return read, begun, rows


def noted(begin: Any, begun: list[tuple[int, int]]) -> Any:
    """Return ``Journal.begin`` that also notes its arguments in ``begun``."""

    def noting(journal: Journal, live: Any, stable_point: int, complete_from: int) -> None:
        begun.append((live.count, stable_point))
        begin(journal, live, stable_point, complete_from)

    return noting
