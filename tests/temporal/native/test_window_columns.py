"""New events as columns in windows that run in Python: what rows give, without a change of each event."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from window_batches import READINGS, batch_queries, failure, outcomes, random_deltas

import lmerge.temporal as lt
from lmerge.core.elements import INF, NEG_INF
from lmerge.core.engines import selection
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.columns import AnyDelta
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.grouped import module
from lmerge.temporal.windows.policies import Form
from lmerge.temporal.windows.window_operator import WindowOperator
from lmerge.testing.transforming.modules import CHECKSUM, COUNTED_ROWS

pytestmark = pytest.mark.skipif(selection.native_problem() is not None, reason="the native core is not built")


def as_columns(delta: Delta) -> AnyDelta:
    from lmerge.temporal.native.step import column_form

    return column_form(READINGS.node.schema).batch(delta.changes, delta.stable, delta.mark)


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("seed", range(10))
def test_columns_give_what_rows_give(form: Form, seed: int) -> None:
    deltas = random_deltas(seed)
    for query in batch_queries(form):
        assert outcomes(query, list(map(as_columns, deltas))) == outcomes(query, deltas)


def test_columns_are_no_changes_on_their_way_to_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WindowOperator, "_inserted", None)
    graph = compile_plan([READINGS.group_by("key").tumbling(5).agg(n=lt.count()).node]).graph("python")
    changes = [Change(("a", 1, at / 2), at, at, at + 1) for at in range(9)]
    assert graph.step([as_columns(Delta(changes, 9, 9))]) == [Delta([Change(("a", 5), 0, 0, 5)], 5, 9)]


def both(changes: Sequence[Change], mark: int) -> list[AnyDelta]:
    delta = Delta(list(changes), None, mark)
    return [delta, as_columns(delta)]


def test_feedback_reaches_columns() -> None:
    changes = [Change(("a", 1, 0.5), at, at, at + 1) for at in (3, 7)]
    for delta in (Delta(changes, INF, 9), as_columns(Delta(changes, INF, 9))):
        graph = compile_plan([READINGS.tumbling(5).agg(n=lt.count()).node]).graph("python")
        assert graph.fast_forward(0, 10) == [6]
        (found,) = graph.step([delta])
        assert found.changes == [Change((1,), 5, 5, 10)]
        assert graph.steps[0].operator.skipped == 1


def test_errors_are_those_of_rows() -> None:
    query = READINGS.group_by(k=lt.col.n * 2**61).tumbling(1).agg(n=lt.count())
    far, wrong = Change(("a", 1, 0.0), 0, 0, 8), Change(("b", 4, 0.0), 20, 20, 21)
    past = Change(("b", 1, 0.0), NEG_INF, NEG_INF, 1)
    for changes in ([far, wrong], [wrong, far], [past, far], [past, wrong], [far, past]):
        of_rows, of_columns = (failure(query, delta) for delta in both(changes, 20))
        assert of_rows == of_columns


@pytest.mark.parametrize("form", [Form.FINAL, Form.SETTLED])
def test_the_last_windows_before_the_end_of_all_time_take_columns(form: Form) -> None:
    """No window begins behind them at a time that there is, and none of their events is kept."""
    deltas = [
        Delta([Change(("a", 1, 0.5), at, at, at + 25) for at in range(INF - 90, INF - 30)], INF - 90, INF - 3),
        Delta([Change(("a", 1, 0.5), INF - 3, INF - 3, INF - 2)], INF, INF - 3),
    ]
    windows = READINGS.hopping(25, 5)
    for query in (windows.apply(module(COUNTED_ROWS), form=form), windows.agg(n=module(CHECKSUM, lt.col.n), form=form)):
        found = outcomes(query, list(map(as_columns, deltas)))
        assert found == outcomes(query, deltas)
        assert "OperatorFailed" not in str(found)
