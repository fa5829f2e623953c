"""Plain functions as aggregates: ``list[float] -> float`` and the like, by one decorator (M1).

::

    @aggregate_function()
    def spread(values: list[float]) -> float:
        return max(values) - min(values)

    @aggregate_function(inputs={"value": "decimal(2)", "weight": "int"}, result="float?", columns="numpy")
    def weighted(values, weights, *, power: int = 1): ...

A function gets one column for each input: a list, or an array of NumPy or Arrow if it declares that. Parameters are its
arguments that can be given by name only. The types of inputs and result are declared, or taken from its annotations.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from lmerge.errors import UsageError
from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.array_forms import Arrays
from lmerge.temporal.modules.kinds import Aggregate
from lmerge.temporal.modules.properties import Properties
from lmerge.wire.schema import Column, Schema, SchemaLike, parse_schema

_TYPES: Final[Mapping[Any, str]] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "string",
    bytes: "bytes",
    datetime: "timestamp",
    date: "date",
}


class FunctionAggregate(Aggregate[Any, Any]):
    """An aggregate that is a function of columns. Called like the function, it is the function."""

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Schema,
        result: Column,
        columns: Arrays = "list",
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self._function, self._inputs, self._result, self._form = function, inputs, result, columns
        self.columns = columns
        self.parameters = dict(parameters or {})
        self.__doc__ = function.__doc__

    def __call__(self, *columns: Any, **parameters: Any) -> Any:
        return self._function(*columns, **parameters)

    @property
    def signature(self) -> inspect.Signature:
        """The parameters that a query gives by name."""
        declared = _signature(self._function).parameters.values()
        return inspect.Signature([one for one in declared if one.kind is inspect.Parameter.KEYWORD_ONLY])

    def given(self, **parameters: Any) -> FunctionAggregate:
        """Return the aggregate with parameters."""
        found = FunctionAggregate(self._function, self._inputs, self._result, self._form, parameters)
        found.name, found.version, found.properties = self.name, self.version, self.properties
        return found

    def input_schema(self) -> Schema:
        """Return the inputs."""
        return self._inputs

    def result_column(self, inputs: Schema) -> Column:
        """Return the type of the result."""
        return self._result

    def compute(self, rows: Any) -> Any:
        """Return what the function returns for columns."""
        columns = (rows,) if len(self._inputs.columns) == 1 else rows
        return self._function(*columns, **self.parameters)


def aggregate_function(
    *,
    inputs: SchemaLike | None = None,
    result: str | None = None,
    name: str = "",
    version: int = 1,
    columns: Arrays = "list",
    properties: Properties | None = None,
) -> Callable[[Callable[..., Any]], FunctionAggregate]:
    """Return what makes an aggregate of a function of columns. What it returns raises PlanError.

    ``name``: the function's, if there is none. ``columns``: what it gets for each input. In arrays of NumPy numbers and
    truth values that cannot be missing are as they are, and other values are objects.
    """

    def declare(function: Callable[..., Any]) -> FunctionAggregate:
        shown = name or getattr(function, "__name__", "")
        if not shown.isidentifier():
            raise PlanError(f"an aggregate of {function!r:.64} needs a name")
        if columns not in get_args(Arrays):
            raise PlanError(
                f"aggregate {shown!r}: columns is {columns!r:.64}; it is one of {', '.join(get_args(Arrays))}"
            )
        declared = FunctionAggregate(
            function, _inputs(shown, function, inputs), _result(shown, function, result), columns
        )
        declared.name, declared.version = shown, version
        declared.properties = properties or Properties()
        return declared

    return declare


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # some functions in C have none
        return inspect.Signature()


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except (AttributeError, NameError, TypeError):  # a type that cannot be looked up must be declared
        return {}


def _inputs(shown: str, function: Callable[..., Any], inputs: SchemaLike | None) -> Schema:
    if inputs is not None:
        return _schema(shown, inputs)
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    hints, found = _hints(function), {}
    for parameter in _signature(function).parameters.values():
        if parameter.kind in by_place and parameter.default is inspect.Parameter.empty:
            found[parameter.name] = _type_of_element(hints.get(parameter.name))
    missing = [name for name, kind in found.items() if kind is None]
    if missing or not found:
        raise PlanError(
            f"aggregate {shown!r}: declare its inputs, or annotate {missing[0] if missing else 'its arguments'} "
            "as list[float] or the like"
        )
    return _schema(shown, found)


def _result(shown: str, function: Callable[..., Any], result: str | None) -> Column:
    kind = _type_name(_hints(function).get("return")) if result is None else result
    if kind is None:
        raise PlanError(f"aggregate {shown!r}: declare its result, or annotate what it returns as float or the like")
    return _schema(shown, {"result": kind}).columns[0]


def _schema(shown: str, declared: SchemaLike) -> Schema:
    try:
        return parse_schema(declared)
    except UsageError as problem:
        raise PlanError(f"aggregate {shown!r}: {problem}") from None


def _type_of_element(hint: Any) -> str | None:
    arguments = get_args(hint)
    is_list = get_origin(hint) in (list, Sequence) and len(arguments) == 1
    return _type_name(arguments[0]) if is_list else None


def _type_name(hint: Any) -> str | None:
    """Return a type of a schema for an annotation, or None if there is none that is right without more."""
    if get_origin(hint) in (Union, types.UnionType):
        present = [one for one in get_args(hint) if one is not type(None)]
        inner = _type_name(present[0]) if len(present) == 1 else None
        return None if inner is None else f"{inner}?"
    return _TYPES.get(hint)
