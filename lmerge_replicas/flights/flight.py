"""Converts one row of the table into a flight: an identity, and instants in UTC microseconds.

Called by `stream`. The rules, each checked against DuckDB in the tests:

- Vs is the scheduled departure, a New York wall clock, in UTC.
- The planned arrival is the first reading of the destination's wall clock ``sched_arr_time`` after Vs: the table
  has no day of arrival, and no flight from New York takes a day. (Across the table this gives 50 minutes to
  11 hours 40, each within an hour of what the distance suggests.)
- Ve is the planned arrival plus the arrival delay. The table's own ``arr_time`` agrees with this in all flights
  but one, whose clock reading does not exist: it lies in the hour that the night of 10 March skips.
- An ambiguous wall clock means its first reading (``fold=0``); the table holds no such clock.
- Should a computed arrival not lie after the scheduled departure, it is set to one minute after it, because an
  event's Ve must lie after its Vs. In this table that never happens; ``Flight.is_clamped`` would show it.
- A cancelled flight has no departure delay. A diverted flight has one, but no arrival delay.
- The identity is the local day, carrier, number, origin and destination: unique over the table, and known before
  departure. The tail number is not: 2,512 cancelled flights have none.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import NamedTuple
from zoneinfo import ZoneInfo

from lmerge.core.elements import INF
from lmerge_replicas.flights.source import Days, Row, airport_zones, read_rows

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
EPOCH = datetime(1970, 1, 1)  # a wall clock; instants are counted from the same reading in UTC
NEW_YORK = "America/New_York"


class Flight(NamedTuple):
    """One flight, with all that the table has of it.

    ``vs`` scheduled departure, ``planned`` scheduled arrival, ``departed`` actual departure (None: cancelled),
    ``ve`` actual arrival (``INF``: diverted, it never arrives; ``vs``: cancelled, no lifetime at all).
    """

    vs: int
    payload: bytes
    planned: int
    departed: int | None
    ve: int
    is_clamped: bool = False

    @property
    def is_cancelled(self) -> bool:
        return self.departed is None

    @property
    def is_diverted(self) -> bool:
        return self.ve == INF


def read_flights(days: Days) -> list[Flight]:
    """Return all flights of ``days`` in order of (vs, payload)."""
    zones = airport_zones()
    clock = Clock()
    return sorted(to_flight(row, zones[row.dest], clock) for row in read_rows(days))


def to_flight(row: Row, zone: str, clock: Clock) -> Flight:
    """Return ``row`` as a flight to an airport in time zone ``zone``."""
    identity = f"{row.year}-{row.month:02}-{row.day:02} {row.carrier} {row.flight} {row.origin} {row.dest}"
    payload = identity.encode("ascii")
    vs = clock.to_utc(midnight(date(row.year, row.month, row.day)) + clock_reading(row.sched_dep_time), NEW_YORK)
    planned = clock.next_reading(vs, row.sched_arr_time, zone)
    if row.dep_delay is None:
        return Flight(vs, payload, planned, None, vs)
    departed = vs + row.dep_delay * MINUTE
    if row.arr_delay is None:
        return Flight(vs, payload, planned, departed, INF)
    ve = planned + row.arr_delay * MINUTE
    return Flight(vs, payload, planned, departed, max(ve, vs + MINUTE), is_clamped=ve <= vs)


def midnight(day: date) -> int:
    """Return the wall clock's reading at the beginning of ``day``, in microseconds since 1970."""
    return (day - EPOCH.date()).days * DAY


def clock_reading(hhmm: int) -> int:
    """Return a clock reading such as ``1745`` as microseconds since local midnight; ``2400`` is the next midnight."""
    return (hhmm // 100 * 60 + hhmm % 100) * MINUTE


class Clock:
    """Converts between local wall clocks and UTC. Offsets are cached by zone and hour: US zones change on the hour."""

    def __init__(self) -> None:
        self._zones: dict[str, ZoneInfo] = {}
        self._offset_at_local: dict[tuple[str, int], int] = {}
        self._offset_at_utc: dict[tuple[str, int], int] = {}

    def to_utc(self, local: int, zone: str) -> int:
        """Return the instant at which clocks in ``zone`` show ``local`` (microseconds since 1970 on that clock)."""
        key = (zone, local // HOUR)
        offset = self._offset_at_local.get(key)
        if offset is None:
            wall = EPOCH + timedelta(microseconds=local // HOUR * HOUR)
            offset = self._offset_at_local[key] = _offset(wall.replace(tzinfo=self._zone(zone)))
        return local - offset

    def to_local(self, instant: int, zone: str) -> int:
        """Return what wall clocks in ``zone`` show at ``instant``."""
        key = (zone, instant // HOUR)
        offset = self._offset_at_utc.get(key)
        if offset is None:
            utc = (EPOCH + timedelta(microseconds=instant // HOUR * HOUR)).replace(tzinfo=timezone.utc)
            offset = self._offset_at_utc[key] = _offset(utc.astimezone(self._zone(zone)))
        return instant + offset

    def next_reading(self, instant: int, hhmm: int, zone: str) -> int:
        """Return the first instant after ``instant`` at which wall clocks in ``zone`` show ``hhmm``."""
        now = self.to_local(instant, zone)
        local = now // DAY * DAY + clock_reading(hhmm)
        return self.to_utc(local if local > now else local + DAY, zone)

    def _zone(self, name: str) -> ZoneInfo:
        zone = self._zones.get(name)
        if zone is None:
            zone = self._zones[name] = ZoneInfo(name)
        return zone


def _offset(moment: datetime) -> int:
    offset = moment.utcoffset()
    assert offset is not None
    return offset // timedelta(microseconds=1)
