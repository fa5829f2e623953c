"""A wrong replica: it keeps every promise of form, and presents another table than the others.

What the policies promise (docs/divergence.md), with three right replicas in the merge all the time:

- majority and hold: the stable output is right throughout. Hold waits until the wrong one has gone.
- quarantine and alarm: events that begin after the wrong one has gone are right; quarantine puts it out.
- alarm: the difference is reported.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from lmerge.client import AsyncPublisher
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Element, Event, Stable
from lmerge.errors import LmergeError
from lmerge.testing.generate import present
from lmerge.testing.sim.machines import MERGE, Machine
from lmerge.testing.sim.processes import Process
from lmerge.testing.sim.scenario import PROMISES

if TYPE_CHECKING:
    from lmerge.testing.sim.world import World

FAR: Final = 10**12
# What it has caused is emitted, written and read within this time.
PASSED_S: Final = 20.0


class WrongReplica(Machine):
    """``kind``: how its table differs; it leaves after ``lasts_s``."""

    def __init__(self, world: World, kind: str, lasts_s: float) -> None:
        self.kind = kind
        self.lasts_s = lasts_s
        self._came_s: float | None = None
        self._gone_s: float | None = None
        super().__init__(world, "wrong")

    @property
    def may_lead(self) -> bool:
        """Whether what is emitted now may follow it."""
        gone_s = float("inf") if self._gone_s is None else self._gone_s + PASSED_S
        return self._came_s is not None and self.world.loop.time() < gone_s

    def problems(self) -> list[str]:
        """What the policy should have done and has not."""
        return []

    async def _main(self, process: Process) -> None:
        world, scenario = self.world, self.world.scenario
        publisher = AsyncPublisher(world.targets, MERGE, self.host, properties=PROMISES[scenario.case])
        self._came_s = world.loop.time()
        world.trace.say(process, f"{self.kind}: begins")
        publisher.start()
        work = asyncio.ensure_future(self._publish(publisher))
        try:
            done, _ = await asyncio.wait({work}, timeout=self.lasts_s)
            if work in done:
                work.result()
                await asyncio.sleep(max(0.0, self._came_s + self.lasts_s - world.loop.time()))
            work.cancel()
            await asyncio.wait_for(publisher.close(), 10.0)
        except (LmergeError, asyncio.TimeoutError) as error:
            world.trace.say(process, f"{self.kind}: {type(error).__name__}: {error}")
        process.kill()
        world.network.killed(process, silently=False)
        self._gone_s = world.loop.time()

    async def _publish(self, publisher: AsyncPublisher) -> None:
        stream = [element for element in self._stream() if element != Stable(INF)]
        for begin in range(0, len(stream), 5):
            await publisher.publish(Batch.of(stream[begin:begin + 5]))
            await asyncio.sleep(self.random.uniform(0.0, 0.2))
        await publisher.flush()

    def _stream(self) -> list[Element]:
        scenario, random = self.world.scenario, self.random
        events = list(scenario.events)
        if self.kind == "wrong-payload":
            for at in random.sample(range(len(events)), max(1, len(events) // 8)):
                vs, payload, ve = events[at]
                events[at] = Event(vs, bytes([payload[0] ^ 1]) + payload[1:] + b"?", ve)
        elif self.kind == "lost-events":
            for at in sorted(random.sample(range(len(events)), max(1, len(events) // 8)), reverse=True):
                del events[at]
        stream = present(random, sorted(events), scenario.shape)
        if self.kind.startswith("far-stable"):
            # What lasts longer may not be adjusted any more, so nothing follows.
            stream = [*stream[:random.randint(0, len(stream) - 1)], Stable(FAR)]
        return stream
