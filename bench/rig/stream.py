"""An endless stream that any process can compute: event number i, and its elements in each replica.

Any process can compute event i, so the judge needs no copy of the stream, and a replica that restarts needs no state:
it computes the events that are alive. Every replica publishes the same table in a physical form of its own: a fifth of
the elements come late, another fifth in each replica; a part of the events is first published with a wrong end and
adjusted later; stables follow at a safe distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from lmerge.core.batch import Row
from lmerge.core.elements import ADJUST, INF, INSERT, NEG_INF, STABLE

SECOND = 1_000_000  # the streams' time is in microseconds since the start
WINDOW = 40  # events: how far disorder moves an element, and how long after its insert an adjust comes at most
DISORDER = 0.20
MASK = 2**64 - 1


def mixed(number: int) -> int:
    """Return 64 bits that look random and are the same in every process (splitmix64)."""
    number = (number + 0x9E3779B97F4A7C15) & MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & MASK
    return number ^ (number >> 31)


@dataclass(frozen=True)
class ReferenceStream:
    """The events of the stream: one every ``step_us``, alive for ``life_min`` to ``life_max`` steps."""

    events_per_s: int = 4_000
    seed: int = 1
    life_min: int = 2 * WINDOW
    life_max: int = 4_000
    payload_bytes: int = 16

    @property
    def step_us(self) -> int:
        return SECOND // self.events_per_s

    def event(self, at: int) -> tuple[int, int, bytes]:
        """Return event number ``at``: (vs, ve, payload)."""
        bits = mixed(at ^ self.seed << 48)
        vs = at * self.step_us
        life = self.life_min + bits % (self.life_max - self.life_min)
        return vs, vs + life * self.step_us, b"%0*x" % (self.payload_bytes, bits)

    def number(self, vs: int) -> int:
        """Return the number of the event that starts at ``vs``, if there is one."""
        return vs // self.step_us


class Presentation:
    """The physical stream of one replica. ``rows_to(due)`` returns its elements until event ``due`` is due.

    ``first`` 0: it begins at the beginning. Otherwise it joins: it publishes at once the events that are alive at the
    start of event ``first``. That start is its ``join_at``: it lacks the events that ended before.
    """

    def __init__(
        self,
        reference: ReferenceStream,
        salt: int,
        *,
        first: int = 0,
        disorder: float = DISORDER,
        revised: float = 0.225,
        stable_every: int = 40,
    ) -> None:
        self.reference = reference
        self.join_at = first * reference.step_us if first else NEG_INF
        self._salt = mixed(salt)
        self._disorder = int(disorder * 1000)
        self._revised = int(revised * 1000)
        self._stable_every = stable_every
        self._next = first  # the next event to take up
        self._published = first  # everything at a position before this has been published
        self._waiting: list[tuple[int, int, Row]] = []  # (position, number, row)
        self._joins = first > 0

    def rows_to(self, due: int) -> list[Row]:
        """Return the next elements, up to event ``due``."""
        rows = self._alive() if self._joins else []
        self._joins = False
        for at in range(self._next, due):
            self._take_up(at)
        self._next = max(self._next, due)
        for position in range(self._published, due):
            self._pop(position, rows)
            stable = (position - WINDOW) * self.reference.step_us
            if position % self._stable_every == 0 and stable > max(self.join_at, 0):
                rows.append((STABLE, stable, 0, 0, b""))
        self._published = max(self._published, due)
        return rows

    def rest(self) -> list[Row]:
        """Return the elements that are still delayed, and the end of the stream."""
        rows: list[Row] = []
        self._pop(self._published + 2 * WINDOW + 2, rows)
        return [*rows, (STABLE, INF, 0, 0, b"")]

    def _alive(self) -> list[Row]:
        reference, join_at = self.reference, self.join_at
        oldest = max(0, self._next - reference.life_max)
        rows: list[Row] = []
        for at in range(oldest, self._next):
            vs, ve, payload = reference.event(at)
            if ve >= join_at:
                rows.append((INSERT, vs, ve, 0, payload))
        rows.append((STABLE, join_at, 0, 0, b""))
        return rows

    def _take_up(self, at: int) -> None:
        vs, ve, payload = self.reference.event(at)
        bits = mixed(at ^ self._salt)
        position = at + (bits % WINDOW + 1 if (bits >> 8) % 1000 < self._disorder else 0)
        if (bits >> 24) % 1000 >= self._revised:
            heappush(self._waiting, (position, 2 * at, (INSERT, vs, ve, 0, payload)))
            return
        # The wrong end is later than the right one. Both are later than every stable that comes before the adjust.
        wrong = ve + ((bits >> 40) % WINDOW + 1) * self.reference.step_us
        heappush(self._waiting, (position, 2 * at, (INSERT, vs, wrong, 0, payload)))
        later = position + (bits >> 52) % WINDOW + 1
        heappush(self._waiting, (later, 2 * at + 1, (ADJUST, vs, ve, wrong, payload)))

    def _pop(self, position: int, rows: list[Row]) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= position:
            rows.append(heappop(waiting)[2])
