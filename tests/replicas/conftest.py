"""Fixtures for the tests of the flight replicas: slices of the real table, and the judge's table of the same days."""

from __future__ import annotations

from datetime import date

import pytest

from lmerge.core.elements import Event
from lmerge.demo.judge import FlightsJudge
from lmerge_replicas.flights.flight import Flight, read_flights
from lmerge_replicas.flights.source import Days

BLIZZARD = Days(date(2013, 2, 7), date(2013, 2, 10))  # 1,100 of 3,300 flights cancelled, the rest late or diverted


@pytest.fixture(scope="session")
def blizzard() -> list[Flight]:
    """The flights of the four days around the blizzard of February 2013."""
    return read_flights(BLIZZARD)


@pytest.fixture(scope="session")
def blizzard_events() -> list[Event]:
    """The judge's events of those days."""
    with FlightsJudge(BLIZZARD) as judge:
        return judge.events()
