"""Drivers in processes of their own, to be stopped at places and killed; the events of their rows, without Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spark_world import HERE, ROOT, FileFeed, S

from lmerge.core.elements import Event
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import parse_schema

HOUR = 1_700_002_800 * S
SCHEMA = "ts long, name string, n long"
DEADLINE_S = 600.0

Rows = Sequence[Sequence[Mapping[str, Any]]]


def batches(count: int) -> list[list[dict[str, Any]]]:
    """Return ``count`` batches that overlap in time, and two that only move the watermark past them."""
    rows = [
        [{"ts": HOUR + (4 * batch + i) * S, "name": f"n{i % 3}", "n": 100 * batch + i} for i in range(12)]
        for batch in range(count)
    ]
    return [*rows, *([{"ts": HOUR + 3600 * S + i, "name": "end", "n": i}] for i in range(3))]


def append_reference(rows: Rows) -> list[Event]:
    codec = RowCodec(parse_schema({"name": "string?", "n": "int?"}))
    return sorted(
        Event(row["ts"], codec.encode({"name": row["name"], "n": row["n"]}), row["ts"] + 60 * S)
        for batch in rows
        for row in batch
    )


def update_reference(rows: Rows) -> list[Event]:
    codec = RowCodec(parse_schema({"name": "string?", "count": "int"}))
    counts = Counter((row["ts"] // (10 * S) * 10 * S, row["name"]) for batch in rows for row in batch)
    return sorted(
        Event(start, codec.encode({"name": name, "count": count}), start + 10 * S)
        for (start, name), count in counts.items()
    )


REFERENCES = {"append": append_reference, "update": update_reference}
# The watermark of the last rows: all that ends before it is final.
FINAL = HOUR + 3500 * S


def final(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.ve < FINAL]


class Driver:
    """Runs a driver in a process of its own: ``driver_app.py SCRATCH ARGUMENTS``, or another command."""

    def __init__(
        self,
        scratch: Path,
        *arguments: str,
        command: Sequence[str] = (sys.executable, str(HERE / "driver_app.py")),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.hooks = scratch / "hooks"
        self.hooks.mkdir(exist_ok=True)
        self._log = (scratch / "driver.log").open("ab")
        self.log = scratch / "driver.log"
        self.process = subprocess.Popen(
            [*command, str(scratch), *arguments],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=scratch,
            env={**os.environ, "PYTHONPATH": test_folders(), **(environment or {})},
        )

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()

    def reaches(self, place: str) -> int:
        """Wait until it has stopped at a place, and return the id of the process that did."""
        reached = self.hooks / f"{place}.reached"
        pause = threading.Event()
        for _ in range(int(DEADLINE_S / 0.05)):
            if reached.exists():
                return int(reached.read_text())
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            pause.wait(0.05)
        raise AssertionError(f"never came to {place}: {self.log.read_text()[-3000:]}")

    def kill(self) -> None:
        """Kill the driver's Python and its JVM at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def ends(self) -> None:
        """Wait for its end, which must be without an error."""
        assert self.process.wait(DEADLINE_S) == 0, self.log.read_text()[-3000:]
        self._log.close()


def test_folders() -> str:
    """Return the PYTHONPATH by which Spark's processes find the tests' modules."""
    return os.pathsep.join([str(HERE), str(ROOT)])


@contextmanager
def stop_at(scratch: Path, place: str) -> Iterator[None]:
    gate = scratch / "hooks" / place
    gate.parent.mkdir(exist_ok=True)
    gate.touch()
    try:
        yield
    finally:
        gate.unlink(missing_ok=True)


def feed_of(scratch: Path, rows: Rows) -> FileFeed:
    feed = FileFeed(scratch / "feed", SCHEMA)
    for batch in rows:
        feed.put(*batch)
    return feed


def started(writer: Any, scratch: Path) -> Any:
    return writer.option("checkpointLocation", str(scratch / "checkpoint")).trigger(availableNow=True).start()


def wait_for(path: Path) -> None:
    pause = threading.Event()
    for _ in range(int(DEADLINE_S / 0.02)):
        if path.exists():
            return
        pause.wait(0.02)
    raise AssertionError(f"{path.name} never came")
