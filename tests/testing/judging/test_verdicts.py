"""Canonical verification (TESTING 6): each operator on its own input, at every stable, and who is blamed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from judged_world import blamed_names, operators_of, payload, verdict_of

import lmerge.temporal as lt
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Insert, Stable
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.operators import lifetimes
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.plan.spans import LifetimeNode
from lmerge.temporal.plan.stream import Stream
from lmerge.testing.canonical import spans
from lmerge.testing.judging.operator_run import OperatorRun, Step
from lmerge.testing.judging.promises import broken_promise
from lmerge.testing.judging.queries import QUERIES
from lmerge.testing.judging.tables import EventTable, Sequences
from lmerge.testing.judging.verdict import Judge, Judgement
from lmerge.wire.schema import Schema

LEFT = lt.source("left", {"k": "int", "v": "int"})
END: Element = Stable(INF)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge() as one:
        yield one


def insert(k: int, v: int, vs: int, ve: int) -> Element:
    return Insert(payload(LEFT, k, v), vs, ve)


def adjust(k: int, v: int, vs: int, vold: int, ve: int) -> Element:
    return Adjust(payload(LEFT, k, v), vs, vold, ve)


def speculative() -> Stream:
    return LEFT.group_by("k").apply(
        lambda group: group.snapshot().top(1, by=lt.col.v.desc(), rank=None, form="eager"), keys=False
    )


def test_the_example_of_make_speculative_is_verified_operator_by_operator(judge: Judge) -> None:
    """M1, M2 (5.2): the SQL has MakeSpeculative too, and SUM is judged on what it really got."""
    summed = speculative().tumbling(5).agg(total=lt.sum(lt.col.v), form="eager")
    late: list[Element] = [insert(1, 1, 1, 10), insert(1, 5, 4, 6), adjust(1, 5, 4, 6, 4), END]
    verdict = verdict_of(judge, summed, [("left", [one]) for one in late])
    assert verdict.outcome is Judgement.EQUAL
    assert [one.name for one in verdict.operators] == ["group_apply", "aggregate"]
    assert "rank by v desc" in verdict.operators[0].sql.replace("col.", "")
    assert verdict.run is not None
    emitted = [str(element) for batch in verdict.run.operators[0].steps for element in batch[2].changes]
    assert emitted == [
        "insert((1, 1), 1, 10)",
        "adjust((1, 1), 1, 10, 4)",
        "insert((1, 5), 4, 6)",
        "adjust((1, 1), 1, 4, 10)",
        "adjust((1, 5), 4, 6, 4)",
    ]


def test_a_defect_is_blamed_on_its_operator_and_not_at_the_sink(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """M3 (5.2): the operator behind it is right on the wrong input that it got."""
    monkeypatch.setattr(lifetimes.Extend, "altered", lambda self, vs, ve: (vs, lifetimes.plus(ve, self.d + 1)))
    query = LEFT.extend(2).tumbling(5).agg(n=lt.count())
    verdict = verdict_of(judge, query, [("left", [insert(1, 1, 0, 3), END])])
    assert blamed_names(verdict) == {"lifetime": "different"}
    assert verdict.blamed is not None
    (missing, extra) = verdict.blamed.differences
    assert str(missing) == "missing: (1, 1) [0, 5), 0 times instead of 1"
    assert str(extra) == "extra: (1, 1) [0, 6), 1 times instead of 0"


def moved_end(early: int) -> OperatorRun:
    """Return a run of a shift that freezes a wrong end by its stable point, and puts it right afterwards."""
    node = LEFT.shift(0).node
    row = (1, 1)
    steps: list[Step] = [
        (1, (Delta([Change(row, 0, 0, 5)]),), Delta([Change(row, 0, 0, 4)])),
        (2, (Delta([], 5),), Delta([], early)),
        (3, (Delta([], INF),), Delta([Change(row, 0, 4, 5)], INF)),
    ]
    return OperatorRun("shift", node, (LEFT.node,), steps)


def test_what_is_frozen_wrong_and_corrected_later_is_found(judge: Judge) -> None:
    """T2, V6 (1.1, 6.3): the table at the end is right; the verdict is at the stable that froze the wrong end."""
    verdict = judge.judged(moved_end(5))
    assert (verdict.outcome, verdict.step, verdict.stable) == (Judgement.DIFFERENT, 2, 5)
    assert [str(one) for one in verdict.differences] == [
        "extra: (1, 1) [0, 4), 1 times instead of 0",
        "missing: (1, 1) [0, ...), 0 times instead of 1",
    ]
    later = judge.judged(moved_end(4))  # not frozen yet: it ends at the stable point itself, which stays behind
    assert (later.reason, later.differences) == ("it is at stable(4), and its input freezes all before 5", [])


def run_of(found: list[Delta], taken: list[Delta] | None = None) -> OperatorRun:
    taken = [Delta([Change((1, 1), 2, 2, 9)]), Delta([], INF)] if taken is None else taken
    steps: list[Step] = [(at, (one,), other) for at, (one, other) in enumerate(zip(taken, found, strict=True), 1)]
    return OperatorRun("shift", LEFT.shift(0).node, (LEFT.node,), steps)


RIGHT = Delta([Change((1, 1), 2, 2, 9)])


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ([RIGHT, Delta([], 4)], "its inputs have ended, and it is at stable(4)"),
        ([RIGHT, Delta([])], "its inputs have ended, and it is at stable(-inf)"),
        ([Delta([], 3), Delta(RIGHT.changes, INF)], "1 events are frozen wrong"),
        ([Delta([], 2), Delta(RIGHT.changes, INF)], None),
        ([Delta([Change((1, 1), 2, 9, 5)]), Delta([], INF)], "and there is no such event"),
        ([Delta([Change((1, 1), 2, 2, 1)]), Delta([], INF)], "has an end before its start"),
        ([RIGHT, Delta([*RIGHT.changes], INF)], "1 events are frozen wrong"),
        ([Delta(RIGHT.changes, 5), Delta([], 4)], "stable(4) came after stable(5)"),
        ([Delta([]), Delta([], INF)], "1 events are frozen wrong"),
    ],
)
def test_streams_that_break_a_law_or_never_end_are_different(
    judge: Judge, found: list[Delta], problem: str | None
) -> None:
    verdict = judge.judged(run_of(found))
    if problem is None:
        assert verdict.outcome is Judgement.EQUAL
    else:
        assert verdict.outcome is Judgement.DIFFERENT
        assert problem in verdict.reason


def test_what_is_not_stable_yet_is_not_judged_wrong(judge: Judge) -> None:
    for stable, outcome in ((2, Judgement.EQUAL), (3, Judgement.DIFFERENT)):
        open_input = [Delta([Change((1, 1), 2, 2, 9)]), Delta([], stable)]
        assert judge.judged(run_of([Delta([]), Delta([], stable)], open_input)).outcome is outcome


def test_equal_events_count_as_often_as_they_are_there(judge: Judge) -> None:
    """V2 (6.1): multisets, not sets."""
    twice = [Delta([Change((1, 1), 2, 2, 9)] * 2), Delta([], INF)]
    assert judge.judged(run_of([Delta(twice[0].changes), Delta([], INF)], twice)).outcome is Judgement.EQUAL
    verdict = judge.judged(run_of([RIGHT, Delta([], INF)], twice))
    assert str(verdict.differences[0]) == "missing: (1, 1) [2, 9), 1 times instead of 2"


def test_an_input_that_is_no_legal_stream_is_not_blamed_on_the_operator(judge: Judge) -> None:
    taken = [Delta([], 5), Delta([Change((1, 1), 2, 2, 9)], INF)]
    verdict = judge.judged(run_of([RIGHT, Delta([], INF)], taken))
    assert verdict.outcome is Judgement.NOT_JUDGED
    assert "its input is no legal stream" in verdict.reason


def test_events_at_both_ends_of_time_are_judged(judge: Judge) -> None:
    """V4 (6.2): the infinities are the ends of 64 bits; no arithmetic goes over them."""
    stream = LEFT.shift(3).union(LEFT.extend(4)).snapshot().agg(n=lt.count())
    elements: list[Element] = [
        insert(1, 1, NEG_INF, INF),
        insert(1, 2, INF - 2, INF - 1),
        insert(2, 1, NEG_INF + 1, 0),
        END,
    ]
    assert verdict_of(judge, stream, [("left", elements)]).outcome is Judgement.EQUAL


@pytest.mark.parametrize("value", [0, 2**63 - 1, -(2**63)])
def test_values_are_not_those_of_the_database(judge: Judge, value: int) -> None:
    """V3 (6.2): NaN, the ends of ints, text order and missing values are the engine's; no type is translated."""
    schema = {"k": "float?", "s": "string?", "n": "int?"}
    stream = lt.source("left", schema)
    rows = [(float("nan"), "é", value), (0.0, "z", None), (None, None, 0), (float("inf"), "", 3)]
    elements: list[Element] = [Insert(payload(stream, *row), at, at + 4) for at, row in enumerate(rows)]
    query = stream.group_by("k", "s").snapshot().agg(most=lt.max(lt.col.n), form="eager")
    ranked = stream.count_windows(2).top(1, by=[lt.col.k.desc(), lt.col.s], rank="place")
    for one in (query, ranked, stream.edges(["s"]), stream.coalesce().where(lt.col.k > 0)):
        assert verdict_of(judge, one, [("left", [*elements, END])]).outcome is Judgement.EQUAL


