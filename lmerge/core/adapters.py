"""Adapters between elements and other representations of the same TDB (III.A, Example 3).

* open(p, Vs) and close(p, Ve): an event begins; it ends, or its end is revised. One event of a payload at a time. A
  later close revises an earlier one, so the order of the closes of one event matters.
* I-stream and D-stream (STREAM, Oracle CEP): (p, t) enters, (p, t) leaves the relation.
* positive and negative tuples (Nile): the same, with a sign.

The last two describe a *bag*: a payload may occur several times, and no tuple is revised. So the table depends on the
tuples and not on their order. The table of a bag is defined for each payload, over the times in ascending order: at
each time every positive tuple begins an event, then every negative tuple ends the oldest open event. The relation at
every instant does not depend on which event ends. To end the oldest keeps ends in the order of starts. It follows:

* A tuple that enters and leaves at one instant is no event: its lifetime is empty.
* A negative tuple without an open event is *unmatched*: it has no effect until its positive tuple has come. After a
  stable(t) beyond its time, the positive tuple cannot come any more. This is an error, the same in every order.
* Each tuple yields the elements that change the table accordingly. A tuple out of order can move several ends. They
  are all at or after its own time, so no stable of the stream is broken.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable, show_payload, show_time
from lmerge.errors import UsageError


class Open(NamedTuple):
    """The start of an event with payload ``payload`` at ``vs``; its end is not known."""

    payload: bytes
    vs: int


class Close(NamedTuple):
    """The end of the event with payload ``payload`` at ``ve``; a later close of the same event revises it."""

    payload: bytes
    ve: int


class Signed(NamedTuple):
    """A positive (``sign`` = 1, I-stream) or negative (``sign`` = -1, D-stream) tuple at time ``t``."""

    sign: int
    payload: bytes
    t: int


def from_open_close(stream: Iterable[Open | Close | Stable]) -> Iterator[Element]:
    """Yield the elements of an open/close stream.

    A payload may be opened again once its event was closed at or before the new start. Raises UsageError for a close
    without an open, or a second open event.
    """
    current: dict[bytes, tuple[int, int]] = {}  # payload -> (Vs, Ve) of its last event
    for item in stream:
        if isinstance(item, Stable):
            yield item
        elif isinstance(item, Open):
            if item.payload in current and current[item.payload][1] > item.vs:
                raise UsageError(
                    f"open({show_payload(item.payload)}, {show_time(item.vs)}): the event that starts at "
                    f"{show_time(current[item.payload][0])} is still active"
                )
            current[item.payload] = (item.vs, INF)
            yield Insert(item.payload, item.vs, INF)
        else:
            if item.payload not in current:
                raise UsageError(f"close({show_payload(item.payload)}, {show_time(item.ve)}): no such event was opened")
            vs, vold = current[item.payload]
            if item.ve < vs:
                raise UsageError(
                    f"close({show_payload(item.payload)}, {show_time(item.ve)}): before its start {show_time(vs)}"
                )
            current[item.payload] = (vs, item.ve)
            yield Adjust(item.payload, vs, vold, item.ve)


def to_open_close(events: Iterable[Event]) -> list[Open | Close]:
    """Return an open/close stream of a TDB, in order of time; of equal times, closes first."""
    items: list[tuple[int, int, bytes, Open | Close]] = []
    for vs, payload, ve in events:
        items.append((vs, 1, payload, Open(payload, vs)))
        if ve < INF:
            items.append((ve, 0, payload, Close(payload, ve)))
    items.sort(key=lambda item: item[:3])
    return [item[3] for item in items]


def from_signed(stream: Iterable[Signed | Stable]) -> Iterator[Element]:
    """Yield the elements of an I-/D-stream, or of positive and negative tuples, in any order between two stables.

    O(log n) for a tuple in order of time, O(n) for one that is not; n: the live tuples of its payload. Raises
    UsageError for a tuple below the stream's own stable point. Raises UsageError at a stable if a negative tuple below
    it is unmatched.
    """
    bags: dict[bytes, _Bag] = {}
    leaving: list[tuple[int, bytes]] = []  # a heap: negative tuples that no stable has passed
    stable_point = NEG_INF
    for item in stream:
        if isinstance(item, Stable):
            stable_point = max(stable_point, item.vc)
            while leaving and leaving[0][0] < stable_point:
                payload = heapq.heappop(leaving)[1]
                if payload in bags and bags[payload].freeze(stable_point):
                    del bags[payload]
            yield item
            continue
        if item.t < stable_point:
            raise UsageError(f"{_shown(item)}: its stream is stable at {show_time(stable_point)}")
        bag = bags.get(item.payload)
        if bag is None:
            bag = bags[item.payload] = _Bag(item.payload)
        if item.sign > 0:
            yield from bag.enter(item.t)
        else:
            heapq.heappush(leaving, (item.t, item.payload))
            yield from bag.leave(item.t)


class _Bag:
    """The live tuples of one payload. ``ends[k]`` is the end of the event that begins at ``starts[k]``."""

    __slots__ = ("ends", "payload", "starts", "unmatched")

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.unmatched: list[int] = []

    def enter(self, t: int) -> Iterator[Element]:
        """Add a positive tuple. Returns the changes of the table."""
        if not self.unmatched and bisect_right(self.starts, t) >= len(self.ends):
            insort(self.starts, t)  # all events before it have their ends and keep them
            return _changes(self.payload, t, [], [INF])
        before = self._events()
        insort(self.starts, t)
        return self._rematch(before)

    def leave(self, t: int) -> Iterator[Element]:
        """Add a negative tuple. Returns the changes of the table."""
        oldest = len(self.ends)
        is_last = not self.unmatched and (not self.ends or self.ends[-1] <= t)
        if is_last and oldest < len(self.starts) and self.starts[oldest] <= t:
            self.ends.append(t)
            return _changes(self.payload, self.starts[oldest], [INF], [t])
        before = self._events()
        insort(self.unmatched, t)
        return self._rematch(before)

    def freeze(self, vc: int) -> bool:
        """Drop events that ended before ``vc``. Returns True if the bag is empty.

        Raises UsageError if a tuple below ``vc`` is unmatched.
        """
        if self.unmatched and self.unmatched[0] < vc:
            left = _shown(Signed(-1, self.payload, self.unmatched[0]))
            raise UsageError(f"{left}: no open event to end, and its stream is stable at {show_time(vc)}")
        done = bisect_left(self.ends, vc)
        del self.starts[:done], self.ends[:done]
        return not (self.starts or self.unmatched)

    def _events(self) -> list[tuple[int, int]]:
        """Return (start, end) of every event, ascending."""
        ends = self.ends + [INF] * (len(self.starts) - len(self.ends))
        return list(zip(self.starts, ends))

    def _rematch(self, before: list[tuple[int, int]]) -> Iterator[Element]:
        """Match all tuples again, and yield the changes, start by start."""
        leaving = sorted(self.ends + self.unmatched)
        self.ends, self.unmatched = [], []
        for t in leaving:
            oldest = len(self.ends)
            is_open = oldest < len(self.starts) and self.starts[oldest] <= t
            (self.ends if is_open else self.unmatched).append(t)
        old = {vs: [ve for _, ve in events] for vs, events in groupby(before, lambda event: event[0])}
        new = {vs: [ve for _, ve in events] for vs, events in groupby(self._events(), lambda event: event[0])}
        for vs in sorted(old.keys() | new.keys()):
            yield from _changes(self.payload, vs, old.get(vs, []), new.get(vs, []))


def _changes(payload: bytes, vs: int, before: list[int], after: list[int]) -> Iterator[Element]:
    """Yield the elements that turn the events at ``vs`` with the ends ``before`` into those with the ends ``after``."""
    had, has = Counter(ve for ve in before if ve > vs), Counter(ve for ve in after if ve > vs)
    surplus, missing = sorted((had - has).elements()), sorted((has - had).elements())
    both = min(len(surplus), len(missing))
    for vold, ve in zip(surplus, missing):
        yield Adjust(payload, vs, vold, ve)
    for vold in surplus[both:]:
        yield Adjust(payload, vs, vold, vs)
    for ve in missing[both:]:
        yield Insert(payload, vs, ve)


def _shown(item: Signed) -> str:
    sign_name = "positive" if item.sign > 0 else "negative"
    return f"{sign_name} tuple ({show_payload(item.payload)}, {show_time(item.t)})"


def to_signed(events: Iterable[Event]) -> list[Signed]:
    """Return the I-/D-stream of a TDB, in order of time; of equal times, negative tuples first."""
    items = []
    for vs, payload, ve in events:
        items.append((vs, 1, payload))
        if ve < INF:
            items.append((ve, -1, payload))
    return [Signed(sign, payload, t) for t, sign, payload in sorted(items)]
