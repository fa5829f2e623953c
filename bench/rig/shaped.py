"""Streams with delayed elements (VI.E of the paper), and their rates over time at the input and at the output.

Elements are due at a constant rate. Each leaves when it is due or when the one before has left, whichever is later,
plus its own delay. So a delay builds up a queue, and the queued elements leave at once. A process per stream sends the
elements that have left through a real server to a judge.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean, pstdev

from bench.harness import Measured, Panel
from bench.rig import judge
from bench.rig.fleet import MERGE, serve
from bench.rig.judge import StreamVerdict
from bench.rig.processes import forked
from bench.rig.replica import batch_of
from bench.rig.stream import Presentation, ReferenceStream
from lmerge.core.batch import Row
from lmerge.core.elements import INSERT

TICK_S = 0.001
PER_S = 5_000  # elements of each stream
WARM_S = 2.0  # left out of rates
START_S = 2.0  # until then all processes have attached
# Inserts are counted: the second and later copies of an event cause no output.

Delay = Callable[[float], float]
"""Returns the delay in seconds of an element that would leave at the given second of the run."""


@dataclass
class InsertFlow:
    """Inserts over time: moments in seconds of the run, and how many at each."""

    moments: Sequence[float]
    inserts: Sequence[int]

    def rates(self, bin_s: float, seconds: float) -> list[float]:
        """Return the inserts per second in each bin after the warm-up."""
        count = int((seconds - WARM_S) / bin_s)
        bins = [0.0] * count
        for moment, inserts in zip(self.moments, self.inserts):
            at = int((moment - WARM_S) / bin_s)
            if moment >= WARM_S and at < count:
                bins[at] += inserts
        return [inserts / bin_s for inserts in bins]

    def variation(self, bin_s: float, seconds: float) -> float:
        """Return the coefficient of variation of the rate: standard deviation / mean."""
        rates = self.rates(bin_s, seconds)
        return pstdev(rates) / fmean(rates)

    def pauses_ms(self, seconds: float) -> list[float]:
        """Return the times without an insert in milliseconds, ascending."""
        moments = [
            moment for moment, inserts in zip(self.moments, self.inserts) if inserts and WARM_S <= moment < seconds
        ]
        return sorted((after - before) * 1e3 for before, after in pairwise(moments))


def run(seconds: float, delays: Sequence[Delay]) -> tuple[list[InsertFlow], InsertFlow, StreamVerdict]:
    """Run a stream for each delay, merged by one server. Return the inputs, the output and the verdict."""
    reference = ReferenceStream(life_max=2_000)
    with tempfile.TemporaryDirectory(prefix="lmerge-shaped-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        server, port = serve("server", folder)
        target = f"127.0.0.1:{port}"
        epoch_s = time.monotonic() + START_S
        processes = [server]
        try:
            reader = forked("reader", folder, judge.run, target, MERGE, reference, epoch_s)
            processes.append(reader)
            senders = [
                forked(f"stream {at}", folder, send, target, reference, at, seconds, delay, epoch_s)
                for at, delay in enumerate(delays)
            ]
            processes += senders
            flows = [sender.receive() for sender in senders]
            reader.send(("end", int(seconds * reference.events_per_s)))
            verdict = reader.receive()[1]
        finally:
            for process in processes:
                process.kill()
    moments = [arrival - epoch_s for arrival in verdict.arrivals]
    return [InsertFlow(*flow[1:]) for flow in flows], InsertFlow(moments, verdict.inserts), verdict


def departures(rows: Sequence[Row], delay: Delay) -> array[float]:
    """Return when each element leaves, in seconds of the run."""
    left, now = array("d"), 0.0
    for at in range(len(rows)):
        now = max(now, at / PER_S)
        now += delay(now)
        left.append(now)
    return left


def send(
    target: str, reference: ReferenceStream, at: int, seconds: float, delay: Delay, epoch_s: float, pipe: Connection
) -> None:
    """Run the process of one stream. It sends ("flow", moments, inserts) at the end."""
    stream = Presentation(reference, salt=at + 1)
    rows = [*stream.rows_to(int(seconds * reference.events_per_s)), *stream.rest()]
    left = departures(rows, delay)
    gc.freeze()
    asyncio.run(_send(target, f"stream {at}", rows, left, epoch_s, pipe))


async def _send(
    target: str, name: str, rows: Sequence[Row], left: Sequence[float], epoch_s: float, pipe: Connection
) -> None:
    from lmerge.client import AsyncPublisher

    moments, inserts = array("d"), array("I")
    async with AsyncPublisher(target, MERGE, name, properties=("key",)) as publisher:
        sent = 0
        while sent < len(rows):
            now = time.monotonic() - epoch_s
            upto = sent
            while upto < len(rows) and left[upto] <= now:
                upto += 1
            if upto > sent:
                piece = list(rows[sent:upto])
                await publisher.publish(batch_of(piece))
                moments.append(now)
                inserts.append(sum(row[0] == INSERT for row in piece))
                sent = upto
            await asyncio.sleep(TICK_S)
        await publisher.flush()
    pipe.send(("flow", moments, inserts))


def add_rates(panel: Panel, line: str, flow: InsertFlow, bin_s: float, seconds: float) -> None:
    """Add the rate over time as a line."""
    for at, rate in enumerate(flow.rates(bin_s, seconds)):
        panel.add(line, WARM_S + at * bin_s, Measured(line, [rate], "inserts/s"))
