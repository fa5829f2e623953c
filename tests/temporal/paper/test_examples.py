"""The numbered examples, through plans: each figure and table of the sources with its numbers (EX-1 to EX-14)."""

from __future__ import annotations

import pytest
from paper_modules import lifetimes_seen, my_average, my_time_weighted_average, running_count, total_duration
from paper_world import PlanTrace, adjust, event, insert, names, numbers, result
from temporal_world import Item

from lmerge.core.elements import INF
from lmerge.errors import InputViolation
from lmerge.temporal.changes import Change
from lmerge.temporal.plan.properties import algorithm_of
from lmerge.temporal.plan.stream import Stream, WindowCall, aggregate, count, source

TABLE_1 = [insert("P1", 1, INF), adjust("P1", 1, INF, 10), adjust("P1", 1, 10, 5), insert("P2", 4, 9)]
FIG_2 = [insert("e1", 1, 4), insert("e2", 3, 11), insert("e3", 12, 14)]
FIG_5 = [insert("e1", 1, 6), insert("e2", 3, 8), insert("e3", 10, 12)]


def collected(stream: Stream, *items: Change) -> list[str]:
    """Return the windows with the names in them."""
    return [f"[{vs},{ve}) {' '.join(row[0])}" for row, vs, ve in result(stream, *items)]


def members() -> WindowCall:
    return aggregate("collect", names()["name"])


# EX-1.


def test_ex1_matching_retractions_give_the_table() -> None:
    run = PlanTrace(names())
    assert [change.sync_time for change in TABLE_1] == [1, 10, 5, 4]
    tables = []
    for item in TABLE_1:
        run.give(item)
        tables.append(run.events)
    assert tables == [
        [event("P1", 1, INF)],
        [event("P1", 1, 10)],
        [event("P1", 1, 5)],
        [event("P1", 1, 5), event("P2", 4, 9)],
    ]


@pytest.mark.parametrize(("stable", "illegal"), [(4, None), (5, 3), (6, 2)])
def test_ex1_a_stable_makes_later_changes_of_the_past_illegal(stable: int, illegal: int | None) -> None:
    """Until the fourth element a stable may be at most 4; after the fourth any is legal."""
    run = PlanTrace(names())
    items: list[Item] = [*TABLE_1[:2], stable, *TABLE_1[2:]]
    if illegal is None:
        run.give(*items)
    else:
        run.give(*items[: illegal + 1])
        with pytest.raises(InputViolation, match=r"below-stable|no change before its own stable"):
            run.give(items[illegal + 1])
    after = PlanTrace(names())
    assert after.give(*TABLE_1, 1000)[-1] == "stable 1000"


# EX-2 to EX-5.


def test_ex2_tumbling_windows_count_what_they_overlap() -> None:
    counted = names().tumbling(5).agg(n=count())
    assert result(counted, *FIG_2) == [event(2, 0, 5), event(1, 5, 10), event(2, 10, 15)]
    assert collected(names().tumbling(5).agg(m=members()), *FIG_2) == ["[0,5) e1 e2", "[5,10) e2", "[10,15) e2 e3"]


def test_ex3_hopping_windows_begin_before_the_first_event() -> None:
    counted = names().hopping(10, 5).agg(n=count())
    assert result(counted, *FIG_2) == [event(2, -5, 5), event(2, 0, 10), event(2, 5, 15), event(2, 10, 20)]


def test_ex4_snapshot_windows_lie_between_endpoints() -> None:
    found = collected(names().snapshot().agg(m=members()), *FIG_5)
    assert found == ["[1,3) e1", "[3,6) e1 e2", "[6,8) e2", "[10,12) e3"]


@pytest.mark.parametrize(
    ("n", "by", "extra", "windows"),
    [
        (2, "starts", False, ["[1,4) e1 e2", "[3,11) e2 e3"]),
        (2, "ends", False, ["[6,9) e1 e2", "[8,13) e2 e3"]),
        (2, "starts", True, ["[1,4) e1 e2 e4", "[3,11) e2 e3 e4"]),
        (2, "ends", True, ["[6,9) e1 e2", "[8,13) e2 e3", "[12,21) e3 e4"]),
        (3, "starts", True, ["[1,11) e1 e2 e3 e4"]),
        (9, "starts", True, []),
    ],
)
def test_ex5_count_windows_span_distinct_starts_or_ends(n: int, by: str, extra: bool, windows: list[str]) -> None:
    items = [*FIG_5, *([insert("e4", 3, 20)] if extra else [])]
    assert collected(names().count_windows(n, by=by).agg(m=members()), *items) == windows


# EX-6 and EX-7.


@pytest.mark.parametrize(
    ("clip", "lifetimes"),
    [
        ("none", [(2, 13), (2, 13), (2, 13)]),
        ("left", [(2, 13), (5, 13), (10, 13)]),
        ("right", [(2, 5), (2, 10), (2, 13)]),
        ("full", [(2, 5), (5, 10), (10, 13)]),
    ],
)
def test_ex6_clipping_cuts_lifetimes_to_each_window(clip: str, lifetimes: list[tuple[int, int]]) -> None:
    seen = names().tumbling(5).apply(lifetimes_seen(), clip=clip, output="align")
    found = [(row[1], row[2]) for row, _, _ in result(seen, insert("e", 2, 13))]
    assert found == lifetimes


@pytest.mark.parametrize(("clip", "weighted"), [("none", 73.0), ("left", 53.0), ("right", 61.0), ("full", 41.0)])
def test_ex7_the_averages_of_the_paper(clip: str, weighted: float) -> None:
    values = source("values", {"value": "float"})
    value = values["value"]
    plan = values.tumbling(10).agg(clip=clip, a=my_average(of=value), w=my_time_weighted_average(of=value))
    items = [insert(10.0, 0, 5), insert(20.0, 5, 10), insert(40.0, -5, 5), insert(30.0, 8, 14)]
    assert event((25.0, weighted), 0, 10) in result(plan, *items)


