"""Where the sources are wrong: each departure with its counterexample (D1 to D16; docs/design/0041).

What is printed would fail these tests: each shows a legal stream on which it emits a wrong table, or contradicts
itself.
"""

from __future__ import annotations

import itertools
import random
from contextlib import nullcontext

import pytest
from paper_modules import lifetimes_seen, not_time_bound, running_count, total_duration
from paper_world import PlanTrace, adjust, event, insert, names, numbers, result

from lmerge.core.elements import INF
from lmerge.errors import LimitExceeded, UsageError
from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.errors import ModuleViolation
from lmerge.temporal.modules.functions import aggregate_function
from lmerge.temporal.plan.properties import derive
from lmerge.temporal.plan.stream import count, method_of, source
from lmerge.temporal.running import QueryRun, ResultTable
from lmerge.testing.module_checks import check_module


def test_d1_right_clipping_cuts_what_ends_after_the_window() -> None:
    """III.C.1 prints ``if eRE < wRE, set eRE = wRE``, which would make [2,4) of the window [0,5) to [2,5)."""
    seen = names().tumbling(5).apply(lifetimes_seen(), clip="right", output="align")
    rows = [row for row, _, _ in result(seen, insert("short", 2, 4), insert("long", 3, 9))]
    assert sorted(rows) == [("long", 3, 5), ("long", 3, 9), ("short", 2, 4)]


def test_d2_an_event_that_ends_at_the_stable_point_is_open() -> None:
    """V.F prints ``RE > c`` for open: at c=9 it lets the output reach 5, and then the end of b moves from 9 to 19."""
    run = PlanTrace(names().tumbling(5).agg(d=total_duration(), form="eager"))
    run.give(insert("b", 2, 9), 9)
    assert run.stable == 0
    assert "(7)[0,5) gone" in run.give(adjust("b", 2, 9, 19))


def test_d3_a_window_whose_members_have_ended_is_open_until_it_ends_itself() -> None:
    """V.F.2 closes [10,15) at 14, for both members have ended: an insert at 14 still changes it."""
    run = PlanTrace(names().tumbling(5).agg(d=total_duration(), form="final"))
    run.give(insert("a", 8, 12), insert("b", 5, 10), 14)
    assert run.stable == 10
    run.give(insert("c", 14, 20), INF)
    assert run.events == [event(4 + 5, 5, 10), event(4 + 6, 10, 15), event(6, 15, 20)]


def test_d4_the_boundary_of_a_snapshot_can_vanish_at_the_stable_point() -> None:
    """V.F.2 deletes the window [5,9) at c=9: the endpoint 9 is itself an end that can still move."""
    run = PlanTrace(names().snapshot().agg(n=count(), form="final"))
    run.give(insert("a", 9, 17), insert("b", 5, 10), 9)
    assert run.events == []
    run.give(adjust("a", 9, 17, 9), INF)
    assert run.events == [event(1, 5, 10)]


def test_d4_on_a_grid_the_boundary_stands() -> None:
    run = PlanTrace(names().tumbling(5).agg(n=count(), form="final"))
    assert run.give(insert("a", 3, 9), 5) == ["+(1)[0,5)", "stable 5"]


def test_d5_hopping_windows_are_stable_to_the_first_that_can_still_change() -> None:
    """V.F.1 gives W.RE of the latest window that has ended: 11 for S=5, H=2, c=12. An insert at 12 changes [8,13)."""
    run = PlanTrace(names().hopping(5, 2).agg(n=count(), form="eager"))
    run.give(insert("a", 4, 5), 12)
    assert run.stable == 8
    assert "+(1)[8,13)" in run.give(insert("b", 12, 20))


def test_d6_time_bound_is_a_property_of_module_window_and_output() -> None:
    """V.F.1 calls aggregates time-bound. An aligned result begins with its window, before the event that changes it."""
    run = PlanTrace(names().tumbling(5).apply(not_time_bound(), output="time-bound", form="eager"))
    run.give(insert("a", 1, 2), 2)
    with pytest.raises(ModuleViolation, match=r"not_time_bound.* is declared time-bound"):
        run.give(insert("b", 3, 4))
    held = PlanTrace(names().snapshot().agg(d=total_duration(), clip="full", form="eager"))
    held.give(insert("a", 1, 16), 16)
    assert held.stable == 1
    assert held.give(adjust("a", 1, 16, 22), 22)[:2] == ["(15)[1,16) gone", "+(21)[1,22)"]


