"""The flights as temporal plans: the table of the other replicas, from the start and from a join in the middle."""

from __future__ import annotations

import subprocess
from collections import Counter
from datetime import date
from pathlib import Path

import pytest
from cli_world import LMERGE, Served
from replica_world import Reading

from lmerge.client import describe_merge
from lmerge.core.elements import INF, Event
from lmerge.core.tdb import Tdb
from lmerge.replica.payloads import RawWriter
from lmerge.replica.sources.declared import SourceContext
from lmerge.temporal.plan.properties import derive
from lmerge.temporal.running import QueryRun
from lmerge_replicas.flights.flight import DAY, HOUR
from lmerge_replicas.flights.replay import first_instant
from lmerge_replicas.flights.source import Days
from lmerge_replicas.flights.style import STYLES
from lmerge_replicas.flights.timetable import Timetable
from lmerge_replicas.temporal.plans import FLIGHTS, PLANS, SOURCE
from lmerge_replicas.temporal.source import FlightNewsSource

BLIZZARD = Days(date(2013, 2, 7), date(2013, 2, 10))
CONTEXT = SourceContext(SOURCE, FLIGHTS.schema)


def published(plan: str, source: FlightNewsSource) -> Tdb:
    """Return the table of a plan, read to its end."""
    stream = PLANS[plan].stream
    run, writer, table = QueryRun({plan: stream.node}), RawWriter(stream.node), Tdb(plan)
    for chunk in source.open(CONTEXT, None).chunks():
        for step in run.take(SOURCE, chunk.items):
            table.apply_batch(writer.batch([step[plan]]))
    assert table.stable_point == INF
    return table


@pytest.mark.parametrize("plan", PLANS)
def test_every_plan_gives_the_table(plan: str, blizzard_events: list[Event]) -> None:
    table = published(plan, FlightNewsSource(timetable=Timetable(BLIZZARD)))
    assert Counter(table.events()) == Counter(blizzard_events)


@pytest.mark.parametrize("plan", PLANS)
def test_a_replica_that_joins_is_right_from_there(plan: str, blizzard_events: list[Event]) -> None:
    begun = first_instant(BLIZZARD)
    join_at = begun + 30 * HOUR
    source = FlightNewsSource(timetable=Timetable(BLIZZARD)).joined(join_at, begun + 2 * DAY)
    table = published(plan, source)
    needed = [event for event in blizzard_events if event.ve >= join_at]
    assert Counter(event for event in table.events() if event.ve >= join_at) == Counter(needed)
    assert len(table.events()) < len(blizzard_events)


def test_plans_promise_what_the_other_styles_do() -> None:
    promises = {name: derive(plan.stream.node)[plan.stream.node].promises for name, plan in PLANS.items()}
    assert promises["revising"] == frozenset(STYLES["aggressive"].properties)
    assert promises["final"] >= frozenset(STYLES["conservative"].properties)
    assert promises["by-airport"] == frozenset()


def test_temporal_and_plain_replicas_are_merged(tmp_path: Path) -> None:
    """One of them is killed."""
    days = Days(BLIZZARD.first, BLIZZARD.first)
    served = Served(tmp_path, "--merge", "flights")
    options = ["-s", served.target, "--first", str(days.first), "--last", str(days.last), "--speed", "0.1"]
    names = ("temporal-revising", "temporal-final", "temporal-by-airport", "aggressive")
    replicas: list[subprocess.Popen[bytes]] = []
    try:
        with Reading(served.target, "flights") as reading:
            replicas += [subprocess.Popen([*LMERGE, "replica", "run", name, *options]) for name in names]
            while len(describe_merge(served.target, "flights").inputs) < len(names):
                assert all(replica.poll() is None for replica in replicas)
            replicas[0].kill()
            found = Counter(reading.complete().events())
            assert [replica.wait(60) for replica in replicas] == [-9, 0, 0, 0]
    finally:
        for replica in replicas:
            replica.kill()
            replica.wait()
        served.stop()
    assert found == Counter(published("final", FlightNewsSource(timetable=Timetable(days))).events())
