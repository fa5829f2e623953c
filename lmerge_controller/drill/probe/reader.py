"""The reader of the probe, as a process: ``python -m lmerge_controller.drill.probe.reader``.

Started by ``fleet``. It subscribes to all servers, and writes each batch with its time of receipt to the recording. It
sends ``progress`` with its stable point and the number of servers that it has joined, ``done`` when the stable point
has reached the end that the drill has ordered, and ``failed``.
"""

from __future__ import annotations

import asyncio
import gc
import time
from dataclasses import dataclass
from typing import Any, Final

from lmerge.errors import LmergeError
from lmerge_controller.drill.probe.child_io import next_message, send_event, standard_input
from lmerge_controller.drill.probe.trace import trace_line

REPORT_S: Final = 0.05


@dataclass(frozen=True)
class ReaderOrders:
    """The description of the reader, as its process receives it. ``resume``: a token, or empty."""

    name: str
    targets: str
    merge: str
    recording: str
    resume: str = ""
    security: dict[str, Any] | None = None


async def run() -> None:
    """Run the process until its standard input ends."""
    lines = await standard_input()
    message = await next_message(lines)
    if message is None:
        return
    from lmerge.client import AsyncSubscriber, Security

    orders = ReaderOrders(**message)
    subscriber = AsyncSubscriber(
        orders.targets,
        orders.merge,
        name=orders.name,
        resume=orders.resume or None,
        security=None if orders.security is None else Security(**orders.security),
    )
    gc.freeze()  # what is loaded stays; collections that scan it would only pause the reader
    course = _Reading()
    work = [
        asyncio.create_task(_record(subscriber, orders.recording)),
        asyncio.create_task(_report(subscriber, course)),
    ]
    while (message := await next_message(lines)) is not None:
        course.end = message.get("end", course.end)
    subscriber.close()
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)


@dataclass
class _Reading:
    """What the drill has ordered. ``end``: the stable point at which the stream is over."""

    end: int | None = None


async def _record(subscriber: Any, path: str) -> None:
    try:
        # Lines of a few kilobytes, to the cache of the system: no disk is waited for.
        with open(path, "ab", buffering=0) as file:  # noqa: ASYNC230
            async for batch in subscriber.batches():
                at_s = time.monotonic()
                file.write(trace_line(batch.rows(), at_s))
    except LmergeError as error:
        send_event("failed", kind=type(error).__name__, reason=str(error))
    except OSError as problem:
        send_event("failed", kind="OSError", reason=f"cannot write the recording {path}: {problem}")


async def _report(subscriber: Any, course: _Reading) -> None:
    is_done = False
    while True:
        joined = sum(source.state == "joined" for source in subscriber.sources)
        send_event("progress", stable_point=subscriber.stable_point, joined=joined)
        if not is_done and course.end is not None and subscriber.stable_point >= course.end:
            is_done = True
            send_event("done", gaps=len(subscriber.gaps), reconnects=subscriber.reconnects)
        await asyncio.sleep(REPORT_S)


if __name__ == "__main__":
    asyncio.run(run())
