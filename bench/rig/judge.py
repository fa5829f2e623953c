"""The process that reads the merged stream, believes nobody, and notes when everything came.

Every element is applied to a ``Tdb``, which refuses one that contradicts what was said before. Every event that is
frozen is compared with the reference, at once, so an hour's stream needs a byte per event. At the end: ``StreamVerdict``.
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
    """How far the reader is. ``servers``: those that it could go on with. ``gap_s``: longest since the last answer."""

    stable_point: int
    elements: int
    servers: int
    gap_s: float


@dataclass
class StreamVerdict:
    """What the reader saw. ``arrivals``: monotonic times of output batches, ``inserts`` how many each had, ``ages_ms``
    how old the last of them was (-1: there was none)."""

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

    def words(self) -> str:
        """In one line."""
        return (
            f"{'right' if self.is_good else 'WRONG'}: {self.expected:,} events expected, {self.frozen:,} merged; lost "
            f"{self.lost}, duplicated {self.duplicates}, unexpected {self.unexpected}, with a wrong end "
            f"{self.wrong_end}; contradictions {self.contradictions}, gaps {self.gaps}"
            + "".join(f"\n    {example}" for example in self.examples)
        )


class StreamJudge:
    """Takes batches of the merged stream; ``verdict`` when it is over."""

    def __init__(self, reference: ReferenceStream, *, events_max: int = 0, keeps_arrivals: bool = True) -> None:
        self.reference = reference
        self.tdb = Tdb("output")
        self.seen = bytearray(events_max)  # how often each event was frozen, up to 255
        self.seen[::1024] = bytes(len(self.seen[::1024]))  # all of it is real memory from the start
        self.found = StreamVerdict()
        self.gap_s_max = 0.0  # since it was last asked
        self._keeps_arrivals = keeps_arrivals
        self._last_s = 0.0

    @property
    def stable_point(self) -> int:
        """How far the output has come."""
        return self.tdb.stable_point

    def take(self, batch: AnyBatch, at_s: float, epoch_s: float = 0.0) -> None:
        """One output batch that arrived at ``at_s``."""
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
        """The stream is over, and events 0 to ``expected`` - 1 were to come."""
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

    def _contradicted(self, words: str) -> None:
        self.found.contradictions += 1
        self._example(f"{CONTRADICTED}: {words}")

    def _example(self, words: str) -> None:
        if len(self.found.examples) < SHOWN_MAX:
            self.found.examples.append(words)


def run(
    target: str, merge: str, reference: ReferenceStream, epoch_s: float, told: Connection, *, events_max: int = 0,
) -> None:
    """The process. When asked it tells ("at", stable point, elements, joined servers, longest gap since it was last
    asked); and ("verdict", StreamVerdict) when the stream is over and it knows the number of events, which it is told as
    ("end", N). ``events_max``: room for so many from the start, and no arrivals are kept: memory does not grow."""
    gc.freeze()  # what is loaded by now stays
    judge = StreamJudge(reference, events_max=events_max, keeps_arrivals=not events_max)
    # From the beginning, however late it connects: on a busy machine the first events are frozen by then.
    subscriber = AsyncSubscriber(target, merge, name="judge", resume=format_token(merge, NEG_INF))
    verdict = asyncio.run(_read(judge, subscriber, epoch_s, told))
    told.send(("verdict", verdict))


async def _read(judge: StreamJudge, subscriber: AsyncSubscriber, epoch_s: float, told: Connection) -> StreamVerdict:
    loop = asyncio.get_running_loop()
    expected: asyncio.Future[int] = loop.create_future()

    def listen() -> None:
        try:
            word, value = told.recv()
        except (EOFError, OSError):
            loop.remove_reader(told.fileno())  # the benchmark has gone; the kernel ends this process too
            return
        if word == "end":
            expected.set_result(value)
        else:
            gap_s, judge.gap_s_max = judge.gap_s_max, 0.0
            told.send(("at", OutputProgress(judge.stable_point, judge.found.elements, sources(subscriber), gap_s)))

    loop.add_reader(told.fileno(), listen)
    async for batch in subscriber.batches():
        judge.take(batch, time.monotonic(), epoch_s)
        if judge.stable_point == INF:
            break
    verdict = judge.verdict(await expected)
    verdict.gaps, verdict.reconnects = len(subscriber.gaps), subscriber.reconnects
    return verdict


def sources(subscriber: AsyncSubscriber) -> int:
    """How many servers the reader could go on with."""
    return sum(source.state == "joined" for source in subscriber.sources)
