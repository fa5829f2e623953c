"""Do 100 subscribers of one merge of 10,000 elements/s keep up, and what does each of them cost the server?

One publisher process of 10,000 elements/s (100-byte payloads), one server process, 100 subscriptions, 2 cores shared by
all. The readers are not measured: a few processes hold all subscriptions and read bytes without decoding them, over one
gRPC connection for each subscription. Counted: the age of a batch when it arrives (its stable is the time at which it
was due; a sample of the messages is decoded for that), whether a subscriber was cut off, and the CPU seconds of the
server. Then the number of subscribers is raised, to find the largest that keeps up; and 1,000 read 1,000 elements/s.
"""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from bench.harness import BenchReport, Measured, Panel, begin, bench_parser, plot
from bench.rig.fleet import MERGE, import_all, serve
from bench.rig.processes import RigProcess, forked
from bench.rig.stalls import percentile
from lmerge.core.batch import BatchBuilder
from lmerge.core.elements import INF, STABLE

PER_S = 10_000
PAYLOAD_BYTES = 100
SECONDS, WARM_S = 15.0, 3.0
READERS = 2  # processes
TICK_S = 0.002
SAMPLED_S = 0.25  # how often a subscription decodes a message
TARGET = 100
PATIENCE_S = 30.0
AGE_S_MAX = 1.0  # a subscriber that is never further behind keeps up
COUNTS = (1, 10, 50, 100, 200)
"""Subscribers."""
MANY, OF_MANY_PER_S = 1_000, 1_000


def publish(target: str, per_s: int, seconds: float, epoch_s: float, pipe: Connection) -> None:
    """Run the process of the publisher. The stable of each tick is the time at which its batch was due."""
    asyncio.run(_publish(target, per_s, seconds, epoch_s))
    pipe.send("done")


async def _publish(target: str, per_s: int, seconds: float, epoch_s: float) -> None:
    from lmerge.client import AsyncPublisher

    gc.disable()
    async with AsyncPublisher(target, MERGE, "a", properties=("key",)) as publisher:
        sent = 0
        while sent < per_s * seconds:
            due = min(int((time.monotonic() - epoch_s) * per_s), int(per_s * seconds))
            builder = BatchBuilder()
            for at in range(sent, due - 1):
                vs = int((epoch_s + at / per_s) * 1e6)
                builder.insert(b"%0*d" % (PAYLOAD_BYTES, at), vs, vs + 100_000)
            if due > sent + 1:
                builder.stable(int((epoch_s + (due - 1) / per_s) * 1e6))
                await publisher.publish(builder.build())
                sent = due
            await asyncio.sleep(TICK_S)
        await publisher.stable(INF)
        await publisher.flush()


def read(target: str, first: int, count: int, end_s: float, pipe: Connection) -> None:
    """Run the process of ``count`` subscriptions. It sends (ages in s, messages, bytes, ends)."""
    gc.disable()
    pipe.send(asyncio.run(_read_all(target, first, count, end_s)))


async def _read_all(target: str, first: int, count: int, end_s: float) -> tuple[list[float], int, int, list[str]]:
    reads = [_read(target, f"r{at}", end_s) for at in range(first, first + count)]
    found = await asyncio.gather(*reads)
    return (
        [age for ages, _, _, _ in found for age in ages],
        sum(messages for _, messages, _, _ in found),
        sum(size for _, _, size, _ in found),
        [end for _, _, _, end in found],
    )


