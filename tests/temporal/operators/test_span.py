"""Filter, project, map and other lifetimes against their definition (sheets O1, O2, O11, O12)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal

import pytest
from operator_world import OperatorCase, judge, judge_every_stream, judge_feedback, own_order
from temporal_world import StreamTable

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.operators.lifetimes import AtEnd, ClipDuration, Extend, SetDuration, Shift, plus
from lmerge.temporal.operators.operator import row_of_state, state_of_row
from lmerge.temporal.operators.span import KeepRows, MapRows, SpanOperator, SpanPart
from lmerge.temporal.values import NAN, Values

ROWS = ((0,), (1,), (2,), (None,))

PARTS: dict[str, Sequence[SpanPart]] = {
    "filter": [KeepRows(lambda row: None if row[0] is None else row[0] > 0)],
    "map": [MapRows(lambda row: (row[0] == 1,))],
    "shift": [Shift(3)],
    "shift back": [Shift(-4)],
    "set duration": [SetDuration(3)],
    "point": [SetDuration(1)],
    "clip duration": [ClipDuration(4)],
    "extend": [Extend(2)],
    "at end": [AtEnd(2)],
    "filter, shift, map": [KeepRows(lambda row: row[0] != 2), Shift(2), MapRows(lambda row: (row[0], 7))],
    "clip, at end": [ClipDuration(5), MapRows(lambda row: (0,)), AtEnd(3)],
    "at end, extend, filter": [AtEnd(1), Extend(4), KeepRows(lambda row: row[0] == 0)],
    "set duration, at end": [SetDuration(4), AtEnd(2)],
    "extend, shift, clip": [Extend(1), Shift(1), ClipDuration(3)],
}


def defined(parts: Sequence[SpanPart]) -> Callable[[Sequence[StreamTable]], tuple[Counter[Lifetime], int]]:
    def definition(tables: Sequence[StreamTable]) -> tuple[Counter[Lifetime], int]:
        (table,) = tables
        events, stable = list(table.events.elements()), table.stable
        for part in parts:
            if isinstance(part, KeepRows):
                events = [event for event in events if part.predicate(event.row)]
            elif isinstance(part, MapRows):
                events = [Lifetime(part.function(event.row), event.vs, event.ve) for event in events]
            else:
                events = [Lifetime(event.row, *altered(part, event)) for event in events]
                events = [event for event in events if event.vs < event.ve]
                if isinstance(part, Shift) and NEG_INF < stable < INF:
                    stable += part.d
        return Counter(events), stable

    return definition


def altered(part: SpanPart, event: Lifetime) -> tuple[int, int]:
    """Return a lifetime as the sheet has it. Times of the streams are small, but for +inf."""
    _, vs, ve = event
    if isinstance(part, Shift):
        return vs + part.d, ve if ve == INF else ve + part.d
    if isinstance(part, SetDuration):
        return vs, vs + part.d
    if isinstance(part, ClipDuration):
        return vs, min(ve, vs + part.d)
    if isinstance(part, Extend):
        return vs, ve if ve == INF else ve + part.d
    assert isinstance(part, AtEnd)
    return (0, 0) if ve == INF else (ve, ve + part.d)


def case_of(name: str) -> OperatorCase:
    parts = PARTS[name]
    return OperatorCase(lambda: SpanOperator("span", own_order, own_order, parts), defined(parts), (ROWS,))


@pytest.mark.parametrize("name", PARTS)
def test_each_step_gives_what_the_sheet_has(name: str) -> None:
    judge(case_of(name), range(80))


@pytest.mark.parametrize("name", PARTS)
def test_feedback_leaves_out_only_what_ends_before_it(name: str) -> None:
    assert judge_feedback(case_of(name), range(150)) > 50


@pytest.mark.parametrize("name", PARTS)
def test_every_short_stream_gives_what_the_sheet_has(name: str) -> None:
    assert judge_every_stream(case_of(name), [[(1,)]], 3) > 500


def spans(*parts: SpanPart) -> SpanOperator:
    return SpanOperator("span", own_order, own_order, parts)


def step(operator: SpanOperator, *changes: Change, stable: int | None = None) -> list[str]:
    emitted = operator.step([Delta(list(changes), stable)])
    shown = [str(change) for change in emitted.changes]
    return [*shown, f"stable({emitted.stable})"] if emitted.stable is not None else shown


def test_a_fused_chain_gives_the_batches_of_its_parts_one_after_the_other() -> None:
    parts = PARTS["filter, shift, map"]
    fused, single = spans(*parts), [spans(part) for part in parts]
    for delta in (
        Delta([Change((0,), 1, 1, 5), Change((2,), 1, 1, 5), Change((1,), 2, 2, INF)], None),
        Delta([Change((1,), 2, INF, 9), Change((0,), 1, 5, 1)], 3),
        Delta([Change((1,), 2, 9, 11)], INF),
    ):
        passed = delta
        for operator in single:
            passed = operator.step([passed])
        assert fused.step([delta]) == passed


def test_no_function_is_called_for_an_event_that_is_not_needed() -> None:
    """O1: a skipped event that is extended comes out as an insert."""
    called: list[Values] = []
    operator = spans(MapRows(lambda row: called.append(row) or row))  # type: ignore[func-returns-value]  # append
    assert operator.fast_forward(10) == [10]
    assert step(operator, Change((1,), 1, 1, 5), Change((2,), 2, 2, 9), Change((3,), 3, 3, 10)) == [
        "insert((3), 3, 10)"
    ]
    assert (called, operator.skipped, operator.live()) == ([(3,)], 2, 2)
    assert step(operator, Change((1,), 1, 5, 12)) == ["insert((1), 1, 12)"]
    assert step(operator, Change((2,), 2, 9, 8)) == []
    assert (called, operator.skipped, operator.live()) == ([(3,), (1,)], 3, 1)


def test_the_stable_point_waits_for_a_live_event_that_is_left_out() -> None:
    """Beyond its start the insert that an extension makes of it would be illegal."""
    operator = spans(KeepRows(lambda row: True))
    operator.fast_forward(10)
    assert step(operator, Change((1,), 1, 1, 5), stable=4) == ["stable(1)"]
    assert step(operator, Change((1,), 1, 5, 12), stable=5) == ["insert((1), 1, 12)", "stable(5)"]


def test_what_is_left_out_is_forgotten_when_it_is_fully_frozen() -> None:
    operator = spans(KeepRows(lambda row: True))
    operator.fast_forward(10)
    assert step(operator, Change((1,), 1, 1, 5), stable=5) == ["stable(1)"]
    assert operator.live() == 1
    assert step(operator, stable=6) == ["stable(6)"]
    assert operator.live() == 0


def test_an_event_that_was_emitted_is_adjusted_also_if_it_is_not_needed_any_more() -> None:
    operator = spans(Shift(1))
    assert step(operator, Change((1,), 1, 1, 8)) == ["insert((1), 2, 9)"]
    assert operator.fast_forward(20) == [19]
    assert step(operator, Change((1,), 1, 8, 3)) == ["adjust((1), 2, 9, 4)"]


def test_of_two_equal_events_one_can_be_left_out() -> None:
    operator = spans(Extend(0))
    assert step(operator, Change((1,), 1, 1, 5)) == ["insert((1), 1, 5)"]
    operator.fast_forward(9)
    assert step(operator, Change((1,), 1, 1, 5), Change((1,), 1, 1, 5)) == []
    assert operator.live() == 2
    assert step(operator, Change((1,), 1, 5, 1), Change((1,), 1, 5, 1), Change((1,), 1, 5, 1)) == [
        "adjust((1), 1, 5, 1)"
    ]
    assert operator.live() == 0


def test_a_set_duration_does_not_pass_adjusts_on() -> None:
    """O12: Vold of the output is Vs + d, not the input's."""
    operator = spans(SetDuration(3))
    assert step(operator, Change((1,), 1, 1, 8)) == ["insert((1), 1, 4)"]
    assert step(operator, Change((1,), 1, 8, INF)) == []
    assert step(operator, Change((1,), 1, INF, 1)) == ["adjust((1), 1, 4, 1)"]


