"""Graphs of operators: what a step that fails takes with it, and who sees what goes through."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.errors import ModuleViolation
from lmerge.temporal.graph import GraphStep, OperatorGraph
from lmerge.temporal.operators.span import KeepRows, SpanOperator
from lmerge.temporal.operators.union import UnionOperator
from lmerge.temporal.values import Values


def own(row: Values) -> Values:
    return row


def kept(name: str, divided_by: int) -> GraphStep:
    """Return a filter of source 0 that fails for the row (0,) if ``divided_by`` is 0."""
    predicate = KeepRows(lambda row: 10 // (row[0] + divided_by) > 0)
    return GraphStep(SpanOperator(name, own, own, [predicate]), (0,))


def graph() -> OperatorGraph:
    """Return a filter that can fail (place 1) and one that cannot (2), and unions of both (3) and of the second (4)."""
    both, alone = UnionOperator("both", own, 2), UnionOperator("alone", own, 1)
    steps = [kept("fails", 0), kept("holds", 1), GraphStep(both, (1, 2)), GraphStep(alone, (2,))]
    return OperatorGraph(1, steps, [3, 4, 1])


def batch(*values: int) -> list[Delta]:
    return [Delta([Change((value,), at, at, 50) for at, value in enumerate(values)])]


def test_a_step_that_fails_ends_itself_and_what_reads_it() -> None:
    run = graph()
    assert [len(delta.changes) for delta in run.advance(batch(1, 2))] == [4, 2, 2]
    assert run.failures == {}
    assert [len(delta.changes) for delta in run.advance(batch(3, 0))] == [0, 2, 0]
    assert set(run.failures) == {1, 3}
    assert len(set(run.failures.values())) == 1
    assert "fails" in str(run.failures[3])
    assert [len(delta.changes) for delta in run.advance(batch(4))] == [0, 1, 0]


def test_a_graph_of_one_query_raises() -> None:
    with pytest.raises(ModuleViolation, match="fails"):
        graph().step(batch(0))


def test_an_observer_sees_what_each_step_has_read_and_computed() -> None:
    run, seen = graph(), list[tuple[int, int, int]]()

    def observe(place: int, read: Sequence[Delta], found: Delta) -> None:
        seen.append((place, sum(len(delta.changes) for delta in read), len(found.changes)))

    run.observer = observe
    run.step(batch(1, 50))
    assert seen == [(1, 2, 1), (2, 2, 1), (3, 2, 2), (4, 1, 1)]
    run.step([Delta([])])
    assert len(seen) == 4
