"""Streams, events and progress (II of the extensibility paper; rows E1 to E15)."""

from __future__ import annotations

import random

import pytest
from paper_modules import lifetimes_seen
from paper_world import PlanTrace, adjust, event, insert, names, numbers, result
from temporal_world import Item, StreamTable, cut, random_stream

from lmerge.core.elements import INF
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation, UsageError
from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.entrance import LatePolicy, ProgressRule
from lmerge.temporal.errors import PlanError
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.stream import aggregate, count, source
from lmerge.temporal.running import ElementWriter, QueryRun, SourceSettings

ROWS = ((0, 0), (0, 1), (1, 0), (1, 2))


def test_e1_every_operator_gives_insert_adjust_and_stable_and_nothing_else() -> None:
    """II.A: the output of plans is read by the merge's own table, element by element."""
    plan = numbers().where(numbers()["b"] < 2).group_by("a").snapshot().agg(n=count(), form="eager")
    writer, run = ElementWriter(plan.node), QueryRun({"it": plan.node})
    for seed in range(20):
        table, run = Tdb(), QueryRun({"it": plan.node})
        for item in random_stream(random.Random(seed), 20, ROWS):
            steps = run.take("numbers", [item])
            table.apply_batch(writer.batch([step["it"] for step in steps]))
        assert table.stable_point == max([step.stable for step in [run.graph.steps[-1].operator]])


@pytest.mark.parametrize(
    ("items", "code"),
    [
        ([adjust("a", 1, 5, 6)], "unknown-event"),
        ([insert("a", 1, 5), adjust("a", 1, 4, 6)], "unknown-event"),
        ([insert("a", 1, 5), adjust("a", 1, 5, 1), adjust("a", 1, 5, 1)], "unknown-event"),
    ],
)
def test_e2_an_adjust_of_what_is_not_there_names_input_element_and_live_ends(items: list[Change], code: str) -> None:
    """II.A: a retraction changes the lifetime of an earlier event; REnew = LE deletes it."""
    run = PlanTrace(names())
    with pytest.raises(InputViolation, match=r"events.*adjust\(.*has the ends") as found:
        run.give(*items)
    assert found.value.code == code


def test_e3_the_table_follows_by_matching_each_retraction_to_its_insertion() -> None:
    """II.A, Tables 1 and 2."""
    run = PlanTrace(names())
    run.give(insert("P1", 1, INF), adjust("P1", 1, INF, 10), adjust("P1", 1, 10, 5), insert("P2", 4, 9))
    assert run.events == [event("P1", 1, 5), event("P2", 4, 9)]


def test_e4_operators_are_defined_by_their_effect_on_the_table() -> None:
    """II.A: streams with one table give one table, in whatever order they come, after every prefix that they share."""
    plan = numbers().group_by("a").snapshot().agg(s=aggregate("sum", numbers()["b"]), form="eager")
    for seed in range(40):
        random_ = random.Random(seed)
        changes = [insert(random_.choice(ROWS), vs, vs + random_.randint(1, 9)) for vs in range(8)]
        one, other = PlanTrace(plan), PlanTrace(plan)
        one.give(*changes, 20)
        other.give(*random_.sample(changes, len(changes)), 20)
        assert one.events == other.events


def test_e5_no_output_has_a_sync_time_below_the_stable_point() -> None:
    """II.A: the sync time is the earliest time that an element changes."""
    plan = numbers().group_by("a").hopping(4, 2).agg(n=count(), form="eager")
    for seed in range(60):
        graph, table = compile_plan([plan.node]).graph(), StreamTable()
        for delta in cut(random.Random(seed), random_stream(random.Random(seed), 20, ROWS)):
            (found,) = graph.step([delta])
            assert all(change.sync_time >= table.stable for change in found.changes)
            table.apply(found)


def test_e6_a_point_event_ends_one_unit_behind_its_start() -> None:
    """II.B: RE = LE + h. An event with RE = LE is none."""
    points = source("points", {"name": "string"}, shape="point")
    run = PlanTrace(points)
    run.give(insert("a", 4, 5))
    with pytest.raises(InputViolation, match="no-point"):
        run.give(insert("a", 4, 6))
    assert result(names().points(), insert("a", 4, 9)) == [event("a", 4, 5)]


def test_e7_an_edge_event_lasts_until_the_next_sample() -> None:
    """II.B: a late sample cuts the one before it short, and SQL's lead() is the definition."""
    edges = numbers().edges("a")
    run = PlanTrace(edges)
    assert run.give(insert((1, 10), 1, 2)) == ["+(1, 10)[1,inf)"]
    assert run.give(insert((1, 20), 5, 6)) == ["(1, 10)[1,inf) to 5", "+(1, 20)[5,inf)"]
    assert run.give(insert((1, 15), 3, 4)) == ["(1, 10)[1,5) to 3", "+(1, 15)[3,5)"]
    assert run.give(insert((2, 99), 4, 5)) == ["+(2, 99)[4,inf)"]
    run.give(insert((1, 16), 3, 4))
    assert event((1, 16), 3, 5) in run.events, "of two at one time the later row holds"
    assert event((1, 15), 3, 5) not in run.events


def test_e8_an_interval_event_has_any_endpoints() -> None:
    """II.B: the default shape."""
    assert result(names(), insert("a", -7, 3), insert("b", 0, INF)) == [event("a", -7, 3), event("b", 0, INF)]