@pytest.mark.parametrize("new", [21, 24, 14, 30])
def test_d7_a_change_affects_every_window_of_its_event_without_right_clipping(new: int) -> None:
    """V.D prints the windows of the changed part only: [14,23) to [14,21) changes [10,15) and [15,20) as well."""
    run = PlanTrace(names().tumbling(5).agg(d=total_duration(), form="eager"))
    run.give(insert("a", 14, 23), insert("later", 40, 41))
    run.give(adjust("a", 14, 23, new))
    windows = {one.vs: one.row[0] for one in run.events}
    del windows[40]
    assert windows == {start: new - 14 for start in (10, 15, 20, 25) if new > max(start, 14)}


def test_d7_a_snapshot_beside_the_moved_endpoint_changes_too() -> None:
    run = PlanTrace(names().snapshot().agg(n=count(), form="eager"))
    run.give(insert("later", 40, 41), insert("a", 13, 15), insert("b", 14, 20))
    run.give(adjust("a", 13, 15, 16))
    assert run.events[:3] == [event(1, 13, 14), event(2, 14, 16), event(1, 16, 20)]


def test_d8_a_result_that_goes_on_is_adjusted_and_not_taken_back() -> None:
    """V.D issues full retractions: that of (1)[1,20) has sync time 1, and stable(5) was emitted."""
    run = PlanTrace(names().snapshot().agg(n=count(), form="eager"))
    run.give(insert("later", 30, 31), insert("e1", 1, 20), 5)
    assert run.give(insert("e2", 8, 12)) == ["(1)[1,20) to 8", "+(2)[8,12)", "+(1)[12,20)"]


@pytest.mark.parametrize(
    ("form", "output"),
    [
        ("settled", ["+(1)[1,20)", "stable 5"]),
        ("eager", ["stable 5"]),
        ("final", ["stable 1"]),
        ("watermark", ["stable 1"]),
    ],
)
def test_d9_a_stable_waits_for_what_was_not_emitted(form: str, output: list[str]) -> None:
    """V.C does not emit [1,20) while it overlaps [m, inf), and V.F.1 answers stable(5) with stable(5)."""
    run = PlanTrace(names().snapshot().agg(n=count(), form=form))
    run.give(insert("e1", 1, 20))
    assert run.give(5) == output


def test_d10_speculative_output_comes_at_once_or_by_watermark() -> None:
    eager = PlanTrace(names().tumbling(5).agg(n=count(), form="eager"))
    watermark = PlanTrace(names().tumbling(5).agg(n=count(), form="watermark"))
    assert eager.give(insert("a", 1, 2)) == ["+(1)[0,5)"]
    assert watermark.give(insert("a", 1, 2), insert("a", 4, 5)) == []
    assert watermark.give(insert("b", 5, 6)) == ["+(2)[0,5)"]


def test_d11_a_count_window_spans_n_distinct_starts() -> None:
    """III.B.4 counts events "in the future". Starts are counted, ties belong all, and too few make no window."""
    counted = numbers().count_windows(2).agg(n=count())
    items = [insert((at, 0), vs, vs + 9) for at, vs in enumerate((1, 1, 1, 4))]
    assert result(counted, *items) == [event(4, 1, 5)]
    assert result(counted, *items[:3]) == []
    point = numbers().count_windows(2).agg(n=count(), output="point-at-end")
    assert result(point, *items) == [event(4, 4, 5)]


def test_d12_a_stable_is_legal_if_every_later_sync_time_reaches_it() -> None:
    insertion, shorter, longer, removal = (
        insert("a", 4, 9),
        adjust("a", 4, 9, 6),
        adjust("a", 4, 6, 8),
        adjust("a", 4, 8, 4),
    )
    assert [one.sync_time for one in (insertion, shorter, longer, removal)] == [4, 6, 6, 4]


def test_d13_an_event_without_an_end_has_windows_up_to_the_last_finite_time() -> None:
    run = PlanTrace(numbers().tumbling(5).agg(n=count(), form="eager"))
    assert run.give(insert((0, 0), 1, INF)) == ["+(1)[0,5)"]
    assert run.give(12) == ["+(1)[5,10)", "+(1)[10,15)", "stable 10"]
    assert run.give(INF) == [f"stable {'inf'}"]
    assert [one.vs for one in run.events] == [0, 5, 10]


