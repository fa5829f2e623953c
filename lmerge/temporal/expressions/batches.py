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


def evaluate_together(generated: Generated, rows: Sequence[Values]) -> list[Any]:
    """Return the values for rows, in order. Raises ModuleViolation, which names the row that cannot be evaluated.

    Calls are made in the order in which they stand in the code. So one place calls its function once.
    """
    evaluations: list[Evaluation] = [generated.function(row) for row in rows]
    values: list[Any] = [None] * len(rows)
    waiting: dict[VectorisedCaller, list[tuple[int, tuple[Any, ...]]]] = {}
    for index in range(len(rows)):
        _advance(evaluations[index], index, None, values, waiting)
    while waiting:
        caller = min(waiting, key=lambda one: one.order)
        stopped = waiting.pop(caller)
        try:
            results = caller.results([arguments for _, arguments in stopped])
        except BatchFailure as failure:
            raise _violation(generated, failure, [rows[index] for index, _ in stopped]) from failure.__cause__
        for (index, _), result in zip(stopped, results, strict=True):
            _advance(evaluations[index], index, result, values, waiting)
    return values


def _advance(
    evaluation: Evaluation,
    index: int,
    result: Any,
    values: list[Any],
    waiting: dict[VectorisedCaller, list[tuple[int, tuple[Any, ...]]]],
) -> None:
    """Go on with a row until its next call, or its end."""
    try:
        caller, arguments = evaluation.send(result)
    except StopIteration as end:
        values[index] = end.value
    else:
        waiting.setdefault(caller, []).append((index, arguments))


def _violation(generated: Generated, failure: BatchFailure, rows: Sequence[Values]) -> Exception:
    """Return the error of a call: it names the row if that is known, else the first one and their number."""
    if failure.index is None and len(rows) > 1:
        failure.problem += f", in a batch of {len(rows)} rows; the first is the one shown"
    return generated.violation(failure, rows[failure.index or 0])
