"""The process that reads the merged stream, checks every element and notes when it arrived.

Every element is applied to a ``Tdb``, which refuses an element that contradicts earlier ones. Every frozen event is
compared with the reference at once, so the stream of an hour needs a byte per event. The result is a ``StreamVerdict``.
"""

from __future__ import annotations

import asyncio
import gc
import time
from array import array
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import NamedTuple

from bench.rig.stream import ReferenceStream
from lmerge.client import AsyncSubscriber
from lmerge.core.batch import AnyBatch
from lmerge.core.elements import INF, INSERT, NEG_INF, Event
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation
from lmerge.wire.token import format_token

SHOWN_MAX = 5
CONTRADICTED = "contradicted"


class OutputProgress(NamedTuple):
    """The progress of the reader. ``servers``: that it has joined. ``gap_s``: the longest since the last answer."""

    stable_point: int
    elements: int
    servers: int
    gap_s: float


@dataclass
class StreamVerdict:
    """The results of the reader.

    ``arrivals``: monotonic times of output batches; ``inserts``: the number in each; ``ages_ms``: the age of the last
    insert of each, -1 if there was none.
    """

    expected: int = 0
    frozen: int = 0
    lost: int = 0
    duplicates: int = 0
    unexpected: int = 0
    wrong_end: int = 0
    contradictions: int = 0
    gaps: int = 0
    reconnects: int = 0
    elements: int = 0
    examples: list[str] = field(default_factory=list)
    arrivals: array[float] = field(default_factory=lambda: array("d"))
    inserts: array[int] = field(default_factory=lambda: array("I"))
    ages_ms: array[float] = field(default_factory=lambda: array("f"))

    @property
    def is_good(self) -> bool:
        """Nothing lost, nothing twice, nothing contradicted, and no gap was reported."""
        wrong = (self.lost, self.duplicates, self.unexpected, self.wrong_end, self.contradictions, self.gaps)
        return self.frozen == self.expected > 0 and not any(wrong)

    def summary(self) -> str:
        """Return the counts in one line, and examples of what is wrong below it."""
        return (
            f"{'right' if self.is_good else 'WRONG'}: {self.expected:,} events expected, {self.frozen:,} merged; lost "
            f"{self.lost}, duplicated {self.duplicates}, unexpected {self.unexpected}, with a wrong end "
            f"{self.wrong_end}; contradictions {self.contradictions}, gaps {self.gaps}"
            + "".join(f"\n    {example}" for example in self.examples)
        )