def test_d13_a_step_opens_as_many_windows_as_it_may_and_no_more() -> None:
    for last, passes in ((10, True), (11, False)):
        run = PlanTrace(numbers().tumbling(1).at_most(10).agg(n=count(), form="eager"))
        assert run.give(insert((0, 0), 0, 100)) == ["+(1)[0,1)"]
        with (
            nullcontext() if passes else pytest.raises(LimitExceeded, match=r"open 11 .* more than 10 \(windows_max\)")
        ):
            assert len(run.give(insert((0, 0), last, 100))) == 10


def test_d13_windows_without_end_are_a_named_error_and_not_a_full_memory() -> None:
    run = PlanTrace(numbers().tumbling(1).agg(n=count()).named("counts"))
    run.give(insert((0, 0), 1, INF))
    with pytest.raises(LimitExceeded, match="windows_max"):
        run.give(10**15)
    with pytest.raises(UsageError, match="starts at -inf"):
        PlanTrace(numbers().tumbling(1).agg(n=count())).give(insert((0, 0), -(2**63), 5))


drawn = itertools.count()


@aggregate_function(name="drawn_anew")
def drawn_anew(values: list[int]) -> int:
    """Return another number each time."""
    return next(drawn)


def test_d14_what_was_emitted_is_taken_back_whatever_the_module_gives_now() -> None:
    """V.D invokes the module again on the old set. Results that were never emitted would be retracted."""
    numbers_ = numbers()
    run = PlanTrace(numbers_.tumbling(5).agg(n=method_of(drawn_anew)(of=numbers_["a"]), form="eager"))
    random_ = random.Random(14)
    for vs in range(12):
        run.give(insert((vs, 0), vs, vs + 3))  # the table refuses what is illegal
        if random_.random() < 0.4:
            run.give(adjust((vs, 0), vs, vs + 3, vs))
    assert run.give(INF)[-1] == "stable inf"
    with pytest.raises(ModuleViolation, match="'drawn_anew' version 1 is not deterministic"):
        check_module(drawn_anew)


def test_d15_a_grouped_snapshot_is_not_ordered() -> None:
    """The paper's IV.G.5 gives R2 for any grouped aggregate over order: results of snapshots come by their ends."""
    ordered = numbers("insert-only", "ordered").group_by("a").snapshot().agg(n=count(), form="watermark")
    assert "ordered" not in derive(ordered.node)[ordered.node].promises
    run = PlanTrace(ordered)
    items = [insert((0, 0), 5, 100), insert((1, 0), 7, 9), insert((2, 0), 10, 11), insert((3, 0), 101, 102)]
    assert run.give(*items)[:2] == ["+(1, 1)[7,9)", "+(0, 1)[5,100)"]


def test_d16_what_an_aggregate_promises_follows_from_its_form() -> None:
    """The paper's IV.G.3 gives R0 for an aggregate over order; the eager form revises, and final does so over none."""
    ordered, disordered = numbers("insert-only", "ordered"), numbers()

    def promised(form: str, of_order: bool) -> frozenset[str]:
        stream = (ordered if of_order else disordered).tumbling(5).agg(n=count(), form=form)
        return derive(stream.node)[stream.node].promises

    assert {"insert-only", "strictly-ordered"} <= promised("final", True) & promised("watermark", True)
    assert {"insert-only", "strictly-ordered"} <= promised("final", False)
    for form, of_order in (("eager", True), ("watermark", False)):
        assert not {"insert-only", "ordered"} & promised(form, of_order)


def test_a_join_does_not_keep_the_key_of_its_inputs() -> None:
    """Decision 41: two events of one row overlap one partner, and both pairs start with the partner."""
    lefts, rights = (source(name, {"a": "int"}, promises=["key"]) for name in ("lefts", "rights"))
    joined = lefts.join(rights, "a")
    run, table = QueryRun({"pairs": joined}), ResultTable()
    rows = [("lefts", Change((1,), 1, 1, 5)), ("lefts", Change((1,), 2, 2, 6)), ("rights", Change((1,), 3, 3, 9))]
    for name, change in rows:
        for step in run.take(name, [change]):
            table.apply(step["pairs"])
    assert sorted(table.events) == [Lifetime((1, 1), 3, 5), Lifetime((1, 1), 3, 6)]
    assert "key" not in derive(joined.node)[joined.node].promises


def test_d6_a_module_that_keeps_its_promise_is_stable_with_its_input() -> None:
    run = PlanTrace(names().tumbling(5).apply(running_count(), output="time-bound", form="eager"))
    assert run.give(insert("a", 1, 2), 2) == ["+(1)[1,5)", "stable 2"]
    assert run.give(insert("b", 3, 4), 4) == ["(1)[1,5) to 3", "+(2)[3,5)", "stable 4"]
