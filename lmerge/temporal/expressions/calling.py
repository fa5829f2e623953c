"""Calls of users' functions: the conversion of values at the edge, and errors that name the function.

A function gets Python values and returns one (``lmerge.temporal.python_values``). Whatever it raises, and a result
that does not have the declared type, becomes an ``EvaluationFailure`` with the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lmerge.temporal.expressions.tree import UserFunction
from lmerge.temporal.expressions.typed import EvaluationFailure, Site
from lmerge.temporal.python_values import Converter, canonical_form, python_form
from lmerge.wire.schema import Column


def caller_of(
    function: UserFunction, types: tuple[Column, ...], site: Site, order: int
) -> Callable[..., Any] | VectorisedCaller:
    """Return the function of canonical values that calls a user's function.

    ``types``: of the operands. ``order``: calls are made in ascending order.
    """
    if function.vectorised:
        return VectorisedCaller(function, types, site, order)
    return _row_caller(function, types, site)


def _row_caller(function: UserFunction, types: tuple[Column, ...], site: Site) -> Callable[..., Any]:
    call, result = function.function, canonical_form(function.result)
    conversions = _conversions(types)

    def call_plain(*arguments: Any) -> Any:
        try:
            value = call(*arguments)
        except Exception as error:
            raise _raised(function, site, error) from error
        try:
            return result(value)
        except ValueError as problem:
            raise _misfit(function, site, problem) from None

    if not any(conversions):
        return call_plain

    def call_converted(*arguments: Any) -> Any:
        return call_plain(*_converted(arguments, conversions, function, site))

    return call_converted


class VectorisedCaller:
    """Calls a vectorised function for the rows of a batch that need it."""

    def __init__(self, function: UserFunction, types: tuple[Column, ...], site: Site, order: int) -> None:
        self.order = order
        self._function = function
        self._site = site
        self._conversions = _conversions(types)
        self._result = canonical_form(function.result)

    def results(self, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the results for rows of arguments. Raises EvaluationFailure, whose ``index`` is the row if known."""
        if any(self._conversions):
            rows = [self._arguments(index, row) for index, row in enumerate(rows)]
        columns = [list(column) for column in zip(*rows, strict=True)]
        try:
            results = list(self._function.function(*columns))
        except Exception as error:
            raise BatchFailure.of(_raised(self._function, self._site, error), self._culprit(rows)) from error
        if len(results) != len(rows):
            problem = f"{_named(self._function)} returned {len(results)} results for {len(rows)} rows"
            raise BatchFailure.of(self._site.failure(problem), None)
        try:
            return list(map(self._result, results))
        except ValueError:
            raise self._misfit(results) from None

    def _arguments(self, index: int, row: tuple[Any, ...]) -> tuple[Any, ...]:
        try:
            return _converted(row, self._conversions, self._function, self._site)
        except EvaluationFailure as failure:
            raise BatchFailure.of(failure, index) from None

    def _misfit(self, results: list[Any]) -> BatchFailure:
        """Return the error of the first result that is not of the declared type."""
        for index, value in enumerate(results):
            try:
                self._result(value)
            except ValueError as problem:
                return BatchFailure.of(_misfit(self._function, self._site, problem), index)
        raise AssertionError("a result was refused that is of its type")

    def _culprit(self, rows: Sequence[tuple[Any, ...]]) -> int | None:
        """Return the first row for which the function raises by itself, if it can be called again."""
        if not self._function.deterministic:
            return None
        for index, row in enumerate(rows):
            try:
                list(self._function.function(*([value] for value in row)))
            except Exception:
                return index
        return None


class BatchFailure(EvaluationFailure):
    """A failure in a batch. ``index``: the row among those of the call, or None if it is any of them."""

    index: int | None = None

    @classmethod
    def of(cls, failure: EvaluationFailure, index: int | None) -> BatchFailure:
        found = cls(failure.expression, failure.problem)
        found.index = index
        return found


def _conversions(types: tuple[Column, ...]) -> list[Converter | None]:
    return [python_form(column) for column in types]


def _converted(
    values: tuple[Any, ...], conversions: Sequence[Converter | None], function: UserFunction, site: Site
) -> tuple[Any, ...]:
    try:
        return tuple(
            value if convert is None else convert(value) for value, convert in zip(values, conversions, strict=True)
        )
    except ValueError as problem:
        raise site.failure(f"{_named(function)} cannot be called: {problem}") from None


def _named(function: UserFunction) -> str:
    return f"function {function.name!r} version {function.version}"


def _raised(function: UserFunction, site: Site, error: Exception) -> EvaluationFailure:
    return site.failure(f"{_named(function)} raised {type(error).__name__}: {error}")


def _misfit(function: UserFunction, site: Site, problem: ValueError) -> EvaluationFailure:
    return site.failure(f"{_named(function)} returned a result that is no {function.result.describe()}: {problem}")
