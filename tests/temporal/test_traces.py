"""Traces: what went into each operator and came out of it, for some operators or some rows, and no more than asked."""

from __future__ import annotations

import pytest

from lmerge.errors import UsageError
from lmerge.temporal.changes import Change
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.stream import Stream, count, source
from lmerge.temporal.running import QueryRun


def positive() -> Stream:
    return source("numbers", {"a": "int", "b": "int"}).where(col.b > 0)


def counted() -> QueryRun:
    joined = positive().join(positive().snapshot().agg(n=count(), form="eager"), where=col.a >= 0)
    return QueryRun({"joined": joined.node})


def inserted(*rows: tuple[int, int]) -> list[Change]:
    return [Change(row, 1, 1, 5) for row in rows]


def test_a_trace_shows_what_went_through_each_operator() -> None:
    run = counted()
    trace = run.trace()
    run.take("numbers", [*inserted((1, 1), (2, 0)), 3])
    assert str(trace).splitlines() == [
        "step 1, filter",
        "    in: insert((1, 1), 1, 5), insert((2, 0), 1, 5), stable(3)",
        "    out: insert((1, 1), 1, 5), stable(3)",
        "step 1, aggregate",
        "    in: insert((1, 1), 1, 5), stable(3)",
        "    out: insert((1), 1, 5), stable(3)",
        "step 1, join",
        "    in 1: insert((1, 1), 1, 5), stable(3)",
        "    in 2: insert((1), 1, 5), stable(3)",
        "    out: insert((1, 1, 1), 1, 5), stable(3)",
    ]
    run.take("numbers", [Change((1, 1), 1, 5, 3)])
    assert "adjust((1, 1), 1, 5, 3)" in str(trace.records[-3])
    assert trace.records[-1].step == 2


def test_a_trace_is_of_some_operators_and_rows() -> None:
    run = counted()
    of_join, of_row = run.trace(operators=["join"]), run.trace(row=lambda row: row["b"] == 2)
    run.take("numbers", inserted((1, 1)))
    run.take("numbers", inserted((1, 2), (3, 3)))
    assert [record.name for record in of_join.records] == ["join", "join"]
    assert [(record.step, record.name) for record in of_row.records] == [(2, "filter"), (2, "aggregate"), (2, "join")]
    assert all(change.row[1] == 2 for record in of_row.records for change in record.found.changes)
    with pytest.raises(UsageError, match="no operator 'select' in the run; there are filter, aggregate, join"):
        run.trace(operators=["select"])


def test_a_trace_is_bounded_and_ends() -> None:
    run = counted()
    trace = run.trace(most=2)
    run.take("numbers", [*inserted(*((1, at) for at in range(1, 30)))])
    assert [record.name for record in trace.records] == ["aggregate", "join"]
    assert str(trace).startswith("(1 earlier steps were dropped)\nstep 1, aggregate\n")
    assert "9 more" in str(trace)
    run.end_trace(trace)
    run.take("numbers", inserted((5, 5)))
    assert {record.step for record in trace.records} == {1}
    assert run.graph.observer is None


def test_tracing_changes_nothing_and_follows_queries_that_come() -> None:
    run = QueryRun({"positive": positive().node}, attachable=True)
    trace = run.trace(operators=["filter"])
    run.attach("shifted", {"shifted": positive().shift(1).node})
    later = run.trace(operators=["lifetime"])
    (step,) = run.take("numbers", inserted((1, 1)))
    assert [len(delta.changes) for delta in step.values()] == [1, 1]
    assert (len(trace.records), len(later.records)) == (1, 1)
