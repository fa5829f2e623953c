"""Modules by name (M12).

A package declares its modules as entry points of the group ``lmerge.modules``::

    [project.entry-points."lmerge.modules"]
    my_average = "my_package.modules:MyAverage"

The value is a class derived from one of the eight kinds, or a function under ``aggregate``. It is imported when the
module is used or described, and not before. Tests and notebooks register modules by a call. A name stands for one
module: two of one name, or one with the name of a built-in aggregate, are an error that names where both come from.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, TypeAlias

from lmerge.temporal.errors import PlanError
from lmerge.temporal.modules.adapters import NO_CONTEXT, bind_aggregate_module
from lmerge.temporal.modules.aggregates import WindowAggregate
from lmerge.temporal.modules.arguments import Argument, column_argument
from lmerge.temporal.modules.builtin import BUILTIN_AGGREGATES, bind_aggregate
from lmerge.temporal.modules.calls import WindowContext
from lmerge.temporal.modules.functions import FunctionAggregate
from lmerge.temporal.modules.kinds import AggregateModule, Incremental, Mergeable, OperatorModule, UserModule
from lmerge.wire.schema import Schema, parse_schema

GROUP: Final = "lmerge.modules"

Declared: TypeAlias = "type[UserModule] | FunctionAggregate"
"""What an entry point or a registration has."""


@dataclass(frozen=True)
class DescribedParameter:
    """A parameter: its type as it is annotated, and its default as text; None: it must be given."""

    name: str
    type: str
    default: str | None


@dataclass(frozen=True)
class ModuleDescription:
    """What there is to learn about a module. ``kind``: such as "aggregate, incremental". ``origin``: where it is from.

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


class ModuleRegistry:
    """The modules that are installed, and those that are registered."""

    def __init__(self) -> None:
        self._registered: dict[str, Declared] = {}

    def register(self, declared: Declared, name: str | None = None) -> None:
        """Make a module known by a name, its own if none is given. Raises PlanError if the name is taken."""
        if not _is_module(declared):
            raise PlanError(f"{declared!r:.64} is no module: derive a class from a kind, or declare a function")
        found = name or _own_name(declared)
        origins = self._origins(found)
        if origins:
            raise PlanError(f"a module {found!r:.64} is there already: {', '.join(origins)}")
        self._registered[found] = declared

    def named(self, declared: Declared) -> str:
        """Return the name of a module, registered now if no package declares it. Raises PlanError if it is taken."""
        name = _own_name(declared)
        if self._origins(name) and name not in BUILTIN_AGGREGATES and self.find(name) is declared:
            return name
        self.register(declared)
        return name

    def forget(self, name: str) -> None:
        """Make a registered module unknown."""
        self._registered.pop(name, None)

    def names(self) -> list[str]:
        """Return the names of all modules, in order. Imports none. Raises PlanError if two have one name."""
        names = {*self._registered, *(found.name for found in entry_points(group=GROUP))}
        for name in sorted(names):
            self._one_origin(name)
        return sorted(names)

    def find(self, name: str) -> Declared:
        """Import and return what is declared under a name. Raises PlanError if there is none, or several."""
        self._one_origin(name)
        if name in self._registered:
            return self._registered[name]
        for found in entry_points(group=GROUP, name=name):
            return _loaded(found)
        names = ", ".join(self.names()) or "none: no installed package declares one"
        raise PlanError(f"there is no module {name!r:.64}; there are {names}")

    def module(self, name: str, parameters: Mapping[str, Any] | None = None, version: int | None = None) -> UserModule:
        """Return a module with parameters. ``version``: what a plan has recorded.

        Raises PlanError if another version is installed, or for a parameter that does not fit.
        """
        declared = self.find(name)
        if version is not None and version != declared.version:
            raise PlanError(f"the plan needs module {name!r} version {version}, and version {declared.version} is here")
        module = constructed(name, declared, parameters or {})
        module.name = name
        return module

    def describe(self, name: str) -> ModuleDescription:
        """Return what a module declares. Raises PlanError as ``find``."""
        declared = self.find(name)
        summary = (inspect.getdoc(declared) or "").partition("\n")[0]
        inputs = declared.input_schema() if isinstance(declared, FunctionAggregate) else _class_inputs(declared)
        return ModuleDescription(
            name,
            declared.version,
            kind_of(declared),
            summary,
            inputs if isinstance(inputs, str) else str(inputs),
            _results(declared),
            tuple(_described(one) for one in _signature(declared).parameters.values()),
            tuple(declared.properties.describe()),
            self._one_origin(name),
        )

    def _one_origin(self, name: str) -> str:
        origins = self._origins(name)
        if len(origins) > 1:
            raise PlanError(f"the name of module {name!r:.64} is not unique: {', '.join(origins)}")
        return origins[0] if origins else ""

    def _origins(self, name: str) -> list[str]:
        """Return where modules of a name come from."""
        found = ["it comes with lmerge"] if name in BUILTIN_AGGREGATES else []
        found += ["it is registered"] if name in self._registered else []
        return found + sorted({_origin(one) for one in entry_points(group=GROUP, name=name)})


