"""System internals (V of the extensibility paper; rows S1 to S16)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from paper_modules import SumOfAll, running_count, stretched, sum_of_all, total_duration
from paper_world import PlanTrace, adjust, event, insert, names, numbers, shown
from temporal_world import StreamTable, cut, random_stream

from lmerge.core.elements import INF
from lmerge.errors import InputViolation
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.event_index import EventIndex
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.stream import Stream, aggregate, count
from lmerge.temporal.windows.window_operator import WindowOperator

ROWS = ((0, 0), (0, 1), (1, 0), (1, 2))


def test_s1_the_watermark_is_the_latest_stable_or_start_that_was_received() -> None:
    """V.B: it does not fall when the event with the latest start goes, and a CTI alone moves it."""
    run = PlanTrace(names().tumbling(5).agg(n=count(), form="watermark"))
    assert run.give(insert("a", 1, 2), insert("b", 6, 7), adjust("b", 6, 7, 6)) == ["+(1)[0,5)"]
    assert run.give(insert("late", 2, 3)) == ["(1)[0,5) gone", "+(2)[0,5)"], "it was emitted, and stays so"
    by_stable = PlanTrace(names().tumbling(5).agg(n=count(), form="watermark"))
    assert by_stable.give(insert("a", 1, 2), 5) == ["+(1)[0,5)", "stable 5"]


@pytest.mark.parametrize(
    "window",
    [
        lambda: numbers().tumbling(5),
        lambda: numbers().hopping(4, 2),
        lambda: numbers().snapshot(),
        lambda: numbers().count_windows(2),
    ],
    ids=["tumbling", "hopping", "snapshot", "count"],
)
def test_s2_a_window_is_closed_if_and_only_if_no_future_event_can_affect_it(window: Callable[[], Stream]) -> None:
    """V.B, in both directions: what the final form has emitted never changes, and what it holds can still change."""
    plan = window().agg(n=count(), form="final")  # type: ignore[attr-defined]  # of windows
    open_and_changed = 0
    for seed in range(60):
        random_ = random.Random(seed)
        graph, table, tables = compile_plan([plan.node]).graph(), StreamTable(), StreamTable()
        for delta in cut(random_, random_stream(random_, 16, ROWS)):
            tables.apply(delta)
            (found,) = graph.step([delta])
            table.apply(found)
            open_and_changed += bool(found.changes)
        assert table.inserts_only
    assert open_and_changed > 60


def windows_of(run: PlanTrace) -> WindowOperator:
    operator = run.graph.steps[-1].operator
    assert isinstance(operator, WindowOperator)
    return operator


def test_s3_the_window_index_has_what_is_active_and_is_checked_after_every_step() -> None:
    """V.C: active windows with their ends, endpoints and events; nothing of those that are closed."""
    for kind in (numbers().group_by("a").snapshot(), numbers().group_by("a").tumbling(5)):
        for seed in range(40):
            random_ = random.Random(seed)
            run = PlanTrace(kind.agg(n=count(), form="eager"))
            for item in random_stream(random_, 20, ROWS):
                run.give(item)
                run.graph.check()


def test_s4_the_event_index_is_in_order_of_ends_then_starts() -> None:
    """V.C, Figure 11: overlap queries, and removal of one of several equal events."""
    index = EventIndex(lambda row: row)
    for vs, ve in ((3, 9), (1, 4), (5, 9), (1, 4), (2, INF)):
        index.apply(Change(("e",), vs, vs, ve))
    assert [(one.vs, one.ve) for one in index] == [(1, 4), (1, 4), (3, 9), (5, 9), (2, INF)]
    assert [(one.vs, one.ve) for one in index.overlapping(4, 6)] == [(3, 9), (5, 9), (2, INF)]
    index.apply(Change(("e",), 1, 4, 1))
    assert len(index) == 4


def test_s5_a_change_goes_through_four_phases() -> None:
    """V.D: windows are split, joined, made and deleted; each affected one is compared with what it has emitted."""
    run = PlanTrace(names().snapshot().agg(n=count(), form="eager"))
    run.give(insert("later", 30, 31))
    assert run.give(insert("e1", 1, 20)) == ["+(1)[1,20)"]
    assert run.give(insert("e2", 8, 12)) == ["(1)[1,20) to 8", "+(2)[8,12)", "+(1)[12,20)"]
    assert run.give(adjust("e2", 8, 12, 8)) == ["(1)[1,8) to 20", "(2)[8,12) gone", "(1)[12,20) gone"]
    assert run.give(adjust("e1", 1, 20, 1)) == ["(1)[1,20) gone"]


def test_s6_an_insert_affects_the_windows_that_it_overlaps_and_those_that_it_makes() -> None:
    """V.D: with count windows the N-1 starts before a new one get windows too (D7)."""
    run = PlanTrace(names().count_windows(2).agg(n=count(), form="eager"))
    assert run.give(insert("a", 1, 9)) == []
    assert run.give(insert("b", 5, 9)) == ["+(2)[1,6)"]
    assert run.give(insert("c", 3, 9)) == ["(2)[1,6) to 4", "+(2)[3,6)"]


def test_s7_state_is_changed_once_for_each_affected_window_and_batch() -> None:
    """V.E: the old state gives what is retracted, the new one what is inserted."""
    SumOfAll.calls.clear()
    run = PlanTrace(numbers().hopping(4, 2).agg(s=sum_of_all(of=numbers()["b"]), form="eager"))
    run.give_together(insert((0, 1), 4, 5), insert((0, 2), 4, 5))
    assert SumOfAll.calls == ["add [1, 2]", "add [1, 2]"], "once for each of [2,6) and [4,8)"


def test_s8_an_operator_without_restriction_is_not_there() -> None:
    """V.F.1, case 1: no CTI could ever be given. Output before the window is refused instead (Q15)."""
    run = PlanTrace(names().tumbling(5).apply(stretched(before=1), form="eager"))
    with pytest.raises(ModuleViolation, match="before the window"):
        run.give(insert("a", 6, 7))


@pytest.mark.parametrize(("end", "stable", "expected"), [(13, 12, 0), (13, 13, 0), (13, 14, 10), (INF, 1000, 0)])
def test_s9_without_clipping_the_output_waits_for_the_ends_of_events(end: int, stable: int, expected: int) -> None:
    """V.F.1, case 2, with RE >= c (D2). An event without an end holds it for ever."""
    run = PlanTrace(names().tumbling(5).agg(d=total_duration(), form="eager"))
    run.give(insert("e", 1, end), stable)
    assert run.stable == expected


def test_s9_the_event_that_holds_the_output_is_named() -> None:
    """V.F.1, case 2: a stream that stands still shows why, on its picture and by ``held_by``."""
    run = PlanTrace(names().group_by("name").tumbling(5).agg(d=total_duration(), form="eager"))
    run.give(insert("a", 6, 9), insert("e", 1, INF), 30)
    (windows,) = [step.operator for step in run.graph.steps]
    assert str(windows.held_by()) == (
        "window [0, 5) of group ('e') holds the stable point at 0: it waits for ('e') [1, inf), which ends at inf"
    )
    run.give(adjust("e", 1, INF, 31), 40)
    assert windows.held_by() is None


def test_s10_with_right_clipping_the_output_follows_the_grid() -> None:
    """V.F.1, case 3: c=12 gives 10."""
    run = PlanTrace(names().tumbling(5).agg(d=total_duration(), form="eager", clip="right"))
    run.give(insert("e", 1, 13), 12)
    assert run.stable == 10


@pytest.mark.parametrize("form", ["eager", "settled"])
def test_s11_time_bound_output_is_stable_where_its_input_is(form: str) -> None:
    """V.F.1, case 4: for every prefix."""
    for seed in range(40):
        run = PlanTrace(numbers().tumbling(5).apply(running_count(), output="time-bound", form=form))
        for item in random_stream(random.Random(seed), 15, ROWS, open_part=0.0):
            run.give(item)
            if isinstance(item, int):
                assert run.stable == item


def test_s12_output_time_goes_on_with_input_time() -> None:
    """I.A.6: the stable point is the largest that is legal; here it is that of the input, though windows are open."""
    run = PlanTrace(names().group_by("name").snapshot().agg(n=count(), form="settled"))
    run.give(insert("a", 1, INF), insert("b", 3, INF))
    for stable in (4, 10, 1000):
        run.give(stable)
        assert run.stable == stable


def test_s13_windows_and_events_are_dropped_when_they_are_final() -> None:
    """V.F.2: an event is kept until it is fully frozen, also if its windows are closed: a half-frozen one can grow."""
    run = PlanTrace(numbers().tumbling(5).agg(n=count(), form="final"))
    live = []
    for at in range(200):
        run.give(insert((0, at), at, at + 3), at)
        live.append(run.graph.live())
    assert max(live) <= 12
    grown = PlanTrace(names().tumbling(5).agg(n=count(), form="eager"))
    grown.give(insert("p", 1, 10), 10)
    grown.give(adjust("p", 1, 10, 20), 20)
    assert [one.vs for one in grown.events] == [0, 5, 10, 15]


def test_s14_a_stable_costs_what_it_changes() -> None:
    """Law 2 of the core: a calendar of due times, and no visit of every group; see the laws for all operators."""
    costs = []
    for groups in (50, 2000):
        run = PlanTrace(numbers().group_by("a").tumbling(5).agg(n=count(), form="eager"))
        run.give_together(*(insert((at, 0), 100, 130) for at in range(groups)))
        run.give(1, 2, insert((0, 0), 2, 3), 3, 4)  # the calendar sorts what is far away when it begins
        costs.append(calls_of(lambda run=run: run.give(5)))  # type: ignore[misc]  # bound in the loop
    assert costs[1] <= 1.3 * costs[0]


def calls_of(act: Callable[[], object]) -> int:
    """Return how many functions an act calls."""
    import sys

    calls = 0

    def note(frame: object, kind: str, argument: object) -> None:
        nonlocal calls
        calls += kind == "call"

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


def test_s15_span_operators_run_in_one_pass_and_common_parts_once() -> None:
    """I: query fusing and operator sharing, with the same output."""
    base = numbers().where(numbers()["b"] < 2).select("a", "b")
    fused = compile_plan([base.shift(2).where(base["b"] > 0).node])
    assert [len(step.nodes) for step in fused.steps] == [4]
    ends = [base.tumbling(5).agg(n=count()), base.group_by("a").snapshot().agg(s=aggregate("sum", base["b"]))]
    shared = compile_plan([one.node for one in ends])
    assert len(shared.steps) == 3
    together, apart = shared.graph(), [compile_plan([one.node]).graph() for one in ends]
    random_ = random.Random(15)
    for delta in cut(random_, random_stream(random_, 40, ROWS)):
        assert together.step([delta]) == [graph.step([delta])[0] for graph in apart]


def test_s15_one_query_fails_alone() -> None:
    """I: run-time composability; what another query has in common with it goes on."""
    base = numbers().where(numbers()["a"] >= 0)
    failing = base.tumbling(1).agg(n=count()).named("fails")
    counted = base.snapshot().agg(n=count(), form="eager")
    graph = compile_plan([failing.node, counted.node]).graph()
    graph.advance([Delta([insert((0, 0), 1, INF)])])
    ended, alive = graph.advance([Delta([insert((0, 0), 5, 9)], 10**13)])
    assert ended.is_empty
    assert alive.changes
    assert graph.failures


def test_s16_what_goes_through_each_operator_can_be_observed() -> None:
    """I: debugging and supportability."""
    graph = compile_plan([numbers().where(numbers()["b"] > 0).tumbling(5).agg(n=count(), form="eager").node]).graph()
    seen: list[tuple[int, list[str], list[str]]] = []
    graph.observer = lambda place, read, found: seen.append(
        (place, [shown(one) for delta in read for one in delta.changes], [shown(one) for one in found.changes])
    )
    graph.step([Delta([insert((7, 1), 1, 2), insert((7, 0), 1, 2)])])
    assert seen == [(1, ["+(7, 1)[1,2)", "+(7, 0)[1,2)"], ["+(7, 1)[1,2)"]), (2, ["+(7, 1)[1,2)"], ["+(1)[0,5)"])]


def test_s2_what_is_not_a_window_is_refused() -> None:
    """V.B."""
    with pytest.raises((PlanError, InputViolation), match="end of a session can move"):
        numbers().sessions(3).agg(n=count(), output="point-at-end")
    assert event("a", 1, 2).ve == 2
