"""Each replica's physical stream: it gives the same table, keeps its promises, and merges despite kills and joins."""

from __future__ import annotations

import random
from itertools import chain, pairwise

import pytest

from lmerge.core.batch import AnyBatch, Batch
from lmerge.core.elements import ADJUST, INF, INSERT, STABLE, Adjust, Event, Insert, Stable
from lmerge.core.merge import Merge
from lmerge.core.tdb import Tdb
from lmerge_replicas.flights.flight import HOUR, MINUTE, Flight
from lmerge_replicas.flights.stream import FlightStream
from lmerge_replicas.flights.style import HOLD, LEAD, STYLES, Style, final_at

ALL = [pytest.param(style, id=name) for name, style in STYLES.items()]
NOON = 12 * HOUR


def elements(style: Style, *flights: Flight) -> list[Insert | Adjust | Stable]:
    steps = FlightStream(flights, style).steps()
    return list(chain.from_iterable(step.batch.elements() for step in steps))


def changes(style: Style, flight: Flight) -> list[Insert | Adjust | Stable]:
    return [e for e in elements(style, flight) if not isinstance(e, Stable)]


def test_an_aggressive_replica_revises_a_late_departure_puts_off_and_corrects() -> None:
    late = Flight(NOON, b"p", NOON + 2 * HOUR, NOON + HOUR, NOON + 4 * HOUR - MINUTE)
    assert changes(STYLES["aggressive"], late) == [
        Insert(b"p", NOON, NOON + 2 * HOUR),
        Adjust(b"p", NOON, NOON + 2 * HOUR, NOON + 3 * HOUR),  # news at the departure
        Adjust(b"p", NOON, NOON + 3 * HOUR, NOON + 3 * HOUR + HOLD),  # overdue
        Adjust(b"p", NOON, NOON + 3 * HOUR + HOLD, NOON + 4 * HOUR),  # overdue again
        Adjust(b"p", NOON, NOON + 4 * HOUR, NOON + 4 * HOUR - MINUTE),  # landed
    ]


def test_an_aggressive_replica_puts_off_a_flight_that_departs_after_it_should_have_landed() -> None:
    very_late = Flight(NOON, b"p", NOON + HOUR, NOON + HOUR + MINUTE, NOON + 2 * HOUR)
    assert changes(STYLES["aggressive"], very_late) == [
        Insert(b"p", NOON, NOON + HOUR),
        Adjust(b"p", NOON, NOON + HOUR, NOON + HOUR + HOLD),
        Adjust(b"p", NOON, NOON + HOUR + HOLD, NOON + 2 * HOUR + MINUTE),
        Adjust(b"p", NOON, NOON + 2 * HOUR + MINUTE, NOON + 2 * HOUR),
    ]


def test_an_aggressive_replica_adjusts_a_diverted_flight_to_infinity() -> None:
    diverted = Flight(NOON, b"p", NOON + HOUR, NOON, INF)
    assert changes(STYLES["aggressive"], diverted)[-1] == Adjust(b"p", NOON, NOON + HOUR, INF)


@pytest.mark.parametrize("name", ["aggressive", "open-ended"])
def test_a_cancellation_takes_the_event_back(name: str) -> None:
    insert, retraction = changes(STYLES[name], Flight(NOON, b"p", NOON + HOUR, None, NOON))
    assert isinstance(insert, Insert)
    assert retraction == Adjust(b"p", NOON, insert.ve, NOON)


def test_a_conservative_replica_never_mentions_a_cancelled_flight() -> None:
    assert changes(STYLES["conservative"], Flight(NOON, b"p", NOON + HOUR, None, NOON)) == []


def test_a_conservative_replica_publishes_only_inserts_in_order(blizzard: list[Flight]) -> None:
    inserts = [e for e in elements(STYLES["conservative"], *blizzard) if not isinstance(e, Stable)]
    assert all(isinstance(e, Insert) for e in inserts)
    assert all((a.vs, a.payload) < (b.vs, b.payload) for a, b in pairwise(inserts))


def test_an_open_ended_replica_opens_every_event_and_out_of_order(blizzard: list[Flight]) -> None:
    inserts = [e for e in elements(STYLES["open-ended"], *blizzard) if isinstance(e, Insert)]
    assert {e.ve for e in inserts} == {INF}
    assert sum(a.vs > b.vs for a, b in pairwise(inserts)) > len(inserts) // 4


def test_the_days_exercise_every_kind_of_news(blizzard: list[Flight]) -> None:
    assert sum(f.is_cancelled for f in blizzard) > 500
    assert sum(f.is_diverted for f in blizzard) > 5
    assert any(f.departed is not None and f.departed > f.planned for f in blizzard)
    assert any(f.departed is not None and f.departed < f.vs for f in blizzard)


@pytest.mark.parametrize("style", ALL)
def test_a_stream_reconstitutes_to_the_table_and_keeps_its_own_stable_points(
    style: Style, blizzard: list[Flight], blizzard_events: list[Event]
) -> None:
    tdb = Tdb(style.name)
    for step in FlightStream(blizzard, style).steps():
        tdb.apply_batch(step.batch)  # raises at the first broken promise
    tdb.check()
    assert tdb.events() == blizzard_events
    assert tdb.stable_point == INF