class StreamJudge:
    """Checks batches of the merged stream. ``verdict`` gives the result at the end."""

    def __init__(self, reference: ReferenceStream, *, events_max: int = 0, keeps_arrivals: bool = True) -> None:
        self.reference = reference
        self.tdb = Tdb("output")
        self.seen = bytearray(events_max)  # how often each event was frozen, up to 255
        self.seen[::1024] = bytes(len(self.seen[::1024]))  # write to each page, so that memory does not grow later
        self.found = StreamVerdict()
        self.gap_s_max = 0.0  # since the last answer
        self._keeps_arrivals = keeps_arrivals
        self._last_s = 0.0

    @property
    def stable_point(self) -> int:
        """The stable point of the output."""
        return self.tdb.stable_point

    def take(self, batch: AnyBatch, at_s: float, epoch_s: float = 0.0) -> None:
        """Check one output batch that arrived at ``at_s``."""
        newest = NEG_INF
        for row in batch.rows():
            try:
                self.tdb.apply_row(row)
            except InputViolation as violation:
                self._contradicted(str(violation))
            if row[0] == INSERT:
                newest = row[1]
        self._arrived(batch, at_s, newest, epoch_s)
        for event in self.tdb.take_frozen():
            self._frozen(event)

    def _arrived(self, batch: AnyBatch, at_s: float, newest: int, epoch_s: float) -> None:
        found = self.found
        found.elements += batch.count
        if self._last_s:
            self.gap_s_max = max(self.gap_s_max, at_s - self._last_s)
        self._last_s = at_s
        if self._keeps_arrivals:
            found.arrivals.append(at_s)
            found.inserts.append(batch.kinds.count(INSERT))
            due_s = epoch_s + self.reference.number(newest) / self.reference.events_per_s
            found.ages_ms.append((at_s - due_s) * 1e3 if newest > NEG_INF else -1.0)

    def _frozen(self, event: Event) -> None:
        found, at = self.found, self.reference.number(event.vs)
        vs, ve, payload = self.reference.event(at)
        if (event.vs, event.payload) != (vs, payload):
            found.unexpected += 1
            self._example(f"{event} is no event of the reference")
            return
        found.frozen += 1
        if event.ve != ve:
            found.wrong_end += 1
            self._example(f"{event} should end at {ve}")
        if at >= len(self.seen):
            self.seen.extend(bytes(at + 1024 - len(self.seen)))
        self.seen[at] = min(self.seen[at] + 1, 255)

    def verdict(self, expected: int) -> StreamVerdict:
        """Return the verdict on the whole stream; events 0 to ``expected`` - 1 must have come."""
        found = self.found
        for event in self.tdb.live_events():
            self._frozen(event)
        seen = bytes(self.seen[:expected]).ljust(expected, b"\0")
        found.expected = expected
        found.lost = seen.count(0)
        found.duplicates = sum(seen) - (expected - found.lost)
        found.unexpected += sum(self.seen[expected:])
        if found.lost:
            self._example(f"the first that is lost is event {seen.index(0)}")
        if found.duplicates:
            self._example(f"one that came twice is event {next(i for i, times in enumerate(seen) if times > 1)}")
        return found

    def _contradicted(self, text: str) -> None:
        self.found.contradictions += 1
        self._example(f"{CONTRADICTED}: {text}")

    def _example(self, text: str) -> None:
        if len(self.found.examples) < SHOWN_MAX:
            self.found.examples.append(text)


def run(
    target: str, merge: str, reference: ReferenceStream, epoch_s: float, pipe: Connection, *, events_max: int = 0
) -> None:
    """Run the process.

    It receives ("at", None) and answers ("at", OutputProgress). It receives ("end", N), the number of events, and sends
    ("verdict", StreamVerdict) when the stream is over. ``events_max``: allocate room for so many events at the start
    and keep no arrivals, so that memory does not grow.
    """
    gc.freeze()  # the loaded modules stay
    judge = StreamJudge(reference, events_max=events_max, keeps_arrivals=not events_max)
    # From the beginning: on a busy machine the first events may be frozen before it connects.
    subscriber = AsyncSubscriber(target, merge, name="judge", resume=format_token(merge, NEG_INF))
    verdict = asyncio.run(_read(judge, subscriber, epoch_s, pipe))
    pipe.send(("verdict", verdict))


async def _read(judge: StreamJudge, subscriber: AsyncSubscriber, epoch_s: float, pipe: Connection) -> StreamVerdict:
    loop = asyncio.get_running_loop()
    expected: asyncio.Future[int] = loop.create_future()

    def receive() -> None:
        try:
            kind, value = pipe.recv()
        except (EOFError, OSError):
            loop.remove_reader(pipe.fileno())  # the benchmark has ended; the kernel ends this process too
            return
        if kind == "end":
            expected.set_result(value)
        else:
            gap_s, judge.gap_s_max = judge.gap_s_max, 0.0
            pipe.send(("at", OutputProgress(judge.stable_point, judge.found.elements, sources(subscriber), gap_s)))

    loop.add_reader(pipe.fileno(), receive)
    async for batch in subscriber.batches():
        judge.take(batch, time.monotonic(), epoch_s)
        if judge.stable_point == INF:
            break
    verdict = judge.verdict(await expected)
    verdict.gaps, verdict.reconnects = len(subscriber.gaps), subscriber.reconnects
    return verdict


def sources(subscriber: AsyncSubscriber) -> int:
    """Return how many servers the reader has joined."""
    return sum(source.state == "joined" for source in subscriber.sources)
