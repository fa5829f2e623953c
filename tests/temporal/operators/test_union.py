"""Union against its definition (sheet O3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from operator_world import OperatorCase, judge, judge_every_stream, judge_feedback, own_order
from temporal_world import ROWS, StreamTable

from lmerge.core.elements import INF
from lmerge.temporal.changes import NOTHING_CHANGES, Change, Delta, Lifetime
from lmerge.temporal.errors import PlanError
from lmerge.temporal.operators.union import UnionOperator


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
