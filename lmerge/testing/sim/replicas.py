"""Replicas: each life of one presents the reference in another way, as fast as its source allows."""

from __future__ import annotations

import asyncio
from collections import Counter

import grpc.aio

from lmerge.client import AsyncPublisher, Origin, PublisherLimits
from lmerge.client.connection import streams
from lmerge.client.publish.fast_forward import FastForward
from lmerge.core.batch import Batch
from lmerge.core.elements import NEG_INF, Element, Insert, Stable
from lmerge.core.inputs import InputRole
from lmerge.errors import LmergeError, StaleIncarnation
from lmerge.testing.sim.calls import Channel
from lmerge.testing.sim.machines import MERGE, SimulatedMachine
from lmerge.testing.sim.processes import ProcessState, SimulatedProcess
from lmerge.testing.sim.scenario import PROMISES
from lmerge.testing.sim.world import SimulatedWorld
from lmerge.testing.streams.merge_inputs import joining, ordered, present
from lmerge.wire.frames import PYTHON_FRAMES
from lmerge.wire.generated import lmerge_pb2 as pb

Key = tuple[int, bytes]


class ReplicaMachine(SimulatedMachine):
    """One replica. It stays when it has published everything, like a query that waits for more."""

    def __init__(self, world: SimulatedWorld, replica: str, role: str = InputRole.ACTIVE) -> None:
        self.replica = replica
        self.role = role
        self.publisher: AsyncPublisher | None = None
        self._newest = 0  # the largest incarnation of any life
        self._was_refused = False
        self._left: list[SimulatedProcess] = []
        super().__init__(world, replica)

    def replace(self, old_for_s: float) -> None:
        """Start the replica on another machine while the old process is paused; that process goes on after a while."""
        zombie = self.process
        if zombie.state is not ProcessState.RUNNING or not self.lives:
            return
        world = self.world
        world.trace.note(zombie, "is stopped and replaced")
        zombie.pause()
        world.network.paused(zombie, lambda: zombie.state is ProcessState.PAUSED)
        world.loop.after(old_for_s, self._wake_zombie, zombie)
        world.loop.after(self.random.uniform(0.05, 1.0), self.start)

    def leave(self, back_after_s: float) -> None:
        """Let the replica leave in good order, and come back after a while."""
        if self.publisher is not None and self.process.state is ProcessState.RUNNING:
            self.process.spawn(self._leave(self.process, self.publisher, back_after_s), "leaves")

    @property
    def is_first(self) -> bool:
        """Whether this replica always begins at the beginning: one must have all that is not frozen yet."""
        return self.replica == "a"

    def _wake_zombie(self, zombie: SimulatedProcess) -> None:
        self.world.trace.note(zombie, "goes on, a zombie")
        zombie.go_on()

    async def _main(self, process: SimulatedProcess) -> None:
        world, scenario = self.world, self.world.scenario
        stream, join_at = self._stream()
        forward = FastForward()
        publisher = AsyncPublisher(
            world.targets,
            MERGE,
            self.replica,
            properties=PROMISES[scenario.case],
            role=self.role,
            origin=Origin(join_at, self._incarnation()),
            on_fast_forward=forward,
            limits=PublisherLimits(behind_events_max=scenario.behind_events_max),
        )
        self.publisher = publisher
        if join_at is not None:
            world.trace.note(process, f"joins at {join_at}")
        publisher.start()
        lag = self.random.uniform(0.0, scenario.lag_s)
        producer = Producer(world, forward)
        for due, elements in self._script(stream):
            wait = due + lag - world.loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            await publisher.publish(Batch.of(producer.needed(elements)))
        await publisher.flush()
        world.trace.note(process, f"has published everything but {producer.left_out} events")
        await world.over.wait()

    async def _leave(self, process: SimulatedProcess, publisher: AsyncPublisher, back_after_s: float) -> None:
        self.world.trace.note(process, "leaves")
        self._left.append(process)
        try:
            await publisher.close()
        except LmergeError as error:
            self.world.trace.note(process, f"could not leave: {error}")
        process.kill()
        self.world.network.killed(process, silently=False)
        if process is self.process:
            self.world.loop.after(back_after_s, self.start_again)

    def _incarnation(self) -> int | None:
        """Return the incarnation; None: the wall clock's. After a refused life the operator sets a newer one."""
        if self.publisher is not None:
            self._newest = max(self._newest, self.publisher.incarnation)
        return self._newest + 1000 if self._was_refused else None

    def _ended(self, process: SimulatedProcess, error: LmergeError) -> None:
        super()._ended(process, error)
        if process is self.process and isinstance(error, StaleIncarnation):
            self._was_refused = True
        if process is not self.process and process not in self._left and not isinstance(error, StaleIncarnation):
            self.world.fail(f"{process}, a zombie, ended with {type(error).__name__}: {error}")

    def _stream(self) -> tuple[list[Element], int | None]:
        """Return a presentation of the reference, and the time from which on it is right."""
        scenario, random = self.world.scenario, self.random
        events = scenario.events
        if scenario.case in ("r0", "r1", "r2"):
            stream = ordered(random, events, ties="shuffled" if scenario.case == "r2" else "payload")
        else:
            stream = present(random, events, scenario.facets)
        if self.lives == 1 or self.is_first or random.random() < 0.5:
            return stream, None
        join_at = self._checkpoint()
        return joining(stream, join_at, events), join_at

    def _checkpoint(self) -> int:
        """Return a time around now, from which a restarted replica goes on."""
        last = self.world.scenario.events[-1].vs
        now = int(last * min(1.0, self.world.loop.time() / self.world.scenario.lasts_s))
        return self.random.randint(max(0, now - 10), now + 3)

    def _script(self, stream: list[Element]) -> list[tuple[float, list[Element]]]:
        """Return the stream in bursts, each with the time at which its source has it."""
        scenario = self.world.scenario
        second = max(1, scenario.events[-1].vs) / scenario.lasts_s
        bursts: list[tuple[float, list[Element]]] = []
        reached = 0
        for element in stream:
            if isinstance(element, Insert):
                reached = max(reached, element.vs)
            due = round(reached / second / scenario.burst_s) * scenario.burst_s
            if not bursts or bursts[-1][0] < due:
                bursts.append((due, []))
            bursts[-1][1].append(element)
        return bursts


