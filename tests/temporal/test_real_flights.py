"""Real flights and real weather: every query in all its forms, live and out of order, against DuckDB's answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import date

import pytest
from flight_tables import SCHEMAS, FlightTables

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.expressions.surface import col, when
from lmerge.temporal.modules.registry import MODULES
from lmerge.temporal.plan.grouped import aggregate, count, module
from lmerge.temporal.plan.stream import DAY, HOUR, Stream, source
from lmerge.temporal.running import QueryRun, ResultTable
from lmerge.testing.canonical import windows
from lmerge.testing.example_modules import FollowedBy
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


def routes(form: str) -> Stream:
    """The ten busiest routes of every day that begins at 0, 6, 12 or 18 hours; ties are all there."""
    counts = FLIGHTS.points().group_by("origin", "dest").hopping(DAY, 6 * HOUR)
    # A day's results stand at its last instant, so that the results of days that overlap do not meet in one window.
    by_day = counts.agg(form=form, output="point-at-end", n=count())
    return by_day.snapshot().top(10, by=[col.n.desc()], form=form)


ROUTES = f"""
    WITH counted AS ({windows.hopping("departures", DAY, 6 * HOUR, 0, 2**62, ["origin", "dest"], [("n", "count(*)")])}),
    ranked AS (SELECT *, rank() OVER (PARTITION BY vs ORDER BY n DESC) AS place FROM counted)
    SELECT origin, dest, n, place, ve - 1, ve FROM ranked WHERE place <= 10
"""


def followed(form: str) -> Stream:
    """Within a tumbling hour: an arrival of more than an hour late, and a later one that is early, of one carrier."""
    kind = when(col.delay > 60).then("late").otherwise("early")
    chosen = ARRIVALS.where((col.delay > 60) | (col.delay < 0)).select("carrier", kind=kind, key=col.dest)
    return (
        chosen.group_by("carrier")
        .tumbling(HOUR)
        .apply(module("late_then_early", first="late", second="early"), form=form)
    )


FOLLOWED = f"""
    SELECT late.carrier, late.dest, early.dest, early.vs, (early.vs // {HOUR} + 1) * {HOUR}
    FROM arrivals AS late JOIN arrivals AS early
    ON late.carrier = early.carrier AND late.vs // {HOUR} = early.vs // {HOUR} AND late.vs < early.vs
    WHERE late.delay > 60 AND early.delay < 0
"""

QUERIES: Mapping[str, tuple[Callable[[str], Stream], str]] = {
    "flights in the air by airport and carrier": (in_the_air, IN_THE_AIR),
    "percentiles of delays by hour": (delays, DELAYS),
    "flights in bad sight": (in_bad_sight, IN_BAD_SIGHT),
    "the ten busiest routes of a day": (routes, ROUTES),
    "a late arrival, then an early one": (followed, FOLLOWED),
}


@pytest.fixture(scope="module", autouse=True)
def followed_by() -> Iterator[None]:
    MODULES.register(FollowedBy, "late_then_early")
    yield
    MODULES.forget("late_then_early")


@pytest.fixture(scope="module")
def given() -> FlightTables:
    return FlightTables(Days(date(2013, 1, 29), date(2013, 1, 31)))


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


def check_all(given: FlightTables, form: str, seed: int) -> None:
    connection = given.database()
    connection.execute("CREATE VIEW departures AS SELECT * REPLACE (vs + 1 AS ve) FROM flights")
    found = answers(given, {name: plan(form) for name, (plan, _) in QUERIES.items()}, seed)
    for name, (_, query) in QUERIES.items():
        rows = connection.execute(query).fetchall()
        assert found[name] == Counter(Lifetime(row[:-2], row[-2], row[-1]) for row in rows), name
        assert len(rows) > 50, "the question is about something"


@pytest.mark.parametrize("form", FORMS)
def test_every_query_has_the_answer_of_sql(form: str, given: FlightTables) -> None:
    check_all(given, form, seed=len(form))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("form", FORMS)
def test_every_query_has_the_answer_of_sql_over_the_year(form: str) -> None:
    check_all(FlightTables(Days()), form, seed=1)
