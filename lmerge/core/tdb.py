"""The temporal database of a stream (III.A): reconstitution and equivalence.

``reconstitute`` is the paper's ``tdb(S, i)``: the multiset of events that a prefix of a stream describes. A physical
stream is legal if it keeps Example 5's rules: no element below its own stable point, and adjusts only of existing
events. ``Tdb`` checks this for each element, and names the element that breaks a rule.

An event with an empty lifetime (``Ve == Vs``) is no event. Example 5 defines this for adjust; an insert with an empty
lifetime is treated in the same way.

Fully frozen events can no longer change. They leave the live index at the stable that freezes them, and are kept
separately for ``events()``. ``take_frozen()`` removes them from there, for streams that are too long to keep.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from lmerge.core import violations
from lmerge.core.batch import AnyBatch, Row
from lmerge.core.calendar import Calendar, Node
from lmerge.core.elements import ADJUST, INF, INSERT, NEG_INF, Adjust, Element, Event, Insert


class Tdb:
    """The TDB of one stream, updated element by element.

    ``keep_frozen=False`` drops fully frozen events at once, so memory is used only for the live events.
    """

    def __init__(self, name: str = "stream", *, keep_frozen: bool = True, stable_point: int = NEG_INF) -> None:
        self.name = name
        self.stable_point = stable_point
        self.keep_frozen = keep_frozen
        # (vs, payload) -> [due, vs, payload, sorted Ve of its live events]
        self._live: dict[tuple[int, bytes], Node] = {}
        self._calendar = Calendar(stable_point)
        self._frozen: list[Event] = []
        self._live_count = 0
        self._live_bytes = 0
        self._applied = 0

    @property
    def live_count(self) -> int:
        """Number of events that are not fully frozen."""
        return self._live_count

    @property
    def payload_bytes(self) -> int:
        """Bytes of the payloads of the events that are not fully frozen."""
        return self._live_bytes

    def apply(self, element: Element) -> None:
        """Apply one element. Raises InputViolation, changing nothing, if the element breaks a rule of the stream."""
        if isinstance(element, Insert):
            self.apply_row((INSERT, element.vs, element.ve, 0, element.payload))
        elif isinstance(element, Adjust):
            self.apply_row((ADJUST, element.vs, element.ve, element.vold, element.payload))
        else:
            self._stable(element.vc)

    def apply_batch(self, batch: AnyBatch) -> None:
        """Apply a batch; on InputViolation the elements before the offender have been applied."""
        for row in batch.rows():
            self.apply_row(row)

    def apply_row(self, row: Row) -> None:
        """Apply one element given as a row."""
        kind, vs, ve, vold, payload = row
        if kind == INSERT:
            if ve < vs:
                raise violations.end_before_start(self.name, row, self._applied)
            if vs < self.stable_point:
                raise violations.insert_below_stable(self.name, row, self._applied, self.stable_point)
            if ve > vs:
                self._add(vs, payload, ve)
        elif kind == ADJUST:
            self._adjust(row, vs, ve, vold, payload)
        else:
            self._stable(vs)
        self._applied += 1

    def enter(self, vs: int, payload: bytes, ve: int) -> None:
        """Add a live event without checks, below the stable point too. Used to restore the events that were live."""
        self._add(vs, payload, ve)

    def live_events(self) -> list[Event]:
        """Return the events that are not fully frozen, ordered by (vs, payload, ve)."""
        return sorted(Event(node[1], node[2], ve) for node in self._live.values() for ve in node[3])

    def live_ends(self, vs: int, payload: bytes) -> tuple[int, ...]:
        """Return the ends of the live events with this start and payload, ascending."""
        node = self._live.get((vs, payload))
        return tuple(node[3]) if node is not None else ()

    def events(self) -> list[Event]:
        """Return all events, ordered by (vs, payload, ve); without the frozen ones if they were not kept."""
        return sorted(self._frozen + self.live_events())

    def take_frozen(self) -> list[Event]:
        """Remove and return the fully frozen events since the last call, in order of freezing."""
        frozen, self._frozen = self._frozen, []
        return frozen

    def check(self) -> None:
        """Assert the invariants: live events are live, counted and in the calendar."""
        self._calendar.check()
        entered = {id(node) for node in self._calendar.entries()}
        count = 0
        for (vs, payload), node in self._live.items():
            assert (node[1], node[2]) == (vs, payload)
            assert node[3], "a node without events"
            assert node[3] == sorted(node[3])
            assert node[3][0] >= self.stable_point, "a fully frozen event among the live ones"
            assert node[0] <= node[3][0], "due after its first end"
            assert id(node) in entered or node[0] == INF
            count += len(node[3])
        assert count == self._live_count
        assert self._live_bytes == sum(len(payload) * len(node[3]) for (_, payload), node in self._live.items())

    def _adjust(self, row: Row, vs: int, ve: int, vold: int, payload: bytes) -> None:
        if ve < vs:
            raise violations.end_before_start(self.name, row, self._applied)
        if ve < self.stable_point or vold < self.stable_point:
            raise violations.adjust_below_stable(self.name, row, self._applied, self.stable_point)
        node = self._live.get((vs, payload))
        ends: list[int] = node[3] if node is not None else []
        at = bisect_left(ends, vold)
        if node is None or at == len(ends) or ends[at] != vold:
            raise violations.unknown_event(self.name, row, self._applied, violations.known_live_ends(ends))
        del ends[at]
        self._live_count -= 1
        self._live_bytes -= len(payload)
        if ve > vs:
            self._add(vs, payload, ve)
        elif not ends:
            node[0] = None
            del self._live[vs, payload]

    def _add(self, vs: int, payload: bytes, ve: int) -> None:
        self._live_count += 1
        self._live_bytes += len(payload)
        key = (vs, payload)
        node = self._live.get(key)
        if node is None:
            self._live[key] = node = [ve, vs, payload, [ve]]
            if ve < INF:  # INF is never due; an entry there would stay after its node is removed
                self._calendar.add(node)
            return
        insort(node[3], ve)
        if ve < node[0]:
            node[0] = ve
            self._calendar.add(node)

    def _stable(self, vc: int) -> None:
        if vc < self.stable_point:
            raise violations.stable_backwards(self.name, (2, vc, 0, 0, b""), self._applied, self.stable_point)
        self.stable_point = vc
        for node in self._calendar.pop_below(vc):
            due, vs, payload, ends = node
            if due is None or due >= vc:
                continue
            frozen = bisect_left(ends, vc)
            if self.keep_frozen:
                self._frozen += [Event(vs, payload, ve) for ve in ends[:frozen]]
            self._live_count -= frozen
            self._live_bytes -= frozen * len(payload)
            del ends[:frozen]
            if ends:
                node[0] = ends[0]
                if ends[0] < INF:
                    self._calendar.add(node)
            else:
                node[0] = None
                del self._live[vs, payload]


def reconstitute(elements: Iterable[Element]) -> list[Event]:
    """Return the TDB of a stream prefix as a list ordered by (vs, payload, ve). Events can repeat (III.A: multiset)."""
    tdb = Tdb()
    for element in elements:
        tdb.apply(element)
    return tdb.events()
