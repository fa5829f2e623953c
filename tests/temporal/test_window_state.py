"""Windows restored at every batch boundary go on alike (L8), and feedback leaves what is needed as it is (L7)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from operator_world import LossyInput, from_then_on, own_order, restored
from temporal_world import StreamTable, cut, random_stream
from window_definition import WindowDefinition

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.values import Values
from lmerge.temporal.windows.group import WindowRules
from lmerge.temporal.windows.kinds import (
    CountedEnd,
    CountWindows,
    Hopping,
    Sessions,
    Snapshots,
    WindowDescriptor,
    WindowKind,
)
from lmerge.temporal.windows.module import IncrementalModule, ModuleState, WindowModule
from lmerge.temporal.windows.policies import Clip, Form, Stamp
from lmerge.temporal.windows.window_operator import WindowOperator

GRIDS: dict[str, Hopping] = {
    "tumbling": Hopping(5, 5),
    "hopping": Hopping(4, 2, 1),
    "hopping, uneven": Hopping(3, 2),
    "with gaps": Hopping(2, 5),
}
KINDS: dict[str, WindowKind] = {
    **GRIDS,
    "snapshot": Snapshots(),
    "two starts": CountWindows(2),
    "two ends": CountWindows(2, CountedEnd.ENDS),
    "session": Sessions(2),
}


class CountWithState(IncrementalModule):
    """Counts, in a state that is no plain value."""

    def begin(self) -> ModuleState:
        return {"count": 0, "not": object}

    def add(self, state: ModuleState, event: Lifetime) -> ModuleState:
        return {**state, "count": state["count"] + 1}

    def remove(self, state: ModuleState, event: Lifetime) -> ModuleState:
        return {**state, "count": state["count"] - 1}

    def result(self, state: ModuleState, window: WindowDescriptor) -> Sequence[Values]:
        return [(state["count"],)]

    def state_of(self, state: ModuleState) -> Any:
        return [state["count"]]

    def restore(self, plain: Any) -> ModuleState:
        return {"count": plain[0], "not": object}


class ListLifetimes(WindowModule):
    reads_events = True

    def compute(self, events: Sequence[Lifetime], window: WindowDescriptor) -> Sequence[Values]:
        return [tuple((*event.row, event.vs, event.ve) for event in events)]


MODULES = {module.__name__: module() for module in (CountWithState, ListLifetimes)}


def by_row(row: Values) -> Values:
    return row[:1]


def ungrouped(row: Values) -> Values:
    return ()


def rules_of(random_: random.Random, kind: WindowKind, module: WindowModule, form: Form) -> WindowRules:
    stamps = [Stamp.ALIGN] if isinstance(kind, Snapshots | Sessions) else [Stamp.ALIGN, Stamp.POINT_AT_END]
    clips = list(Clip) if module.reads_events else [Clip.NONE]
    return WindowRules(kind, module, random_.choice(clips), random_.choice(stamps), form, own_order)


def maker(rules: WindowRules, key_of: Callable[[Values], Values]) -> Callable[[], PlanOperator]:
    return lambda: WindowOperator("windows", rules, lambda row: row, None if key_of is ungrouped else key_of)


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_operator_goes_on_alike(
    kind: str, module: str, form: Form, seeds_of: Callable[[int, int], range]
) -> None:
    for seed in seeds_of(40, 3):
        random_ = random.Random(seed)
        rules = rules_of(random_, KINDS[kind], MODULES[module], form)
        make = maker(rules, random_.choice((by_row, ungrouped)))
        operator = make()
        for delta in cut(random_, random_stream(random_, random_.choice((8, 12, 20)))):
            twin = restored(make, operator)
            assert operator.step([delta]) == twin.step([delta])
            operator.check()
            assert twin.state() == operator.state()


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("kind", GRIDS)
def test_feedback_leaves_out_only_what_ends_before_its_first_window(kind: str, module: str, form: Form) -> None:
    """While events are left out, the stable point lags, and with it what it releases. It has caught up at ``t``."""
    skipped = compared = 0
    for seed in range(60):
        random_ = random.Random(seed)
        rules = rules_of(random_, GRIDS[kind], MODULES[module], form)
        key_of = random_.choice((by_row, ungrouped))
        operator = WindowOperator("windows", rules, lambda row: row, None if key_of is ungrouped else key_of)
        definition, output, lossy = WindowDefinition(rules, key_of), StreamTable(), LossyInput(random_)
        t = needed = last_finite = NEG_INF
        for delta in cut(random_, random_stream(random_, random_.choice((8, 12, 20)))):
            if random_.random() < 0.3:
                t = max(t, random_.randint(-8, 20))
                (lossy.until,) = operator.fast_forward(t)
                needed = max(t, lossy.until)
            expected = definition.take(delta)
            output.apply(operator.step([lossy.take(delta)]))
            operator.check()
            last_finite = max(last_finite, definition.table.stable if definition.table.stable < INF else NEG_INF)
            if last_finite >= needed:
                assert from_then_on(output.events, t) == from_then_on(expected, t)
                assert output.stable == definition.output_stable
                compared += needed > NEG_INF
        skipped += operator.skipped
        if definition.table.stable == INF:
            assert operator.live() == 0
    assert compared > 50
    assert skipped > 20


def operator_of(kind: WindowKind, stamp: Stamp = Stamp.ALIGN) -> WindowOperator:
    rules = WindowRules(kind, CountWithState(), Clip.NONE, stamp, Form.EAGER, own_order)
    return WindowOperator("windows", rules, own_order)


def test_an_event_that_ends_before_the_time_belongs_to_a_window_that_is_needed() -> None:
    """EX-13: tumbling 5, t=7, event [3,6): it ends before 7 and belongs to [5,10), which is needed."""
    operator = operator_of(Hopping(5, 5))
    assert operator.fast_forward(7) == [6]
    emitted = operator.step([Delta([Change((1,), 3, 3, 6), Change((1,), 3, 3, 5), Change((1,), 8, 8, 9)], None)])
    assert [str(change) for change in emitted.changes] == ["insert((1), 0, 5)", "insert((2), 5, 10)"]
    assert operator.skipped == 1


@pytest.mark.parametrize("kind", [Snapshots(), CountWindows(2), Sessions(3)])
def test_where_events_shape_windows_every_event_is_needed(kind: WindowKind) -> None:
    assert operator_of(kind).fast_forward(7) == [NEG_INF]


def test_results_that_outlive_their_window_need_every_event() -> None:
    assert operator_of(Hopping(5, 5), Stamp.UNCHANGED).fast_forward(7) == [NEG_INF]


def test_an_incremental_module_keeps_only_events_in_which_windows_can_begin() -> None:
    """S4: the windows' states have all others. An event that ends where the next window begins can be the last end."""
    operator = operator_of(Hopping(5, 5))
    lifetimes = [(1, 4), (2, 5), (3, 9), (6, 10), (7, INF)]
    operator.step([Delta([Change((1,), vs, vs, ve) for vs, ve in lifetimes], None)])
    assert operator.live() == 2
    operator.step([Delta([Change((1,), 10, 10, 11)], None)])
    assert operator.live() == 1
    operator.check()
