"""Joins against their definition: inner, outer and anti, by key, by predicate and both (sheets O4 to O6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pytest
from operator_world import OperatorCase, judge, judge_every_stream, judge_feedback, own_order
from temporal_world import StreamTable

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import LimitExceeded
from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.operators.join import JoinKind, JoinOperator, JoinRules
from lmerge.temporal.operators.join_side import JoinInput, KeyOf
from lmerge.temporal.values import Values

LEFT = ((0, 5), (1, 6), (None, 7))
RIGHT = ((0, 8), (1, 8), (1, 9), (None, 9))
KEY: KeyOf = lambda row: row[:1]  # noqa: E731
THETA = lambda row: None if None in row else row[0] + row[2] <= 1  # noqa: E731
BOTH = lambda row: row[3] == 8  # noqa: E731

CONDITIONS: dict[str, tuple[KeyOf | None, Callable[[Values], bool | None] | None]] = {
    "key": (KEY, None),
    "predicate": (None, THETA),
    "key and predicate": (KEY, BOTH),
}


def rules_of(kind: JoinKind, condition: str, pairs_max: int = 1000) -> JoinRules:
    key_of, predicate = CONDITIONS[condition]
    left, right = JoinInput(own_order, 2, key_of), JoinInput(own_order, 2, key_of)
    return JoinRules(kind, left, right, predicate, "the condition", pairs_max)


def matches(condition: str, left: Values, right: Values) -> bool:
    key_of, predicate = CONDITIONS[condition]
    if key_of is not None and (left[0] is None or left[0] != right[0]):
        return False
    return predicate is None or predicate(left + right) is True


def unmatched(event: Lifetime, others: Sequence[Lifetime]) -> Iterator[tuple[int, int]]:
    """Yield the longest stretches of an event in which none of the others is valid, from one edge to the next."""
    edges = sorted({t for one in (event, *others) for t in (one.vs, one.ve) if event.vs <= t <= event.ve})
    start = None
    for low, high in pairwise(edges):
        is_free = not any(other.vs <= low and high <= other.ve for other in others)
        if is_free and start is None:
            start = low
        if not is_free and start is not None:
            yield start, low
            start = None
    if start is not None:
        yield start, event.ve


def defined(kind: JoinKind, condition: str) -> Callable[[Sequence[StreamTable]], tuple[Counter[Lifetime], int]]:
    def definition(tables: Sequence[StreamTable]) -> tuple[Counter[Lifetime], int]:
        lefts, rights = (list(table.events.elements()) for table in tables)
        found: Counter[Lifetime] = Counter()
        for left in lefts:
            matching = [right for right in rights if matches(condition, left.row, right.row)]
            for right in matching if kind is not JoinKind.ANTI else ():
                pair = Lifetime(left.row + right.row, max(left.vs, right.vs), min(left.ve, right.ve))
                found[pair] += pair.vs < pair.ve
            if kind in (JoinKind.LEFT, JoinKind.FULL, JoinKind.ANTI):
                row = left.row if kind is JoinKind.ANTI else (*left.row, None, None)
                found.update(Lifetime(row, *part) for part in unmatched(left, matching))
        for right in rights if kind in (JoinKind.RIGHT, JoinKind.FULL) else ():
            matching = [left for left in lefts if matches(condition, left.row, right.row)]
            found.update(Lifetime((None, None, *right.row), *part) for part in unmatched(right, matching))
        return +found, min(table.stable for table in tables)

    return definition


def case_of(kind: JoinKind, condition: str) -> OperatorCase:
    rules = rules_of(kind, condition)
    return OperatorCase(lambda: JoinOperator("join", own_order, rules), defined(kind, condition), (LEFT, RIGHT))


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("kind", list(JoinKind))
def test_each_step_gives_what_the_sheet_has(
    kind: JoinKind, condition: str, seeds_of: Callable[[int, int], range]
) -> None:
    judge(case_of(kind, condition), seeds_of(100, 2))


@pytest.mark.parametrize("kind", list(JoinKind))
def test_every_short_stream_gives_what_the_sheet_has(kind: JoinKind) -> None:
    assert judge_every_stream(case_of(kind, "key"), [[(0, 5)], [(0, 8)]], 3) > 4000


@pytest.mark.long
@pytest.mark.parametrize("kind", [JoinKind.FULL, JoinKind.ANTI])
def test_every_stream_of_four_elements_gives_what_the_sheet_has(kind: JoinKind) -> None:
    assert judge_every_stream(case_of(kind, "key"), [[(0, 5)], [(0, 8)]], 4) > 50_000


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("kind", list(JoinKind))
def test_feedback_leaves_out_only_what_ends_before_it(kind: JoinKind, condition: str) -> None:
    skipped = judge_feedback(case_of(kind, condition), range(150))
    assert skipped > 50 if kind is not JoinKind.FULL else skipped == 0


# By hand.


def join(kind: JoinKind, condition: str = "key", pairs_max: int = 1000) -> JoinOperator:
    return JoinOperator("join", own_order, rules_of(kind, condition, pairs_max))


def step(
    operator: JoinOperator,
    left: Sequence[Change] = (),
    right: Sequence[Change] = (),
    stables: Sequence[int | None] = (),
) -> list[str]:
    of_left, of_right = stables or (None, None)
    emitted = operator.step([Delta(list(left), of_left), Delta(list(right), of_right)])
    shown = [str(change) for change in emitted.changes]
    return [*shown, f"stable({emitted.stable})"] if emitted.stable is not None else shown


def event(row: Values, vs: int, ve: int) -> Change:
    return Change(row, vs, vs, ve)


def test_the_columns_of_the_left_input_come_first() -> None:
    for kind in (JoinKind.INNER, JoinKind.LEFT, JoinKind.FULL):
        assert step(join(kind), [event((0, 5), 1, 9)], [event((0, 8), 1, 9)]) == ["insert((0, 5, 0, 8), 1, 9)"]


def test_a_match_inside_a_part_adjusts_its_end() -> None:
    """O6: a full retraction of the part would lie below the stable point."""
    anti = join(JoinKind.ANTI)
    assert step(anti, [event((0, 5), 1, 20)], stables=(5, 5)) == ["insert((0, 5), 1, 20)", "stable(5)"]
    assert step(anti, right=[event((0, 8), 8, 12)]) == ["adjust((0, 5), 1, 20, 8)", "insert((0, 5), 12, 20)"]
    assert step(anti, right=[Change((0, 8), 8, 12, 8)]) == ["adjust((0, 5), 1, 8, 20)", "adjust((0, 5), 12, 20, 12)"]


def test_a_left_join_never_has_a_match_and_its_absence_at_one_time() -> None:
    left = join(JoinKind.LEFT)
    assert step(left, [event((0, 5), 1, 20)]) == ["insert((0, 5, None, None), 1, 20)"]
    assert step(left, right=[event((0, 8), 8, INF)]) == [
        "adjust((0, 5, None, None), 1, 20, 8)",
        "insert((0, 5, 0, 8), 8, 20)",
    ]


def test_a_missing_key_matches_nothing() -> None:
    full = join(JoinKind.FULL)
    assert step(full, [event((None, 5), 1, 9)], [event((None, 8), 1, 9)]) == [
        "insert((None, 5, None, None), 1, 9)",
        "insert((None, None, None, 8), 1, 9)",
    ]
    assert full.live() == 0


def test_a_right_event_that_is_not_needed_by_itself_decides_where_a_part_starts() -> None:
    """L=[5,10), R=[4,8), t=10: without R the part [8,10) becomes [5,10)."""
    anti = join(JoinKind.ANTI)
    assert anti.fast_forward(10) == [10, NEG_INF]
    assert step(anti, [event((0, 5), 5, 10)], [event((0, 8), 4, 8)]) == ["insert((0, 5), 8, 10)"]


def test_right_events_before_all_left_ones_are_not_needed() -> None:
    anti = join(JoinKind.ANTI)
    step(anti, [event((0, 5), 5, INF)], stables=(12, 3))
    assert anti.fast_forward(4) == [4, 6]
    step(anti, [Change((0, 5), 5, INF, 12)], stables=(14, None))
    assert anti.fast_forward(4) == [4, 6]
    step(anti, stables=(20, 12))  # the left event has gone
    assert anti.fast_forward(4) == [4, 21]


def test_a_full_join_needs_what_it_reports() -> None:
    full = join(JoinKind.FULL)
    step(full, stables=(12, 3))
    assert full.fast_forward(8) == [4, 8]
    assert full.fast_forward(20) == [4, 13]


@pytest.mark.parametrize("kind", list(JoinKind))
def test_an_event_is_kept_as_long_as_it_can_change_or_be_matched(kind: JoinKind) -> None:
    """O4: a left event is kept until RE <= cr and RE < cl."""
    operator = join(kind)
    step(operator, [event((0, 5), 1, 9)], stables=(9, 20))
    assert operator.live() == 1
    step(operator, stables=(10, None))
    assert operator.live() == 0
    operator = join(kind)
    step(operator, [event((0, 5), 1, 9)], stables=(20, 8))
    assert operator.live() == 1
    step(operator, stables=(None, 9))
    assert operator.live() == 0


def test_a_match_that_was_dropped_covers_on() -> None:
    anti = join(JoinKind.ANTI)
    step(anti, [event((0, 5), 1, 20)], [event((0, 8), 1, 6)], (8, 8))
    assert anti.live() == 1
    assert step(anti, [Change((0, 5), 1, 20, 10)]) == ["adjust((0, 5), 6, 20, 10)"]


def test_an_input_that_has_ended_keeps_nothing_of_the_other() -> None:
    inner = join(JoinKind.INNER)
    step(inner, [event((0, 5), 1, INF)], [event((0, 8), 1, INF)], (3, INF))
    assert inner.live() == 2
    step(inner, stables=(INF, None))
    assert inner.live() == 0


def test_a_join_that_compares_too_many_pairs_is_named() -> None:
    theta = join(JoinKind.INNER, "predicate", pairs_max=5)
    step(theta, [event((0, at), 1, 9) for at in range(5)])
    step(theta, right=[event((0, 8), 1, 9)])
    with pytest.raises(LimitExceeded, match=r"join: a step compares more than 5 pairs \(pairs_max\)"):
        step(theta, right=[event((0, 8), 1, 9), event((0, 9), 1, 9)])


def test_a_predicate_that_fails_is_named() -> None:
    sides = JoinInput(own_order, 1), JoinInput(own_order, 1)
    for predicate, message in (
        (lambda row: 1 / 0, r"join: ratio raised ZeroDivisionError\(.*\) for the row \(1, 2\)"),
        (lambda row: 1, r"join: ratio gave 1 for the row \(1, 2\), which is no truth value"),
    ):
        rules = JoinRules(JoinKind.INNER, *sides, predicate, "ratio")
        operator = JoinOperator("join", own_order, rules)
        with pytest.raises(ModuleViolation, match=message):
            operator.step([Delta([event((1,), 1, 2)], None), Delta([event((2,), 1, 2)], None)])


def test_a_join_without_a_condition_is_refused() -> None:
    free, keyed = JoinInput(own_order, 1), JoinInput(own_order, 1, KEY)
    with pytest.raises(PlanError, match="a key of both inputs, a predicate, or both"):
        JoinOperator("join", own_order, JoinRules(JoinKind.INNER, free, free))
    with pytest.raises(PlanError, match="only one input of the join has a key"):
        JoinOperator("join", own_order, JoinRules(JoinKind.INNER, free, keyed))


def test_a_tree_of_joins_gives_what_another_tree_gives() -> None:
    """n-way: (a join b) join c has the rows of a join (b join c)."""
    streams = [[event((0, at), vs, ve)] for at, (vs, ve) in enumerate(((1, 9), (3, 12), (5, 7)))]
    deltas = [Delta(changes, None) for changes in streams]
    inner, tables = JoinKind.INNER, []
    for is_left_deep in (True, False):
        widths = (4, 2) if is_left_deep else (2, 4)
        first = join(inner)
        sides = JoinInput(own_order, widths[0], KEY), JoinInput(own_order, widths[1], KEY)
        outer = JoinOperator("join", own_order, JoinRules(inner, *sides))
        if is_left_deep:
            emitted = outer.step([first.step(deltas[:2]), deltas[2]])
        else:
            emitted = outer.step([deltas[0], first.step(deltas[1:])])
        tables.append(emitted)
    assert tables[0] == tables[1] == Delta([event((0, 0, 0, 1, 0, 2), 5, 7)], None)
