"""Calls of users' functions: the conversion of values at the edge, and errors that name the function.

A function gets Python values and returns one (``lmerge.temporal.python_values``). Whatever it raises, and a result
that does not have the declared type, becomes an ``EvaluationFailure`` with the cause. The functions are called row by
row, or for the columns of a batch (``ColumnCaller``): by evaluators of batches, in Python and on the native core.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lmerge.temporal.expressions.array_forms import array_of, exact_array, is_flat, listed, takes_arrow
from lmerge.temporal.expressions.tree import UserFunction
from lmerge.temporal.expressions.typed import EvaluationFailure, Site
from lmerge.temporal.python_values import Converter, canonical_form, python_form
from lmerge.temporal.user_code import is_interrupt
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


def column_caller(function: UserFunction, types: tuple[Column, ...], site: Site) -> ColumnCaller:
    """Return what calls a user's function for columns of canonical values. ``types``: of the operands."""
    made = VectorisedCaller if function.vectorised else RepeatedCaller
    return made(function, types, site)


def _row_caller(function: UserFunction, types: tuple[Column, ...], site: Site) -> Callable[..., Any]:
    call, result = function.function, canonical_form(function.result)
    conversions = _conversions(types)

    def call_plain(*arguments: Any) -> Any:
        try:
            value = call(*arguments)
        except BaseException as error:
            if is_interrupt(error):
                raise
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


class ColumnCaller(ABC):
    """Calls a function for columns of arguments.

    ``takes_arrow``: whether ``results_of_arrow`` is for it, and not ``results``. Both return what ``canonical`` makes
    values of a plan of, as a list. All raise BatchFailure, whose ``index`` is the first row that fails, if known.
    """

    takes_arrow = False

    def __init__(self, function: UserFunction, types: tuple[Column, ...], site: Site, order: int = 0) -> None:
        self.order = order
        self._function = function
        self._site = site
        self._conversions = _conversions(types)
        self._result = canonical_form(function.result)
        self.can_return_none = function.result.nullable

    @abstractmethod
    def results(self, columns: Sequence[list[Any]], count: int) -> list[Any]:
        """Return what the function returns for ``count`` rows of canonical values."""

    def canonical(self, results: list[Any]) -> list[Any]:
        """Return results as values of a plan."""
        try:
            return list(map(self._result, results))
        except ValueError:
            raise self._first_misfit(results) from None

    def _first_misfit(self, results: list[Any]) -> BatchFailure:
        for index, value in enumerate(results):
            try:
                self._result(value)
            except ValueError as problem:
                return BatchFailure.of(_misfit(self._function, self._site, problem), index)
        raise AssertionError("a result was refused that is of its type")

    def _converted_columns(self, columns: Sequence[list[Any]]) -> list[list[Any]]:
        pairs = zip(self._conversions, columns, strict=True)
        try:
            return [column if convert is None else list(map(convert, column)) for convert, column in pairs]
        except ValueError:
            raise self._first_refused(columns) from None

    def _first_refused(self, columns: Sequence[list[Any]]) -> BatchFailure:
        for index, row in enumerate(zip(*columns, strict=True)):
            try:
                _converted(row, self._conversions, self._function, self._site)
            except EvaluationFailure as failure:
                return BatchFailure.of(failure, index)
        raise AssertionError("a row was refused that can be converted")


class RepeatedCaller(ColumnCaller):
    """Calls a function of one row for every row, in order, until it fails."""

    def results(self, columns: Sequence[list[Any]], count: int) -> list[Any]:
        """Return a result for each row."""
        refused = None
        try:
            columns = self._converted_columns(columns)
        except BatchFailure as failure:
            refused, before = failure, failure.index
            columns = self._converted_columns([column[:before] for column in columns])
            count = before or 0
        results = self._called(columns, count)
        if refused is not None:
            self.canonical(results)
            raise refused
        return results

    def _called(self, columns: Sequence[list[Any]], count: int) -> list[Any]:
        call, results = self._function.function, list[Any]()
        if not columns:
            columns = [[]] * count
            call = _without_arguments(call)
        try:
            results.extend(map(call, *columns))  # keeps what came before an exception
            if len(results) < count:  # StopIteration would look like the end
                raise StopIteration
        except BaseException as error:
            if is_interrupt(error):
                raise
            self.canonical(results)  # a result that does not fit is an error of an earlier row
            raise BatchFailure.of(_raised(self._function, self._site, error), len(results)) from error
        return results


