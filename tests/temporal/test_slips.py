"""Slips of query writers: each is an error of lmerge's tree that says what to write, where the plan is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lmerge.errors import UsageError
from lmerge.temporal.changes import Change
from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.surface import col, lit
from lmerge.temporal.plan.aggregating import distinct_count
from lmerge.temporal.plan.aggregating import max as greatest
from lmerge.temporal.plan.stream import aggregate, count, source
from lmerge.temporal.running import QueryRun

FLIGHTS: Any = source("flights", {"origin": "string", "delay": "int?"})

SLIPS: list[tuple[Callable[[], object], str]] = [
    (lambda: FLIGHTS.where(True), "where: True is no expression, such as col.delay > 15"),
    (
        lambda: FLIGHTS.where(lambda row: row.delay > 5),
        "where: <function .* is built once, over columns, and not called",
    ),
    (lambda: FLIGHTS.join(FLIGHTS.shift(1), where="delay"), "join: 'delay' is no expression"),
    (lambda: FLIGHTS.join("flights", "origin"), "join: 'flights' is no stream"),
    (lambda: FLIGHTS.as_of(None, "origin"), "as_of: None is no stream"),
    (lambda: FLIGHTS.union([FLIGHTS]), "union: .* is no stream"),
    (lambda: FLIGHTS.select(5), "5 is no column: write its name"),
    (lambda: FLIGHTS.group_by(len), "<built-in function len> is no column"),
    (lambda: FLIGHTS.edges([5]), "5 is neither the name of a column nor an expression"),
    (lambda: FLIGHTS.snapshot().top(1, by=[5]), "5 is neither the name of a column nor an expression"),
    (lambda: FLIGHTS.snapshot().agg(count()), r"agg: WindowCall\(.* needs a name, that of its column: agg\(n=count"),
    (lambda: FLIGHTS.snapshot().agg(n=greatest("dely")), "there is no column 'dely'; the columns are origin, delay"),
]


@pytest.mark.parametrize(("build", "problem"), SLIPS)
def test_a_slip_is_named_where_the_plan_is_built(build: Callable[[], object], problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        build()


def test_text_is_a_column_in_calls_of_windows() -> None:
    for by_name, by_column in (
        (distinct_count("origin"), distinct_count(col.origin)),
        (count("delay"), count(col.delay)),
        (aggregate("percentile_cont", "delay", p=0.5), aggregate("percentile_cont", col.delay, p=0.5)),
    ):
        assert by_name == by_column
    assert greatest(lit("JFK")) != greatest("JFK")


def test_a_run_takes_streams_for_results() -> None:
    late = FLIGHTS.where(col.delay > 15)
    run = QueryRun({"late": late}, attachable=True)
    run.take("flights", [Change(("JFK", 20), 1, 1, 5)])
    assert (
        len(run.attach("more", {"counts": late.snapshot().agg(n=count(), form="eager")}).first["counts"].changes) == 1
    )
    assert QueryRun.load(run.dump(), {"late": late}, attachable=True).outputs == ("late", "counts")
    with pytest.raises(UsageError, match="results are streams by their names"):
        QueryRun(late)
    with pytest.raises(UsageError, match="result 'late' is 'flights', which is no stream"):
        QueryRun({"late": "flights"})  # type: ignore[dict-item]  # no stream