@pytest.mark.parametrize(
    ("promises", "changes", "problem"),
    [
        ({"insert-only"}, [(2, 2, 9), (2, 9, 5)], "the plan promises inserts alone"),
        ({"ordered"}, [(2, 2, 9), (1, 1, 9)], "came after a start of 2"),
        ({"strictly-ordered"}, [(2, 2, 9), (2, 2, 5)], "starts when another event has"),
        ({"key"}, [(2, 2, 9), (2, 2, 5)], "is there already"),
        ({"key"}, [(2, 2, 9), (2, 9, 2), (2, 2, 5)], None),
        ({"ordered"}, [(2, 2, 9), (2, 2, 5), (3, 3, 4)], None),
        (set(), [(2, 2, 9), (1, 1, 5), (2, 9, 5)], None),
    ],
)
def test_what_a_plan_promises_is_held_against_its_stream(
    promises: set[str], changes: list[tuple[int, int, int]], problem: str | None
) -> None:
    deltas = [(at, Delta([Change((1,), *times)])) for at, times in enumerate(changes, 1)]
    found = broken_promise(frozenset(promises), deltas)
    assert (found is None) == (problem is None)
    if found is not None and problem is not None:
        assert found[0] == 2
        assert problem in found[1]


def test_a_stream_that_breaks_what_its_plan_promises_is_different(judge: Judge) -> None:
    """P3 (6.3): final windows promise inserts alone; one that revises is found, though its table is right."""
    node = LEFT.tumbling(5).agg(n=lt.count()).node
    taken = [Delta([Change((1, 1), 0, 0, 3)], None, 0), Delta([], INF)]
    found = [Delta([Change((1,), 0, 0, 4)]), Delta([Change((1,), 0, 4, 5)], INF)]
    steps: list[Step] = [(at, (one,), other) for at, (one, other) in enumerate(zip(taken, found, strict=True), 1)]
    verdict = judge.judged(OperatorRun("aggregate", node, (LEFT.node,), steps))
    assert verdict.outcome is Judgement.DIFFERENT
    assert "the plan promises inserts alone" in verdict.reason
    assert verdict.step == 2


