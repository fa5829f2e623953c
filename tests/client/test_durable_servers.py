"""Publishers and subscribers of two durable servers that crash: one after the other, and both at the same time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from client_world import MERGE, Cluster, Reading, World, publish_all, until

from lmerge.client import AsyncSubscriber
from lmerge.testing.streams.merge_inputs import MIXED, present, reference

pytestmark = pytest.mark.usefixtures("engine")


async def crash(world: World) -> None:
    """Stop the server as a kill does: connections break, nothing is merged, sent or written any more."""
    world.link.cut()
    for hub in world.server._registry.hubs.values():
        for task in (hub.task._task, hub._releasing):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
    await world.server.stop(0.0)


@pytest.mark.parametrize("dying", [[(0,), (1,)], [(0, 1)], [(0,), (0, 1), (1,)]], ids=["in-turn", "both", "mixed"])
async def test_durable_servers_that_crash_lose_nothing_and_double_nothing(
    tmp_path: Path, dying: list[tuple[int, ...]]
) -> None:
    random = Random(len(dying))
    events = reference(random, 200, duplicates=True)
    cluster = Cluster(2, store_retry_s=0.02)
    for at, world in enumerate(cluster.worlds):
        world.settings["store"] = str(tmp_path / str(at))
    async with cluster:
        reading = Reading(cluster.subscriber(resume=f"{MERGE}@-inf"))
        publishers = [await cluster.publisher(name).open() for name in "ab"]
        publishing = [
            asyncio.create_task(publish_all(publisher, present(random, events, shape), Random(1)))
            for publisher, shape in zip(publishers, (MIXED, replace(MIXED, places=20, stables=0.1)))
        ]
        links = [link for publisher in publishers for link in publisher.links]
        crashes = 0
        while not all(task.done() for task in publishing):
            at_once = dying[crashes % len(dying)]
            await asyncio.gather(*(crash(cluster.worlds[at]) for at in at_once))
            for at in at_once:
                await cluster.revive(at)
            crashes += 1
            await until(lambda: all(link.is_connected for link in links) or all(task.done() for task in publishing))
        await asyncio.gather(*publishing)
        await asyncio.wait_for(reading.task, 60)
        assert crashes >= len(dying)
        assert (reading.tdb.events(), reading.subscriber.gaps) == (events, [])
        for world in cluster.worlds:  # each has everything, including what was frozen while it was away
            alone = Reading(AsyncSubscriber(world.target, MERGE, resume=f"{MERGE}@-inf"))
            await asyncio.wait_for(alone.task, 60)
            assert (alone.tdb.events(), alone.subscriber.gaps) == (events, [])