class Producer:
    """Leaves out what servers do not need any more (V.D): whole events, of which nothing has been published."""

    def __init__(self, world: SimulatedWorld, forward: FastForward) -> None:
        self.left_out = 0
        self._forward = forward
        self._published: set[Key] = set()
        self._skipped: set[Key] = set()
        self._ends: Counter[Key] = Counter()
        for event in world.scenario.events:
            key = (event.vs, event.payload)
            self._ends[key] = max(self._ends[key], event.ve)

    def needed(self, elements: list[Element]) -> list[Element]:
        """Return the elements of a burst that are published."""
        return [element for element in elements if isinstance(element, Stable) or self._is_needed(element)]

    def _is_needed(self, element: Element) -> bool:
        assert not isinstance(element, Stable)
        key = (element.vs, element.payload)
        if key in self._skipped:
            return False
        if key in self._published or key not in self._ends or self._forward.needs(self._ends[key]):
            self._published.add(key)
            return True
        self._skipped.add(key)
        self.left_out += 1
        return False


class BadReplica(SimulatedMachine):
    """Publishes a part of the reference without a client library, and then an illegal element."""

    def __init__(self, world: SimulatedWorld, number: int) -> None:
        super().__init__(world, f"bad{number}")

    async def _main(self, process: SimulatedProcess) -> None:
        world, random = self.world, self.random
        stream = present(random, world.scenario.events, world.scenario.facets)
        stream = stream[: random.randint(0, len(stream) - 1)]
        stable = max((element.vc for element in stream if isinstance(element, Stable)), default=NEG_INF)
        target = random.choice(world.server_hosts)
        async with Channel(world.network, process, target) as channel:
            call = streams.publish(channel)
            try:
                attach = pb.Attach(merge=MERGE, replica=self.host)
                await call.write(pb.PublishRequest(attach=attach).SerializeToString())
                await call.read()
                data = PYTHON_FRAMES.encode_publish(1, [Batch.of(stream)])
                await call.write(data)
                await call.write(self._bad(stable))
                while await call.read() is not grpc.aio.EOF:
                    pass
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                pass
            code = await call.code()
        world.trace.note(process, f"was refused: {code.name}")
        if code is grpc.StatusCode.OK:
            world.fail(f"{process} broke its promise and was not refused")

    def _bad(self, stable: int) -> bytes:
        """Return a message that ends the input."""
        random = self.random
        nonsense = b"\x07" + random.randbytes(random.randint(1, 40))  # there is no wire type 7
        if stable == NEG_INF:
            return nonsense
        wrong: list[Element] = [Insert(b"too late", stable - random.randint(1, 9), stable + 5), Stable(stable - 1)]
        choice = random.randint(0, 3)
        if choice < 2:
            return PYTHON_FRAMES.encode_publish(2, [Batch.of([wrong[choice]])])
        if choice == 2:
            return PYTHON_FRAMES.encode_publish(5, [Batch.of([Stable(stable)])])  # a gap in the sequence
        return nonsense
