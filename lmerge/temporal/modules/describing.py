"""What there is to learn about a module: its kind, columns, parameters, properties and origin (M12).

Called by ``lmerge module``. A description imports the module.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass

from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.functions import ScalarFunction
from lmerge.temporal.expressions.tree import UserFunction
from lmerge.temporal.modules.functions import FunctionAggregate
from lmerge.temporal.modules.kinds import ROWS, AggregateModule, Incremental, Mergeable, OperatorModule
from lmerge.temporal.modules.registry import MODULES, Declared, ModuleRegistry, signature_of
from lmerge.temporal.user_code import is_interrupt
from lmerge.wire.schema import parse_schema


@dataclass(frozen=True)
class DescribedParameter:
    """A parameter: its type as it is annotated, and its default as text; None: it must be given."""

    name: str
    type: str
    default: str | None


@dataclass(frozen=True)
class ModuleDescription:
    """What a module is. ``kind``: such as "aggregate, incremental", or "function". ``origin``: where it is from.

    ``inputs`` is "any" if an operator takes all rows. ``results`` is "depends on the inputs" where that is so.
    """

    name: str
    version: int
    kind: str
    summary: str
    inputs: str
    results: str
    parameters: tuple[DescribedParameter, ...]
    properties: tuple[str, ...]
    origin: str


def describe(name: str, modules: ModuleRegistry = MODULES) -> ModuleDescription:
    """Return what a module declares. Raises PlanError if there is none, or several, or it is unreadable."""
    declared = modules.declared(name)
    (origin,) = modules.origins(name) or ["it is declared in this process"]
    if isinstance(declared, ScalarFunction):
        return _of_function(declared.declared, origin)
    try:
        return _of_module(name, declared, origin)
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise PlanError(f"module {name!r} declares what cannot be read: {type(error).__name__}: {error}") from error


def _of_module(name: str, declared: Declared, origin: str) -> ModuleDescription:
    return ModuleDescription(
        name,
        declared.version,
        kind_of(declared),
        _summary(declared),
        _inputs(declared),
        _results(declared),
        tuple(_described(one) for one in signature_of(declared).parameters.values()),
        (*([] if declared.columns == ROWS else [f"columns={declared.columns}"]), *declared.properties.describe()),
        origin,
    )


def kind_of(declared: Declared) -> str:
    """Return the kind of a module of windows as text."""
    found = declared if isinstance(declared, type) else type(declared)
    kind = ["aggregate" if issubclass(found, AggregateModule) else "operator"]
    kind += ["time-sensitive"] * found.is_timed + ["incremental"] * issubclass(found, Incremental)
    return ", ".join(kind + ["mergeable"] * issubclass(found, Mergeable))


def _of_function(declared: UserFunction, origin: str) -> ModuleDescription:
    return ModuleDescription(
        declared.name,
        declared.version,
        "function, vectorised" if declared.vectorised else "function",
        _summary(declared.function),
        ", ".join(column.describe() for column in declared.arguments) or "nothing",
        declared.result.describe(),
        (),
        tuple(_function_properties(declared)),
        origin,
    )


def _function_properties(declared: UserFunction) -> Iterator[str]:
    if declared.columns != "list":
        yield f"columns={declared.columns}"
    if declared.nulls != "skip":
        yield f"nulls={declared.nulls}"
    if declared.injective:
        yield "injective"
    if not declared.deterministic:
        yield "not deterministic"


def _summary(declared: object) -> str:
    return (inspect.getdoc(declared) or "").partition("\n")[0]


def _inputs(declared: Declared) -> str:
    if isinstance(declared, FunctionAggregate):
        return str(declared.input_schema())
    return "any" if declared.inputs is None else str(parse_schema(declared.inputs))


def _results(declared: Declared) -> str:
    if isinstance(declared, FunctionAggregate):
        return declared.result_column(declared.input_schema()).describe()
    if issubclass(declared, AggregateModule):
        return declared.result or "depends on the inputs"
    results = declared.results if issubclass(declared, OperatorModule) else None
    return "depends on the inputs" if results is None else str(parse_schema(results))


def _described(parameter: inspect.Parameter) -> DescribedParameter:
    empty = inspect.Parameter.empty
    kind = "any" if parameter.annotation is empty else inspect.formatannotation(parameter.annotation).strip("'\"")
    return DescribedParameter(parameter.name, kind, None if parameter.default is empty else repr(parameter.default))
