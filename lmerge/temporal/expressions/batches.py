"""Batches of rows through code that calls vectorised functions.

The code is a generator for each row, which stops at each call and yields what is called with which arguments. All rows
of a batch that stop at a call share one call of the function. A row that does not need a call, because a condition
guards it or an argument is NULL, does not stop there.
"""

from __future__ import annotations

from collections.abc import Generator as Coroutine
from collections.abc import Sequence
from typing import Any, TypeAlias

from lmerge.temporal.expressions.calling import BatchFailure, VectorisedCaller
from lmerge.temporal.expressions.generating import Generated
from lmerge.temporal.values import Values

Evaluation: TypeAlias = Coroutine[tuple[VectorisedCaller, tuple[Any, ...]], Any, Any]

Stopped: TypeAlias = tuple[list[int], list[tuple[Any, ...]]]
"""The rows that wait at a call, by their indexes, and the arguments of each."""


def evaluate_together(generated: Generated, rows: Sequence[Values]) -> list[Any]:
    """Return the values for rows, in order. Raises ModuleViolation, which names the row that cannot be evaluated.

    Calls are made in the order in which they stand in the code. So one place calls its function once.
    """
    evaluations: list[Evaluation] = list(map(generated.function, rows))
    values: list[Any] = [None] * len(rows)
    waiting: dict[VectorisedCaller, Stopped] = {}
    _advance(evaluations, range(len(rows)), [None] * len(rows), values, waiting)
    while waiting:
        caller = min(waiting, key=lambda one: one.order)
        indexes, arguments = waiting.pop(caller)
        try:
            columns = [list(column) for column in zip(*arguments, strict=True)]
            results = caller.canonical(caller.results(columns, len(indexes)))
        except BatchFailure as failure:
            raise generated.violation(failure, rows[indexes[failure.index or 0]]) from failure.__cause__
        _advance(evaluations, indexes, results, values, waiting)
    return values


def _advance(
    evaluations: Sequence[Evaluation],
    indexes: Sequence[int],
    results: Sequence[Any],
    values: list[Any],
    waiting: dict[VectorisedCaller, Stopped],
) -> None:
    """Go on with rows, each with the result that it waits for, until its next call or its end."""
    for index, result in zip(indexes, results, strict=True):
        try:
            caller, arguments = evaluations[index].send(result)
        except StopIteration as end:
            values[index] = end.value
            continue
        stopped = waiting.get(caller)
        if stopped is None:
            stopped = waiting[caller] = ([], [])
        stopped[0].append(index)
        stopped[1].append(arguments)
