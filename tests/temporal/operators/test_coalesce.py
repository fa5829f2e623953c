"""Coalesce and cleanse against their definitions (sheets O14, O16)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from operator_world import OperatorCase, judge, judge_every_stream, judge_feedback, own_order
from temporal_world import ROWS, StreamTable

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.operators.cleanse import CleanseOperator
from lmerge.temporal.operators.coalesce import CoalesceOperator
from lmerge.temporal.values import Values


def event(row: Values, vs: int, ve: int) -> Change:
    return Change(row, vs, vs, ve)


def step(operator: CoalesceOperator | CleanseOperator, *changes: Change, stable: int | None = None) -> list[str]:
    emitted = operator.step([Delta(list(changes), stable)])
    shown = [str(change) for change in emitted.changes]
    return [*shown, f"stable({emitted.stable})"] if emitted.stable is not None else shown


# Coalesce.


def defined_coalesce(tables: Sequence[StreamTable]) -> tuple[Counter[Lifetime], int]:
    """Presence between neighbouring edges, put together where it goes on."""
    (table,) = tables
    found: Counter[Lifetime] = Counter()
    for row in {event.row for event in table.events}:
        copies = [event for event in table.events if event.row == row]
        edges = sorted({t for one in copies for t in (one.vs, one.ve)})
        start: int | None = None
        for low, high in [*pairwise(edges), (edges[-1], INF)]:
            is_present = any(one.vs <= low < one.ve for one in copies)
            if is_present and start is None:
                start = low
            if start is not None and (not is_present or high == INF):
                found[Lifetime(row, start, high if is_present else low)] += 1
                start = None
    return found, table.stable


COALESCE = OperatorCase(
    lambda: CoalesceOperator("coalesce", own_order), defined_coalesce, (ROWS,), lengths=(4, 8, 12, 30)
)


def test_rows_are_in_the_output_while_they_are_present() -> None:
    judge(COALESCE, range(500))


def test_every_short_stream_has_its_runs() -> None:
    assert judge_every_stream(COALESCE, [[(1,)]], 4) > 3000


def test_feedback_leaves_what_begins_a_run() -> None:
    judge_feedback(COALESCE, range(200))
    assert COALESCE.make().fast_forward(10) == [NEG_INF]


def test_lifetimes_that_meet_or_overlap_are_one() -> None:
    coalesce = CoalesceOperator("coalesce", own_order)
    assert step(coalesce, event((1,), 1, 3), event((1,), 5, 8)) == ["insert((1), 1, 3)", "insert((1), 5, 8)"]
    assert step(coalesce, event((1,), 3, 5)) == ["adjust((1), 1, 3, 8)", "adjust((1), 5, 8, 5)"]
    assert step(coalesce, event((1,), 2, 6)) == []
    assert step(coalesce, Change((1,), 3, 5, 3)) == []
    assert step(coalesce, Change((1,), 2, 6, 2)) == ["adjust((1), 1, 8, 3)", "insert((1), 5, 8)"]


def test_a_run_goes_on_at_the_stable_point_itself() -> None:
    coalesce = CoalesceOperator("coalesce", own_order)
    assert step(coalesce, event((1,), 1, 3), stable=3) == ["insert((1), 1, 3)", "stable(3)"]
    assert step(coalesce, event((1,), 3, 5)) == ["adjust((1), 1, 3, 5)"]


def test_nothing_is_kept_of_a_run_that_is_final() -> None:
    coalesce = CoalesceOperator("coalesce", own_order)
    step(coalesce, event((1,), 1, 3), event((2,), 1, INF), stable=4)
    assert coalesce.live() == 1
    step(coalesce, stable=INF)
    assert coalesce.live() == 0


# Cleanse.


def defined_cleanse(tables: Sequence[StreamTable]) -> tuple[Counter[Lifetime], int]:
    """The fully frozen events before the first one that can change."""
    (table,) = tables
    if table.stable == INF:
        return table.events, INF
    unfrozen = [event.vs for event in table.events if event.ve >= table.stable]
    bound = min([table.stable, *unfrozen])
    return Counter({event: n for event, n in table.events.items() if event.vs < bound}), bound


CLEANSE = OperatorCase(lambda: CleanseOperator("cleanse", own_order), defined_cleanse, (ROWS,))


def test_final_events_are_released_behind_those_that_precede_them() -> None:
    judge(CLEANSE, range(500))


def test_every_short_stream_is_cleansed() -> None:
    assert judge_every_stream(CLEANSE, [[(1,)]], 4) > 3000


def test_feedback_purges_final_events() -> None:
    judge_feedback(CLEANSE, range(300))


def test_the_output_is_ordered_inserts() -> None:
    cleanse = CleanseOperator("cleanse", own_order)
    changes = event((2,), 3, 5), event((1,), 3, 6), event((9,), 1, 20), event((1,), 1, 4)
    assert step(cleanse, *changes, stable=7) == ["stable(1)"]
    assert step(cleanse, Change((9,), 1, 20, 8), stable=8) == []
    assert step(cleanse, stable=9) == [
        "insert((1), 1, 4)",
        "insert((9), 1, 8)",
        "insert((1), 3, 6)",
        "insert((2), 3, 5)",
        "stable(9)",
    ]


def test_an_event_that_ends_at_the_stable_point_is_not_final() -> None:
    cleanse = CleanseOperator("cleanse", own_order)
    assert step(cleanse, event((1,), 1, 5), stable=5) == ["stable(1)"]
    assert step(cleanse, Change((1,), 1, 5, 7), stable=8) == ["insert((1), 1, 7)", "stable(8)"]


def test_what_is_not_needed_is_purged() -> None:
    cleanse = CleanseOperator("cleanse", own_order)
    step(cleanse, event((9,), 1, 20), event((1,), 2, 4), event((2,), 3, 12), stable=13)
    assert cleanse.fast_forward(10) == [10]
    assert (cleanse.purged, cleanse.live()) == (1, 2)
    step(cleanse, event((1,), 13, 14), stable=18)
    assert step(cleanse, stable=INF) == [
        "insert((9), 1, 20)",
        "insert((2), 3, 12)",
        "insert((1), 13, 14)",
        f"stable({INF})",
    ]
