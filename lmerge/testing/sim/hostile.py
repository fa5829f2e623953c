"""Hostile clients: processes without the client library that do what no client may, or nothing at all.

Each hits one server. The check here: the server answers with a status that names the client's fault, and neither with
success nor with a failure of its own. The run's verdict checks that the stream of the others is not harmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import grpc
import grpc.aio

from lmerge.client.connection import streams
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Insert, Stable
from lmerge.core.inputs import INCARNATION_MAX
from lmerge.testing.sim.calls import Channel
from lmerge.testing.sim.machines import MERGE, ServerMachine, SimulatedMachine
from lmerge.testing.sim.processes import SimulatedProcess
from lmerge.testing.sim.scenario import PROMISES
from lmerge.testing.sim.world import SimulatedWorld
from lmerge.testing.streams.merge_inputs import ordered, present
from lmerge.wire.frames import PYTHON_FRAMES
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.schema import COLUMNS_MAX

UINT64_MAX: Final = 2**64 - 1
INCARNATIONS: Final = (1, 2, 2**31, INCARNATION_MAX, INCARNATION_MAX + 1, UINT64_MAX)
COLUMNS_MANY: Final = 10 * COLUMNS_MAX
# The statuses of a peer that is gone, and not of one that was refused.
GONE: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
# The statuses of a server that has failed itself.
FAILURES: Final = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)


class HostileClient(SimulatedMachine):
    """One hostile process. ``kind``: one of ``families.KINDS``; it is there for ``lasts_s`` at most."""

    def __init__(
        self, world: SimulatedWorld, servers: Sequence[ServerMachine], number: int, kind: str, lasts_s: float
    ) -> None:
        self._servers = servers
        self.kind = kind
        self.lasts_s = lasts_s
        super().__init__(world, f"hostile{number}")

    async def _main(self, process: SimulatedProcess) -> None:
        deeds: dict[str, Callable[[Any], Awaitable[bool]]] = {
            "impossible-attach": self._impossible_attach,
            "impossible-schema": self._impossible_schema,
            "impossible-name": self._impossible_name,
            "broken-promise": self._broken_promise,
            "nonsense": self._nonsense,
            "garbage-call": self._garbage,
            "mute": self._mute,
            "no-attach": self._no_attach,
            "incarnations": self._incarnations,
            "no-next-incarnation": self._no_next_incarnation,
        }
        world = self.world
        target = self.random.choice(world.server_hosts)
        async with Channel(world.network, process, target) as channel:
            call = streams.publish(channel)
            must_be_refused = True
            try:
                must_be_refused = await deeds[self.kind](call)
                while must_be_refused and await call.read() is not grpc.aio.EOF:
                    pass
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                pass
            if not must_be_refused:
                call.cancel()
            code = await call.code()
            text = await call.details()
        world.trace.note(process, f"{self.kind} ends: {code.name}: {text[:200]}")
        if code in FAILURES or (must_be_refused and code is grpc.StatusCode.OK):
            world.fail(f"{process}: {self.kind} was answered with {code.name}: {text[:300]}")

    # Each returns whether the server must end the call.

    async def _impossible_attach(self, call: Any) -> bool:
        attach = self._attach
        messages = self.random.choice(
            (
                [attach(merge="")],
                [attach(replica="")],
                [attach(properties=["no-such-promise"])],
                [attach(replica="x" * 5_000)],
                [attach(merge="x" * 5_000)],
                [attach(), attach()],
                [pb.PublishRequest()],
                [pb.PublishRequest(leave=pb.PublishRequest.Leave()), attach()],
                [pb.PublishRequest(skip=pb.PublishRequest.Skip(until=7))],
                [attach(properties=["key"] * 3 + [""])],
            )
        )
        for message in messages:
            await call.write(message.SerializeToString())
        return True

    async def _impossible_schema(self, call: Any) -> bool:
        column = pb.Schema.Column
        columns = self.random.choice(
            (
                [column(name="a", type="no such type")],
                [column(name="", type="int")],
                [column(name="a", type="int"), column(name="a", type="int")],
                [column(name="a\x1b[2J\n", type="int")],
                [],
            )
        ) or [column(name=f"c{n}", type="int") for n in range(COLUMNS_MANY)]
        await call.write(self._attach(schema=pb.Schema(columns=columns)).SerializeToString())
        return True

    async def _impossible_name(self, call: Any) -> bool:
        name = self.random.choice(("a\nb", "\x1b[31mred", "\x00", "tab\t", "\x7f", "a\u202eb"))
        await call.write(self._attach(replica=name).SerializeToString())
        return True

    async def _broken_promise(self, call: Any) -> bool:
        """Publish a part of the reference, and then an element that is illegal, or breaks a promise of this input."""
        stream = self._truth()
        stable = max((element.vc for element in stream if isinstance(element, Stable)), default=NEG_INF)
        wrong = self.random.choice(self._broken(stream, stable))
        self.world.trace.note(self.process, f"breaks its promise with {wrong}")
        await self._attached(call, properties=PROMISES[self.world.scenario.case])
        await call.write(PYTHON_FRAMES.encode_publish(1, [Batch.of([*stream, *wrong])]))
        return True

    def _broken(self, stream: list[Element], stable: int) -> list[list[Element]]:
        """Return one list of elements for each way to break the promises of the case after ``stream``.

        The stream is stable at ``stable``. Under R0 to R2 the output shows an insert at once and keeps it. So there
        only the last element is no part of the reference.
        """
        inserts = [element for element in stream if isinstance(element, Insert)]
        # No stable but the last one is above it. What begins below the output's stable point is late: the merge has no
        # entry of it, and sees no promise broken.
        far = INF - 1
        case = self.world.scenario.case
        ways: list[list[Element]] = [[Insert(b"backwards", far, far - 5)]]
        if stable > NEG_INF:
            ways += [[Insert(b"late", stable - 1, stable + 5)], [Stable(stable - 1)]]
        if case in ("r0", "r1", "r2"):
            ways += [[Adjust(e.payload, e.vs, e.ve, e.ve + 9)] for e in inserts[-1:]]
            ways += [[Insert(b"back", inserts[0].vs - 1, far)]] if inserts else []
        else:
            ways += [[Adjust(b"unknown", far, INF, far)]]
        if case in ("r0", "r2"):
            ways += [[e] for e in inserts[-1:]]
        if case == "r3":
            ways += [[Insert(b"x", far, INF), Insert(b"x", far, INF)]]
        if stable > NEG_INF and case in ("r3", "r4"):
            ways += [[Insert(b"x", stable, stable + 5), Adjust(b"x", stable, stable + 5, stable - 1)]]
        return ways

    async def _nonsense(self, call: Any) -> bool:
        random = self.random
        await self._attached(call, properties=PROMISES[self.world.scenario.case])
        good = pb.PublishRequest.FromString(
            PYTHON_FRAMES.encode_publish(1, [Batch.of([Insert(b"one", 5, 9), Insert(b"two", 6, INF)])])
        )
        batch = good.batch.batch
        match random.randint(0, 6):
            case 0:
                batch.vs = batch.vs[:-3]
            case 1:
                batch.kinds = b"\x07" * len(batch.kinds)
            case 2:
                batch.payload_ends = batch.payload_ends[::-1]
            case 3:
                batch.kinds = random.randbytes(50_000)
            case 4:
                good.batch.sequence = UINT64_MAX
            case 5:
                good = pb.PublishRequest(
                    commit=pb.PublishRequest.Commit(
                        sequence=1, query="none", batch=1, parts=[pb.PublishRequest.Commit.Part(partition=1, attempt=1)]
                    )
                )
            case _:
                await call.write(b"\x07" + random.randbytes(random.randint(1, 400)))
                return True
        await call.write(good.SerializeToString())
        return True

    async def _garbage(self, call: Any) -> bool:
        """Send bytes that are no message as the first message."""
        await call.write(b"\x07" + self.random.randbytes(self.random.randint(1, 400)))
        return True

    async def _mute(self, call: Any) -> bool:
        """Attach, and publish nothing."""
        await self._attached(call, properties=PROMISES[self.world.scenario.case])
        await asyncio.sleep(self.lasts_s)
        return False

    async def _no_attach(self, call: Any) -> bool:
        """Connect, and do not even attach."""
        await asyncio.sleep(self.lasts_s)
        return False

    async def _incarnations(self, call: Any) -> bool:
        """Attach the same name repeatedly, with the largest and smallest numbers; 0: the server chooses the next."""
        for incarnation in self.random.sample(INCARNATIONS, 3):
            await self._incarnation(self.random.choice(self.world.server_hosts), incarnation)
        return False

    async def _no_next_incarnation(self, call: Any) -> bool:
        """Attach the largest incarnation, then the next one; it must be refused unless the server has restarted."""
        server = self.random.choice(self._servers)
        life = server.lives
        was_accepted = await self._incarnation(server.host, INCARNATION_MAX)
        is_next_accepted = await self._incarnation(server.host, 0)
        if was_accepted and is_next_accepted and server.lives == life:
            self.world.fail(f"{self.process}: what comes after incarnation {INCARNATION_MAX} was accepted")
        return False

    async def _incarnation(self, target: str, incarnation: int) -> bool:
        """Attach, and go; return whether it was accepted."""
        is_accepted = False
        async with Channel(self.world.network, self.process, target) as channel:
            other = streams.publish(channel)
            try:
                await self._attached(other, incarnation=incarnation)
                is_accepted = True
                await asyncio.sleep(self.random.uniform(0.0, 0.5))
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                pass
            other.cancel()
            code = await other.code()
        self.world.trace.note(self.process, f"incarnation {incarnation} {'was accepted' if is_accepted else code.name}")
        if code in FAILURES:
            self.world.fail(f"{self.process}: incarnation {incarnation} was answered with {code.name}")
        return is_accepted

    def _truth(self) -> list[Element]:
        """Return the beginning of a right replica's stream."""
        scenario, random = self.world.scenario, self.random
        if scenario.case in ("r0", "r1", "r2"):
            stream = ordered(random, scenario.events, ties="shuffled" if scenario.case == "r2" else "payload")
        else:
            stream = present(random, scenario.events, scenario.facets)
        return [e for e in stream[: random.randint(0, len(stream) - 1)] if e != Stable(INF)]

    def _attach(self, **fields: Any) -> pb.PublishRequest:
        return pb.PublishRequest(attach=pb.Attach(**{"merge": MERGE, "replica": self.host, **fields}))

    async def _attached(self, call: Any, **fields: Any) -> None:
        await call.write(self._attach(**fields).SerializeToString())
        if await call.read() is grpc.aio.EOF:  # refused, or gone
            raise asyncio.InvalidStateError
