"""The flights as temporal plans: the table of the other replicas, from the start and from a join in the middle."""

from __future__ import annotations

import time
from collections import Counter
from datetime import date
from pathlib import Path

import pytest
from cli_world import Served
from replica_world import Reading

from lmerge.core.elements import INF, Event
from lmerge.core.tdb import Tdb
from lmerge.demo.processes import Child
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
        assert isinstance(chunk.items, list)
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
    """One of them is killed once all have joined. They start the replay together, as those of the demo do."""
    days = Days(BLIZZARD.first, BLIZZARD.first)
    served = Served(tmp_path, "--merge", "flights")
    options = [
        "--server",
        served.target,
        "--merge",
        "flights",
        "--first",
        str(days.first),
        "--last",
        str(days.last),
        "--speed",
        "0.1",
    ]
    options.append("--supervised")
    started = {
        "aggressive": ("lmerge_replicas.flights", "aggressive"),
        **{plan: ("lmerge_replicas.temporal", plan) for plan in PLANS},
    }
    replicas: list[Child] = []
    try:
        with Reading(served.target, "flights") as reading:
            for name, (module, style) in started.items():
                replicas.append(Child(name, module, [style, "--replica", name, *options], tmp_path))
            for replica in replicas:
                expect(replica, "loaded")
            for replica in replicas:
                replica.send(start=time.time())
            for replica in replicas:
                expect(replica, "joined")
            replicas[-1].kill()
            found = Counter(reading.complete().events())
            for replica in replicas[:-1]:
                expect(replica, "done")
    finally:
        for replica in replicas:
            replica.kill()
        served.stop()
    assert found == Counter(published("final", FlightNewsSource(timetable=Timetable(days))).events())


def expect(replica: Child, event: str) -> None:
    """Read the messages of a replica up to one."""
    while replica.messages.get(timeout=60)["event"] != event:
        pass
