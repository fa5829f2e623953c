"""A process that publishes the reference in a physical form of its own, at a rate, to one or more servers.

``run`` is the process: forked by ``fleet``, controlled over a pipe. Open loop: every 2 ms it publishes the elements
that are due, whether or not the servers keep up. A restarted process begins with the events that are alive then.
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
REPORT_S = 0.02  # how often it checks whether it has joined


@dataclass(frozen=True)
class ReplicaSpec:
    """A replica. ``epoch_s``: the monotonic time at which event 0 is due. ``lag_s``: how much later it publishes."""

    name: str
    target: str
    merge: str
    reference: ReferenceStream
    epoch_s: float
    salt: int
    lag_s: float = 0.0
    properties: tuple[str, ...] = ("key",)
    tick_s: float = TICK_S


def run(spec: ReplicaSpec, first: int, pipe: Connection) -> None:
    """Run the process.

    It begins with event ``first``; JOIN: with the events that are due now; RESUME: at the merge's stable point. It
    receives ("end", N): event N is the first that does not exist. It sends ("joined", bool) whenever that changes, and
    ("done",) when the servers have everything.
    """
    gc.freeze()  # the loaded modules stay: collections that scan them would only pause the stream
    asyncio.run(_publish(spec, pipe, first))


async def _publish(spec: ReplicaSpec, pipe: Connection, first: int) -> None:
    from lmerge.client import AsyncPublisher, Origin

    loop = asyncio.get_running_loop()
    end: asyncio.Future[int] = loop.create_future()
    loop.add_reader(pipe.fileno(), _receive, pipe, end, loop)
    due = _due(spec)
    at = max(0, due()) if first == JOIN else await _resumed(spec) if first == RESUME else first
    stream = Presentation(spec.reference, spec.salt, first=at)
    publisher = AsyncPublisher(
        spec.target,
        spec.merge,
        spec.name,
        properties=spec.properties,
        origin=Origin(join_at=stream.join_at if at else None),
    )
    publisher.start()
    reports = asyncio.create_task(_report_joined(publisher, pipe))
    while not end.done() or due() < end.result():
        await publisher.publish(batch_of(stream.rows_to(max(at, due()))))
        await asyncio.sleep(spec.tick_s)
    await publisher.publish(batch_of([*stream.rows_to(end.result()), *stream.rest()]))
    await publisher.flush()
    pipe.send(("done",))
    reports.cancel()
    await asyncio.Event().wait()  # it stays attached until the fleet ends it: leaving is not measured


async def _resumed(spec: ReplicaSpec) -> int:
    """Return the first event of a replica that joins at the merge's stable point."""
    from lmerge.client import describe_merge

    described = await asyncio.to_thread(describe_merge, spec.target, spec.merge)
    return max(0, spec.reference.number(described.summary.stable_point))


def _due(spec: ReplicaSpec) -> Callable[[], int]:
    """Return a function that returns the number of events that are due by now."""
    began, per_s = spec.epoch_s + spec.lag_s, spec.reference.events_per_s
    return lambda: int((time.monotonic() - began) * per_s)


def _receive(pipe: Connection, end: asyncio.Future[int], loop: asyncio.AbstractEventLoop) -> None:
    try:
        kind, value = pipe.recv()
    except (EOFError, OSError):
        loop.remove_reader(pipe.fileno())  # the fleet has ended; the kernel ends this process too
        return
    assert kind == "end"
    if not end.done():
        end.set_result(value)


async def _report_joined(publisher: Any, pipe: Connection) -> None:
    was = False
    while True:
        if all(link.joined for link in publisher.links) != was:
            was = not was
            pipe.send(("joined", was))
        if publisher.failure is not None:
            raise publisher.failure
        await asyncio.sleep(REPORT_S)


def batch_of(rows: list[Row]) -> Batch:
    """Return rows as a batch."""
    if not rows:
        return Batch(b"", [], [], [], [])
    kinds, vs, ve, vold, payloads = zip(*rows)
    return Batch(bytes(kinds), list(vs), list(ve), list(vold), list(payloads))


if __name__ == "__main__":
    pipe = Connection(int(sys.argv[1]))
    spec, first = pipe.recv()
    run(spec, first, pipe)
