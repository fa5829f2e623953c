"""Edge events and as-of joins against their definition (E7; sheets O13, O16)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from operator_world import OperatorCase, judge, judge_every_stream, judge_feedback, own_order
from temporal_world import StreamTable

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import UsageError
from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.errors import PlanError
from lmerge.temporal.operators.as_of import AsOfJoinOperator
from lmerge.temporal.operators.edges import EdgeOperator, SampleTies
from lmerge.temporal.operators.join_side import JoinInput
from lmerge.temporal.values import Values

SAMPLES = ((0, 5), (0, 6), (1, 5), (None, 5))
LEFT = ((0, 1), (1, 2), (None, 3))


def key_of(row: Values) -> Values:
    return row[:1]


def event(row: Values, vs: int, ve: int) -> Change:
    return Change(row, vs, vs, ve)


# Edges.


def defined_edges(lasts: int | None) -> Callable[[Sequence[StreamTable]], tuple[Counter[Lifetime], int]]:
    """``lead(vs) over (partition by key order by vs)`` over the last row of each key and time."""

    def definition(tables: Sequence[StreamTable]) -> tuple[Counter[Lifetime], int]:
        (table,) = tables
        holding: dict[tuple[Values, int], Values] = {}
        for row, vs, _ in table.events:
            holding[key_of(row), vs] = max(holding.get((key_of(row), vs), row), row, key=own_order)
        found: Counter[Lifetime] = Counter()
        for (key, vs), row in holding.items():
            later = [other for of_key, other in holding if of_key == key and other > vs]
            limit = INF if lasts is None else vs + lasts
            found[Lifetime(row, vs, min([limit, *later]))] += 1
        return found, table.stable

    return definition


def edge_case(lasts: int | None) -> OperatorCase:
    return OperatorCase(lambda: EdgeOperator("edges", own_order, key_of, lasts=lasts), defined_edges(lasts), (SAMPLES,))


@pytest.mark.parametrize("lasts", [None, 1, 4])
def test_each_sample_lasts_until_the_next_one(lasts: int | None) -> None:
    judge(edge_case(lasts), range(200))


@pytest.mark.parametrize("lasts", [None, 1])
def test_every_short_stream_of_samples_gives_the_edges(lasts: int | None) -> None:
    assert judge_every_stream(edge_case(lasts), [[(0, 5), (0, 6)]], 3) > 1000


@pytest.mark.parametrize("lasts", [None, 1, 4])
def test_feedback_keeps_the_samples_that_shape_later_events(lasts: int | None) -> None:
    judge_feedback(edge_case(lasts), range(200))
    needed = edge_case(lasts).make().fast_forward(20)
    assert needed == [NEG_INF if lasts is None else 21 - lasts]


def edge_step(operator: EdgeOperator, *changes: Change, stable: int | None = None) -> list[str]:
    emitted = operator.step([Delta(list(changes), stable)])
    shown = [str(change) for change in emitted.changes]
    return [*shown, f"stable({emitted.stable})"] if emitted.stable is not None else shown


def test_a_late_sample_cuts_the_one_before_it_short() -> None:
    """E7: insert(e1,t1,inf); at e2: adjust(e1,t1,inf,t2), insert(e2,t2,inf); late e1.5 between."""
    edges = EdgeOperator("edges", own_order, key_of)
    assert edge_step(edges, event((0, 1), 10, 11)) == ["insert((0, 1), 10, inf)"]
    assert edge_step(edges, event((0, 2), 20, 21)) == ["adjust((0, 1), 10, inf, 20)", "insert((0, 2), 20, inf)"]
    assert edge_step(edges, event((0, 3), 15, 16)) == ["adjust((0, 1), 10, 20, 15)", "insert((0, 3), 15, 20)"]
    assert edge_step(edges, Change((0, 3), 15, 16, 15)) == ["adjust((0, 1), 10, 15, 20)", "adjust((0, 3), 15, 20, 15)"]


def test_of_two_samples_at_one_time_the_later_row_holds_in_any_order() -> None:
    for rows in (((0, 5), (0, 6)), ((0, 6), (0, 5))):
        edges = EdgeOperator("edges", own_order, key_of)
        for row in rows:
            edge_step(edges, event(row, 10, 11))
        assert edge_step(edges, event((0, 1), 20, 21)) == ["adjust((0, 6), 10, inf, 20)", "insert((0, 1), 20, inf)"]
        assert edge_step(edges, Change((0, 6), 10, 11, 10)) == ["adjust((0, 6), 10, 20, 10)", "insert((0, 5), 10, 20)"]


def test_two_samples_at_one_time_can_be_an_error() -> None:
    edges = EdgeOperator("edges", own_order, key_of, SampleTies.ERROR)
    edge_step(edges, event((0, 5), 10, 11), event((1, 6), 10, 11), event((0, 5), 10, 12))
    with pytest.raises(UsageError, match=r"edges: there are two samples of one key at 10: \(0, 5\) and .*\(0, 6\)"):
        edge_step(edges, event((0, 6), 10, 11))


def test_the_last_sample_below_the_stable_point_is_kept() -> None:
    edges = EdgeOperator("edges", own_order, key_of)
    edge_step(edges, *(event((0, t), t, t + 1) for t in (1, 2, 3)), stable=3)
    assert edges.live() == 2
    edge_step(edges, stable=9)
    assert edges.live() == 1
    assert edge_step(edges, event((0, 9), 9, 10)) == ["adjust((0, 3), 3, inf, 9)", "insert((0, 9), 9, inf)"]


def test_a_key_is_forgotten_when_its_last_sample_holds_no_more() -> None:
    edges = EdgeOperator("edges", own_order, key_of, lasts=5)
    assert edge_step(edges, event((0, 1), 1, 2), stable=5) == ["insert((0, 1), 1, 6)", "stable(5)"]
    assert edges.live() == 1
    edge_step(edges, stable=6)
    assert edges.live() == 0


def test_a_sample_that_lasts_no_time_is_refused() -> None:
    with pytest.raises(PlanError, match="a sample lasts 0"):
        EdgeOperator("edges", own_order, key_of, lasts=0)


# As-of joins.


def defined_as_of(
    is_outer: bool, within: int | None
) -> Callable[[Sequence[StreamTable]], tuple[Counter[Lifetime], int]]:
    def definition(tables: Sequence[StreamTable]) -> tuple[Counter[Lifetime], int]:
        lefts, samples = tables
        found: Counter[Lifetime] = Counter()
        for left, count in lefts.events.items():
            candidates = [
                (sample.vs, own_order(sample.row), sample.row)
                for sample in samples.events
                if left.row[0] is not None and sample.row[0] == left.row[0] and sample.vs <= left.vs
            ]
            _, _, sample = max(candidates, default=(NEG_INF, (), None))
            if sample is not None and within is not None and left.vs - max(candidates)[0] > within:
                sample = None
            if sample is not None or is_outer:
                found[Lifetime(left.row + (sample or (None, None)), left.vs, left.ve)] += count
        return found, min(lefts.stable, samples.stable)

    return definition


def as_of(is_outer: bool = False, within: int | None = None) -> AsOfJoinOperator:
    left, right = JoinInput(own_order, 2, key_of), JoinInput(own_order, 2, key_of)
    return AsOfJoinOperator("as of", own_order, left, right, is_outer=is_outer, within=within)


def as_of_case(is_outer: bool, within: int | None) -> OperatorCase:
    return OperatorCase(lambda: as_of(is_outer, within), defined_as_of(is_outer, within), (LEFT, SAMPLES))


@pytest.mark.parametrize("within", [None, 0, 3])
@pytest.mark.parametrize("is_outer", [False, True])
def test_a_left_event_has_the_latest_sample_at_its_start(is_outer: bool, within: int | None) -> None:
    judge(as_of_case(is_outer, within), range(200))


@pytest.mark.parametrize("within", [None, 0])
def test_every_short_stream_has_the_latest_samples(within: int | None) -> None:
    assert judge_every_stream(as_of_case(True, within), [[(0, 1)], [(0, 5)]], 3) > 4000


@pytest.mark.parametrize("within", [None, 0, 3])
@pytest.mark.parametrize("is_outer", [False, True])
def test_feedback_keeps_the_samples_that_left_events_can_get(is_outer: bool, within: int | None) -> None:
    assert judge_feedback(as_of_case(is_outer, within), range(200)) > 50


def as_of_step(operator: AsOfJoinOperator, left: Sequence[Change] = (), right: Sequence[Change] = ()) -> list[str]:
    return [str(change) for change in operator.step([Delta(list(left), None), Delta(list(right), None)]).changes]


def test_a_late_sample_changes_the_results_behind_it_up_to_the_next_one() -> None:
    join = as_of(is_outer=True)
    as_of_step(join, right=[event((0, 5), 10, 11), event((0, 6), 20, 21)])
    assert as_of_step(join, [event((0, t), t, 40) for t in (9, 10, 19, 20)]) == [
        "insert((0, 9, None, None), 9, 40)",
        "insert((0, 10, 0, 5), 10, 40)",
        "insert((0, 19, 0, 5), 19, 40)",
        "insert((0, 20, 0, 6), 20, 40)",
    ]
    assert as_of_step(join, right=[event((0, 7), 15, 16)]) == [
        "adjust((0, 19, 0, 5), 19, 40, 19)",
        "insert((0, 19, 0, 7), 19, 40)",
    ]


def test_the_end_of_a_sample_makes_no_difference() -> None:
    join = as_of()
    as_of_step(join, [event((0, 1), 30, 31)], [event((0, 5), 10, 11)])
    assert as_of_step(join, right=[Change((0, 5), 10, 11, 50)]) == []


def test_of_the_samples_below_the_stable_point_the_last_one_is_kept() -> None:
    join = as_of()
    join.step([Delta([], 20), Delta([event((0, t), t, t + 1) for t in (1, 2, 3)], 30)])
    assert join.live() == 1
    join.step([Delta([], INF), Delta([], None)])
    assert join.live() == 0


def test_samples_out_of_reach_are_dropped() -> None:
    join = as_of(within=5)
    join.step([Delta([], 8), Delta([event((0, 5), 3, 4)], 30)])
    assert join.live() == 1
    join.step([Delta([], 9), Delta([], None)])
    assert join.live() == 0
    assert join.fast_forward(4) == [4, 5]


def test_a_negative_reach_is_refused() -> None:
    with pytest.raises(PlanError, match="holds within -1"):
        as_of(within=-1)