@pytest.mark.parametrize(
    "change",
    [adjust("a", 1, 5, 9), adjust("b", 1, 9, 5), insert("c", 5, 6), adjust("d", 5, 7, 5)],
    ids=["RE is the stable", "REnew is the stable", "LE is the stable", "removed at the stable"],
)
def test_e9_changes_at_the_stable_point_itself_are_legal(change: Change) -> None:
    """II.C: CTI(t) leaves the time from t on open."""
    run = PlanTrace(names())
    run.give(insert("a", 1, 5), insert("b", 1, 9), insert("d", 5, 7), 5)
    run.give(change)


@pytest.mark.parametrize("change", [adjust("b", 1, 9, 4), insert("c", 4, 6), adjust("b", 1, 9, 1)])
def test_e9_changes_below_the_stable_point_are_not(change: Change) -> None:
    """II.C."""
    run = PlanTrace(names())
    run.give(insert("a", 1, 5), insert("b", 1, 9), 5)
    with pytest.raises(InputViolation, match="no change before its own stable"):
        run.give(change)


def test_e10_final_output_is_kept_apart_from_speculative() -> None:
    """I, II.C: "an automatic power plant shutdown" acts on what is final. Cleanse releases nothing else."""
    counted = names().snapshot().agg(n=count(), form="eager")
    speculative, final = PlanTrace(counted), PlanTrace(counted.cleanse())
    items: list[Item] = [insert("a", 1, 9), 3, insert("b", 4, 6), 7]
    speculative.give(*items)
    final.give(*items)
    assert speculative.table.inserts_only is False
    assert final.table.inserts_only
    assert final.events == [event(1, 1, 4), event(2, 4, 6)]


@pytest.mark.parametrize(
    ("late", "events", "dropped", "moved"),
    [(LatePolicy.DROP, [event("b", 10, 11)], 2, 0), (LatePolicy.MOVE, [event("a", 10, 20), event("b", 10, 11)], 1, 1)],
)
def test_e11_stables_are_inserted_by_rule_and_late_events_counted(
    late: LatePolicy, events: list[Lifetime], dropped: int, moved: int
) -> None:
    """I: "received or automatically inserted". A late point can never be moved: it has ended."""
    run = QueryRun({"it": names().node}, {"events": SourceSettings(ProgressRule(), late)})
    table = StreamTable()
    for item in (insert("b", 10, 11), insert("a", 5, 20), insert("point", 5, 6)):
        for step in run.take("events", [item]):
            table.apply(step["it"])
    assert sorted(table.events.elements()) == events
    entrance = run.entrances["events"]
    assert (entrance.dropped, entrance.moved) == (dropped, moved)
    refusing = QueryRun({"it": names().node}, {"events": SourceSettings(ProgressRule())})
    with pytest.raises(InputViolation, match="no change before stable"):
        refusing.take("events", [insert("b", 10, 11), insert("a", 5, 20)])
    for step in run.end():
        assert step["it"].stable == INF, "without it the last windows never come out"


def test_e11_a_change_at_the_stable_point_is_in_time() -> None:
    """I: a stable of t leaves t open."""
    run = QueryRun({"it": names().node}, {"events": SourceSettings(ProgressRule(), LatePolicy.DROP)})
    items = [insert("c", 5, 20), insert("a", 10, 11), insert("b", 10, 12), adjust("c", 5, 20, 10)]
    for item in items:
        run.take("events", [item])
    entrance = run.entrances["events"]
    assert (entrance.dropped, sorted(one.ve for one in entrance.live)) == (0, [10, 11, 12])


def test_e12_span_operators_take_each_event_by_itself() -> None:
    """II.D.1: the output's lifetime is the whole span. A predicate sees columns alone, so an adjust moves no event."""
    big = numbers().where(numbers()["b"] > 1)
    run = PlanTrace(big)
    assert run.give(insert((0, 2), 1, 5), insert((0, 1), 1, 5)) == ["+(0, 2)[1,5)"]
    assert run.give(adjust((0, 2), 1, 5, 9)) == ["(0, 2)[1,5) to 9"]
    for time in ("vs", "ve", "Vs", "Ve"):
        with pytest.raises(PlanError, match=time):
            numbers().where(numbers()[time] > 3)


def test_e13_a_window_has_one_result_over_all_events_that_belong_to_it() -> None:
    """II.D.2, Figure 2."""
    counted = names().tumbling(5).agg(n=count())
    items = [insert("e1", 1, 4), insert("e2", 3, 11), insert("e3", 12, 14)]
    assert result(counted, *items) == [event(2, 0, 5), event(1, 5, 10), event(2, 10, 15)]


@pytest.mark.parametrize(
    ("vs", "ve", "is_member"), [(1, 5, False), (10, 12, False), (1, 6, True), (9, 12, True), (5, 6, True)]
)
def test_e14_an_event_belongs_where_its_lifetime_overlaps_the_window(vs: int, ve: int, is_member: bool) -> None:
    """II.E: LE < W.RE and RE > W.LE, at each boundary of [5, 10)."""
    windows = {one.vs for one in result(names().tumbling(5).agg(n=count()), insert("e", vs, ve))}
    assert (5 in windows) is is_member


def test_e15_windows_keep_the_lifetimes_of_their_events() -> None:
    """VI.C: windows that modify lifetimes "destroyed the user's notion of lifetime"."""
    seen = names().hopping(10, 1).apply(lifetimes_seen(), output="align")
    found = result(seen, insert("e", 3, 4))
    assert len(found) == 10
    assert {one.row for one in found} == {("e", 3, 4)}


def test_e2_an_item_of_a_source_that_is_not_there_is_named() -> None:
    """II.A."""
    with pytest.raises(UsageError, match="no source 'other'"):
        QueryRun({"it": names().node}).take("other", [insert("a", 1, 2)])
