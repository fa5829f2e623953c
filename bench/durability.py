"""What does a store cost in throughput, and how soon does a killed server with 100,000 live events deliver again?

Throughput as in ``service_throughput``: 3 publisher processes, 1 subscriber, 100-byte payloads, elements merged per
second; with and without ``--store`` in turns in one run, so that the ratio holds on a busy machine. Restart: from
SIGKILL, with a new process on the same folder at once, until a subscriber that resumes has the first new element. The
publisher attaches again as soon as it can. Targets: a cost of at most 20 %, and 3 s.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import grpc

from bench.harness import PERCENT, begin, bench_parser, percent_less
from bench.load import server, start
from bench.service_throughput import PAYLOAD_BYTES, go
from lmerge.client import Publisher
from lmerge.core.batch import BatchBuilder
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.generated import lmerge_pb2_grpc as pb_grpc
from lmerge.wire.token import format_token

LIVE = 100_000


class DurabilitySize(NamedTuple):
    """The size of a run. ``events``: of each publisher."""

    events: int
    repeats: int
    restarts: int


FULL = DurabilitySize(2_000_000, 5, 5)  # several seconds each, so that the start of processes does not count
QUICK = DurabilitySize(150_000, 2, 2)


def merged(events: int, *arguments: str) -> float:
    """Return elements/s through a server that is started with ``arguments``."""
    with server(*arguments) as target:
        reader = start("subscribe", target, "count", 0)
        seconds, _ = go(reader, [start("flat-out", target, name, events, PAYLOAD_BYTES) for name in "abc"])
    return 3 * (events + events // 100 + 1) / seconds


def stored(events: int, sync: str) -> float:
    """Return the same with a store in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        return merged(events, "--store", folder, "--store-sync", sync)


def serve(folder: str, port: int) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server on the folder. Return its process and its port when it serves."""
    import json

    ready = Path(folder) / f"ready{time.time_ns()}.json"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "lmerge",
            "serve",
            "--port",
            str(port),
            "--http-port",
            "-1",
            "--store",
            f"{folder}/store",
            "--ready-file",
            str(ready),
        ],
        stderr=subprocess.DEVNULL,
    )
    while not ready.exists():
        if process.poll() is not None:
            raise SystemExit(f"the server has ended with {process.returncode}")
        time.sleep(0.005)
    return process, json.loads(ready.read_text())["port"]


def await_new_stable(port: int, point: int) -> None:
    """Return when a subscriber that resumes at ``point`` has received a later stable point."""
    request = pb.SubscribeRequest(merge="bench", resume_token=format_token("bench", point), wait_for_merge=True)
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    while True:
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            try:
                for message in pb_grpc.LmergeStub(channel).Subscribe(request):
                    batch = message.batch
                    stables = [at for at, kind in enumerate(batch.kinds) if kind == 2]
                    for at in stables:
                        if int.from_bytes(batch.vs[8 * at : 8 * at + 8], "little", signed=True) > point:
                            return
            except grpc.RpcError:
                time.sleep(0.005)


def restarts(count: int) -> list[float]:
    """Return the seconds from each of ``count`` kills to the first new output."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        process, port = serve(folder, 0)
        try:
            with Publisher(f"127.0.0.1:{port}", "bench", "a", properties=("key",)) as publisher:
                builder = BatchBuilder()
                for at in range(LIVE):
                    builder.insert(b"%0*d" % (PAYLOAD_BYTES, at), at, 10**15)
                publisher.publish(builder.build())
                publisher.stable(LIVE)
                publisher.flush()
                for point in range(LIVE, LIVE + count):
                    os.kill(process.pid, signal.SIGKILL)
                    killed = time.monotonic()
                    process.wait()
                    process, _ = serve(folder, port)
                    publisher.stable(point + 1)
                    await_new_stable(port, point)
                    found.append(time.monotonic() - killed)
        finally:
            process.kill()
            process.wait()
    return found


def main() -> None:
    parser = bench_parser(__doc__, "durability", "smaller")
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    report = begin((__doc__ or "").splitlines()[0])
    rates: dict[str, list[float]] = {"memory": [], "full": [], "normal": []}
    for _ in range(size.repeats):
        rates["memory"].append(merged(size.events))
        for sync in ("full", "normal"):
            rates[sync].append(stored(size.events, sync))
    report.add("no store", rates["memory"], "elements/s")
    for sync in ("full", "normal"):
        report.add(f"--store, --store-sync {sync}", rates[sync], "elements/s")
        cost = report.add(f"throughput that {sync} costs", percent_less(rates[sync], rates["memory"]), PERCENT)
        report.note(f"target 20 %, {sync}: {'reached' if cost.median <= 20 else 'MISSED'} ({cost.median:.0f} %)")
    seconds = report.add(f"killed with {LIVE:,} live events, until it delivers again", restarts(size.restarts), "s")
    report.note(f"target 3 s: {'reached' if seconds.median <= 3 else 'MISSED'} ({seconds.median:.2f} s)")
    if not options.quick:
        report.save("durability")


if __name__ == "__main__":
    main()
