"""One publisher of the probe, as a process: ``python -m lmerge_controller.drill.probe.replica``.

Started by ``fleet``. It reads JSON lines: first its description, then orders. ``start`` with the truth: publish from
here on. ``lie``: publish what the truth does not have. ``end``: publish the first so many events, then nothing. It
sends ``attached``, ``joined`` with true or false, ``done``, and ``failed`` with a reason.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from lmerge import clock
from lmerge.errors import LmergeError
from lmerge_controller.drill.judging.truth import ProbeTruth
from lmerge_controller.drill.probe.child_io import next_message, send_event, standard_input
from lmerge_controller.drill.probe.presentation import ProbePresentation, batch_of

TICK_S: Final = 0.005
IDLE_S: Final = 0.05  # between stables after the last event
REPORT_S: Final = 0.02  # how often it checks whether it counts as joined
PROPERTIES: Final = ("key",)


@dataclass(frozen=True)
class ReplicaOrders:
    """The description of a replica, as its process receives it.

    ``joins``: it begins with the events that are alive now; otherwise at the beginning of the stream. ``skew_s``: how
    far its wall clock is ahead. ``security``: arguments of ``Security``, or None.
    """

    name: str
    targets: str
    merge: str
    salt: int
    role: str = "active"
    joins: bool = False
    skew_s: float = 0.0
    truth: dict[str, int] | None = None
    security: dict[str, Any] | None = None


@dataclass
class _Course:
    """What the drill has ordered so far."""

    truth: ProbeTruth | None = None
    lies: bool = False
    end: int | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)


async def run() -> None:
    """Run the process until its standard input ends."""
    reader = await standard_input()
    message = await next_message(reader)
    if message is None:
        return
    orders = ReplicaOrders(**message)
    course = _Course(truth=None if orders.truth is None else ProbeTruth(**orders.truth))
    work = asyncio.create_task(_guarded(orders, course))
    while (message := await next_message(reader)) is not None:
        if "start" in message:
            course.truth = ProbeTruth(**message["start"])
        course.lies |= bool(message.get("lie"))
        course.end = message.get("end", course.end)
        course.changed.set()
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def _guarded(orders: ReplicaOrders, course: _Course) -> None:
    try:
        await _publish(orders, course)
    except LmergeError as error:
        send_event("failed", kind=type(error).__name__, reason=str(error))


async def _publish(orders: ReplicaOrders, course: _Course) -> None:
    from lmerge.client import AsyncPublisher, Origin, Security

    _skew(orders.skew_s)
    # The source of a replica gives events when they are due, whatever its clock shows.
    due_us = _steady_wall()
    first = course.truth.due(due_us()) if orders.joins and course.truth is not None else 0
    join_at = course.truth.start(first) if first and course.truth is not None else None
    publisher = AsyncPublisher(
        orders.targets,
        orders.merge,
        orders.name,
        properties=PROPERTIES,
        role=orders.role,
        origin=Origin(join_at=join_at),
        security=None if orders.security is None else Security(**orders.security),
    )
    await publisher.open()
    send_event("attached")
    reports = asyncio.create_task(_report_joined(publisher))
    try:
        while course.truth is None:
            course.changed.clear()
            await course.changed.wait()
        stream = ProbePresentation(course.truth, orders.salt, first=first)
        gc.freeze()  # what is loaded stays; collections that scan it would only pause the stream
        while course.end is None or course.truth.due(due_us()) < course.end:
            stream.lies = course.lies
            due = course.truth.due(due_us())
            await publisher.publish(batch_of(stream.rows_to(due if course.end is None else min(due, course.end))))
            await asyncio.sleep(TICK_S)
        await publisher.publish(batch_of([*stream.rows_to(course.end), *stream.rest()]))
        await publisher.flush()
        send_event("done")
        await _go_on(publisher, due_us, course.truth.end(course.end))
    finally:
        reports.cancel()
        await publisher.abort()


async def _go_on(publisher: Any, now_us: Callable[[], int], stable: int) -> None:
    """Publish stables without events until the drill ends this process.

    A server that compares inputs withholds stables until an interval is over. So the last one has to be followed.
    """
    while True:
        if now_us() > stable:
            stable = now_us()
            await publisher.stable(stable)
        await asyncio.sleep(IDLE_S)


def _skew(seconds: float) -> None:
    """Set this process's wall clock apart, as its publisher reads it."""
    if seconds:
        right = clock.wall_us
        clock.wall_us = lambda: max(0, right() + int(seconds * 1e6))


def _steady_wall() -> Callable[[], int]:
    """Return a function that returns the true wall time in microseconds, without jumps."""
    base_us = time.time_ns() // 1_000 - time.monotonic_ns() // 1_000
    return lambda: base_us + time.monotonic_ns() // 1_000


async def _report_joined(publisher: Any) -> None:
    was = False
    while publisher.failure is None:
        if publisher.joined != was:
            was = not was
            send_event("joined", joined=was)
        await asyncio.sleep(REPORT_S)
    send_event("failed", kind=type(publisher.failure).__name__, reason=str(publisher.failure))


if __name__ == "__main__":
    asyncio.run(run())
