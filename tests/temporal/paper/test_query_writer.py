"""The query writer's view (III of the extensibility paper, and the product's manual; rows Q1 to Q23)."""

from __future__ import annotations

import json
import statistics
from datetime import datetime, timezone
from decimal import Decimal
from fractions import Fraction

import pytest
from history_world import collect
from paper_modules import (
    followed_by,
    lifetimes_seen,
    my_time_weighted_average,
    running_count,
    stretched,
    total_duration,
)
from paper_world import PlanTrace, adjust, event, insert, names, numbers, result

from lmerge.core.elements import INF
from lmerge.errors import LmergeError, UsageError
from lmerge.temporal.changes import Change
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.expressions.functions import scalar_function
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.modules.functions import aggregate_function
from lmerge.temporal.plan.json_format import plan_from_json, plan_to_json
from lmerge.temporal.plan.stream import Stream, aggregate, count, method_of, module, source
from lmerge.temporal.row_forms import RowForms

READINGS = {"id": "int", "value": "int"}
CALLS: list[int] = []


@scalar_function(["int"], "int", name="threshold_of_paper")
def threshold(sensor: int) -> int:
    """The threshold of III.A.1."""
    CALLS.append(sensor)
    return {1: 5, 2: 7}[sensor]


@aggregate_function(name="gives_nothing", inputs={"value": "int"}, result="int")
def gives_nothing(values: list[int]) -> int | None:
    """Return what its type does not have."""
    return None


def readings(name: str = "readings") -> Stream:
    return source(name, READINGS)


def test_q1_queries_are_declared_over_the_algebra_and_do_not_run_when_built() -> None:
    """III.A: fluent, typed, immutable; nothing is executed when a query is built."""
    CALLS.clear()
    flights = source("flights", {"origin": "string", "delay": "int"})
    late = flights.where(col.delay > 15).where(threshold(col.delay) > 0)
    worst = late.group_by("origin").tumbling(60).agg(n=count(), worst=aggregate("max", col.delay))
    assert CALLS == []
    assert str(worst.schema) == "origin: string, n: int, worst: int"
    with pytest.raises(AttributeError):
        flights.node = late.node  # type: ignore[misc]  # plans are values


def test_q2_a_udf_stands_wherever_expressions_do() -> None:
    """III.A.1: ``where e.value < MyFunctions.valThreshold(e.id)``; the same function in a projection and a join."""
    items = [insert((1, 3), 1, 5), insert((2, 9), 1, 5)]
    assert result(readings().where(col.value < threshold(col.id)), *items) == [event((1, 3), 1, 5)]
    assert result(readings().select(t=threshold(col.id)), *items) == [event(5, 1, 5), event(7, 1, 5)]
    joined = readings().join(readings("others"), where=col.value < threshold(col.id_right))
    history = {"readings": items, "others": [insert((1, 0), 2, 9)]}
    assert collect(joined.node, history) == [event((1, 3, 1, 0), 2, 5)]


def test_q2_a_udf_that_is_used_twice_is_called_once_an_event() -> None:
    """III.A.1: adjacent span operators run as one pass, and equal parts of an expression are computed once."""
    CALLS.clear()
    plan = readings().select("value", t=threshold(col.id)).where(col.value < col.t).select(d=col.t - col.value)
    assert result(plan, insert((1, 3), 1, 5)) == [event(2, 1, 5)]
    assert CALLS == [1]


def test_q3_a_uda_gives_one_scalar_for_each_window() -> None:
    """III.A.2: ``w.Median(e.val)`` over hopping windows."""
    plan = numbers().hopping(4, 2).agg(m=aggregate("median", col.b))
    items = [insert((0, value), vs, vs + 1) for vs, value in enumerate((5, 1, 9, 2, 7))]
    expected = {
        start: float(statistics.median([(5, 1, 9, 2, 7)[vs] for vs in range(5) if start <= vs < start + 4]))
        for start in (-2, 0, 2, 4)
    }
    assert {one.vs: one.row[0] for one in result(plan, *items)} == expected


def test_q3_a_uda_that_gives_what_its_type_has_not_is_named_with_its_window() -> None:
    """III.A.2: the result has a primitive type."""
    plan = numbers().tumbling(5).agg(n=method_of(gives_nothing)(of=col.a))
    with pytest.raises(ModuleViolation, match=r"'gives_nothing'.*\[0, 5\)"):
        result(plan, insert((1, 1), 1, 2))


