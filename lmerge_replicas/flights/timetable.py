"""The table of flights for one replica: day by day, and after a join only the flights that can still matter.

Called by the replica's process. To read every row of the year takes seconds of a free core, and a multiple of that
where servers, other replicas and a JVM share two cores. A replica that starts again would be away for as long. So the
raw lines are only sorted by day, in a fraction of that time, and a day's rows are read when the replay reaches them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import date, timedelta

from lmerge_replicas.flights.flight import DAY, NEW_YORK, Clock, Flight, midnight, to_flight
from lmerge_replicas.flights.source import Days, airport_zones, lines_by_day, to_row

# This long after the midnight before their departure all flights have arrived, except diverted ones, which never do:
# a day, the longest flight and the longest delay are less than two and a half days. Checked in the tests.
SETTLED_AFTER = 3 * DAY


class Timetable:
    """The flights of ``days``. ``count``: their number."""

    def __init__(self, days: Days) -> None:
        """Sort the raw lines by day. Raises UsageError if there is no table."""
        self._columns, lines = lines_by_day(days)
        self.count = sum(block.count(b"\n") for block in lines.values())
        self._blocks = sorted(lines.items())
        self._zones = airport_zones()
        self._clock = Clock()

    def since(self, instant: int | None = None) -> Iterator[list[Flight]]:
        """Return the flights in parts, each in order of (vs, payload) and before those of the next part.

        ``instant``, in microseconds: leave out flights whose every move is before it.
        """
        begun: list[Flight] = []
        for day, block in self._blocks:
            if instant is not None and self._starts(day) + SETTLED_AFTER < instant:
                possible = b"".join(line for line in block.splitlines(keepends=True) if b",NA," in line)
                begun += [flight for flight in self._read(possible) if flight.is_diverted]
                continue
            # A departure at 24:00 belongs to the flights of the next day.
            flights = sorted(begun + self._read(block))
            end = self._starts(day + timedelta(days=1))
            begun = [flight for flight in flights if flight.vs >= end]
            yield flights[: len(flights) - len(begun)]
        yield sorted(begun)

    def _starts(self, day: date) -> int:
        return self._clock.to_utc(midnight(day), NEW_YORK)

    def _read(self, block: bytes) -> list[Flight]:
        zones, clock = self._zones, self._clock
        rows = (to_row(line, self._columns) for line in csv.reader(block.decode("ascii").splitlines()))
        return [to_flight(row, zones[row.dest], clock) for row in rows]
