"""A time-bound result is bound by the time at which a change takes effect, not by the start of its event (V.F.1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import pytest
from module_world import ARGUMENT, NUMBERS

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


class LengthAtStart(TimedOperator[int]):
    """How long an event lasts, at its start: not time-bound, because its end is not known there."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    results: ClassVar[SchemaLike] = {"length": "int"}
    properties = Properties(time_bound=True)

    def compute(self, rows: Sequence[TimedRow[int]], window: Window) -> Iterator[Stamped]:
        for row in rows:
            yield Stamped((row.end - row.start,), row.start, row.start + 1)


class LengthAtEnd(LengthAtStart):
    """How long an event has lasted, at its end."""

    def compute(self, rows: Sequence[TimedRow[int]], window: Window) -> Iterator[Stamped]:
        for row in rows:
            yield Stamped((row.end - row.start,), row.end, row.end + 1)


def operator_of(module: TimedOperator[int]) -> WindowOperator:
    check_policies(module, Clip.NONE, Stamp.TIME_BOUND)
    bound = bind_operator_module(module, NUMBERS, [ARGUMENT])
    rules = WindowRules(Hopping(9, 9), bound, Clip.NONE, Stamp.TIME_BOUND, Form.EAGER, lambda row: row)
    return WindowOperator("w", rules, lambda row: row)


def test_a_result_before_the_end_that_moves_is_not_bound_by_time() -> None:
    operator = operator_of(LengthAtStart())
    found = operator.step([Delta([Change((7,), 1, 1, 6)], 1)])
    assert found.changes == [Change((5,), 1, 1, 2)]
    with pytest.raises(ModuleViolation, match="is declared time-bound, and a change at 4"):
        operator.step([Delta([Change((7,), 1, 6, 4)])])


def test_a_result_at_the_end_that_moves_is_bound_by_time() -> None:
    operator = operator_of(LengthAtEnd())
    operator.step([Delta([Change((7,), 1, 1, 6)], 4)])
    found = operator.step([Delta([Change((7,), 1, 6, 4)], 5)])
    assert found.changes == [Change((5,), 6, 7, 6), Change((3,), 4, 4, 5)]
    assert found.stable == 5
