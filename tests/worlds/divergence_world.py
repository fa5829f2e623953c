"""Inputs of a monitor in tests: each delivers its stream in random slices, disconnects, returns and skips."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from lmerge.core.batch import Batch
from lmerge.core.divergence.digests import interval_of
from lmerge.core.divergence.monitor import Divergence, DivergenceMonitor
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.engines import selection
from lmerge.core.inputs import InputRole
from lmerge.core.tdb import Tdb

INTERVAL = 10
EVIDENCE_BYTES = 2**24


def monitor(interval: int = INTERVAL, **options: Any) -> DivergenceMonitor:
    chosen = {"evidence_bytes": EVIDENCE_BYTES} | options
    return DivergenceMonitor(selection.best(), interval, **chosen)


class WatchedInput:
    """One input of ``watched`` that delivers ``stream`` like a publisher: it keeps its live events."""

    def __init__(
        self, watched: DivergenceMonitor, name: str, stream: Sequence[Element], role: InputRole = InputRole.ACTIVE
    ) -> None:
        self.watched, self.name, self.stream, self.role = watched, name, list(stream), role
        self.at = 0
        self.incarnation = 0
        self.skipped: int | None = None
        self.tdb = Tdb(name)

    @property
    def is_done(self) -> bool:
        return self.at == len(self.stream)

    def attach(self, join_at: int | None = None) -> None:
        self.incarnation += 1
        self.watched.attach(self.name, self.incarnation, self.role, join_at)

    def deliver(self, count: int) -> None:
        """Deliver the next ``count`` elements, without those that a skip leaves out."""
        delivered = self.stream[self.at : self.at + count]
        self.at += len(delivered)
        for element in delivered:
            self.tdb.apply(element)
        batch = Batch.of([element for element in delivered if not self._is_left_out(element)])
        assert self.watched.receive(self.name, batch, batch.count) is None

    def come_back(self, join_at: int) -> None:
        """Attach a newer incarnation. It delivers again the events with Ve >= join_at that the stream has so far."""
        self.watched.detach(self.name)
        self.attach(join_at)
        self.skipped = None
        prelude: list[Element] = [Insert(e.payload, e.vs, e.ve) for e in self.tdb.events() if e.ve >= join_at]
        if self.tdb.stable_point > NEG_INF:
            prelude.append(Stable(self.tdb.stable_point))
        batch = Batch.of(prelude)
        self.watched.receive(self.name, batch, batch.count)

    def skip(self, until: int) -> None:
        self.skipped = max(until, self.skipped or until)
        self.watched.skipped(self.name, until)

    def _is_left_out(self, element: Element) -> bool:
        if self.skipped is None or isinstance(element, Stable):
            return False
        ends = [element.ve, element.vold] if isinstance(element, Adjust) else [element.ve]
        final = [e.ve for e in self.final if (e.vs, e.payload) == (element.vs, element.payload)]
        return max([*ends, *final]) < self.skipped

    @property
    def final(self) -> list[Event]:
        whole = Tdb(self.name)
        for element in self.stream:
            whole.apply(element)
        return whole.events()


def play(
    random: Random, inputs: Sequence[WatchedInput], *, restless: bool = False, counting: Sequence[str] | None = None
) -> list[Divergence]:
    """Deliver all streams to the end, in random slices. ``restless``: inputs return and skip on the way."""
    watched = inputs[0].watched
    names = [s.name for s in inputs if s.role is InputRole.ACTIVE] if counting is None else counting
    found = []
    waiting = [one for one in inputs if not one.is_done]
    while waiting:
        one = random.choice(waiting)
        one.deliver(random.randint(1, 12))
        if restless and random.random() < 0.25:
            reached = max(s.tdb.stable_point for s in inputs)
            if random.random() < 0.5:
                one.come_back(random.choice([one.tdb.stable_point, reached]))
            elif NEG_INF < reached < INF:
                one.skip(reached)
        if random.random() < 0.5:
            found += watched.settle(names)
        waiting = [one for one in inputs if not one.is_done]
    return found + watched.settle(names)


def intervals_of(events: Sequence[Event], interval: int = INTERVAL) -> set[int]:
    return {interval_of(event.ve, interval) for event in events}
