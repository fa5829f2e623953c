"""Reads a merge of the user's during a drill: when something came, and when its stable point went on.

    python -m lmerge_controller.drill.probe.watch

``UserStreamWatch`` is the drill's side and runs this module as a process. The recording has times and counts. What the
user's events contain is not written.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from lmerge.core.elements import INF, STABLE
from lmerge.demo.processes import Child
from lmerge.errors import LmergeError
from lmerge_controller.drill.journal import UndoJournal
from lmerge_controller.drill.judging.watched import WatchedStream
from lmerge_controller.drill.probe.child_io import next_message, send_event, standard_input
from lmerge_controller.drill.process_marks import mark_of

REPORT_S: Final = 0.1


@dataclass(frozen=True)
class WatchOrders:
    """The description of a watch, as its process receives it."""

    name: str
    targets: str
    merge: str
    recording: str
    security: dict[str, Any] | None = None


class UserStreamWatch:
    """The drill's side. ``joined``: how many servers are read from."""

    def __init__(
        self, merge: str, servers: Sequence[str], folder: Path, journal: UndoJournal, *, security: Any = None
    ) -> None:
        """Start reading. The files of the process are in ``folder``."""
        self.merge, self.joined = merge, 0
        self._stream = WatchedStream(merge)
        self._recording = folder / f"watch-{mark_of_merge(merge)}.jsonl"
        self._recording.touch()
        self._at = 0
        self._child = Child(f"watch-{mark_of_merge(merge)}", __name__, [], folder)
        journal.note("end-process", pid=self._child.pid, mark=mark_of(self._child.pid))
        credentials = None if security is None else asdict(security)
        orders = WatchOrders(folder.name, ",".join(servers), merge, str(self._recording), credentials)
        self._child.send(**asdict(orders))

    def stream(self) -> WatchedStream:
        """Return what has been received until now."""
        self._read_recording()
        while not self._child.messages.empty():
            message = self._child.messages.get()
            if message["event"] == "progress":
                self.joined = message["joined"]
                self._stream = replace(self._stream, gaps=message["gaps"])
            elif message["event"] == "failed":
                self._stream = replace(self._stream, problem=message["reason"])
        if self._child.exit_code is not None and not self._stream.problem:
            self._stream = replace(self._stream, problem=str(self._child.failure("has ended by itself")))
        return self._stream

    def end(self) -> None:
        """End the process."""
        self._child.kill()

    def _read_recording(self) -> None:
        with self._recording.open("rb") as file:
            file.seek(self._at)
            lines = file.read().rpartition(b"\n")
        self._at += len(lines[0]) + len(lines[1])
        items = [json.loads(line) for line in lines[0].splitlines()]
        if items:
            now = self._stream
            self._stream = replace(
                now,
                arrivals_s=(*now.arrivals_s, *(item["at"] for item in items)),
                progress_s=(*now.progress_s, *(item["at"] for item in items if item["stable"] is not None)),
                elements=now.elements + sum(item["elements"] for item in items),
                is_complete=now.is_complete or items[-1]["stable"] == INF,
            )


def mark_of_merge(merge: str) -> str:
    """Return a name of a file for a merge, whose own name may contain anything."""
    return merge.encode().hex()[:32]


async def run() -> None:
    """Run the process until its standard input ends."""
    lines = await standard_input()
    message = await next_message(lines)
    if message is None:
        return
    from lmerge.client import AsyncSubscriber, Security

    orders = WatchOrders(**message)
    security = None if orders.security is None else Security(**orders.security)
    subscriber = AsyncSubscriber(orders.targets, orders.merge, name=orders.name, security=security)
    gc.freeze()
    work = [asyncio.create_task(_record(subscriber, orders.recording)), asyncio.create_task(_report(subscriber))]
    while await next_message(lines) is not None:
        continue
    subscriber.close()
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)


async def _record(subscriber: Any, path: str) -> None:
    stable_point = subscriber.stable_point
    try:
        # Lines of a few bytes, to the cache of the system: no disk is waited for.
        with open(path, "ab", buffering=0) as file:  # noqa: ASYNC230
            async for batch in subscriber.batches():
                at_s, rows = time.monotonic(), list(batch.rows())
                reached = max((row[1] for row in rows if row[0] == STABLE), default=stable_point)
                moved = reached if reached > stable_point else None
                stable_point = max(reached, stable_point)
                file.write(json.dumps({"at": at_s, "elements": len(rows), "stable": moved}).encode() + b"\n")
    except LmergeError as error:
        send_event("failed", reason=str(error))
    except OSError as problem:
        send_event("failed", reason=f"cannot write the recording {path}: {problem}")


async def _report(subscriber: Any) -> None:
    while True:
        joined = sum(source.state == "joined" for source in subscriber.sources)
        send_event("progress", joined=joined, gaps=len(subscriber.gaps))
        await asyncio.sleep(REPORT_S)


if __name__ == "__main__":
    asyncio.run(run())