# Errors of the framework.


def test_an_operator_without_a_query_is_not_judged(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    query = LEFT.coalesce()
    (operator,) = operators_of(query, [("left", [END])])
    monkeypatch.setattr(type(query.node), "kind", "melt")
    verdict = judge.judged(operator)
    assert verdict.outcome is Judgement.NOT_JUDGED
    assert "there is no query of 'melt'; register one (lmerge.testing.queries)" in verdict.reason


def test_a_query_that_fails_is_broken_and_not_different(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "filtered", lambda events, predicate: f"SELECT * FROM {events} WHERE nothing")
    verdict = verdict_of(judge, LEFT.where(lt.col.v > 1), [("left", [insert(1, 1, 0, 3), END])])
    assert blamed_names(verdict) == {"filter": "broken"}


def test_a_function_that_raises_is_named_with_its_error(judge: Judge) -> None:
    query = LEFT.select("k", e=lt.col.v + 1)
    node = query.node
    steps: list[Step] = [(1, (Delta([Change((1, INF), 0, 0, 3)], INF),), Delta([], INF))]
    verdict = judge.judged(OperatorRun("select", node, (LEFT.node,), steps))
    assert verdict.outcome is Judgement.BROKEN
    assert "select" in verdict.reason
    assert str(INF) in verdict.reason


def test_the_judge_goes_on_behind_what_failed(judge: Judge) -> None:
    test_a_function_that_raises_is_named_with_its_error(judge)
    verdict = verdict_of(judge, LEFT.where(lt.col.v > 0), [("left", [insert(1, 1, 0, 3), END])])
    assert verdict.outcome is Judgement.EQUAL


# An operator of a user's own: its node, and its query.


class Doubled(LifetimeNode):
    """Each event lasts twice as long."""

    kind = "doubled"

    def __post_init__(self) -> None:
        """Have nothing to check."""

    @property
    def schema(self) -> Schema:
        return self.input_schema

    def operator(self, name: str) -> PlanOperator:
        return LifetimeNode(self.reads, "", "extend", 3).operator(name)


def doubled(node: Doubled, reads: Sequence[EventTable], made: Sequences) -> EventTable:
    (events,) = reads
    return made.add("doubled", spans.extended(events.name, 3), events.groups, events.begun)


def test_a_users_operator_needs_its_query_alone(judge: Judge) -> None:
    """T7, U7 (1.2, 7): the query of an operator is registered by its kind, and the operator is judged in any tree."""
    query = Stream(Doubled((LEFT.where(lt.col.v > 0).node,), "", "extend", 3)).snapshot().agg(n=lt.count())
    batches: list[tuple[str, list[Element]]] = [("left", [insert(1, 1, 0, 3), insert(2, 1, 1, 2), END])]
    operators = operators_of(query, batches)
    QUERIES.register("doubled", doubled)
    try:
        assert {judge.judged(one).outcome for one in operators} == {Judgement.EQUAL}
    finally:
        QUERIES.forget("doubled")
    assert Judgement.NOT_JUDGED in {judge.judged(one).outcome for one in operators}


def test_a_condition_is_turned_around_only_where_it_names_tables() -> None:
    """A join whose predicate has columns named ``l`` and ``r``: names inside of quotes stay."""
    left = lt.source("left", {"l": "int", "r": "int"})
    with Judge() as judge:
        query = left.join(left.shift(1), "l", where=lt.col.l < lt.col.r_right, how="full")
        elements: list[Element] = [Insert(payload(left, 1, 2), 0, 4), Insert(payload(left, 1, 1), 2, 5), END]
        assert verdict_of(judge, query, [("left", elements)]).outcome is Judgement.EQUAL