# EX-8 to EX-11: how far the output is stable, and what comes out when.


@pytest.mark.parametrize(
    ("stable", "clip", "expected"), [(12, "none", 0), (13, "none", 0), (14, "none", 10), (12, "right", 10)]
)
def test_ex8_liveliness_by_clipping(stable: int, clip: str, expected: int) -> None:
    """At 13 the event is half frozen: its end can still change every window that it belongs to."""
    run = PlanTrace(names().tumbling(5).agg(d=total_duration(), form="eager", clip=clip))
    run.give(insert("e", 1, 13), stable)
    assert run.stable == expected


@pytest.mark.parametrize("form", ["eager", "settled"])
def test_ex8_a_time_bound_module_is_stable_where_its_input_is(form: str) -> None:
    run = PlanTrace(names().tumbling(5).apply(running_count(), output="time-bound", form=form))
    run.give(insert("e", 1, 13), 12)
    assert run.stable == 12


TRACE: list[Item] = [insert("a", 1, 2), insert("b", 6, 7), insert("c", 3, 4), 5, insert("d", 7, 8), 11]


@pytest.mark.parametrize(
    ("form", "steps"),
    [
        (
            "eager",
            [
                ["+(1)[0,5)"],
                ["+(1)[5,10)"],
                ["(1)[0,5) gone", "+(2)[0,5)"],
                ["stable 5"],
                ["(1)[5,10) gone", "+(2)[5,10)"],
                ["stable 10"],
            ],
        ),
        (
            "watermark",
            [[], ["+(1)[0,5)"], ["(1)[0,5) gone", "+(2)[0,5)"], ["stable 5"], [], ["+(2)[5,10)", "stable 10"]],
        ),
        ("final", [[], [], [], ["+(2)[0,5)", "stable 5"], [], ["+(2)[5,10)", "stable 10"]]),
    ],
)
def test_ex9_each_form_has_its_trace(form: str, steps: list[list[str]]) -> None:
    run = PlanTrace(names().tumbling(5).agg(n=count(), form=form))
    assert [run.give(item) for item in TRACE] == steps


def test_ex10_a_snapshot_is_split_and_joined_by_adjusts() -> None:
    run = PlanTrace(names().snapshot().agg(n=count(), form="eager"))
    run.give(insert("later", 30, 31))  # every window before it has begun
    assert run.give(insert("e1", 1, 20)) == ["+(1)[1,20)"]
    assert run.give(5) == ["stable 5"]
    assert run.give(insert("e2", 8, 12)) == ["(1)[1,20) to 8", "+(2)[8,12)", "+(1)[12,20)"]
    assert run.give(adjust("e2", 8, 12, 8)) == ["(1)[1,8) to 20", "(2)[8,12) gone", "(1)[12,20) gone"]


def test_ex10_what_has_not_begun_waits_for_the_watermark() -> None:
    run = PlanTrace(names().snapshot().agg(n=count(), form="eager"))
    run.give(insert("e1", 1, 20), 5)
    assert run.give(insert("e2", 8, 12)) == ["(1)[1,20) to 8", "+(2)[8,12)"]
    assert run.give(12) == ["+(1)[12,20)", "stable 12"]


def test_ex11_a_boundary_at_the_stable_point_can_still_move() -> None:
    run = PlanTrace(names().snapshot().agg(n=count(), form="eager"))
    run.give(insert("e1", 1, 10), insert("e2", 3, 20), 10)
    assert run.events == [event(1, 1, 3), event(2, 3, 10), event(1, 10, 20)]
    run.give(adjust("e1", 1, 10, 15), 15)
    assert run.events == [event(1, 1, 3), event(2, 3, 15), event(1, 15, 20)]


# EX-12 to EX-14.


def test_ex12_properties_by_form_and_window() -> None:
    ordered = numbers("insert-only", "ordered")
    plans = {
        "tumbling, final": ordered.tumbling(5).agg(n=count()),
        "tumbling, eager": ordered.tumbling(5).agg(n=count(), form="eager"),
        "grouped tumbling, final": ordered.group_by("a").tumbling(5).agg(n=count()),
        "grouped snapshot, watermark": ordered.group_by("a").snapshot().agg(n=count(), form="watermark"),
    }
    found = {name: algorithm_of(plan.node).case.algorithm for name, plan in plans.items()}
    assert found == {
        "tumbling, final": "r0",
        "tumbling, eager": "r3",
        "grouped tumbling, final": "r1",
        "grouped snapshot, watermark": "r3",
    }


def test_ex12_a_grouped_snapshot_comes_in_the_order_of_ends() -> None:
    run = PlanTrace(names().group_by("name").snapshot().agg(n=count(), form="watermark"))
    out = run.give(insert("A", 5, 100), insert("B", 7, 9), insert("C", 10, 11), insert("D", 101, 102))
    assert out == ["+(B, 1)[7,9)", "+(A, 1)[5,100)", "+(C, 1)[10,11)"]


def test_ex13_an_event_that_ends_before_the_feedback_belongs_to_a_window_that_is_needed() -> None:
    run = PlanTrace(names().tumbling(5).agg(n=count(), form="eager"))
    assert run.fast_forward(7) == [6]
    run.give(insert("a", 3, 6), insert("b", 8, 9))
    assert event(2, 5, 10) in run.events


def test_ex14_a_gap_between_windows_is_stable_to_its_end() -> None:
    run = PlanTrace(names().hopping(2, 5).agg(n=count(), form="eager"))
    run.give(insert("a", 0, 1), 3)
    assert run.stable == 5