@pytest.mark.parametrize(
    ("items", "matches"),
    [
        ([insert(("B", "b"), 1, 2), insert(("A", "a"), 3, 4)], []),
        ([insert(("A", "a"), 1, 2), insert(("B", "b"), 3, 4)], [event(("a", "b"), 3, 10)]),
        (
            [insert(("A", "a"), 1, 2), insert(("B", "b"), 3, 4), insert(("A", "c"), 2, 3), insert(("B", "d"), 5, 6)],
            [event(("a", "b"), 3, 10), event(("c", "b"), 3, 10), event(("a", "d"), 5, 10), event(("c", "d"), 5, 10)],
        ),
    ],
)
def test_q4_a_udo_gives_zero_or_more_events_with_times_of_its_own(items: list[object], matches: list[object]) -> None:
    """III.A.3: the pattern "A followed by B" emits both keys from the start of B on."""
    signals = source("signals", {"kind": "string", "key": "string"})
    assert result(signals.tumbling(10).apply(followed_by()), *items) == matches  # type: ignore[arg-type]  # changes


def test_q5_the_window_defines_shape_and_membership() -> None:
    """III.B: four types, and sessions beside them; what is no window is refused when it is built."""
    stream = numbers()
    shapes = [stream.tumbling(5), stream.hopping(5, 2), stream.snapshot(), stream.count_windows(2), stream.sessions(3)]
    items = [insert((0, 0), 1, 3), insert((0, 0), 4, 6)]
    found = [[(one.vs, one.ve) for one in result(shape.agg(n=count()), *items)] for shape in shapes]
    assert found == [[(0, 5), (5, 10)], [(-2, 3), (0, 5), (2, 7), (4, 9)], [(1, 3), (4, 6)], [(1, 5)], [(1, 6)]]
    for of_zero in (stream.tumbling, stream.count_windows):
        with pytest.raises(UsageError):
            of_zero(0)
    with pytest.raises(UsageError, match="hop of 0"):
        stream.hopping(5, 0)


@pytest.mark.parametrize(
    ("size", "hop", "offset", "vs", "ve", "starts"),
    [
        (5, 5, 0, -7, -3, [-10, -5]),
        (2, 5, 0, 0, 11, [0, 5, 10]),
        (2, 5, 0, 2, 5, []),
        (5, 2, 0, 4, 5, [0, 2, 4]),
        (5, 5, 2, 1, 3, [-3, 2]),
    ],
)
def test_q6_hopping_windows_are_a_grid_below_zero_with_gaps_and_offset(
    size: int, hop: int, offset: int, vs: int, ve: int, starts: list[int]
) -> None:
    """III.B.1: for every H a window of size S, independent of events."""
    plan = numbers().hopping(size, hop, offset=offset).agg(n=count())
    assert [one.vs for one in result(plan, insert((0, 0), vs, ve))] == starts


def test_q7_an_event_over_a_boundary_is_in_every_tumbling_window_that_it_overlaps() -> None:
    """III.B.2: gapless and disjoint."""
    assert [one.vs for one in result(numbers().tumbling(5).agg(n=count()), insert((0, 0), 3, 11))] == [0, 5, 10]


def test_q8_snapshots_have_no_endpoint_inside_and_equal_neighbours_stay_apart() -> None:
    """III.B.3: one window for each pair of consecutive endpoints; those of one group alone."""
    plan = numbers().group_by("a").snapshot().agg(n=count())
    items = [insert((0, 0), 1, 4), insert((0, 0), 4, 8), insert((1, 0), 2, 6)]
    assert result(plan, *items) == [event((0, 1), 1, 4), event((1, 1), 2, 6), event((0, 1), 4, 8)]
    last_ten = numbers().set_duration(10).snapshot().agg(n=count())
    assert result(last_ten, insert((0, 0), 1, 2), insert((0, 0), 6, 7)) == [
        event(1, 1, 6),
        event(2, 6, 11),
        event(1, 11, 16),
    ]


def test_q9_count_windows_by_start_have_the_events_that_start_in_them() -> None:
    """III.B.4: [1,6) overlaps [3,11) and is no member; with ties there are more than N."""
    plan = names().count_windows(2).agg(m=aggregate("collect", col.name))
    items = [insert("e1", 1, 6), insert("e2", 3, 8), insert("tie", 3, 9), insert("e3", 10, 12)]
    assert [(row[0], vs, ve) for row, vs, ve in result(plan, *items)] == [
        (("e1", "e2", "tie"), 1, 4),
        (("e2", "e3", "tie"), 3, 11),
    ]
    each = names().count_windows(1).agg(n=count())
    assert result(each, *items) == [event(1, 1, 2), event(2, 3, 4), event(1, 10, 11)]


