"""A process that publishes the reference in its own way, at a rate, to one or more servers.

``run`` is the process: forked by ``fleet``, told over a pipe. Open loop: every 2 ms it says what is due by then,
whether or not anybody keeps up. A life that is not the first begins with what is alive at that moment.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from bench.rig.stream import Presentation, ReferenceStream
from lmerge.core.batch import Batch, Row

TICK_S = 0.002
JOIN, RESUME = -1, -2
TOLD_S = 0.02  # how often it looks whether it has joined


@dataclass(frozen=True)
class ReplicaSpec:
    """``epoch_s``: the monotonic time at which event 0 is due. ``lag_s``: so much later than the others."""

    name: str
    target: str
    merge: str
    reference: ReferenceStream
    epoch_s: float
    salt: int
    lag_s: float = 0.0
    properties: tuple[str, ...] = ("key",)
    tick_s: float = TICK_S


def run(spec: ReplicaSpec, first: int, told: Connection) -> None:
    """The process. It begins with event ``first``; JOIN: with what is due now; RESUME: where the merge is.

    It is told ("end", N): event N is the first that does not exist. It tells ("joined", bool) whenever that changes,
    and ("done",) when the servers have all of it.
    """
    gc.freeze()  # what is loaded by now stays: looking through it again and again would only pause the stream
    asyncio.run(_publish(spec, told, first))


async def _publish(spec: ReplicaSpec, told: Connection, first: int) -> None:
    from lmerge.client import AsyncPublisher

    loop = asyncio.get_running_loop()
    end: asyncio.Future[int] = loop.create_future()
    loop.add_reader(told.fileno(), _listen, told, end, loop)
    due = _due(spec)
    at = max(0, due()) if first == JOIN else await _resumed(spec) if first == RESUME else first
    stream = Presentation(spec.reference, spec.salt, first=at)
    publisher = AsyncPublisher(
        spec.target, spec.merge, spec.name, properties=spec.properties, join_at=stream.join_at if at else None,
    )
    publisher.start()
    teller = asyncio.create_task(_tell(publisher, told))
    while not end.done() or due() < end.result():
        await publisher.publish(batch_of(stream.rows_to(max(at, due()))))
        await asyncio.sleep(spec.tick_s)
    await publisher.publish(batch_of([*stream.rows_to(end.result()), *stream.rest()]))
    await publisher.flush()
    told.send(("done",))
    teller.cancel()
    await asyncio.Event().wait()  # attached until the fleet ends it: leaving is no part of the measurement


async def _resumed(spec: ReplicaSpec) -> int:
    """The event that a replica goes on with which joins at the merge's stable point."""
    from lmerge.client import describe_merge

    described = await asyncio.to_thread(describe_merge, spec.target, spec.merge)
    return max(0, spec.reference.number(described.summary.stable_point))


def _due(spec: ReplicaSpec) -> Callable[[], int]:
    """The number of events that are due by now."""
    began, per_s = spec.epoch_s + spec.lag_s, spec.reference.events_per_s
    return lambda: int((time.monotonic() - began) * per_s)


def _listen(told: Connection, end: asyncio.Future[int], loop: asyncio.AbstractEventLoop) -> None:
    try:
        word, value = told.recv()
    except (EOFError, OSError):
        loop.remove_reader(told.fileno())  # the fleet has gone; the kernel ends this process too
        return
    assert word == "end"
    if not end.done():
        end.set_result(value)


async def _tell(publisher: Any, told: Connection) -> None:
    was = False
    while True:
        if all(link.joined for link in publisher.links) != was:
            was = not was
            told.send(("joined", was))
        if publisher.failure is not None:
            raise publisher.failure
        await asyncio.sleep(TOLD_S)


def batch_of(rows: list[Row]) -> Batch:
    """Rows as a batch."""
    if not rows:
        return Batch(b"", [], [], [], [])
    kinds, vs, ve, vold, payloads = zip(*rows)
    return Batch(bytes(kinds), list(vs), list(ve), list(vold), list(payloads))


if __name__ == "__main__":
    pipe = Connection(int(sys.argv[1]))
    spec, first = pipe.recv()
    run(spec, first, pipe)
