"""Durations as text, which is a query's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from lmerge.temporal.durations import DAY, HOUR, MINUTE, SECOND, Duration, duration_of, show_duration
from lmerge.temporal.errors import PlanError
from lmerge.temporal.plan.json_format import plan_from_json, plan_to_json
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


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("1h", HOUR),
        ("30m", 30 * MINUTE),
        ("1d12h", 36 * HOUR),
        ("500ms", SECOND // 2),
        ("5m3s2us", 5 * MINUTE + 3 * SECOND + 2),
        ("-5s", -5 * SECOND),
        ("0s", 0),
        (7, 7),
    ],
)
def test_text_is_a_duration(text: Duration, duration: int) -> None:
    assert duration_of(text, "shift", "an amount") == duration


@pytest.mark.parametrize(
    "wrong", ["1 h", "", "h", "1", "1.5h", "1w", "1h-", "one", 1.5, True, None, 2**64, "10000000000d"]
)
def test_what_is_no_duration_is_named(wrong: Any) -> None:
    with pytest.raises(PlanError, match=rf"^shift: an amount of {re.escape(repr(wrong))[:40]}"):
        duration_of(wrong, "shift", "an amount")


def test_every_duration_of_a_plan_can_be_text() -> None:
    numbers = source("numbers", {"a": "int"})
    by_a, other = numbers.group_by("a"), numbers.shift(1)
    pairs: list[tuple[Callable[[Any], Any], int]] = [
        (numbers.shift, HOUR),
        (numbers.set_duration, HOUR),
        (numbers.clip_duration, HOUR),
        (numbers.extend, HOUR),
        (numbers.at_end, HOUR),
        (lambda amount: numbers.edges("a", lasts=amount), HOUR),
        (lambda amount: numbers.as_of(other, "a", within=amount), HOUR),
        (numbers.tumbling, HOUR),
        (lambda amount: numbers.tumbling(DAY, offset=amount), HOUR),
        (lambda amount: numbers.hopping(amount, amount, offset=amount), HOUR),
        (numbers.sessions, HOUR),
        (by_a.tumbling, HOUR),
        (by_a.sessions, HOUR),
    ]
    for build, duration in pairs:
        assert build("1h") == build(duration)
        for wrong in (1.5, "1 hour"):
            with pytest.raises(PlanError, match=r"^\w+: an? .* of .* is no duration"):
                build(wrong)


def test_errors_of_windows_name_the_call() -> None:
    numbers = source("numbers", {"a": "int"})
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: numbers.tumbling(0), "tumbling: a size of 0; it is at least one unit of time"),
        (lambda: numbers.hopping("1h", -1), "hopping: a hop of -1; it is at least one unit of time"),
        (lambda: numbers.count_windows(0), "count_windows: a count window counts 0 starts"),
        (lambda: numbers.sessions(-1), "sessions: a session window has a gap of -1"),
        (lambda: numbers.tumbling(5, since=1.5), "tumbling: a window has a since of 1.5"),  # type: ignore[arg-type]  # no time
    ]
    for build, problem in wrong:
        with pytest.raises(PlanError, match=f"^{problem}"):
            build()


def test_durations_of_plans_in_json_are_numbers() -> None:
    document = plan_to_json({"n": source("numbers", {"a": "int"}).shift("1h").node})
    assert document["nodes"][-1]["amount"] == HOUR
    document["nodes"][-1]["amount"] = 1.5
    with pytest.raises(PlanError, match=r"node 'n2': shift: an amount of 1.5 is no duration"):
        plan_from_json(document)
