"""Session windows by hand: where they begin and end, how they are joined and divided, and when they are final."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from operator_world import own_order
from temporal_world import StreamTable, cut, random_stream
from window_definition import WindowDefinition

from lmerge.core.elements import INF
from lmerge.errors import UsageError
from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.values import Values
from lmerge.temporal.windows.group import WindowRules
from lmerge.temporal.windows.kinds import Sessions, WindowDescriptor
from lmerge.temporal.windows.module import IncrementalModule, ModuleState
from lmerge.temporal.windows.policies import Clip, Form, Stamp
from lmerge.temporal.windows.window_operator import WindowOperator


class CountEvents(IncrementalModule):
    def begin(self) -> ModuleState:
        return 0

    def add(self, state: ModuleState, event: Lifetime) -> ModuleState:
        return state + 1

    def remove(self, state: ModuleState, event: Lifetime) -> ModuleState:
        return state - 1

    def result(self, state: ModuleState, window: WindowDescriptor) -> Sequence[Values]:
        return [(state,)]


def sessions(gap: int, form: Form = Form.EAGER) -> WindowOperator:
    return WindowOperator("sessions", rules_of(gap, form), own_order)


def rules_of(gap: int, form: Form) -> WindowRules:
    return WindowRules(Sessions(gap), CountEvents(), Clip.NONE, Stamp.ALIGN, form, own_order)


def step(operator: WindowOperator, *changes: Change, stable: int | None = None) -> list[str]:
    emitted = operator.step([Delta(list(changes), stable)])
    operator.check()
    shown = [str(change) for change in emitted.changes]
    return [*shown, f"stable({emitted.stable})"] if emitted.stable is not None else shown


def event(vs: int, ve: int) -> Change:
    return Change((0,), vs, vs, ve)


@pytest.mark.parametrize(
    ("other", "emitted"),
    [
        (event(13, 14), ["adjust((1), 10, 11, 10)", "insert((2), 10, 14)"]),
        (event(14, 15), ["insert((1), 14, 15)"]),
        (event(7, 8), ["adjust((1), 10, 11, 10)", "insert((2), 7, 11)"]),
        (event(6, 7), ["insert((1), 6, 7)"]),
    ],
)
def test_an_event_exactly_the_gap_away_is_of_the_session(other: Change, emitted: list[str]) -> None:
    operator = sessions(2)
    step(operator, event(10, 11))
    assert step(operator, other) == emitted


def test_an_event_between_two_sessions_joins_them_and_divides_them_when_it_goes() -> None:
    operator = sessions(1)
    assert step(operator, event(1, 3), event(6, 8)) == ["insert((1), 1, 3)", "insert((1), 6, 8)"]
    assert step(operator, event(4, 5)) == ["adjust((1), 1, 3, 1)", "adjust((1), 6, 8, 6)", "insert((3), 1, 8)"]
    assert step(operator, Change((0,), 4, 5, 4)) == ["adjust((3), 1, 8, 1)", "insert((1), 1, 3)", "insert((1), 6, 8)"]


def test_an_event_that_becomes_shorter_divides_its_session() -> None:
    operator = sessions(0)
    assert step(operator, event(1, INF), event(5, 8)) == ["insert((2), 1, inf)"]
    assert step(operator, Change((0,), 1, INF, 5)) == ["adjust((2), 1, inf, 8)"]
    assert step(operator, Change((0,), 1, 5, 4)) == ["adjust((2), 1, 8, 1)", "insert((1), 1, 4)", "insert((1), 5, 8)"]


def test_the_first_event_of_a_session_that_goes_moves_its_start() -> None:
    operator = sessions(2)
    step(operator, event(1, 3), event(4, 6))
    assert step(operator, Change((0,), 1, 3, 1)) == ["adjust((2), 1, 6, 1)", "insert((1), 4, 6)"]


def test_a_session_is_final_when_the_stable_point_is_more_than_the_gap_behind_it() -> None:
    operator = sessions(2, Form.FINAL)
    assert step(operator, event(1, 3), stable=5) == ["stable(1)"]
    assert step(operator, event(5, 6)) == []
    assert step(operator, stable=8) == []
    assert step(operator, stable=9) == ["insert((2), 1, 6)", "stable(9)"]
    assert operator.live() == 0


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("gap", [0, 1, 3])
def test_random_streams_have_the_sessions_of_the_definition(gap: int, form: Form) -> None:
    for seed in range(100):
        random_ = random.Random(seed)
        operator = sessions(gap, form)
        definition, output = WindowDefinition(rules_of(gap, form), lambda row: ()), StreamTable()
        for delta in cut(random_, random_stream(random_, 20, open_part=0.03)):
            output.apply(operator.step([delta]))
            operator.check()
            assert output.events == definition.take(delta)
            assert output.stable == definition.output_stable


def test_a_negative_gap_is_refused() -> None:
    with pytest.raises(UsageError, match="a session window has a gap of -1"):
        Sessions(-1)
