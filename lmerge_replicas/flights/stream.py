"""One physical stream of flights: a style over all flights, from the beginning or from a join in the middle. Pure.

Called by `replay` and by the tests. Each step advances application time by one hour. Its batch holds the moves of that
hour in order of time, and ends with the stable point that is then exact. Streams are generated while they are read.

Requirement of a join (V.B): a replica that joins at ``join_at`` is correct for every event with ``Ve >= join_at``. It
inserts the events that are published by then, with their ends as of then, and continues from there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

from lmerge.core.batch import Batch, BatchBuilder
from lmerge.core.elements import INF, INSERT, NEG_INF
from lmerge_replicas.flights.flight import HOUR, Flight
from lmerge_replicas.flights.style import LEAD_MAX, Move, Style, final_at
from lmerge_replicas.flights.timetable import Timetable


class StreamStep(NamedTuple):
    """The moves of the hour before application time ``until``, as a batch."""

    until: int
    batch: Batch


class FlightStream:
    """The stream of ``flights`` in a ``style``. Read it once, by `steps`.

    ``flights``: a timetable, or all flights in order of vs and payload.
    """

    def __init__(self, flights: Timetable | Sequence[Flight], style: Style) -> None:
        self._parts = flights.since if isinstance(flights, Timetable) else lambda _since=None: iter([flights])
        self._style = style
        self._due: dict[int, list[tuple[Flight, Move]]] = defaultdict(list)
        self._scheduled = 0  # flights whose moves are in _due or past
        self._waiting = 0  # the number of the first flight that is not settled
        self._stable_point = NEG_INF
        self._read_from(None)
        self._now = (self._flights[0].vs - LEAD_MAX) // HOUR * HOUR if self._flights else 0

    def join(self, now: int, join_at: int) -> Batch:
        """Skip the moves before ``now`` (rounded down to an hour), except for the events with ``Ve >= join_at``."""
        builder = BatchBuilder()
        self._now = max(self._now, now // HOUR * HOUR)
        self._read_from(min(self._now, join_at))
        self._read_until(self._now)
        for flight, settled in zip(self._flights, self._settled, strict=True):
            if flight.vs - LEAD_MAX >= self._now:
                break
            self._scheduled += 1
            if settled < self._now and flight.ve < join_at:
                continue
            ve, goes_on = flight.vs, False
            for move in self._style.moves(flight, settled):
                if move.at < self._now:
                    ve = move.ve
                else:
                    self._due[move.at // HOUR].append((flight, move))
                    goes_on = True
            if ve > flight.vs and (ve >= join_at or goes_on):
                builder.insert(flight.payload, flight.vs, ve)
        self._add_stable(builder)
        return builder.build()

    def steps(self) -> Iterator[StreamStep]:
        """Return the moves hour by hour. The last step is ``stable(INF)``."""
        while self._due or self._scheduled < len(self._flights) or not self._is_whole:
            self._schedule(self._now + HOUR)
            builder = BatchBuilder()
            moves = self._due.pop(self._now // HOUR, [])
            moves.sort(key=_time)
            for flight, move in moves:
                if move.kind == INSERT:
                    builder.insert(flight.payload, flight.vs, move.ve)
                else:
                    builder.adjust(flight.payload, flight.vs, move.vold, move.ve)
            self._now += HOUR
            self._add_stable(builder)
            yield StreamStep(self._now, builder.build())
        yield StreamStep(self._now, _closing())

    def _read_from(self, since: int | None) -> None:
        """Begin with the flights that matter at ``since``, and read the first of them."""
        self._rest = self._parts(since)
        self._flights: list[Flight] = []
        # When each flight and all before it are final. The conservative style learns this only in hindsight.
        self._settled: list[int] = []
        self._is_whole = False
        while not self._flights and not self._is_whole:
            self._read_part()

    def _read_until(self, until: int) -> None:
        """Read all flights that can be published before ``until``."""
        while not self._is_whole and (not self._flights or self._flights[-1].vs - LEAD_MAX < until):
            self._read_part()

    def _read_part(self) -> None:
        part = next(self._rest, None)
        if part is None:
            self._is_whole = True
            return
        latest = self._settled[-1] if self._settled else NEG_INF
        self._settled += islice(accumulate(map(final_at, part), max, initial=latest), 1, None)
        self._flights += part

    def _schedule(self, until: int) -> None:
        """Enter the moves of all flights that can be published before ``until``."""
        self._read_until(until)
        flights, settled = self._flights, self._settled
        i = self._scheduled
        while i < len(flights) and flights[i].vs - LEAD_MAX < until:
            for move in self._style.moves(flights[i], settled[i]):
                self._due[move.at // HOUR].append((flights[i], move))
            i += 1
        self._scheduled = i

    def _add_stable(self, builder: BatchBuilder) -> None:
        """Add the stable point that is exact now, if it has advanced."""
        point = self._now
        if self._style.waits:
            i = self._waiting
            while i < len(self._settled) and self._settled[i] < self._now:
                i += 1
            self._waiting = i
            if i < len(self._flights):  # those not yet read depart later than LEAD_MAX from now
                point = min(point, self._flights[i].vs)
        if point > self._stable_point:
            self._stable_point = point
            builder.stable(point)


def _time(entry: tuple[Flight, Move]) -> int:
    return entry[1].at


def _closing() -> Batch:
    builder = BatchBuilder()
    builder.stable(INF)
    return builder.build()
