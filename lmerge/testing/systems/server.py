"""The engine behind a real server: streams of the sources and of the results go through the wire, merge and store.

Each source is published to a merge of its own, and subscribed there; the engine runs over what the subscribers read, in
the order in which it came. The results go through merges in the same way. On both ways the table must stay the same.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import grpc

from lmerge.client.publish.publisher import AsyncPublisher
from lmerge.client.subscribe.follower import JOINED
from lmerge.client.subscribe.subscriber import AsyncSubscriber, SubscriberLimits
from lmerge.core.batch import Batch
from lmerge.core.elements import show_time
from lmerge.core.tdb import Tdb
from lmerge.errors import LmergeError, ServerGone
from lmerge.service.server import Server
from lmerge.service.settings import Settings
from lmerge.testing.decided import decided
from lmerge.testing.streams.batches import InputBatch
from lmerge.testing.systems.engine import EngineSystem
from lmerge.testing.systems.inputs import TreeInputs
from lmerge.testing.systems.system import TIMEOUT_S, EmittedBatch, SystemFailure, SystemRun
from lmerge.testing.transforming.concrete import ConcreteTree
from lmerge.time_limit import time_limit
from lmerge.wire.schema import Schema

POLL_S: Final = 0.002
REPLICA: Final = "source"


class ServerSystem:
    """Runs the engine over streams that have gone through a server, and publishes what it emits."""

    name = "server"

    def __init__(self) -> None:
        self._engine = EngineSystem()

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the engine and of gRPC."""
        return {**self._engine.versions(), "grpc": grpc.__version__}

    def run(self, tree: ConcreteTree, inputs: TreeInputs, timeout_s: float = TIMEOUT_S) -> SystemRun:
        """Run the tree. Raises SystemFailure if a stream has another table behind the server, or does not arrive."""
        came = _through_server(
            "source", {name: node.columns for name, node in tree.sources.items()}, inputs.batches, timeout_s
        )
        found = self._engine.run(tree, TreeInputs(came), timeout_s)
        emitted = [InputBatch(name, one.elements) for name, batches in found.outputs.items() for one in batches]
        results = _through_server(
            "result", {name: node.schema for name, node in tree.outputs.items()}, emitted, timeout_s
        )
        outputs: dict[str, list[EmittedBatch]] = {name: [] for name in tree.outputs}
        for batch in results:
            outputs[batch.name].append(EmittedBatch(len(inputs.batches), batch.elements))
        return SystemRun(outputs, found.operators)


SERVER: Final = ServerSystem()


def _through_server(
    what: str, schemas: Mapping[str, Schema], batches: Sequence[InputBatch], timeout_s: float
) -> list[InputBatch]:
    """Return the batches of streams as subscribers of their merges read them. Raises SystemFailure."""

    async def passed() -> list[InputBatch]:
        with tempfile.TemporaryDirectory() as folder:
            async with time_limit(timeout_s), AsyncExitStack() as stack:
                return await _passed(stack, Path(folder), schemas, batches)

    try:
        came = asyncio.run(passed())
        for name in schemas:
            before, behind = _table(name, batches), _table(name, came)
            if before.stable_point != behind.stable_point:
                points = f"stable({show_time(behind.stable_point)}) and not at stable({show_time(before.stable_point)})"
                raise SystemFailure(f"{what} {name!r:.64} is at {points} behind the server")
            if _decided(before) != _decided(behind):
                raise SystemFailure(f"{what} {name!r:.64} has another table behind the server")
    except TimeoutError:
        raise SystemFailure(f"the {what}s have not come through the server in {timeout_s:g} s") from None
    except LmergeError as problem:
        raise SystemFailure(f"the {what}s did not come through the server: {problem}") from problem
    return came


async def _passed(
    stack: AsyncExitStack, folder: Path, schemas: Mapping[str, Schema], batches: Sequence[InputBatch]
) -> list[InputBatch]:
    server = Server(Settings(port=0, http_port=None, store=str(folder), ack_interval_s=POLL_S))
    await server.start()
    stack.push_async_callback(server.stop, 0.0)
    target = f"127.0.0.1:{server.port}"
    came: list[InputBatch] = []
    publishers, readers = {}, []
    for name, schema in schemas.items():
        publisher = publishers[name] = AsyncPublisher(target, name, REPLICA, schema=schema)
        publisher.start()
        stack.push_async_callback(publisher.abort)
        await publisher.open()
        subscriber = await stack.enter_async_context(
            AsyncSubscriber(target, name, limits=SubscriberLimits(give_up_after_s=0.0))
        )
        readers.append(asyncio.create_task(_read(name, subscriber, came), name=f"reader of {name}"))
        stack.callback(readers[-1].cancel)
        # Who subscribes later does not get what is frozen by then.
        while all(source.state != JOINED for source in subscriber.sources):
            if readers[-1].done():
                readers[-1].result()
            await asyncio.sleep(POLL_S)
    for batch in batches:
        await publishers[batch.name].publish(Batch.of(batch.elements))
    for publisher in publishers.values():
        await publisher.flush()
    # The server sends all that it has, and ends the streams: an open stream has no other end.
    await server.stop()
    await asyncio.gather(*readers)
    return came


async def _read(name: str, subscriber: AsyncSubscriber, came: list[InputBatch]) -> None:
    try:
        async for batch in subscriber.batches():
            came.append(InputBatch(name, list(batch.elements())))
    except ServerGone:
        return


def _decided(table: Tdb) -> Counter[tuple[bytes, int, int | None]]:
    """Return what can no longer change: a merge may keep revisions of the rest to itself until they are decided."""
    events = Counter((event.payload, event.vs, event.ve) for event in table.events())
    return decided(events, table.stable_point)


def _table(name: str, batches: Sequence[InputBatch]) -> Tdb:
    table = Tdb(name)
    for batch in batches:
        for element in batch.elements if batch.name == name else ():
            table.apply(element)
    return table
