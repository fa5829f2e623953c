"""The physical form in which one replica of the probe publishes the truth.

Called by ``replica``. Every replica publishes the same events, each in a form of its own: a fifth of the elements come
late, another fifth in each replica, and a part of the events has a wrong end first and is adjusted later. Stables
follow at a safe distance.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from lmerge.core.batch import Batch, Row
from lmerge.core.elements import ADJUST, INSERT, STABLE
from lmerge_controller.drill.judging.truth import ProbeTruth, mixed

# Events: how far disorder moves an element, and how long after its insert an adjust comes at most. Twice as many is the
# shortest life of an event, so that an adjust always comes before its event is frozen.
WINDOW: Final = 20
STABLE_EVERY: Final = 5
_LATE: Final = 200  # of 1,000 elements
_REVISED: Final = 225  # of 1,000 events
_LIE_EVERY: Final = 8  # one of so many events is invented, and one has a wrong end


class ProbePresentation:
    """The elements of one replica. ``rows_to(due)`` returns those until event ``due`` is due.

    ``first`` 0: it begins at the beginning. Otherwise it joins there: it publishes at once the events that are alive at
    the start of event ``first``, which is its ``join_at``. ``lies``: it publishes events that the truth does not have,
    and wrong ends.
    """

    def __init__(self, truth: ProbeTruth, salt: int, *, first: int = 0) -> None:
        self.truth = truth
        self.join_at = truth.start(first) if first else None
        self.lies = False
        self._salt = mixed(salt)
        self._next = first
        self._published = first
        self._waiting: list[tuple[int, int, Row]] = []  # (position, order, row)
        self._joins = first > 0

    def rows_to(self, due: int) -> list[Row]:
        """Return the next elements, up to event ``due``."""
        rows = self._alive() if self._joins else []
        self._joins = False
        for at in range(self._next, due):
            self._take_up(at)
        self._next = max(self._next, due)
        for position in range(self._published, due):
            self._release(position, rows)
            vc = self.truth.start(position - WINDOW)
            if position % STABLE_EVERY == 0 and vc > max(self.join_at or 0, self.truth.origin_us):
                rows.append((STABLE, vc, 0, 0, b""))
        self._published = max(self._published, due)
        return rows

    def rest(self) -> list[Row]:
        """Return the elements that are still delayed, and the last stable, after all events have ended."""
        rows: list[Row] = []
        self._release(self._published + 2 * WINDOW + 2, rows)
        return [*rows, (STABLE, self.truth.end(self._next), 0, 0, b"")]

    def _alive(self) -> list[Row]:
        truth, join_at = self.truth, self.truth.start(self._next)
        rows: list[Row] = []
        for number in range(max(0, self._next - truth.life_max), self._next):
            event = truth.event(number)
            if event.ve >= join_at:
                rows.append((INSERT, event.vs, event.ve, 0, event.payload.encode()))
        return [*rows, (STABLE, join_at, 0, 0, b"")]

    def _take_up(self, number: int) -> None:
        _, vs, ve, text = self.truth.event(number)
        payload, step = text.encode(), self.truth.step_us
        bits = mixed(number ^ self._salt)
        position = number + (bits % WINDOW + 1 if (bits >> 8) % 1000 < _LATE else 0)
        lie = number % _LIE_EVERY if self.lies else -1
        if lie == 0:
            self._hold(position, 2 * number, (INSERT, vs, ve, 0, payload.replace(b"probe", b"never")))
        if lie == 1:
            ve += 7 * step
        if (bits >> 24) % 1000 >= _REVISED:
            self._hold(position, 2 * number, (INSERT, vs, ve, 0, payload))
            return
        wrong = ve + ((bits >> 40) % WINDOW + 1) * step
        self._hold(position, 2 * number, (INSERT, vs, wrong, 0, payload))
        later = position + (bits >> 52) % WINDOW + 1
        self._hold(later, 2 * number + 1, (ADJUST, vs, ve, wrong, payload))

    def _hold(self, position: int, order: int, row: Row) -> None:
        heappush(self._waiting, (position, order, row))

    def _release(self, position: int, rows: list[Row]) -> None:
        while self._waiting and self._waiting[0][0] <= position:
            rows.append(heappop(self._waiting)[2])


def batch_of(rows: list[Row]) -> Batch:
    """Return rows as a batch."""
    if not rows:
        return Batch(b"", [], [], [], [])
    kinds, vs, ve, vold, payloads = zip(*rows)
    return Batch(bytes(kinds), list(vs), list(ve), list(vold), list(payloads))
