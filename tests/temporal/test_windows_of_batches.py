"""Batches of new events, which a grid of windows takes by group and window: the same as each event by itself."""

from __future__ import annotations

from typing import Any

import pytest
from window_batches import READINGS, batch_queries, failure, outcomes, random_deltas

import lmerge.temporal as lt
from lmerge.core.elements import NEG_INF
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.windows.policies import Form
from lmerge.temporal.windows.window_operator import WindowOperator


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("seed", range(10))
def test_new_events_by_window_give_what_each_by_itself_gives(
    form: Form, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    deltas = random_deltas(seed)
    for query in batch_queries(form):
        by_window = outcomes(query, deltas)
        with monkeypatch.context() as patched:
            patched.setattr(WindowOperator, "_inserted", lambda self, changes: False)
            assert outcomes(query, deltas) == by_window


def test_the_first_event_that_is_refused_is_named() -> None:
    """Groups come together, and errors in the order of events."""
    query = READINGS.group_by("key").tumbling(1).agg(n=lt.count())
    rows: list[Any] = [("a", 1, 0.0), ("b", 1, 0.0), ("a", 2, 0.0)]
    far = [Change(rows[0], 0, 0, 3), Change(rows[1], 0, 0, 8), Change(rows[2], 0, 0, 9), Change(rows[0], 50, 50, 51)]
    assert "would open 8 windows of tumbling(1)" in failure(query, Delta(far, None, 50))
    past = [Change(rows[0], 0, 0, 1), Change(rows[1], NEG_INF, NEG_INF, 1), Change(rows[2], 0, 0, 90)]
    assert "starts at -inf" in failure(query, Delta(past, None, 0))


def test_a_row_without_a_key_is_named_behind_what_is_wrong_before_it() -> None:
    query = READINGS.group_by(k=lt.col.n * 2**61).tumbling(1).agg(n=lt.count())
    changes = [Change(("a", 1, 0.0), 0, 0, 8), Change(("b", 4, 0.0), 20, 20, 21)]
    assert "would open 8 windows of tumbling(1)" in failure(query, Delta(changes, None, 20))
    assert "the result is beyond 64 bits" in failure(query, Delta(changes[1:], None, 20))