def test_q9_one_more_start_makes_the_windows_before_it() -> None:
    """III.B.4, V.D: the N-1 starts before a new one are given windows that no index has."""
    run = PlanTrace(names().count_windows(3).agg(n=count(), form="eager"))
    assert run.give(insert("a", 1, 2), insert("b", 2, 3)) == []
    assert run.give(insert("c", 5, 6)) == ["+(3)[1,6)"]
    assert run.give(insert("d", 3, 4)) == ["(3)[1,6) to 4", "+(3)[2,6)"]


def test_q10_count_windows_by_end_count_ends_that_are_there() -> None:
    """III.B.4: an event without an end has none to count."""
    plan = names().count_windows(2, by="ends").agg(n=count())
    assert result(plan, insert("a", 1, 6), insert("b", 2, 8), insert("open", 0, INF)) == [event(2, 6, 9)]
    last = [insert("a", 1, 6), insert("open", 0, INF), insert("last", 0, INF - 1)]
    assert result(plan, *last) == [], "one unit behind the last finite time is no time: the window has no end"


def test_q11_the_query_writer_chooses_the_clipping() -> None:
    """III.C.1: the time-weighted average under each is 53, 61, 41, 73; each window clips anew."""
    values = source("values", {"value": "float"})
    items = [insert(10.0, 0, 5), insert(20.0, 5, 10), insert(40.0, -5, 5), insert(30.0, 8, 14)]
    found = {}
    for clip in ("left", "right", "full", "none"):
        plan = values.tumbling(10).agg(w=my_time_weighted_average(of=col.value), clip=clip)
        found[clip] = next(one.row[0] for one in result(plan, *items) if one.vs == 0)
    assert found == {"left": 53.0, "right": 61.0, "full": 41.0, "none": 73.0}


def test_q12_a_pattern_needs_the_starts_that_left_clipping_would_cut() -> None:
    """III.C.1: unclipped A=[-2,1) comes before B=[-1,4); clipped both start at 0. The plan refuses it."""
    signals = source("signals", {"kind": "string", "key": "string"})
    items = [insert(("A", "a"), -2, 1), insert(("B", "b"), -1, 4)]
    assert event(("a", "b"), 0, 10) in result(signals.tumbling(10).apply(followed_by()), *items)
    for clip in ("left", "full"):
        with pytest.raises(PlanError, match=f"needs the starts of events, which clip={clip}"):
            signals.tumbling(10).apply(followed_by(), clip=clip)


@pytest.mark.parametrize(("stable", "none", "right"), [(10, 0, 10), (14, 0, 10), (15, 10, 10), (20, 20, 20)])
def test_q13_unclipped_events_delay_the_stable_point_by_what_they_go_on(stable: int, none: int, right: int) -> None:
    """III.C.1: W=[0,10), e=[3,14). At 14 the event is half frozen (D2)."""
    for clip, expected in (("none", none), ("right", right)):
        run = PlanTrace(names().tumbling(10).agg(d=total_duration(), form="eager", clip=clip))
        run.give(insert("e", 3, 14), stable)
        assert run.stable == expected, clip


def test_q14_alignment_is_all_that_a_time_insensitive_module_has() -> None:
    """III.C.2: the query writer can impose it over the timestamps of the others."""
    for output in ("unchanged", "clip", "time-bound"):
        with pytest.raises(PlanError):
            names().tumbling(5).agg(n=count(), output=output)
    aligned = names().tumbling(5).apply(stretched(after=3), output="align")
    assert result(aligned, insert("a", 1, 2)) == [event("a", 0, 5)]


def test_q15_unchanged_output_never_begins_before_its_window() -> None:
    """III.C.2: "past output can cause CTI violation". Module, window and event are named, and nothing comes out."""
    plan = names().tumbling(5).apply(stretched(before=1), form="eager")
    run = PlanTrace(plan)
    with pytest.raises(ModuleViolation, match=r"'stretched' version 1 gave window \[0, 5\) the result .* before the"):
        run.give(insert("a", 1, 2))
    assert run.events == []
    own = names().tumbling(5).apply(stretched(after=3))
    assert result(own, insert("a", 1, 2)) == [event("a", 0, 8)]


def test_q16_clipped_output_is_cut_to_the_window() -> None:
    """III.C.2: what is empty then is dropped."""
    cut = names().tumbling(5).apply(stretched(before=3, after=2), output="clip")
    assert result(cut, insert("a", 1, 2)) == [event("a", 0, 5)]
    outside = names().tumbling(5).apply(stretched(before=-7, after=9), output="clip")
    assert result(outside, insert("a", 1, 2)) == []


