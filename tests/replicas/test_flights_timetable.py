"""The timetable: all its days are the table, and a join from it is the join from the whole table."""

from __future__ import annotations

from datetime import date
from itertools import chain, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmerge.core.elements import INF
from lmerge_replicas.flights.flight import HOUR, NEW_YORK, Clock, Flight, midnight, read_flights
from lmerge_replicas.flights.source import Days
from lmerge_replicas.flights.stream import FlightStream, StreamStep
from lmerge_replicas.flights.style import STYLES
from lmerge_replicas.flights.timetable import Timetable

DAYS = Days(date(2013, 2, 1), date(2013, 2, 14))  # with the storm of the 9th
FIRST = Clock().to_utc(midnight(DAYS.first), NEW_YORK)


@pytest.fixture(scope="module")
def timetable() -> Timetable:
    return Timetable(DAYS)


@pytest.fixture(scope="module")
def flights() -> list[Flight]:
    return read_flights(DAYS)


def test_day_by_day_it_is_the_table(timetable: Timetable, flights: list[Flight]) -> None:
    parts = list(timetable.since())
    assert list(chain(*parts)) == flights
    assert timetable.count == len(flights)
    assert len(parts) == 15
    assert max(map(len, parts)) < 1_000


def test_the_whole_year_is_there_and_in_order_without_reading_it() -> None:
    year = Timetable(Days())
    assert year.count == 336_776
    late = list(chain(*year.since(Clock().to_utc(midnight(date(2013, 12, 30)), NEW_YORK))))
    assert all(a <= b for a, b in pairwise(late))
    assert sum(flight.is_diverted for flight in late) > 650
    assert len(late) < 6_000


def elements_of(stream: FlightStream, now: int, join_at: int) -> list[object]:
    return [stream.join(now, join_at), *stream.steps()]


@pytest.mark.parametrize("style", STYLES.values(), ids=lambda style: style.name)
@settings(max_examples=12)
@given(now=st.integers(-6, 16 * 24), behind=st.sampled_from([0, 1, 30, 100, None]))
def test_a_join_from_the_timetable_is_the_join_from_the_whole_table(
    timetable: Timetable, flights: list[Flight], style: object, now: int, behind: int | None
) -> None:
    assert isinstance(style, type(STYLES["aggressive"]))
    now_us = FIRST + now * HOUR
    join_at = INF if behind is None else now_us - behind * HOUR
    from_timetable, from_table = FlightStream(timetable, style), FlightStream(flights, style)
    assert elements_of(from_timetable, now_us, join_at) == elements_of(from_table, now_us, join_at)


@pytest.mark.parametrize("style", STYLES.values(), ids=lambda style: style.name)
def test_from_the_beginning_it_is_the_same_stream(timetable: Timetable, flights: list[Flight], style: object) -> None:
    assert isinstance(style, type(STYLES["aggressive"]))
    steps: list[StreamStep] = list(FlightStream(timetable, style).steps())
    assert steps == list(FlightStream(flights, style).steps())
