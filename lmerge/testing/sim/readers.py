"""Readers: subscribers with the client library, and for each server a witness that reads without it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc.aio

from lmerge.client import AsyncSubscriber
from lmerge.client.connection import streams
from lmerge.client.subscribe.follower import SubscriptionGap
from lmerge.core.batch import Batch
from lmerge.core.elements import NEG_INF, show_time
from lmerge.errors import InputViolation, OutOfRange
from lmerge.testing.sim.calls import Channel
from lmerge.testing.sim.machines import MERGE, ServerMachine, SimulatedMachine
from lmerge.testing.sim.processes import SimulatedProcess
from lmerge.testing.sim.verdict import Checked, Contradiction
from lmerge.testing.sim.world import SimulatedWorld
from lmerge.wire.codec import decode_batch
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import UNLIMITED
from lmerge.wire.token import format_token, parse_token


class SubscriberMachine(SimulatedMachine):
    """A subscriber that stores now and then how far it has read, and resumes there when it is started again.

    It stores a token, with which it receives again what was live, or a checkpoint of the client library, with which its
    stream goes on as if it had never stopped.
    """

    def __init__(self, world: SimulatedWorld, servers: Sequence[ServerMachine], host: str) -> None:
        self._servers = servers
        self.stream: Checked = Checked(f"the stream of {host}", world.reference, doubt=world.doubt)
        self.is_complete = False
        self.gaps = 0
        self._written: tuple[str | bytes, Checked | None] = (format_token(MERGE, NEG_INF), None)
        super().__init__(world, host)

    async def _main(self, process: SimulatedProcess) -> None:
        world = self.world
        resume, stream = self._written
        final_to = parse_token(resume, MERGE) if isinstance(resume, str) else NEG_INF
        self.stream = Checked("", world.reference, final_to, world.doubt) if stream is None else stream.copied()
        self.stream.name = f"the stream of {process} from {self._describe(resume)} on"
        subscriber = AsyncSubscriber(
            world.targets,
            MERGE,
            name=process.name,
            on_gap=self._gap,
            resume=resume,
            if_too_old=self.random.choice(("snapshot", "snapshot", "error")),
        )
        try:
            await (self._read_batches(subscriber) if self.random.random() < 0.7 else self._read_elements(subscriber))
        except InputViolation as violation:
            raise Contradiction(f"what it receives is no stream: {violation}") from None
        except OutOfRange as refusal:
            world.trace.note(process, f"{refusal}")
            self._is_due(self.stream.complete_from if stream is None else self.stream.stable_point)
            raise
        self.is_complete = self.stream.is_complete
        world.trace.note(process, "has read everything" if self.is_complete else "ends")
        world.look()

    async def _read_batches(self, subscriber: AsyncSubscriber) -> None:
        async for batch in subscriber.batches():
            self.stream.take(batch)
            await self._worked(subscriber)

    async def _read_elements(self, subscriber: AsyncSubscriber) -> None:
        async for element in subscriber:
            self.stream.take(Batch.of([element]))
            await self._worked(subscriber)

    async def _worked(self, subscriber: AsyncSubscriber) -> None:
        """Sleep now and then, and store now and then how far the stream was read."""
        if self.random.random() < 0.05:
            await asyncio.sleep(self.random.uniform(0.0, 0.3))
        if self.random.random() < 0.2:
            with_table = self.random.random() < 0.5
            self._written = (subscriber.checkpoint(), self.stream.copied()) if with_table else (subscriber.token, None)

    def _describe(self, resume: str | bytes) -> str:
        return resume if isinstance(resume, str) else "a checkpoint"

    def _gap(self, gap: SubscriptionGap) -> None:
        self.gaps += 1
        self.world.trace.note(self.process, f"gap from {show_time(gap.start)} to {show_time(gap.end)}")
        self.stream.doubt(gap.start, gap.end)
        self._is_due(gap.start)

    def _is_due(self, start: int) -> None:
        """Report a gap as a fault if a server could have served what it skips."""
        for server in self._servers:
            if server.can_serve(start, self):
                self.world.fail(f"{self.process}: a gap from {show_time(start)} on, and {server.process} can serve it")


class Witness(SimulatedMachine):
    """Reads one server without the client's library, and checks snapshots, tokens and deltas against the wire document.

    It asks for everything, after a break for what it does not have yet, and now and then from an earlier time.
    """

    def __init__(self, world: SimulatedWorld, server: ServerMachine) -> None:
        self.server = server
        self.shown = NEG_INF  # the server's largest stable point, over all lives of a durable one
        self._era = (0, 0)
        super().__init__(world, f"witness-{server.host}")

    async def _main(self, process: SimulatedProcess) -> None:
        while True:
            try:
                await self._read(process)
            except grpc.aio.AioRpcError as error:
                self.world.trace.note(process, f"lost {self.server.host}: {error.code().name}")
            except InputViolation as violation:
                raise Contradiction(f"what {self.server.host} sends is no stream: {violation}") from None
            await asyncio.sleep(self.random.uniform(0.05, 1.0))

    async def _read(self, process: SimulatedProcess) -> None:
        """Read one subscription, until it breaks or is complete, or for a while."""
        if self._era != self._present_era():
            self.shown, self._era = NEG_INF, self._present_era()
        from_t = self._token_time()
        request = pb.SubscribeRequest(
            merge=MERGE,
            subscriber=process.name,
            wait_for_merge=True,
            snapshot_if_too_old=True,
            resume_token=format_token(MERGE, from_t),
        )
        stream: Checked | None = None
        messages = self.random.choice((1000000, 30, 5, 5))
        async with Channel(self.world.network, process, self.server.host) as channel:
            async for data in streams.subscribe(channel, request):
                response = pb.SubscribeResponse.FromString(data)
                kind = response.WhichOneof("message")
                if kind == "snapshot_begin":
                    stream = self._begin(response.snapshot_begin, from_t)
                elif kind == "batch" and stream is not None:
                    stream.take(decode_batch(response.batch, UNLIMITED))
                    if self._era == self._present_era():
                        self.shown = max(self.shown, stream.stable_point)
                elif kind == "progress" and stream is not None and response.progress.stable_point < stream.stable_point:
                    raise Contradiction(f"{self.server.host}: progress goes back to {response.progress.stable_point}")
                messages -= 1
                if messages <= 0 and stream is not None:
                    return

    def _present_era(self) -> tuple[int, int]:
        """Return a value that changes where the server may forget what it has shown.

        That is with a restart without a store, and after a gap in its own output, where its merge begins anew.
        """
        hub = self.server.hub
        return (0 if self.server.durable else self.server.lives, 0 if hub is None else hub.state.gaps)

    def _token_time(self) -> int:
        if self.shown == NEG_INF or self.random.random() < 0.3:
            return NEG_INF
        if self.random.random() < 0.3:
            return self.random.randint(0, max(0, min(self.shown, self.world.scenario.events[-1].ve)))
        return self.shown

    def _begin(self, begin: pb.SubscribeResponse.SnapshotBegin, from_t: int) -> Checked:
        """Check the begin of a snapshot; return the stream that is to be checked."""
        server = self.server
        complete_from = begin.complete_from if begin.HasField("complete_from") else NEG_INF
        name = f"the stream of {server.process} from {show_time(complete_from)} on"
        hub = server.hub
        if self._era != self._present_era() or hub is None:  # it was restarted since the request
            return Checked(name, self.world.reference, max(complete_from, from_t), self.world.doubt)
        if begin.stable_point < self.shown:
            raise Contradiction(f"{name} is stable at {begin.stable_point}, and the server has shown {self.shown}")
        if complete_from > from_t and hub.state.retained_from <= from_t:
            retained_from = hub.state.retained_from
            raise Contradiction(f"{name}: {from_t} was requested, and all from {retained_from} on is retained")
        return Checked(name, self.world.reference, max(complete_from, from_t), self.world.doubt)
