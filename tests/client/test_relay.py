"""Relays: merges as inputs of merges, with a middle layer that dies."""

from __future__ import annotations

import asyncio

import pytest
from client_world import MERGE, Cluster, Reading, World, until

from lmerge.client import AsyncPublisher, AsyncSubscriber
from lmerge.client.relay import Relay
from lmerge.core.elements import INF, Insert

pytestmark = pytest.mark.usefixtures("engine")


class RunningRelay:
    """A relay as a process would be: it can be killed, and another started under its name."""

    def __init__(self, cluster: Cluster, top: World, name: str) -> None:
        self.relay = Relay(cluster.targets, MERGE, top.target, name, to_merge="top")
        self.task = asyncio.create_task(self.relay.run())

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_a_merge_of_merges_goes_on_over_the_death_of_a_relay_and_of_a_server() -> None:
    async with Cluster(2) as leaves, World(merges=("top",)) as top, leaves.publisher("a") as a:
        relays = {name: RunningRelay(leaves, top, name) for name in ("east", "west")}
        reading = await Reading(AsyncSubscriber(top.target, "top")).begun()
        expected = []
        for at in range(0, 200, 2):
            await a.insert(f"e{at}", at, at + 30)
            await a.stable(at)
            expected.append((f"e{at}", at, at + 30))
            if at == 40:
                await reading.until(lambda tdb: tdb.stable_point >= 20)
                await relays["east"].kill()
            if at == 80:
                relays["east"] = RunningRelay(leaves, top, "east")
                await until(lambda: relays["east"].relay.publisher is not None)
                await leaves.kill(0)
            if at == 120:
                await until(lambda: relays["east"].relay.publisher.joined)
                await relays["west"].kill()
            if at == 160:
                await leaves.revive(0)
            await a.flush()
        await a.stable(INF)
        await asyncio.wait_for(relays["east"].task, 20)
        await asyncio.wait_for(reading.task, 20)
        assert [(e.payload.decode(), e.vs, e.ve) for e in reading.tdb.events()] == expected
        assert len([e for e in reading.elements if isinstance(e, Insert)]) == len(expected)
        assert reading.subscriber.gaps == []


async def test_after_a_gap_upstream_the_relay_joins_where_it_ends() -> None:
    """The relay's only server retains nothing; the other inputs below would supply what ended meanwhile."""
    async with World(retain_bytes=1, segment_bytes=1) as leaf, World(merges=("top",)) as top, leaf.publisher("a") as a:
        relay = Relay(leaf.link.target, MERGE, top.target, "east", to_merge="top")
        running = asyncio.create_task(relay.run())
        await a.insert("before", 1, 3)
        await a.stable(5)
        await until(lambda: relay.publisher is not None and relay.publisher.joined)
        await a.flush()
        leaf.link.cut()
        async with AsyncPublisher(leaf.target, MERGE, "b") as b:
            await b.insert("in the gap", 6, 8)
            await b.insert("live", 7, 40)
            await b.stable(20)
            await b.flush()
        leaf.link.mend()
        publisher = relay.publisher
        assert publisher is not None
        await until(lambda: publisher.links[0].lane.joins_at == 20)
        assert [(gap.start, gap.end) for gap in relay.subscriber.gaps] == [(5, 20)]
        await a.stable(INF)
        await asyncio.wait_for(running, 20)
