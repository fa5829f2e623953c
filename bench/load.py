"""Real processes for the service benchmarks: a server, publishers, a subscriber. ``python -m bench.load ROLE ...``.

Roles: ``flat-out TARGET REPLICA EVENTS PAYLOAD_BYTES``, ``paced TARGET REPLICA EVENTS PAYLOAD_BYTES PER_S START_S`` and
``subscribe TARGET MODE SKIP``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

from bench.harness import exit_on_help
from lmerge.core.batch import AnyBatch, Batch, BatchBuilder
from lmerge.core.elements import INF
from lmerge.core.engines import selection

LIVE = 2_000
STEP = 1_000  # microseconds between starts

Serve: TypeAlias = Callable[..., AbstractContextManager[str]]
"""Runs a server with these arguments, and gives its address."""


@contextmanager
def server(*arguments: str) -> Iterator[str]:
    """Run a server process of lmerge and yield its address. ``arguments``: further ones of ``lmerge serve``."""
    with started("lmerge", "serve", "--port", "0", "--http-port", "-1", *arguments, "--ready-file") as target:
        yield target


@contextmanager
def started(module: str, *arguments: str) -> Iterator[str]:
    """Run a server process whose last argument is its ready file, and yield its address."""
    with running(sys.executable, "-m", module, *arguments) as target:
        yield target


@contextmanager
def running(*command: str) -> Iterator[str]:
    """Run the command of a server, with its ready file as another argument, and yield its address."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        process = subprocess.Popen([*command, str(ready)], stderr=subprocess.DEVNULL)
        try:
            while not ready.exists():
                time.sleep(0.02)
            yield f"127.0.0.1:{json.loads(ready.read_text())['port']}"
        finally:
            process.terminate()
            process.wait()


def start(role: str, *arguments: object, module: str = "bench.load") -> subprocess.Popen[str]:
    """Start a load process, which waits for a line on its standard input before it begins."""
    return subprocess.Popen(
        [sys.executable, "-m", module, role, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_until_ready(processes: Iterable[subprocess.Popen[str]]) -> None:
    """Wait until all of these load processes are ready."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"


def let_begin(publishers: Iterable[subprocess.Popen[str]], line: str) -> None:
    """Give all publishers the line for which they wait."""
    for process in publishers:
        assert process.stdin is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()


def result_of(reader: subprocess.Popen[str]) -> dict[str, float]:
    """Wait for the result of a reader."""
    assert reader.stdout is not None
    result: dict[str, float] = json.loads(reader.stdout.readline())
    return result


def batches(count: int, rows: int, payload_bytes: int) -> list[Batch]:
    """Return ``count`` events in batches, with 1 % stables."""
    result, builder = [], BatchBuilder()
    for at in range(count):
        builder.insert(b"%0*d" % (payload_bytes, at), at * STEP, (at + LIVE) * STEP)
        if at % 100 == 99:
            builder.stable(at * STEP)
        if len(builder) >= rows:
            result.append(builder.build())
            builder = BatchBuilder()
    builder.stable(INF)
    return [*result, builder.build()]


def owned(batch: Batch) -> AnyBatch:
    """Return the batch in the form of the best engine, as in a program that publishes columns."""
    if selection.best() == selection.PYTHON:
        return batch
    from lmerge.core.engines.native_engine import columns_of

    return columns_of("bench", batch)


def publish_flat_out(target: str, replica: str, count: int, payload_bytes: int) -> None:
    """Publish as fast as possible, from a line on standard input to the last acknowledgement."""
    from lmerge.client import Publisher

    load = [owned(batch) for batch in batches(count, 1_000, payload_bytes)]
    with Publisher(target, "bench", replica, properties=("key",)) as publisher:
        print("ready", flush=True)
        sys.stdin.readline()
        for batch in load:
            publisher.publish(batch)
        publisher.flush()


def paced_batches(count: int, payload_bytes: int, per_s: int, began: float) -> Iterator[Batch]:
    """Yield in an open loop the elements that are due, as soon as there is one, whether or not the caller keeps up.

    The payload holds the due time, so waiting in the sender counts as latency. ``began``: seconds since the epoch.
    """
    sent = 0
    while sent < count:
        due = min(count, int((time.time() - began) * per_s) + 1)
        builder = BatchBuilder()
        for at in range(sent, due):
            # The same event on every replica: its payload is the moment at which it is due.
            moment = int((began + at / per_s) * 1e6)
            builder.insert(b"%0*d" % (payload_bytes, moment), moment, moment + 1_000_000)
            if at % 100 == 99:
                builder.stable(moment)
        if due > sent:
            yield builder.build()
            sent = due
        time.sleep(max(0.0, min(0.002, began + sent / per_s - time.time())))


def publish_paced(target: str, replica: str, count: int, payload_bytes: int, per_s: int, start_s: float) -> None:
    """Publish ``paced_batches`` from ``start_s`` on; 0: from the time in a line on standard input."""
    from lmerge.client import Publisher

    with Publisher(target, "bench", replica, properties=("key",)) as publisher:
        print("ready", flush=True)
        for batch in paced_batches(count, payload_bytes, per_s, start_s or float(sys.stdin.readline())):
            publisher.publish(batch)
        publisher.stable(INF)
        publisher.flush()


def latencies_of(batch: AnyBatch) -> list[float]:
    """Return how many ms ago the elements of a paced batch were due."""
    now = time.time()
    return [(now - int(payload) / 1e6) * 1e3 for payload in batch.payloads if payload]


def percentiles(latencies: list[float]) -> dict[str, float]:
    """Return the median, the 99th percentile and the largest of latencies in ms."""
    ordered = sorted(latencies)
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[int(len(ordered) * 0.99)], "largest": ordered[-1]}


def subscribe(target: str, mode: str, skip: int) -> None:
    """Read until the end of the stream and print a JSON object.

    It holds the time of the last element, the number of elements, and in mode ``latency`` the percentiles in ms of the
    latencies after the first ``skip`` events.
    """
    from lmerge.client import Subscriber

    elements = 0
    latencies: list[float] = []
    print("ready", flush=True)
    for batch in Subscriber(target, "bench", name="bench").batches():
        elements += batch.count
        if mode == "latency":
            latencies += latencies_of(batch)
    result: dict[str, float] = {"ended": time.time(), "elements": elements}
    if mode == "latency":
        result |= percentiles(latencies[skip:])
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    exit_on_help(__doc__)
    role, *rest = sys.argv[1:]
    if role == "flat-out":
        publish_flat_out(rest[0], rest[1], int(rest[2]), int(rest[3]))
    elif role == "paced":
        publish_paced(rest[0], rest[1], int(rest[2]), int(rest[3]), int(rest[4]), float(rest[5]))
    else:
        subscribe(rest[0], rest[1], int(rest[2]))
