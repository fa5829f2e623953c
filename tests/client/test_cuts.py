"""The whole path under cuts: replicas and a subscriber that lose their connections at random, and the same events."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest
from client_world import MERGE, CuttableLink, Reading, World

from lmerge.client import AsyncPublisher, AsyncSubscriber
from lmerge.core.batch import Batch
from lmerge.core.elements import Element
from lmerge.testing.streams.merge_inputs import MIXED, present, reference

pytestmark = pytest.mark.usefixtures("engine")


async def publish(link: CuttableLink, name: str, stream: list[Element], random: Random) -> AsyncPublisher:
    """Publish the stream in pieces; the link breaks now and then."""
    async with AsyncPublisher(link.target, MERGE, name) as publisher:
        while stream:
            count = random.randint(1, 12)
            await publisher.publish(Batch.of(stream[:count]))
            del stream[:count]
            if random.random() < 0.5:
                await publisher.flush()
            if random.random() < 0.1:
                link.cut()
                link.mend()
            await asyncio.sleep(0)
        await publisher.flush()
    return publisher


@pytest.mark.parametrize("policy", ["lazy", "eager"])
@pytest.mark.parametrize("seed", range(4))
async def test_replicas_that_are_cut_again_and_again_still_mean_the_reference(seed: int, policy: str) -> None:
    random = Random(seed)
    events = reference(random, 150, duplicates=seed % 2 == 1)
    async with World(policy=policy) as world:
        reading = await Reading(AsyncSubscriber(world.target, MERGE)).begun()
        links = [CuttableLink(), CuttableLink()]
        for link in links:
            link.port_to = world.server.port
            await link.start()
        try:
            streams = [present(random, events, MIXED), present(random, events, replace(MIXED, places=20, stables=0.1))]
            publishers = await asyncio.gather(
                *(
                    publish(link, name, stream, Random(random.random()))
                    for link, name, stream in zip(links, "ab", streams)
                )
            )
            await reading.task
            assert reading.tdb.events() == events
            assert sum(publisher.reconnects for publisher in publishers) > 0
        finally:
            for link in links:
                await link.stop()
