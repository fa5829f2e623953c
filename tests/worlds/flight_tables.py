"""Real flights and real weather as the streams of a plan, and as the tables that they amount to.

A flight is announced with its planned lifetime, gets its real end at its departure, and is taken back if it is
cancelled; one that is diverted never ends. An arrival is a point with the delay in minutes; the weather has a sample
for each airport and hour. News arrives up to half an hour late, in an order that a seed decides, so a source is stable
half an hour behind the clock.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, Final

import duckdb
import pyarrow as pa

from lmerge.core.elements import INF
from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.running import Item
from lmerge_replicas.flights.flight import DAY, HOUR, MINUTE, Clock, to_flight
from lmerge_replicas.flights.source import Days, airport_zones, data_folder, read_rows

LATE: Final = 30 * MINUTE

SCHEMAS: Final[Mapping[str, Mapping[str, str]]] = {
    "flights": {"origin": "string", "dest": "string", "carrier": "string", "number": "int"},
    "arrivals": {"origin": "string", "dest": "string", "carrier": "string", "delay": "int"},
    "weather": {"origin": "string", "wind": "float?", "visibility": "float"},
}


class FlightTables:
    """The flights and the weather of some days: final tables, and the news from which they come."""

    def __init__(self, days: Days) -> None:
        self.tables: dict[str, list[Lifetime]] = {name: [] for name in SCHEMAS}
        self._news: list[tuple[int, str, Change]] = []
        zones, clock = airport_zones(), Clock()
        for row in read_rows(days):
            flight = to_flight(row, zones[row.dest], clock)
            shown = (row.origin, row.dest, row.carrier, int(row.flight))
            self._add_flight(shown, flight.vs, flight.planned, flight.ve)
            if flight.departed is not None:
                self._revise_flight(shown, flight.vs, flight.planned, flight.ve, flight.departed)
            if row.arr_delay is not None:
                self._sample("arrivals", (row.origin, row.dest, row.carrier, row.arr_delay), flight.ve)
        for sample, at in _weather(days):
            self._sample("weather", sample, at)

    def _add_flight(self, shown: tuple[Any, ...], vs: int, planned: int, ve: int) -> None:
        self._news.append((vs - DAY, "flights", Change(shown, vs, vs, planned)))
        if ve > vs:
            self.tables["flights"].append(Lifetime(shown, vs, ve))
        else:
            self._news.append((vs - HOUR, "flights", Change(shown, vs, planned, vs)))

    def _revise_flight(self, shown: tuple[Any, ...], vs: int, planned: int, ve: int, departed: int) -> None:
        if ve not in (planned, vs):
            self._news.append((min(departed, planned, ve), "flights", Change(shown, vs, planned, ve)))

    def _sample(self, name: str, shown: tuple[Any, ...], at: int) -> None:
        self.tables[name].append(Lifetime(shown, at, at + 1))
        self._news.append((at, name, Change(shown, at, at, at + 1)))

    def steps(self, seed: int) -> Iterator[dict[str, list[Item]]]:
        """Yield what each source has for every hour: news in the order in which it arrives, then a stable point."""
        random_ = random.Random(seed)
        # A flight's news keeps its order: what comes later in time is never late by less.
        late: dict[tuple[Any, int], int] = {}
        arriving = []
        for at, name, change in sorted(self._news):
            lag = late.setdefault((change.row, change.vs), random_.randrange(LATE))
            arriving.append((at + lag, name, change))
        arriving.sort(key=lambda one: one[0])
        hour = arriving[0][0] // HOUR * HOUR
        items: dict[str, list[Item]] = {name: [] for name in SCHEMAS}
        for at, name, change in arriving:
            if at >= hour + HOUR:
                hour = at // HOUR * HOUR
                yield {name: [*found, hour - LATE] for name, found in items.items()}
                items = {name: [] for name in SCHEMAS}
            items[name].append(change)
        yield {name: [*found, INF] for name, found in items.items()}

    def database(self) -> duckdb.DuckDBPyConnection:
        """Return a database with the final tables, each with its columns and ``vs``, ``ve``."""
        connection = duckdb.connect()
        for name, events in self.tables.items():
            columns = list(zip(*((*row, vs, ve) for row, vs, ve in events), strict=True))
            names = [*SCHEMAS[name], "vs", "ve"]
            connection.register(f"given_{name}", pa.table(dict(zip(names, map(list, columns), strict=True))))
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given_{name}")
        return connection


def _weather(days: Days) -> Iterator[tuple[tuple[Any, ...], int]]:
    """Yield the samples of the days: the origin, the wind's speed, how far one sees; and the time."""
    with (data_folder() / "weather.csv").open(encoding="ascii", newline="") as file:
        for line in csv.DictReader(file):
            moment = datetime.strptime(line["time_hour"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
            if days.first <= moment.date() <= days.last:
                wind = None if line["wind_speed"] == "NA" else float(line["wind_speed"])
                yield (line["origin"], wind, float(line["visib"])), int(moment.timestamp()) * 1_000_000
