"""Durations as text, which is a query's own."""

from __future__ import annotations

import pytest

from lmerge.temporal.durations import DAY, HOUR, MINUTE, SECOND, show_duration
from lmerge.temporal.plan.showing import tree
from lmerge.temporal.plan.stream import count, source


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (HOUR, "HOUR"),
        (7 * DAY, "7 * DAY"),
        (90 * MINUTE, "90 * MINUTE"),
        (-5 * SECOND, "-5 * SECOND"),
        (SECOND + 1, "1000001"),
        (5, "5"),
        (0, "0"),
    ],
)
def test_whole_seconds_are_shown_by_their_largest_unit(duration: int, text: str) -> None:
    assert show_duration(duration) == text
    assert eval(text, {"DAY": DAY, "HOUR": HOUR, "MINUTE": MINUTE, "SECOND": SECOND}) == duration


def test_plans_show_durations_as_their_query_has_them() -> None:
    stream = source("numbers", {"a": "int"}).shift(30 * SECOND)
    assert tree(stream.hopping(DAY, 6 * HOUR).agg(n=count()).node).split("\n")[:2] == [
        "n=count() in hopping(DAY, every 6 * HOUR), final",
        "└─ shift 30 * SECOND",
    ]
