"""The judge of `lmerge demo`: computes the expected table by SQL over the raw table and compares the merged table.

Called by `run` after the last element, and by the tests. It shares no code with the replicas but the location of the
files. DuckDB reads the CSV itself, takes departures from the table's UTC column ``time_hour``, and converts time zones
with its own library. The arrivals that it computes are compared with a column that no replica uses, the destination's
clock reading ``arr_time``.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Sequence
from typing import Any, NamedTuple

from lmerge.core.elements import INF, Event
from lmerge.errors import UsageError
from lmerge_replicas.flights.source import AIRPORTS_CSV, FLIGHTS_CSV, FLIGHTS_ZIP, Days, data_folder

# The rows that the run uses, with the time zone of the destination. Four destinations are in no table of the package.
_ROWS = """
create table rows as
with zones(faa, tzone) as (
    select faa, tzone from read_csv($airports, nullstr = ['NA', '', '\\N'])
    union all values ('BQN', 'America/Puerto_Rico'), ('PSE', 'America/Puerto_Rico'),
                     ('SJU', 'America/Puerto_Rico'), ('STT', 'America/St_Thomas'))
select f.*, zones.tzone, time_hour + to_minutes(minute) as vs
from read_csv($flights, nullstr = ['NA', '']) f join zones on zones.faa = f.dest
where make_date(year, month, day) between $first and $last
"""

# `reading` is the destination's clock, on the day of departure there; the arrival is that day or the next one.
_FLIGHTS = """
create table flights as
with local as (
    select *, timezone(tzone, vs) as local_vs,
        date_trunc('day', local_vs) + to_minutes(sched_arr_time // 100 * 60 + sched_arr_time % 100) as reading
    from rows),
planned as (
    select *, timezone(tzone, if(reading > local_vs, reading, reading + interval 1 day)) as planned from local),
arrived as (
    select *, planned + to_minutes(arr_delay) as arrival from planned)
select format('{:04d}-{:02d}-{:02d} {} {} {} {}', year, month, day, carrier, flight, origin, dest) as payload,
    epoch_us(vs) as vs,
    case when arr_delay is null then $inf
         else epoch_us(greatest(arrival, vs + interval 1 minute)) end as ve,
    dep_time is null as is_cancelled,
    dep_time is not null and arr_delay is null as is_diverted,
    coalesce(arrival <= vs, false) as is_clamped,
    strftime(timezone(tzone, arrival), '%H%M')::int = arr_time % 2400 as clock_agrees
from arrived
"""

_EXPECTED = "create view expected as select payload, vs, ve from flights where not is_cancelled"

_COUNTS = """
select count(*), count(*) filter (is_cancelled), count(*) filter (is_diverted), count(*) filter (is_clamped),
    count(clock_agrees), count(*) filter (clock_agrees)
from flights
"""

_COMPARE = """
with merged_keys as (select payload, vs, count(*) as copies, list(ve) as ends from merged group by all)
select count(e.payload),
    coalesce(sum(copies), 0)::bigint,
    count(*) filter (copies is null),
    coalesce(sum(copies - 1), 0)::bigint,
    count(*) filter (e.payload is null),
    count(*) filter (e.payload is not null and copies is not null and not list_contains(ends, e.ve))
from expected e full join merged_keys m using (payload, vs)
"""


class RawCounts(NamedTuple):
    """Counts of the raw table. ``clocks``: arrivals with a clock reading; ``clocks_agree``: those that it confirms."""

    flights: int
    cancelled: int
    diverted: int
    clamped: int
    clocks: int
    clocks_agree: int


class Comparison(NamedTuple):
    """Counts of a comparison. ``duplicates``: further copies of a key; ``wrong_end``: right key, wrong Ve."""

    expected: int
    merged: int
    lost: int
    duplicates: int
    unexpected: int
    wrong_end: int

    @property
    def is_equal(self) -> bool:
        """Whether the two tables are the same multiset."""
        return self.expected == self.merged and not (self.lost or self.duplicates or self.unexpected or self.wrong_end)


class FlightsJudge:
    """The expected table of ``days`` in an in-memory DuckDB. Use it in a ``with``."""

    def __init__(self, days: Days) -> None:
        folder = data_folder()
        self._db = _connect()
        with tempfile.TemporaryDirectory(prefix="lmerge-demo-") as scratch:
            with zipfile.ZipFile(folder / FLIGHTS_ZIP) as archive:
                flights = archive.extract(FLIGHTS_CSV, scratch)
            self._db.execute("set TimeZone = 'UTC'")
            self._db.execute(
                _ROWS,
                {
                    "airports": str(folder / AIRPORTS_CSV),
                    "flights": str(flights),
                    "first": days.first,
                    "last": days.last,
                },
            )
        self._db.execute(_FLIGHTS, {"inf": INF})
        self._db.execute(_EXPECTED)

    def __enter__(self) -> FlightsJudge:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._db.close()

    def counts(self) -> RawCounts:
        """Return counts of the raw table."""
        return RawCounts(*self._row(_COUNTS))

    def events(self) -> list[Event]:
        """Return the expected table in lmerge's order of events."""
        rows = self._db.execute("select vs, payload, ve from expected order by all").fetchall()
        return [Event(vs, payload.encode("ascii"), ve) for vs, payload, ve in rows]

    def compare(self, merged: Sequence[Event]) -> Comparison:
        """Compare the merged table with the expected one."""
        import pyarrow as pa

        table = pa.table(
            {
                "vs": pa.array([event.vs for event in merged], pa.int64()),
                "payload": pa.array([event.payload.decode("utf-8", "replace") for event in merged], pa.string()),
                "ve": pa.array([event.ve for event in merged], pa.int64()),
            }
        )
        self._db.register("merged", table)
        try:
            return Comparison(*self._row(_COMPARE))
        finally:
            self._db.unregister("merged")

    def _row(self, query: str) -> tuple[Any, ...]:
        rows: list[tuple[Any, ...]] = self._db.execute(query).fetchall()
        return rows[0]


def require_packages() -> None:
    """Raise UsageError, with the command that installs them, if packages of the demo are missing."""
    data_folder()
    _connect().close()
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise _missing("pyarrow") from error


def _connect() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise _missing("duckdb") from error
    return duckdb.connect(":memory:")


def _missing(package: str) -> UsageError:
    return UsageError(f"the demo's judge needs {package}, which is not installed: run `pip install lmerge[demo]`")