async def _read(target: str, name: str, end_s: float) -> tuple[list[float], int, int, str]:
    import grpc

    from lmerge.client.connection import streams
    from lmerge.client.connection.channels import CHANNEL_OPTIONS
    from lmerge.wire.generated import lmerge_pb2 as pb

    ages: list[float] = []
    messages = size = 0
    options = [*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(target, options=options) as channel:
        call: Any = streams.subscribe(channel, pb.SubscribeRequest(merge=MERGE, subscriber=name, wait_for_merge=True))
        sample_s = 0.0
        try:
            while (data := await call.read()) is not grpc.aio.EOF:
                messages += 1
                size += len(data)
                now = time.monotonic()
                looks = now >= sample_s or now >= end_s
                if looks and (at := _newest(pb.SubscribeResponse.FromString(data))) is not None:
                    if at == INF:
                        return ages, messages, size, "complete"
                    ages.append(now - at / 1e6)
                    sample_s = now + SAMPLED_S
                elif now > end_s + PATIENCE_S:
                    return ages, messages, size, "not complete"
        except grpc.aio.AioRpcError as error:
            return ages, messages, size, f"{error.code().name}: {error.details()}"
    return ages, messages, size, "ended"


def _newest(response: Any) -> int | None:
    """Return the last stable of a message."""
    from array import array

    batch = response.batch
    at = batch.kinds.rfind(bytes([STABLE]))
    return int(array("q", batch.vs)[at]) if at >= 0 else None


class SubscribersResult:
    """The results for one number of subscribers."""

    def __init__(self, ages: list[float], messages: int, ends: list[str], server_cores: float) -> None:
        self.ages_ms = [age * 1e3 for age in ages]
        self.messages, self.server_cores = messages, server_cores
        self.complete = ends.count("complete")
        self.problems = sorted({end for end in ends if end != "complete"})

    def keeps_up(self, count: int) -> bool:
        return self.complete == count and percentile(self.ages_ms, 0.99) < AGE_S_MAX * 1e3


def run(count: int, per_s: int, seconds: float) -> SubscribersResult:
    """Run so many subscribers of a merge of so many elements a second."""
    with tempfile.TemporaryDirectory(prefix="lmerge-subscribers-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        server, port = serve("server", folder)
        target = f"127.0.0.1:{port}"
        processes: list[RigProcess] = [server]
        epoch_s = time.monotonic() + 1.0 + count / 100
        end_s = epoch_s + seconds - 1.0
        try:
            shares = [len(range(at, count, READERS)) for at in range(READERS)]
            readers = [
                forked(f"readers {at}", folder, read, target, sum(shares[:at]), share, end_s)
                for at, share in enumerate(shares)
                if share
            ]
            processes += readers
            processes.append(forked("publisher", folder, publish, target, per_s, seconds, epoch_s))
            watched = psutil.Process(server.pid)
            time.sleep(max(0.0, epoch_s + WARM_S - time.monotonic()))
            before, before_s = sum(watched.cpu_times()[:2]), time.monotonic()
            time.sleep(max(0.0, epoch_s + seconds - time.monotonic()))
            cores = (sum(watched.cpu_times()[:2]) - before) / (time.monotonic() - before_s)
            found = [reader.receive() for reader in readers]
        finally:
            for process in processes:
                process.kill()
    return SubscribersResult(
        [age for ages, _, _, _ in found for age in ages],
        sum(messages for _, messages, _, _ in found),
        [end for _, _, _, ends in found for end in ends],
        cores,
    )


def add(report: BenchReport, label: str, count: int, found: SubscribersResult) -> tuple[Measured, Measured, Measured]:
    """Report one number of subscribers. Return the rows of p50 and p99 of the age, and of the server's cores."""
    p50 = report.add(f"{label}: age, p50", [percentile(found.ages_ms, 0.5)], "ms")
    p99 = report.add(f"{label}: age, p99", [percentile(found.ages_ms, 0.99)], "ms")
    server = report.add(f"{label}: server", [found.server_cores], "cores")
    report.add(f"{label}: messages to each", [found.messages / count], "messages")
    report.note(
        f"{label}: {found.complete} read everything; {'keep up' if found.keeps_up(count) else 'do NOT keep up'} "
        f"{found.problems[:2] or ''}; load {os.getloadavg()[0]:.1f}"
    )
    return p50, p99, server


def main() -> None:
    parser = bench_parser(__doc__, "subscribers", "10 subscribers for 5 s")
    options = parser.parse_args()
    import_all()
    report = begin((__doc__ or "").splitlines()[0])
    age = Panel(f"{PER_S:,} elements/s", "subscribers", "age of a batch at its reader, ms", log="xy")
    cores = Panel("cost", "subscribers", "cores that the server took", log="x")
    best = 0
    for count in (10,) if options.quick else COUNTS:
        found = run(count, PER_S, 6.0 if options.quick else SECONDS)
        p50, p99, server = add(report, f"{count} subscribers", count, found)
        age.add("p50", count, p50)
        age.add("p99", count, p99)
        cores.add("server", count, server)
        best = count if found.keeps_up(count) else best
    if not options.quick:
        add(report, f"{MANY:,} subscribers of {OF_MANY_PER_S:,}/s", MANY, run(MANY, OF_MANY_PER_S, SECONDS))
    verdict = "reached" if best >= TARGET else "MISSED"
    report.note(f"target {TARGET} subscribers at {PER_S:,} elements/s each: {verdict} (most that kept up: {best})")
    if not options.quick:
        report.save("subscribers")
        plot("subscribers", "Many subscribers of one merge", [age, cores])


if __name__ == "__main__":
    main()
