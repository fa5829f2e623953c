"""Real flights and real weather: every query in all its forms, live and out of order, against DuckDB's answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import date

import duckdb
import pytest
from flight_tables import SCHEMAS, FlightTables

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.stream import HOUR, Stream, aggregate, count, source
from lmerge.temporal.running import QueryRun, ResultTable
from lmerge.testing.canonical import windows
from lmerge_replicas.flights.source import Days

FORMS = ("final", "settled", "watermark", "eager")

FLIGHTS = source("flights", SCHEMAS["flights"])
ARRIVALS = source("arrivals", SCHEMAS["arrivals"], shape="point")
WEATHER = source("weather", SCHEMAS["weather"], shape="edge", by="origin")


def in_the_air(form: str) -> Stream:
    return FLIGHTS.group_by("origin", "carrier").snapshot().agg(form=form, n=count())


IN_THE_AIR = windows.snapshot("flights", ["origin", "carrier"], [("n", "count(*)")])


def delays(form: str) -> Stream:
    grouped = ARRIVALS.group_by("origin").tumbling(HOUR)
    median, ninth = (aggregate(f"percentile_{kind}", col.delay, p=p) for kind, p in (("cont", 0.5), ("disc", 0.9)))
    return grouped.agg(form=form, n=count(), median=median, ninth=ninth)


DELAYS = f"""
    SELECT origin, count(*), quantile_cont(delay, 0.5), quantile_disc(delay, 0.9),
        vs // {HOUR} * {HOUR} AS start, start + {HOUR} FROM arrivals GROUP BY origin, start
"""


def in_bad_sight(form: str) -> Stream:
    """Flights while one sees less than 5 miles at their origin; the form is that of a count of them."""
    flying = FLIGHTS.join(WEATHER.where(col.visibility < 5.0), on="origin").select("origin", "dest", "visibility")
    return flying.group_by("origin").snapshot().agg(form=form, n=count(), worst=aggregate("min", col.visibility))


IN_BAD_SIGHT = f"""
    WITH signal AS (
        SELECT origin, visibility, vs, coalesce(lead(vs) OVER (PARTITION BY origin ORDER BY vs), {2**63 - 1}) AS ve
        FROM weather
    ), flying AS (
        SELECT f.origin, visibility, greatest(f.vs, s.vs) AS vs, least(f.ve, s.ve) AS ve
        FROM flights AS f JOIN signal AS s ON f.origin = s.origin AND f.vs < s.ve AND s.vs < f.ve WHERE visibility < 5
    )
""" + windows.snapshot("flying", ["origin"], [("n", "count(*)"), ("worst", "min(visibility)")])

QUERIES: Mapping[str, tuple[Callable[[str], Stream], str]] = {
    "flights in the air by airport and carrier": (in_the_air, IN_THE_AIR),
    "percentiles of delays by hour": (delays, DELAYS),
    "flights in bad sight": (in_bad_sight, IN_BAD_SIGHT),
}


@pytest.fixture(scope="module")
def given() -> FlightTables:
    return FlightTables(Days(date(2013, 1, 29), date(2013, 1, 31)))


@pytest.fixture(scope="module")
def database(given: FlightTables) -> duckdb.DuckDBPyConnection:
    return given.database()


def answers(given: FlightTables, outputs: Mapping[str, Stream], seed: int) -> dict[str, Counter[Lifetime]]:
    """Run all queries at once over the news, and return their tables at the end."""
    run = QueryRun({name: stream.node for name, stream in outputs.items()})
    tables = {name: ResultTable() for name in outputs}
    for step in given.steps(seed):
        for name, items in step.items():
            for results in run.take(name, items):
                for output, delta in results.items():
                    tables[output].apply(delta)
    return {name: table.events for name, table in tables.items()}


@pytest.mark.parametrize("form", FORMS)
def test_every_query_has_the_answer_of_sql(form: str, given: FlightTables, database: duckdb.DuckDBPyConnection) -> None:
    found = answers(given, {name: plan(form) for name, (plan, _) in QUERIES.items()}, seed=len(form))
    for name, (_, query) in QUERIES.items():
        rows = database.execute(query).fetchall()
        assert found[name] == Counter(Lifetime(row[:-2], row[-2], row[-1]) for row in rows), name
        assert len(rows) > 50, "the question is about something"
