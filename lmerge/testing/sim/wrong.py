"""A wrong replica: it keeps every promise of form, and presents another table than the others.

What the policies promise (docs/divergence.md), with three right replicas in the merge all the time:

- majority and hold: the stable output is right throughout. Hold waits until the wrong replica has gone.
- quarantine and alarm: events are right that begin at or after the last stable which the merge followed while the
  wrong replica was there (see ``Doubt``).
- with a bound of the lead, a stable far ahead does no harm under these either.
- all of them: once a server has acked what completes an interval in which the wrong replica differs from the right
  ones, the difference is reported; quarantine and majority detach the wrong replica.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

from lmerge.client import AsyncPublisher
from lmerge.client.publish.link import PublisherLink
from lmerge.core.batch import Batch
from lmerge.core.divergence.digests import completed_at, interval_of
from lmerge.core.elements import INF, NEG_INF, Element, Event, Stable
from lmerge.errors import LmergeError, PermissionDenied
from lmerge.loopback import host_of
from lmerge.service.merge.hub import Hub
from lmerge.testing.sim.machines import MERGE, ServerMachine, SimulatedMachine
from lmerge.testing.sim.processes import SimulatedProcess
from lmerge.testing.sim.replicas import ReplicaMachine
from lmerge.testing.sim.scenario import PROMISES
from lmerge.testing.sim.verdict import TrackedTdb
from lmerge.testing.sim.world import SimulatedWorld
from lmerge.testing.streams.merge_inputs import present
from lmerge.time_limit import time_limit

FAR: Final = 10**12
# The output that it has caused is emitted, written and read within this time.
PASSED_S: Final = 20.0
# A server's accept waits for its disk; slower servers than this are left out.
ARRIVED_S: Final = 10.0
# The policies that detach an input which differs from the others.
EXPELLING: Final = ("quarantine", "majority")


class WrongReplica(SimulatedMachine):
    """A replica whose table is wrong. ``kind``: how it differs; it leaves after ``lasts_s``."""

    def __init__(
        self,
        world: SimulatedWorld,
        servers: Sequence[ServerMachine],
        replicas: Sequence[ReplicaMachine],
        kind: str,
        lasts_s: float,
    ) -> None:
        self._servers = servers
        self._replicas = replicas
        self.kind = kind
        self.lasts_s = lasts_s
        self._came_s: float | None = None
        self._gone_s: float | None = None
        self._elements: list[Element] = []
        super().__init__(world, "wrong")

    @property
    def may_lead(self) -> bool:
        """Whether what is emitted now may follow this replica."""
        gone_s = float("inf") if self._gone_s is None else self._gone_s + PASSED_S
        return self._came_s is not None and self.world.loop.time() < gone_s

    async def _main(self, process: SimulatedProcess) -> None:
        world, scenario = self.world, self.world.scenario
        publisher = AsyncPublisher(world.targets, MERGE, self.host, properties=PROMISES[scenario.case])
        self._came_s = world.loop.time()
        world.trace.note(process, f"{self.kind}: begins")
        publisher.start()
        self._elements = self._stream()
        work = asyncio.ensure_future(self._publish(publisher))
        try:
            done, _ = await asyncio.wait({work}, timeout=self.lasts_s)
            if work in done:
                work.result()
                await asyncio.sleep(max(0.0, self._came_s + self.lasts_s - world.loop.time()))
                await self._arrived(publisher)
                self._look_at_servers(publisher)
            work.cancel()
            async with time_limit(10.0):
                await publisher.close()
        except (LmergeError, asyncio.TimeoutError) as error:
            world.trace.note(process, f"{self.kind}: {type(error).__name__}: {error}")
            if isinstance(error, PermissionDenied) and scenario.divergence not in EXPELLING:
                world.fail(f"{process} was put out under {scenario.divergence}")
        process.kill()
        world.network.killed(process, silently=False)
        self._gone_s = world.loop.time()

    async def _publish(self, publisher: AsyncPublisher) -> None:
        for begin in range(0, len(self._elements), 5):
            await publisher.publish(Batch.of(self._elements[begin : begin + 5]))
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
        stream = present(random, sorted(events), scenario.facets)
        if self.kind.startswith("far-stable"):
            # A longer event may not be adjusted any more, so nothing follows.
            stream = [*stream[: random.randint(0, len(stream) - 1)], Stable(FAR)]
        return [element for element in stream if element != Stable(INF)]

    # The check of what the policy has done, while all wrong elements are merged and the publisher is still there.

    async def _arrived(self, publisher: AsyncPublisher) -> None:
        """Wait until every server has acked the whole stream, ``ARRIVED_S`` at most.

        A flush waits only for the servers that have accepted the input by then.
        """
        end_s = self.world.loop.time() + ARRIVED_S
        await publisher.flush()
        while self.world.loop.time() < end_s and not all(_is_acked(publisher, link) for link in publisher.links):
            await asyncio.sleep(0.1)
            await publisher.flush()

    def _look_at_servers(self, publisher: AsyncPublisher) -> None:
        """Check each server by what publishers have seen acked there, not by what the server has compared.

        A server that compares nothing must be found.
        """
        differing = self._differing()
        for server in self._servers:
            hub = server.hub
            if hub is None or hub.inputs.get(self.host) is None:
                continue
            publishers = (publisher, *(replica.publisher for replica in self._replicas))
            completed = min(_completed(one, server.host, self._interval) for one in publishers)
            due = [index for index in differing if index < completed]
            if due:
                self._judge(server, hub, due)

    def _judge(self, server: ServerMachine, hub: Hub, due: list[int]) -> None:
        """Check one server. The right replicas have completed the intervals ``due``, in which the wrong one differs."""
        self.world.trace.note(self.process, f"{self.kind}: differs at {server.process} in {len(due)} intervals")
        reported = hub.state.certifier.divergences
        if reported < len(due):
            self.world.fail(
                f"{server.process} reports {reported} intervals in which {self.process} differs; it does in {due}"
            )
        if self.world.scenario.divergence in EXPELLING:
            self.world.fail(f"{self.process} is still at {server.process}, though it differs from the others in {due}")

    def _differing(self) -> list[int]:
        """Return the intervals that the wrong stream has completed and in which its events are not the right ones."""
        wrong = TrackedTdb(self.host)
        for row in Batch.of(self._elements).rows():
            wrong.apply_row(row)
        wrong.newly_frozen()
        ours, right = Counter(wrong.events()), Counter(self.world.reference.events)
        different = {interval_of(event.ve, self._interval) for event in [*(ours - right), *(right - ours)]}
        completed = completed_at(wrong.stable_point, self._interval)
        return sorted(index for index in different if index < completed)

    @property
    def _interval(self) -> int:
        return self.world.scenario.certify_interval


def _is_acked(publisher: AsyncPublisher, link: PublisherLink) -> bool:
    """Return whether the server has merged everything that was published."""
    return link.is_connected and link.lane.acked >= publisher.outbox.published


def _completed(publisher: AsyncPublisher | None, host: str, interval: int) -> int:
    """Return the first interval that a replica has not completed at ``host``, according to its acks."""
    if publisher is not None:
        for link in publisher.links:
            if host_of(link.target) == host and _is_acked(publisher, link):
                return completed_at(publisher.outbox.stable_point, interval)
    return NEG_INF
