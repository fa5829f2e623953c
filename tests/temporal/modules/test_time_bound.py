"""A time-bound module has the input's stable point as the output's, and one that lies is named (Q15, Q17, S11)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import pytest
from module_world import ARGUMENT, NUMBERS, RunningCount

from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.errors import ModuleViolation
from lmerge.temporal.modules.adapters import bind_operator_module, check_policies
from lmerge.temporal.modules.kinds import TimedOperator
from lmerge.temporal.modules.properties import Properties, Stamped, TimedRow, Window
from lmerge.temporal.windows.group import WindowRules
from lmerge.temporal.windows.kinds import Hopping
from lmerge.temporal.windows.policies import Clip, Form, Stamp
from lmerge.temporal.windows.window_operator import WindowOperator
from lmerge.wire.schema import SchemaLike


def operator_of(module: TimedOperator[int], stamp: Stamp, form: Form = Form.EAGER) -> WindowOperator:
    check_policies(module, Clip.NONE, stamp)
    bound = bind_operator_module(module, NUMBERS, [ARGUMENT])
    return WindowOperator(
        "w", WindowRules(Hopping(5, 5), bound, Clip.NONE, stamp, form, lambda row: row), lambda row: row
    )


def test_a_running_count_moves_the_stable_point_with_the_input() -> None:
    operator = operator_of(RunningCount(), Stamp.TIME_BOUND)
    first = operator.step([Delta([Change((7,), 1, 1, 2)], 2)])
    assert (first.changes, first.stable) == ([Change((1,), 1, 1, 5)], 2)
    second = operator.step([Delta([Change((7,), 3, 3, 4)], 4)])
    assert second.changes == [Change((1,), 1, 5, 3), Change((2,), 3, 3, 5)]
    assert second.stable == 4


def test_the_form_settled_emits_each_result_when_the_stable_point_has_passed_its_start() -> None:
    operator = operator_of(RunningCount(), Stamp.TIME_BOUND, Form.SETTLED)
    found = operator.step([Delta([Change((7,), at, at, at + 1) for at in (1, 3)], 2)])
    assert (found.changes, found.stable) == ([Change((1,), 1, 1, 3)], 2)
    for stable, changes in ((3, []), (4, [Change((2,), 3, 3, 5)])):
        found = operator.step([Delta([], stable)])
        assert (found.changes, found.stable) == (changes, stable)


class Early(TimedOperator[int]):
    """Stamps results before the window, or before the event."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    results: ClassVar[SchemaLike] = {"count": "int"}
    properties = Properties(time_bound=True)

    def __init__(self, by: int) -> None:
        self._by = by

    def compute(self, rows: Sequence[TimedRow[int]], window: Window) -> Iterator[Stamped]:
        yield Stamped((len(rows),), window.start - self._by, window.end)


def test_a_result_before_the_window_is_refused_and_nothing_is_emitted() -> None:
    operator = operator_of(Early(1), Stamp.UNCHANGED)
    problem = (
        r"module 'early' version 1 gave window \[0, 5\) the result \(1\) \[-1, 5\), which starts before the window"
    )
    with pytest.raises(ModuleViolation, match=problem):
        operator.step([Delta([Change((7,), 1, 1, 2)])])


def test_a_module_that_is_not_time_bound_as_it_declares_is_named() -> None:
    operator = operator_of(Early(0), Stamp.TIME_BOUND)
    operator.step([Delta([Change((7,), 0, 0, 2)], 1)])
    with pytest.raises(ModuleViolation, match="w: module 'early' version 1 is declared time-bound, and a change at 3"):
        operator.step([Delta([Change((7,), 3, 3, 4)])])