def constructed(name: str, declared: Declared, parameters: Mapping[str, Any]) -> UserModule:
    """Return a module with parameters. Raises PlanError, which names the parameter that does not fit."""
    signature = _signature(declared)
    shown = f"module {name!r}"
    unknown = [key for key in parameters if key not in signature.parameters]
    if unknown:
        there = ", ".join(signature.parameters) or "none"
        raise PlanError(f"{shown} has no parameter {unknown[0]!r:.64}; there are {there}")
    empty = inspect.Parameter.empty
    missing = [one.name for one in signature.parameters.values() if one.default is empty and one.name not in parameters]
    if missing:
        raise PlanError(f"{shown} needs the parameter {missing[0]!r:.64}")
    for key, value in parameters.items():
        if not _is_plain(value):
            raise PlanError(f"{shown}: parameter {key!r:.64} is {value!r:.64}, which a plan cannot record")
    try:
        return declared.given(**parameters) if isinstance(declared, FunctionAggregate) else declared(**parameters)
    except Exception as error:
        given = ", ".join(f"{key}={value!r:.64}" for key, value in parameters.items())
        raise PlanError(f"{shown} cannot be made with ({given}): {type(error).__name__}: {error}") from error


def kind_of(declared: Declared) -> str:
    """Return the kind of a module as text."""
    found = declared if isinstance(declared, type) else type(declared)
    kind = ["aggregate" if issubclass(found, AggregateModule) else "operator"]
    kind += ["time-sensitive"] * found.is_timed + ["incremental"] * issubclass(found, Incremental)
    return ", ".join(kind + ["mergeable"] * issubclass(found, Mergeable))


def _is_module(declared: object) -> bool:
    if isinstance(declared, FunctionAggregate):
        return True
    is_kind = isinstance(declared, type) and issubclass(declared, (AggregateModule, OperatorModule))
    return is_kind and not inspect.isabstract(declared)


def _own_name(declared: Declared) -> str:
    return declared.module_name if isinstance(declared, FunctionAggregate) else declared.name_of_class()


def _loaded(found: EntryPoint) -> Declared:
    try:
        declared = found.load()
    except Exception as error:
        raise PlanError(f"module {found.name!r} cannot be imported from {found.value}: {error}") from error
    if not _is_module(declared):
        raise PlanError(f"the entry point {found.name} of {GROUP} is no module: {found.value}")
    result: Declared = declared
    return result


def _origin(found: EntryPoint) -> str:
    package = "" if found.dist is None else f" of {found.dist.name} {found.dist.version}"
    return f"{found.value}{package}"


def _signature(declared: Declared) -> inspect.Signature:
    return declared.signature if isinstance(declared, FunctionAggregate) else inspect.signature(declared)


def _class_inputs(declared: type[UserModule]) -> str:
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


def _is_plain(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


MODULES: Final = ModuleRegistry()
"""The modules of this process."""


def bind_call(
    name: str,
    arguments: Sequence[Argument] | None,
    parameters: Mapping[str, Any],
    result: str,
    schema: Schema,
    context: WindowContext = NO_CONTEXT,
    modules: ModuleRegistry = MODULES,
    version: int | None = None,
) -> WindowAggregate:
    """Return an aggregate over rows of ``schema`` by its name: one that comes with lmerge, or a user's.

    ``arguments`` None: the columns that have the names of the module's inputs. ``result``: the name of its column.
    ``version``: what a plan has recorded. Raises PlanError, which names the aggregate and what does not fit.
    """
    if name in BUILTIN_AGGREGATES and version is None:
        return bind_aggregate(name, arguments or (), parameters, result, schema)
    if name not in modules.names():
        names = ", ".join([*BUILTIN_AGGREGATES, *modules.names()])
        raise PlanError(f"there is no aggregate {name!r:.64}; there are {names}")
    module = modules.module(name, parameters, version)
    if not isinstance(module, AggregateModule):
        raise PlanError(f"{module.shown} is an operator: it returns rows, and not one value")
    inputs = module.input_schema()
    if arguments is None and inputs is not None:
        arguments = [column_argument(schema, column, module.shown) for column in inputs.names]
    return bind_aggregate_module(module, arguments or (), result, context)
