"""One input of a join: its live events by key, and which parts of them no event of the other input has matched.

An event is dropped when it is fully frozen and no event can come on the other input that overlaps it. Where the other
input's events are reported without a match, an event that is dropped leaves one number with each event that it has
matched: up to where that is covered for good (sheet O6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from sortedcontainers import SortedList

from lmerge.core.calendar import Calendar
from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.event_index import EventIndex
from lmerge.temporal.operators.lifetimes import plus
from lmerge.temporal.operators.operator import row_of_state, state_of_row
from lmerge.temporal.values import OrderKey, Values

KeyOf = Callable[[Values], Values]


@dataclass(frozen=True)
class JoinInput:
    """What a join has to know of an input: the order of its rows, their width in columns, and the key of a row.

    ``key_of`` is None for a join by predicate alone. A key with a missing value (None) matches nothing, as in SQL.
    """

    key: OrderKey
    width: int
    key_of: KeyOf | None = None

    def match_key(self, row: Values) -> Values | None:
        """Return what must be equal in both rows, or None if the row can match none."""
        if self.key_of is None:
            return ()
        found = self.key_of(row)
        return None if None in found else found


class UnmatchedParts:
    """Events of one row and start, for which parts without a match are reported.

    ``covered``: where the search for them begins; before it nothing changes any more. ``ends``: of all of the events.
    """

    __slots__ = ("covered", "ends")

    def __init__(self, vs: int) -> None:
        self.covered = vs
        self.ends: list[int] = []


class JoinSide:
    """The live events of one input. ``reports``: parts of its events without a match are in the output."""

    def __init__(self, given: JoinInput, reports: bool) -> None:
        self.given, self.reports = given, reports
        self.stable = NEG_INF
        self.unmatched: dict[tuple[Values, int], UnmatchedParts] = {}
        self._starts: SortedList[int] = SortedList()  # of ``unmatched``
        self._by_key: dict[Values, EventIndex] = {}
        # [end, key]: when events of a key can be dropped at the earliest.
        self._due = Calendar()

    def __len__(self) -> int:
        return sum(map(len, self._by_key.values()))

    def overlapping(self, key: Values, start: int, end: int) -> Iterator[Lifetime]:
        """Yield the events of a key that overlap ``[start, end)``, in order of their end."""
        index = self._by_key.get(key)
        return iter(()) if index is None else index.overlapping(start, end)

    def apply(self, key: Values, change: Change) -> None:
        """Take a change of an event of ``key``."""
        row, vs, old, new = change
        index = self._by_key.get(key)
        if index is None:
            index = self._by_key[key] = EventIndex(self.given.key)
        index.apply(change)
        if new > vs:
            self._due.add([new, key])
        elif not len(index):
            del self._by_key[key]
        if self.reports:
            if new > vs:
                if (row, vs) not in self.unmatched:
                    self.unmatched[row, vs] = UnmatchedParts(vs)
                    self._starts.add(vs)
                self.unmatched[row, vs].ends.append(new)
            if old > vs:  # second: what is covered outlives the end
                self._forget_end(row, vs, old)

    def drop_until(self, until: int) -> Iterator[tuple[Values, Lifetime]]:
        """Drop the events that end at or before ``until``; yield them with their keys."""
        due = list(self._by_key) if until == INF else [node[1] for node in self._due.pop_below(until + 1)]
        for key in due:
            index = self._by_key.get(key)
            if index is None:
                continue
            dropped = list(takewhile(lambda event: event.ve <= until, index))
            index.drop_ended(until)
            if not len(index):
                del self._by_key[key]
            for event in dropped:
                if self.reports:
                    self._forget_end(*event)
                yield key, event

    @property
    def next_due(self) -> int:
        """The first time at which an event can be dropped, if both stable points have reached it."""
        return plus(self._due.first_due(), 1)

    @property
    def first_start(self) -> int:
        """The least start of the events whose unmatched parts are reported, or +inf without any."""
        return self._starts[0] if self._starts else INF

    def state(self) -> dict[str, Any]:
        """Return what is kept, as plain values, in the order of start, row and end."""
        order = self.given.key
        events = sorted((event for index in self._by_key.values() for event in index), key=lambda e: _order(order, e))
        parts = sorted(self.unmatched.items(), key=lambda item: (item[0][1], order(item[0][0])))
        return {
            "stable": self.stable,
            "events": [[state_of_row(row), vs, ve] for row, vs, ve in events],
            "covered": [[state_of_row(row), vs, kept.covered] for (row, vs), kept in parts if kept.covered > vs],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` has returned."""
        self.stable = state["stable"]
        for plain, vs, ve in state["events"]:
            row = row_of_state(plain)
            key = self.given.match_key(row)
            assert key is not None, "a row that matches none was kept"
            self.apply(key, Change(row, vs, vs, ve))
        for plain, vs, covered in state["covered"]:
            self.unmatched[row_of_state(plain), vs].covered = covered

    def check(self) -> None:
        """Assert that events stand under their keys, and that unmatched parts are those of live events."""
        self._due.check()
        ends: dict[tuple[Values, int], list[int]] = {}
        for key, index in self._by_key.items():
            assert len(index), "a key without events is kept"
            for row, vs, ve in index:
                assert self.given.match_key(row) == key
                ends.setdefault((row, vs), []).append(ve)
        if not self.reports:
            assert not self.unmatched
            return
        assert {event: sorted(parts.ends) for event, parts in self.unmatched.items()} == ends
        assert list(self._starts) == sorted(vs for _, vs in self.unmatched)
        for (_, vs), parts in self.unmatched.items():
            assert vs <= parts.covered

    def _forget_end(self, row: Values, vs: int, end: int) -> None:
        parts = self.unmatched[row, vs]
        parts.ends.remove(end)
        if not parts.ends:
            del self.unmatched[row, vs]
            self._starts.remove(vs)


def _order(key: OrderKey, event: Lifetime) -> tuple[int, Any, int]:
    return event.vs, key(event.row), event.ve
