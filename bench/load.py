"""Real processes for the service benchmarks: a server, publishers, a subscriber. ``python -m bench.load ROLE ...``."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lmerge.core.batch import AnyBatch, Batch, BatchBuilder
from lmerge.core.elements import INF
from lmerge.core.engines import selection

LIVE = 2_000
STEP = 1_000  # microseconds between starts


@contextmanager
def server(*arguments: str) -> Iterator[str]:
    """A server process of lmerge; its address. ``arguments``: more of ``lmerge serve``."""
    with started("lmerge", "serve", "--port", "0", "--http-port", "-1", *arguments, "--ready-file") as target:
        yield target


@contextmanager
def started(module: str, *arguments: str) -> Iterator[str]:
    """A server process whose last argument is the file in which it says its port; its address."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments, str(ready)], stderr=subprocess.DEVNULL
        )
        try:
            while not ready.exists():
                time.sleep(0.02)
            yield f"127.0.0.1:{json.loads(ready.read_text())['port']}"
        finally:
            process.terminate()
            process.wait()


def start(role: str, *arguments: object, module: str = "bench.load") -> subprocess.Popen[str]:
    """A load process that waits for a line on its standard input before it begins."""
    return subprocess.Popen(
        [sys.executable, "-m", module, role, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )


def batches(count: int, rows: int, payload_bytes: int) -> list[Batch]:
    """``count`` events in batches, 1 % stables."""
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
    """The batch as the best engine here keeps it, as a program that publishes columns would have it."""
    if selection.best() == selection.PYTHON:
        return batch
    from lmerge.core.engines.native_engine import columns_of

    return columns_of("bench", batch)


def publish_flat_out(target: str, replica: str, count: int, payload_bytes: int) -> None:
    """As fast as it goes. Prints the seconds from "go" to the last ack."""
    from lmerge.client import Publisher

    load = [owned(batch) for batch in batches(count, 1_000, payload_bytes)]
    with Publisher(target, "bench", replica, properties=("key",)) as publisher:
        print("ready", flush=True)
        sys.stdin.readline()
        for batch in load:
            publisher.publish(batch)
        publisher.flush()


def publish_paced(target: str, replica: str, count: int, payload_bytes: int, per_s: int, start_s: float) -> None:
    """Open loop: every 2 ms what is due by then, whether or not anybody keeps up. The payload holds the due time, so
    waiting in the sender counts as latency."""
    from lmerge.client import Publisher

    with Publisher(target, "bench", replica, properties=("key",)) as publisher:
        print("ready", flush=True)
        began = start_s or float(sys.stdin.readline())
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
                publisher.publish(builder.build())
                sent = due
            time.sleep(max(0.0, min(0.002, began + sent / per_s - time.time())))
        publisher.stable(INF)
        publisher.flush()


def subscribe(target: str, mode: str, skip: int) -> None:
    """Reads until the end. Prints the moment of the last element, the number of elements, and in mode ``latency`` the
    percentiles of what came after the first ``skip`` events, in ms.
    """
    from lmerge.client import Subscriber

    elements = 0
    latencies: list[float] = []
    print("ready", flush=True)
    for batch in Subscriber(target, "bench", name="bench").batches():
        now = time.time()
        elements += batch.count
        if mode == "latency":
            latencies += [(now - int(payload) / 1e6) * 1e3 for payload in batch.payloads if payload]
    told: dict[str, float] = {"ended": time.time(), "elements": elements}
    if mode == "latency":
        latencies = sorted(latencies[skip:])
        told |= {"p50": latencies[len(latencies) // 2], "p99": latencies[int(len(latencies) * 0.99)],
                 "largest": latencies[-1]}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    if role == "flat-out":
        publish_flat_out(rest[0], rest[1], int(rest[2]), int(rest[3]))
    elif role == "paced":
        publish_paced(rest[0], rest[1], int(rest[2]), int(rest[3]), int(rest[4]), float(rest[5]))
    else:
        subscribe(rest[0], rest[1], int(rest[2]))
