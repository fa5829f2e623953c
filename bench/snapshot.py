"""How long until a subscriber of a merge with 100,000 live events has the whole snapshot?

One server process and a publisher that has published 100,000 events without end. Measured: from the call until the
subscriber's live table holds all of them. Loopback, 2 cores. Payloads of 16 and of 100 bytes. Beside it, in the same
run, the same bytes read without decoding. Target: below 1 s.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from bench.harness import Measured, Panel, begin, bench_parser, plot
from bench.rig.fleet import MERGE, import_all, serve
from bench.rig.processes import forked
from lmerge.core.batch import BatchBuilder
from lmerge.core.elements import INF

EVENTS = 100_000
PAYLOADS = (16, 100)
REPEATS = 7
TARGET_S = 1.0


def publish(target: str, events: int, payload_bytes: int, pipe: Connection) -> None:
    """Run the process that fills the merge and stays attached."""
    from lmerge.client import Publisher

    with Publisher(target, MERGE, "a", properties=("key",)) as publisher:
        for start in range(0, events, 10_000):
            builder = BatchBuilder()
            for at in range(start, min(start + 10_000, events)):
                builder.insert(b"%0*d" % (payload_bytes, at), at, INF)
            publisher.publish(builder.build())
        publisher.stable(events)
        publisher.flush()
        pipe.send("filled")
        pipe.recv()


def snapshot(target: str, events: int, pipe: Connection) -> None:
    """Run a process that reads one snapshot through the library and sends the seconds."""
    from lmerge.client import AsyncSubscriber

    async def read() -> float:
        began = time.perf_counter()
        subscriber = AsyncSubscriber(target, MERGE, name="bench")
        async for _ in subscriber.batches():
            if subscriber.stable_point >= events and len(subscriber.tdb.live_events()) == events:
                return time.perf_counter() - began
        raise RuntimeError("the stream ended before its snapshot")

    pipe.send(asyncio.run(read()))


def raw(target: str, _events: int, pipe: Connection) -> None:
    """Run the same without decoding: the part of the server and of gRPC."""
    import grpc

    from lmerge.client.connection import streams
    from lmerge.client.connection.channels import CHANNEL_OPTIONS
    from lmerge.wire.generated import lmerge_pb2 as pb

    async def read() -> float:
        began = time.perf_counter()
        async with grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS) as channel:
            call = streams.subscribe(channel, pb.SubscribeRequest(merge=MERGE, subscriber="raw"))
            async for data in call:
                if len(data) < 64 and pb.SubscribeResponse.FromString(data).WhichOneof("message") == "snapshot_end":
                    return time.perf_counter() - began
        raise RuntimeError("the stream ended before its snapshot")

    pipe.send(asyncio.run(read()))


def run(events: int, payload_bytes: int, repeats: int) -> dict[str, list[float]]:
    """Return the seconds of each way of reading."""
    found: dict[str, list[float]] = {"subscriber": [], "bytes only": []}
    with tempfile.TemporaryDirectory(prefix="lmerge-snapshot-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        server, port = serve("server", folder)
        target = f"127.0.0.1:{port}"
        processes = [server, forked("publisher", folder, publish, target, events, payload_bytes)]
        try:
            assert processes[1].receive() == "filled"
            for at in range(repeats):
                for name, work in (("subscriber", snapshot), ("bytes only", raw)):
                    reader = forked(f"{name} {at}", folder, work, target, events)
                    processes.append(reader)
                    found[name].append(reader.receive())
                    reader.kill()
        finally:
            for process in processes:
                process.kill()
    return found


def main() -> None:
    parser = bench_parser(__doc__, "snapshot", "10,000 events")
    options = parser.parse_args()
    import_all()
    report = begin((__doc__ or "").splitlines()[0])
    events, repeats = (EVENTS // 10, 2) if options.quick else (EVENTS, REPEATS)
    panel = Panel(f"{events:,} live events", "payload, bytes", "s until the snapshot is complete")
    for payload_bytes in PAYLOADS:
        for name, seconds in run(events, payload_bytes, repeats).items():
            row: Measured = report.add(f"{payload_bytes}-byte payloads, {name}", seconds, "s")
            panel.add(name, payload_bytes, row)
            if name == "subscriber":
                verdict = "reached" if max(seconds) < TARGET_S else "MISSED"
                report.note(
                    f"target below {TARGET_S:g} s: {verdict} (slowest {max(seconds):.2f} s); load "
                    f"{os.getloadavg()[0]:.1f}"
                )
    if not options.quick:
        report.save("snapshot")
        plot("snapshot", "A subscriber's snapshot", [panel], columns=1)


if __name__ == "__main__":
    main()
