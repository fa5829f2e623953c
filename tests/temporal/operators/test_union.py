"""Union against its definition (sheet O3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from operator_world import OperatorCase, judge, judge_every_stream, judge_feedback, own_order
from temporal_world import ROWS, StreamTable

from lmerge.core.elements import INF
from lmerge.core.properties import KEY
from lmerge.errors import UsageError
from lmerge.temporal.changes import NOTHING_CHANGES, Change, Delta, Lifetime
from lmerge.temporal.errors import PlanError
from lmerge.temporal.operators.union import DisjointUnionOperator, UnionOperator
from lmerge.temporal.plan.properties import derive
from lmerge.temporal.plan.stream import Stream, source
from lmerge.temporal.running import QueryRun


def defined(tables: Sequence[StreamTable]) -> tuple[Counter[Lifetime], int]:
    events: Counter[Lifetime] = Counter()
    for table in tables:
        events.update(table.events)
    return events, min(table.stable for table in tables)


def case_of(inputs: int) -> OperatorCase:
    return OperatorCase(lambda: UnionOperator("union", own_order, inputs), defined, [ROWS] * inputs)


@pytest.mark.parametrize("inputs", [1, 2, 3])
def test_a_union_is_the_multiset_sum(inputs: int) -> None:
    judge(case_of(inputs), range(150))


def test_every_short_stream_gives_the_multiset_sum() -> None:
    assert judge_every_stream(case_of(2), [[(1,)], [(1,)]], 3) > 4000


@pytest.mark.parametrize("inputs", [1, 2, 3])
def test_feedback_goes_to_every_input(inputs: int) -> None:
    judge_feedback(case_of(inputs), range(150))
    assert case_of(inputs).make().fast_forward(7) == [7] * inputs


def test_an_input_that_has_ended_holds_nothing() -> None:
    union = UnionOperator("union", own_order, 2)
    assert union.step([Delta([Change((1,), 1, 1, 5)], INF), NOTHING_CHANGES]) == Delta([Change((1,), 1, 1, 5)], None)
    assert union.step([NOTHING_CHANGES, Delta([], 7)]) == Delta([], 7)


def test_an_idle_input_holds_the_stable_point() -> None:
    union = UnionOperator("union", own_order, 2)
    assert union.step([Delta([], 3), Delta([], 9)]).stable == 3
    assert union.step([NOTHING_CHANGES, Delta([], 20)]).stable is None


def test_a_union_of_nothing_is_refused() -> None:
    with pytest.raises(PlanError, match="needs at least one"):
        UnionOperator("union", own_order, 0)


def disjoint(inputs: int = 2) -> DisjointUnionOperator:
    """Return a union that is disjoint by the first column."""
    return DisjointUnionOperator("union", own_order, inputs, lambda row: row[:1], own_order, "a")


def test_a_disjoint_union_is_the_multiset_sum() -> None:
    case = OperatorCase(disjoint, defined, [((0, 0), (0, 1)), ((1, 0), (2, 1))])
    judge(case, range(150))
    judge_feedback(case, range(150))


def test_events_that_break_the_disjointness_are_named() -> None:
    operator = disjoint()
    operator.step([Delta([Change((1, 0), 5, 5, 9)], 30), NOTHING_CHANGES])
    operator.step([NOTHING_CHANGES, Delta([Change((1, 0), 6, 6, 9), Change((2, 0), 5, 5, 9)], 3)])
    restored = disjoint()
    restored.restore(operator.state())
    for union in (operator, restored):
        union.check()
        assert union.live() == 3
        problem = (
            r"union: its streams are declared disjoint by a, and stream 2 has insert\(\(1, 7\), 5, 8\), where stream 1"
        )
        with pytest.raises(UsageError, match=problem):
            union.step([NOTHING_CHANGES, Delta([Change((1, 7), 5, 5, 8)])])


def test_values_are_dropped_behind_the_stable_point() -> None:
    operator = disjoint()
    operator.step([Delta([Change((1, 0), 5, 5, 90)], 30), Delta([], 5)])
    assert operator.live() == 1
    operator.step([NOTHING_CHANGES, Delta([], 6)])
    assert operator.live() == 0


@pytest.mark.parametrize("implementation", ["python", "native"])
def test_a_union_that_is_declared_disjoint_keeps_a_key(implementation: str, demand: Callable[[str], None]) -> None:
    demand(implementation)
    ours, theirs = (source(name, {"a": "int"}, promises=["key"]).select("a", of=name) for name in ("ours", "theirs"))
    union = ours.union(theirs, disjoint_by="of")
    assert KEY in derive(union.node)[union.node].promises
    assert derive(union.node)[union.node].key == {"a", "of"}
    assert KEY not in derive(ours.union(theirs).node)[ours.union(theirs).node].promises
    assert Stream.from_json(union.to_json()) == union
    assert "union, disjoint by of" in union.tree()
    run = QueryRun({"all": union}, implementation=implementation)
    assert run.take("ours", [Change((1,), 1, 1, 5)]) + run.take("theirs", [Change((1,), 1, 1, 5)])
    wrong = QueryRun({"all": ours.union(theirs, disjoint_by="a").named("both")}, implementation=implementation)
    wrong.take("ours", [Change((1,), 1, 1, 5)])
    with pytest.raises(UsageError, match=r"^both: its streams are declared disjoint by a"):
        wrong.take("theirs", [Change((1,), 1, 1, 5)])
    with pytest.raises(PlanError, match="union: disjoint by 'b', and there is no such column; there are a, of"):
        ours.union(theirs, disjoint_by=["b"])