def test_q17_a_time_bound_module_is_stable_with_its_input_at_every_step() -> None:
    """V.F.1: an output starts at or behind the sync time of the event that makes it."""
    run = PlanTrace(names().tumbling(5).apply(running_count(), output="time-bound", form="eager"))
    for item, stable in ((insert("a", 1, 9), 2), (insert("b", 3, 4), 4), (adjust("a", 1, 9, 6), 7)):
        run.give(item, stable)
        assert run.stable == stable
    assert event(1, 1, 3) in run.events
    assert event(2, 3, 5) in run.events


@pytest.mark.parametrize("form", ["final", "settled", "watermark", "eager"])
def test_q17_a_time_bound_module_is_right_in_every_form(form: str) -> None:
    """V.F.1: a form that emits later emits what earlier events have made."""
    plan = names().tumbling(5).apply(running_count(), output="time-bound", form=form)
    items = [insert("a", 1, 2), insert("b", 3, 4), insert("c", 13, 14)]
    single, together = PlanTrace(plan), PlanTrace(plan)
    single.give(*items, 14, INF)
    together.give_together(*items, 14)
    together.give(INF)
    assert single.events == together.events == [event(1, 1, 3), event(2, 3, 5), event(1, 13, 15)]


def test_q18_a_result_can_be_a_point_at_the_end_of_its_window() -> None:
    """The product's manual: one result for each instant, and the stable point of hopping 5/2 is such a point."""
    plan = names().hopping(5, 2).agg(n=count(), output="point-at-end", form="eager")
    run = PlanTrace(plan)
    run.give(insert("a", 4, 5), 12)
    assert run.events == [event(1, 4, 5), event(1, 6, 7), event(1, 8, 9)]
    assert run.stable == 12
    for window in (names().snapshot(), names().sessions(2)):
        with pytest.raises(PlanError, match="can move"):
            window.agg(n=count(), output="point-at-end")


def test_q19_what_a_module_does_not_stamp_has_the_duration_of_its_window() -> None:
    """III.A.3, IV.C."""
    assert result(names().tumbling(5).apply(lifetimes_seen()), insert("a", 1, 2)) == [event(("a", 1, 2), 0, 5)]


def test_q20_a_window_without_events_has_no_result() -> None:
    """V.D: empty-preserving; a count over a gap gives nothing, and not 0."""
    counted = result(names().tumbling(5).agg(n=count()), insert("a", 1, 2), insert("b", 21, 22))
    assert counted == [event(1, 0, 5), event(1, 20, 25)]
    assert result(names().snapshot().agg(n=count()), insert("a", 1, 2), insert("b", 5, 6)) == [
        event(1, 1, 2),
        event(1, 5, 6),
    ]


def test_q21_a_plan_is_json_and_comes_back() -> None:
    """2.4 of the description: the query is a plan that users can also submit; the same errors name what is wrong."""
    plan = names().group_by("name").hopping(4, 2).agg(n=count(), form="watermark", output="point-at-end")
    document = json.loads(json.dumps(plan_to_json({"it": plan.node})))
    assert plan_from_json(document) == {"it": plan.node}
    assert plan_to_json(plan_from_json(document)) == document
    document["nodes"][1]["window"]["hop"] = 0
    with pytest.raises(LmergeError, match="hop of 0"):
        plan_from_json(document)


def test_q22_a_plan_has_no_code_but_names_of_modules_and_functions() -> None:
    """VI.F: front ends in SQL compile to this plan, so nothing in it is a Python callable."""
    plan = readings().where(col.value < threshold(col.id)).tumbling(5).agg(d=module("sum_of_all", of=col.value))
    document = json.dumps(plan_to_json({"it": plan.node}))
    assert "threshold_of_paper" in document
    assert '"name": "sum_of_all", "version": 1' in document or '"sum_of_all"' in document
    assert plan_from_json(json.loads(document)) == {"it": plan.node}


def test_q23_rows_of_users_become_events_and_events_rows_again() -> None:
    """2.4 of the description: input adapters make events of external rows, output adapters take them out."""
    visits = source("visits", {"at": "timestamp", "price": "decimal(2)", "tags": "list<string>"})
    forms = RowForms(visits.schema)
    row = {"at": datetime(2013, 1, 1, tzinfo=timezone.utc), "price": Decimal("9.50"), "tags": ["a", "b"]}
    found = result(visits.where(col.price > 9), Change(forms.values(row), 1, 1, 5))
    assert [forms.row(one.row) for one in found] == [row]
    assert forms.of_payload(forms.payload(found[0].row)) == found[0].row


def test_q3_a_median_is_exact() -> None:
    """III.A.2: rounded once."""
    values = source("values", {"value": "float(1)"})
    found = result(values.tumbling(5).agg(m=aggregate("median", col.value)), insert(0.1, 1, 2), insert(0.2, 1, 2))
    assert Fraction(found[0].row[0]) == Fraction(0.15)
