"""How much faster do two plans with opposite strengths finish if the merge sends feedback to the slower one?

Figure 10 of the paper (VI.E.3). Two plans of one query, each a process with at best one core, select events by a
function of a field x. The function is expensive in plan 0 for small x, and in plan 1 for large x. Both have the same
result. 200,000 events come in batches of small and of large x in turns, 10,000 to 30,000 in each, drawn so that both
plans have about the same work: those of the paper took 176 and 163 s alone. From these times, and from 34 s for the
merge with feedback, an expensive element took about nine times as long as a cheap one, and a cheap one 170 us. Here a
cheap one takes half of that, so that the bench takes less than a quarter of an hour. The work is real: rounds of a
hash.

Compared in one run, in seconds from the first element to the end of the merged output: each plan alone, the merge of
both without feedback, the merge of both with it. The output must be the same in all of them. Target: at least 4 times
faster than without feedback.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import itertools
import os
import tempfile
import time
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from bench.harness import Measured, Panel, begin, bench_parser, plot
from bench.rig.fleet import MERGE, import_all, serve
from bench.rig.processes import forked
from bench.rig.stream import mixed
from lmerge.core.batch import BatchBuilder
from lmerge.core.elements import INF, INSERT, NEG_INF, Event
from lmerge.core.tdb import Tdb
from lmerge.wire.token import format_token

COUNT = 200_000
BATCH = (10_000, 30_000)
CHEAP_US, EXPENSIVE_US = 85.0, 765.0
UNEVEN_MAX = 0.04  # by so many of the events the plans may differ in their expensive ones
STEP, LIFE = 100, 1_000  # of the stream's time
STABLE_EVERY = 50  # elements; also the size of a plan's batch
LAG = STABLE_EVERY * STEP  # an input that lags by more than a batch gets feedback
TARGET = 4.0
REPEATS = {"plan 0 alone": 1, "plan 1 alone": 1}  # of the others:
MERGED_REPEATS = 3
POINTS = 200
RUNS = {"plan 0 alone": (0,), "plan 1 alone": (1,), "merge of both": (0, 1), "merge of both, feedback": (0, 1)}


@dataclass(frozen=True)
class SlowQuery:
    """The source and the function. ``turns``: the numbers of the events at which x changes between small and large."""

    count: int
    turns: tuple[int, ...]
    cheap_rounds: int
    expensive_rounds: int

    def x(self, at: int) -> int:
        """Return x of event ``at``. Small: below 1000; large: from 1000 on."""
        return mixed(at) % 1000 + 1000 * (bisect_right(self.turns, at) % 2)

    def is_expensive(self, plan: int, x: int) -> bool:
        return (x < 1000) == (plan == 0)

    def selects(self, at: int, x: int, plan: int) -> bool:
        """Return whether an event is selected: four of five are. Both plans compute it; one takes longer."""
        work(self.expensive_rounds if self.is_expensive(plan, x) else self.cheap_rounds)
        return (x * 31 + at) % 5 != 0

    def expected(self) -> list[Event]:
        """Return the events that the output must have."""
        return [
            Event(at * STEP, b"%d" % x, at * STEP + LIFE)
            for at in range(self.count)
            for x in [self.x(at)]
            if (x * 31 + at) % 5 != 0
        ]


def work(rounds: int) -> None:
    """Compute so many rounds of a hash, without the GIL."""
    hashlib.pbkdf2_hmac("sha256", b"x", b"salt", rounds)


def round_us() -> float:
    """Return the microseconds of a round on this machine."""
    took = []
    for _ in range(7):
        began = time.perf_counter()
        work(20_000)
        took.append(time.perf_counter() - began)
    return min(took) / 20_000 * 1e6


def query(count: int, batch: tuple[int, int]) -> SlowQuery:
    """Return a query with batches of random sizes, drawn again until both plans have about the same work."""
    one_us = round_us()
    for seed in itertools.count():
        random, turns = Random(seed), [0]
        while turns[-1] < count:
            turns.append(turns[-1] + random.randint(*batch))
        spec = SlowQuery(count, tuple(turns[1:]), round(CHEAP_US / one_us), round(EXPENSIVE_US / one_us))
        if abs(2 * sum(spec.x(at) < 1000 for at in range(count)) - count) <= UNEVEN_MAX * count:
            return spec
    raise AssertionError


def plan(target: str, which: int, spec: SlowQuery, pipe: Connection) -> None:
    """Run the process of one plan. It waits for a message, works, and sends the number of elements it left out."""
    from lmerge import FastForward, Publisher, PublisherLimits

    forward = FastForward()
    with Publisher(
        target,
        MERGE,
        f"plan {which}",
        properties=("key",),
        on_fast_forward=forward,
        limits=PublisherLimits(buffer_bytes_max=64 * 1024),
    ) as publisher:
        pipe.send("ready")
        pipe.recv()
        builder = BatchBuilder()
        for at in range(spec.count):
            vs = at * STEP
            if forward.needs(vs + LIFE):
                x = spec.x(at)
                if spec.selects(at, x, which):
                    builder.insert(b"%d" % x, vs, vs + LIFE)
            if at % STABLE_EVERY == STABLE_EVERY - 1:
                builder.stable(vs)
                publisher.publish(builder.build())
                builder = BatchBuilder()
        builder.stable(INF)
        publisher.publish(builder.build())
        publisher.flush()
        pipe.send(forward.count)
        pipe.recv()  # it stays attached until the output is complete: leaving is not measured


def read(target: str, pipe: Connection) -> None:
    """Run the reader's process. It sends (moments, inserts, events) of the whole output, whenever it connects."""
    gc.disable()
    pipe.send(asyncio.run(_read(target)))