def test_a_set_duration_needs_events_that_end_long_before() -> None:
    operator = spans(SetDuration(10))
    assert operator.fast_forward(20) == [11]
    assert step(operator, Change((1,), 10, 10, 11)) == ["insert((1), 10, 20)"]
    assert step(operator, Change((1,), 9, 9, INF), stable=15) == ["stable(15)"]  # its result ends at 19 for good


def test_what_happens_at_the_end_moves_with_it() -> None:
    operator = spans(AtEnd(2))
    assert step(operator, Change((1,), 1, 1, INF)) == []
    assert step(operator, Change((1,), 1, INF, 5), stable=3) == ["insert((1), 5, 7)", "stable(3)"]
    assert step(operator, Change((1,), 1, 5, 6)) == ["adjust((1), 5, 7, 5)", "insert((1), 6, 8)"]


def test_times_saturate() -> None:
    assert [plus(t, 5) for t in (NEG_INF, NEG_INF + 1, INF - 3, INF)] == [NEG_INF, NEG_INF + 6, INF, INF]
    assert plus(NEG_INF + 3, -5) == NEG_INF
    assert step(spans(Extend(9)), Change((1,), 1, 1, INF - 3)) == ["insert((1), 1, inf)"]
    assert step(spans(Shift(9)), Change((1,), INF - 5, INF - 5, INF), stable=INF - 9) == [f"stable({INF})"]
    assert step(spans(SetDuration(9)), Change((1,), NEG_INF, NEG_INF, 3)) == []


def test_a_filter_takes_none_as_false_and_refuses_what_is_no_truth_value() -> None:
    assert step(spans(KeepRows(lambda row: None)), Change((1,), 1, 1, 2)) == []
    with pytest.raises(ModuleViolation, match=r"span: is_late gave 3 for the row \(1,\), which is no truth value"):
        step(spans(KeepRows(lambda row: 3, "is_late")), Change((1,), 1, 1, 2))


def test_a_function_that_raises_is_named_or_counted() -> None:
    with pytest.raises(ModuleViolation, match=r"span: ratio raised ZeroDivisionError\(.*\) for the row \(0,\)"):
        step(spans(MapRows(lambda row: (1 / row[0],), "ratio")), Change((0,), 1, 1, 2))
    operator = spans(MapRows(lambda row: (1 // row[0],), "ratio", drops_failed=True))
    assert step(operator, Change((0,), 1, 1, 2), Change((1,), 1, 1, 2)) == ["insert((1), 1, 2)"]
    assert operator.failed == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SetDuration(0), r"set_duration\(0\): it takes at least 1 unit of time"),
        (lambda: ClipDuration(-1), r"clip_duration\(-1\)"),
        (lambda: Extend(-1), r"extend\(-1\): it takes at least 0 units"),
        (lambda: AtEnd(0), r"at_end\(0\)"),
    ],
)
def test_a_duration_that_is_none_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make()


def test_rows_become_plain_values_and_come_back() -> None:
    row = (Decimal("1.20"), (1, None, (b"x", "y")), NAN, True)
    assert row_of_state(state_of_row(row)) == row
    assert row_of_state([float("nan")])[0] is NAN
