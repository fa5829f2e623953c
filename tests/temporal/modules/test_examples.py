"""The example modules: the numbers of EX-7, and the pattern "A followed by B" (Q4, Q12, M9, M11)."""

from __future__ import annotations

import pytest

from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.errors import PlanError
from lmerge.temporal.modules.adapters import bind_aggregate_module, bind_operator_module, check_policies
from lmerge.temporal.modules.aggregates import aggregate_module
from lmerge.temporal.modules.arguments import column_argument
from lmerge.temporal.values import Values
from lmerge.temporal.windows.group import WindowRules
from lmerge.temporal.windows.kinds import Hopping, WindowDescriptor
from lmerge.temporal.windows.module import WindowModule
from lmerge.temporal.windows.policies import Clip, Form, Stamp
from lmerge.temporal.windows.window_operator import WindowOperator
from lmerge.testing.example_modules import FollowedBy, MyAverage, MyTimeWeightedAverage
from lmerge.wire.schema import parse_schema

VALUES = parse_schema({"value": "float"})
SIGNALS = parse_schema({"kind": "string", "key": "string"})
WINDOW = WindowDescriptor(0, 10)
EVENTS = [((10.0,), 0, 5), ((20.0,), 5, 10), ((40.0,), -5, 5), ((30.0,), 8, 14)]


def in_window(module: WindowModule, clip: Clip, events: list[tuple[Values, int, int]], stamp: Stamp) -> list[Lifetime]:
    """Return the results of the window [0, 10)."""
    rules = WindowRules(Hopping(10, 10), module, clip, stamp, Form.EAGER, lambda row: row)
    operator = WindowOperator("window", rules, lambda row: row)
    found = operator.step([Delta([Change(row, vs, vs, ve) for row, vs, ve in events], 1)])
    return [Lifetime(one.row, one.vs, one.new) for one in found.changes if 0 <= one.vs < 10]


@pytest.mark.parametrize(("clip", "weighted"), [("none", 73.0), ("left", 53.0), ("right", 61.0), ("full", 41.0)])
def test_the_averages_of_the_paper(clip: str, weighted: float) -> None:
    value = [column_argument(VALUES, "value", "")]
    module = aggregate_module(
        [bind_aggregate_module(MyAverage(), value, "a"), bind_aggregate_module(MyTimeWeightedAverage(), value, "w")],
        VALUES,
    )
    assert in_window(module, Clip(clip), EVENTS, Stamp.ALIGN) == [Lifetime((25.0, weighted), 0, 10)]


def test_an_average_to_a_digit() -> None:
    bound = bind_aggregate_module(MyAverage(digits=1), [column_argument(VALUES, "value", "")], "a")
    assert bound.over([Lifetime((value,), 0, 1) for value in (1.0, 1.0, 1.2)], WINDOW) == 1.1


def signals(*events: tuple[str, int, int]) -> list[tuple[Values, int, int]]:
    return [((text[0], text), vs, ve) for text, vs, ve in events]


@pytest.mark.parametrize(
    ("events", "matches"),
    [
        (signals(("B1", 0, 2), ("A1", 3, 4)), []),
        (signals(("A1", 1, 2), ("B1", 1, 2)), []),
        (signals(("A1", 0, 2), ("B1", 3, 4)), [("A1", "B1", 3)]),
        (
            signals(("A1", 0, 2), ("A2", 4, 5), ("B1", 3, 4), ("B2", 6, 7)),
            [("A1", "B1", 3), ("A1", "B2", 6), ("A2", "B2", 6)],
        ),
        (signals(("A1", -2, 1), ("B1", -1, 4)), [("A1", "B1", 0)]),
    ],
)
def test_a_pattern_is_found_as_often_as_it_is_there(
    events: list[tuple[Values, int, int]], matches: list[tuple[str, str, int]]
) -> None:
    module = bind_operator_module(FollowedBy(), SIGNALS)
    found = in_window(module, Clip.NONE, events, Stamp.UNCHANGED)
    assert found == [Lifetime((one, other), vs, 10) for one, other, vs in matches]


def test_left_clipping_would_lose_the_order_of_starts_and_is_refused() -> None:
    events = signals(("A1", -2, 1), ("B1", -1, 4))
    assert in_window(bind_operator_module(FollowedBy(), SIGNALS), Clip.LEFT, events, Stamp.UNCHANGED) == []
    with pytest.raises(PlanError, match="module 'followed_by' version 1 needs the starts of events, which clip=left"):
        check_policies(FollowedBy(), Clip.LEFT, Stamp.UNCHANGED)


def test_the_query_writer_can_give_matches_the_lifetime_of_the_window() -> None:
    module = bind_operator_module(FollowedBy("A", "C"), SIGNALS)
    events = signals(("A1", 0, 2), ("C1", 3, 4))
    assert in_window(module, Clip.NONE, events, Stamp.ALIGN) == [Lifetime(("A1", "C1"), 0, 10)]
    assert in_window(module, Clip.NONE, events, Stamp.POINT_AT_END) == [Lifetime(("A1", "C1"), 9, 10)]


def test_the_window_of_a_pattern_does_not_wait_for_the_ends_of_its_events() -> None:
    rules = WindowRules(
        Hopping(10, 10),
        bind_operator_module(FollowedBy(), SIGNALS),
        Clip.NONE,
        Stamp.UNCHANGED,
        Form.EAGER,
        lambda row: row,
    )
    operator = WindowOperator("window", rules, lambda row: row)
    found = operator.step([Delta([Change(("A", "A1"), 1, 1, 99), Change(("B", "B1"), 2, 2, 99)], 12)])
    assert found.stable == 10