async def _read(target: str) -> tuple[array[float], array[int], list[Event]]:
    from lmerge.client import AsyncSubscriber

    tdb, moments, inserts = Tdb("output"), array("d"), array("I")
    async for batch in AsyncSubscriber(target, MERGE, resume=format_token(MERGE, NEG_INF)).batches():
        tdb.apply_batch(batch)
        moments.append(time.monotonic())
        inserts.append(batch.kinds.count(INSERT))
        if tdb.stable_point == INF:
            break
    return moments, inserts, tdb.events()


@dataclass
class FeedbackRun:
    """The result of one run: seconds, the output over time, and the number of elements that each plan left out."""

    seconds: float
    moments: list[float]
    inserts: list[int]
    is_right: bool
    left_out: list[int]


def run(name: str, spec: SlowQuery, expected: list[Event]) -> FeedbackRun:
    """Run the plans with one server and one reader, each a process."""
    closing = ("--closing", "any")  # the end of the faster plan is the end
    options = (*closing, "--feedback", str(LAG)) if "feedback" in name else closing
    with tempfile.TemporaryDirectory(prefix="lmerge-feedback-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        server, port = serve("server", folder, *options)
        target = f"127.0.0.1:{port}"
        processes = [server]
        try:
            plans = [forked(f"plan {which}", folder, plan, target, which, spec) for which in RUNS[name]]
            processes += plans
            for process in plans:
                assert process.receive() == "ready"
            reader = forked("reader", folder, read, target)
            processes.append(reader)
            began_s = time.monotonic()
            for process in plans:
                process.send("go")
            moments, inserts, events = reader.receive()
            left_out = [process.receive() for process in plans if process.pipe is not None and process.pipe.poll(1.0)]
        finally:
            for process in processes:
                process.kill()
    return FeedbackRun(
        moments[-1] - began_s, [moment - began_s for moment in moments], list(inserts), events == expected, left_out
    )


def add_curve(panel: Panel, name: str, found: FeedbackRun) -> None:
    """Add the number of output elements over time."""
    total, following = 0, 0.0
    for moment, inserts in zip(found.moments, found.inserts):
        total += inserts
        if moment >= following or moment == found.moments[-1]:
            panel.add(name, moment, Measured(name, [total / 1e3], ""))
            following = moment + found.seconds / POINTS


def main() -> None:
    parser = bench_parser(__doc__, "feedback", "20,000 events, once")
    options = parser.parse_args()
    import_all()
    report = begin((__doc__ or "").splitlines()[0])
    part = 10 if options.quick else 1
    spec = query(COUNT // part, (BATCH[0] // part, BATCH[1] // part))
    expected = spec.expected()
    report.note(
        f"{spec.count:,} events, {sum(turn < spec.count for turn in spec.turns)} turns; a cheap element "
        f"{CHEAP_US:g} us of hashing, an expensive one {EXPENSIVE_US:g} us"
    )
    panel = Panel("elements of the merged output", "s", "thousands of events", is_plain=True)
    rows = {}
    for name in RUNS:
        runs = [run(name, spec, expected) for _ in range(1 if options.quick else REPEATS.get(name, MERGED_REPEATS))]
        rows[name] = report.add(name, [found.seconds for found in runs], "s")
        right = all(found.is_right for found in runs)
        report.note(
            f"{name}: output {'as expected' if right else 'WRONG'}; left out by the plans {runs[0].left_out}; "
            f"load {os.getloadavg()[0]:.1f}"
        )
        add_curve(panel, name, runs[0])
    without, with_it = rows["merge of both"].median, rows["merge of both, feedback"].median
    ratio = without / with_it
    report.note(f"without feedback / with feedback = {ratio:.1f}")
    report.note(f"target {TARGET:g} times faster: {'reached' if ratio >= TARGET else 'MISSED'} ({ratio:.1f} times)")
    if not options.quick:
        report.save("feedback")
        plot("feedback", "Two plans of opposite strengths, merged with and without feedback", [panel], columns=1)


if __name__ == "__main__":
    main()
