"""Graphs of operators: what a step that fails takes with it, and who sees what goes through."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from lmerge.core.elements import INF, NEG_INF
from lmerge.core.engines.selection import NATIVE, PYTHON
from lmerge.errors import LmergeError
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.errors import ModuleViolation, OperatorFailed
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.graph import GraphStep, OperatorGraph
from lmerge.temporal.operators.span import KeepRows, SpanOperator
from lmerge.temporal.operators.union import UnionOperator
from lmerge.temporal.plan.aggregating import sum as total
from lmerge.temporal.plan.stream import count, source
from lmerge.temporal.running import Item, QueryRun
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


@pytest.mark.parametrize("implementation", [PYTHON, NATIVE])
def test_errors_of_windows_name_their_operator(implementation: str, demand: Callable[[str], None]) -> None:
    demand(implementation)
    numbers = source("numbers", {"a": "int"})
    plans = {
        "exceeds 64 bits": numbers.tumbling(10).agg(n=total(col.a)),
        "would open 500 windows": numbers.group_by("a").tumbling(1).at_most(5).agg(n=count()),
        "has no first window": numbers.where(col.a > 0).tumbling(10).agg(n=count()),
    }
    late: list[Item] = [Change((2**62,), 1, 1, 501), Change((2**62,), 1, 1, 501), INF]
    early: list[Item] = [Change((2**62,), NEG_INF, NEG_INF, 5), INF]
    for problem, plan in plans.items():
        run = QueryRun({"n": plan.named("sums").node}, implementation=implementation)
        with pytest.raises(LmergeError) as raised:
            run.take("numbers", early if "first" in problem else late)
        assert str(raised.value).startswith("sums: ")
        assert str(raised.value).count("sums") == 1
        assert problem in str(raised.value)


def test_errors_in_a_group_name_its_key() -> None:
    numbers = source("numbers", {"k": "string", "a": "int"})
    inside = numbers.group_by("k").apply(lambda group: group.tumbling(10).agg(n=total(col.a)).named("sums"))
    run = QueryRun({"n": inside.named("by_key").node})
    with pytest.raises(LmergeError, match=r"^by_key: group \('x'\): sums: sum\(a\).* exceeds 64 bits"):
        run.take("numbers", [Change(("x", 2**62), 1, 1, 5), Change(("x", 2**62), 1, 1, 5), INF])


def test_a_step_that_breaks_ends_its_query_alone() -> None:
    """An error outside the tree of lmerge is a fault of lmerge, and no reason for other queries to end."""

    def broken(row: Values) -> Values:
        raise KeyError(row)

    class Broken(UnionOperator):
        def step(self, deltas: Sequence[Delta]) -> Delta:
            return Delta([change._replace(row=broken(change.row)) for change in deltas[0].changes])

    run = OperatorGraph(1, [GraphStep(Broken("breaks", own, 1), (0,)), kept("holds", 1)], [1, 2])
    assert [len(delta.changes) for delta in run.advance(batch(1))] == [0, 1]
    assert isinstance(run.failures[1], OperatorFailed)
    assert str(run.failures[1]) == "breaks: it failed with KeyError: (1,)"
    assert isinstance(run.failures[1].__cause__, KeyError)