def with_another_future(flight: Flight, t: int) -> Flight:
    """Return ``flight`` with all news from ``t`` on changed."""
    if final_at(flight) < t:
        return flight
    departed = flight.departed
    if departed is None or departed >= t:
        departed = max(flight.vs, t) + 7 * MINUTE
    return flight._replace(departed=departed, ve=max(flight.planned, departed, t) + 11 * HOUR)


@pytest.mark.parametrize("style", ALL)
@pytest.mark.parametrize("hours", [3, 30, 31, 50, 77])
def test_a_stream_publishes_nothing_before_its_time(style: Style, hours: int, blizzard: list[Flight]) -> None:
    t = blizzard[0].vs // HOUR * HOUR + hours * HOUR
    other = [with_another_future(flight, t) for flight in blizzard]
    assert other != blizzard
    steps, other_steps = FlightStream(blizzard, style).steps(), FlightStream(other, style).steps()
    for step, other_step in zip(steps, other_steps, strict=False):
        if step.until > t:
            break
        assert step == other_step


@pytest.mark.parametrize("style", ALL)
def test_the_properties_that_a_style_declares_hold(style: Style, blizzard: list[Flight]) -> None:
    merge = Merge()
    merge.attach("only", style.properties)
    for step in FlightStream(blizzard, style).steps():
        assert not merge.apply("only", step.batch).detached
    assert merge.algorithm == ("r1" if style.name == "conservative" else "r3")


def test_stable_points_follow_the_clock_but_for_the_conservative_one(blizzard: list[Flight]) -> None:
    for style in STYLES.values():
        for step in FlightStream(blizzard, style).steps():
            points = [e.vc for e in step.batch.elements() if isinstance(e, Stable) and e.vc != INF]
            assert points == [step.until][: len(points)] or style.waits
            assert all(point <= step.until for point in points)


def test_no_departure_is_published_before_the_announcement(blizzard: list[Flight]) -> None:
    assert all(f.departed is None or f.departed > f.vs - LEAD for f in blizzard)


class Race:
    """Feed one merge from three replicas in a random order, with kills and joins. The output is checked as it comes."""

    def __init__(self, flights: list[Flight], seed: int) -> None:
        self.flights, self.random = flights, random.Random(seed)
        self.merge, self.output = Merge(), Tdb("output")
        self.running = {name: self.start(name, None) for name in STYLES}
        self.now = dict.fromkeys(STYLES, 0)

    def start(self, name: str, join_at: int | None) -> FlightStream:
        stream = FlightStream(self.flights, STYLES[name])
        self.take(self.merge.attach(name, STYLES[name].properties, join_at=join_at).batch)
        if join_at is not None:
            self.feed(name, stream.join(max(self.now.values()), join_at))
        return stream

    def feed(self, name: str, batch: Batch) -> None:
        outcome = self.merge.apply(name, batch)
        assert not outcome.detached
        self.take(outcome.batch)

    def take(self, batch: AnyBatch) -> None:
        self.output.apply_batch(batch)

    def run(self, kills: int) -> None:
        steps = {name: stream.steps() for name, stream in self.running.items()}
        while steps:
            name = self.random.choice(sorted(steps))
            step = next(steps[name], None)
            if step is None:
                del steps[name]
                continue
            self.now[name] = max(self.now[name], step.until)
            self.feed(name, step.batch)
            if kills and len(steps) == 3 and self.random.random() < 0.02:
                kills -= 1
                self.take(self.merge.detach(name, "killed").batch)
                steps[name] = self.start(name, self.merge.stable_point).steps()


@pytest.mark.parametrize("seed", range(4))
def test_the_merge_of_all_three_is_the_table_whoever_is_killed(
    seed: int, blizzard: list[Flight], blizzard_events: list[Event]
) -> None:
    race = Race(blizzard, seed)
    race.run(kills=3)
    assert race.output.events() == blizzard_events
    assert race.output.stable_point == INF
    assert race.merge.algorithm == "r3"


@pytest.mark.parametrize("style", ALL)
@pytest.mark.parametrize("hours", [0, 7, 30, 55, 200])
def test_a_stream_joined_at_any_hour_holds_every_event_that_ends_from_there_on(
    style: Style, hours: int, blizzard: list[Flight], blizzard_events: list[Event]
) -> None:
    join_at = blizzard[0].vs // HOUR * HOUR + hours * HOUR
    tdb = Tdb(style.name)
    stream = FlightStream(blizzard, style)
    tdb.apply_batch(stream.join(join_at + 59 * MINUTE, join_at))
    for step in stream.steps():
        tdb.apply_batch(step.batch)
    got = tdb.events()
    assert [e for e in got if e.ve >= join_at] == [e for e in blizzard_events if e.ve >= join_at]
    assert set(got) <= set(blizzard_events)


def test_the_same_flights_give_the_same_stream_byte_for_byte(blizzard: list[Flight]) -> None:
    for style in STYLES.values():
        assert elements(style, *blizzard) == elements(style, *blizzard)


def test_kinds_used_by_each_style(blizzard: list[Flight]) -> None:
    kinds = {
        name: {kind for step in FlightStream(blizzard, style).steps() for kind in step.batch.kinds}
        for name, style in STYLES.items()
    }
    assert kinds == {
        "aggressive": {INSERT, ADJUST, STABLE},
        "conservative": {INSERT, STABLE},
        "open-ended": {INSERT, ADJUST, STABLE},
    }