def _without_arguments(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _: call()


class VectorisedCaller(ColumnCaller):
    """Calls a vectorised function: once for all rows."""

    def __init__(self, function: UserFunction, types: tuple[Column, ...], site: Site, order: int = 0) -> None:
        super().__init__(function, types, site, order)
        can_be_none = [declared.nullable and function.nulls == "pass" for declared in function.arguments]
        pairs = zip(types, can_be_none, strict=True)
        self._given = [replace(column, nullable=is_nullable) for column, is_nullable in pairs]
        if function.columns == "arrow":  # which has times that Python does not have
            self._conversions = [None if is_flat(column) else python_form(column) for column in types]
        self.takes_arrow = takes_arrow(function.columns, self._given)

    def results(self, columns: Sequence[list[Any]], count: int) -> list[Any]:
        """Return a result for each row. The function gets lists, or arrays if it declares that."""
        converted = self._converted_columns(columns)
        pairs = zip(converted, self._given, strict=True)
        found: list[Any] = self._called(
            [array_of(self._function.columns, *pair) for pair in pairs], count, self._listed
        )
        return found

    def results_of_arrow(self, batch: Any, count: int) -> Any:
        """Return the results for a batch of Arrow: a list, or a batch of Arrow if they have the declared type."""
        import pyarrow as pa

        arrays = pa.record_batch(batch).columns
        if self._function.columns == "numpy":
            arrays = [column.to_numpy(zero_copy_only=False) for column in arrays]
        return self._called(arrays, count, self._exact)

    def _listed(self, results: Any) -> list[Any]:
        return listed(results, self._function.result)

    def _exact(self, results: Any) -> Any:
        exact = exact_array(results, self._function.result)
        return self._listed(results) if exact is None else exact

    def _called(self, arrays: Sequence[Any], count: int, finish: Callable[[Any], Any]) -> Any:
        """Return ``finish`` of what the function returns."""
        if self._function.columns == "numpy":
            for array in arrays:
                array.flags.writeable = False
        try:
            results = self._function.function(*arrays)
            if not hasattr(results, "__len__"):
                results = list(results)
            length = len(results)
            finished = finish(results) if length == count else None
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise self._failed(_raised(self._function, self._site, error), count, self._culprit(arrays)) from error
        if length != count:
            problem = f"{_named(self._function)} returned {length} results for {count} rows"
            raise self._failed(self._site.failure(problem), count, None)
        return finished

    def _failed(self, failure: EvaluationFailure, count: int, index: int | None) -> BatchFailure:
        if index is None and count > 1:
            failure.problem += f", in a batch of {count} rows; the first is the one shown"
        return BatchFailure.of(failure, index)

    def _culprit(self, arrays: Sequence[Any]) -> int | None:
        """Return the first row for which the function raises by itself, if it can be called again."""
        if not self._function.deterministic:
            return None
        for index in range(len(arrays[0])):
            try:
                self._listed(self._function.function(*(array[index : index + 1] for array in arrays)))
            except BaseException as error:
                if is_interrupt(error):
                    raise
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


def _raised(function: UserFunction, site: Site, error: BaseException) -> EvaluationFailure:
    return site.failure(f"{_named(function)} raised {type(error).__name__}: {error}")


def _misfit(function: UserFunction, site: Site, problem: ValueError) -> EvaluationFailure:
    return site.failure(f"{_named(function)} returned a result that is no {function.result.describe()}: {problem}")
