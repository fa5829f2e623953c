"""Modules by name (M12): those that packages declare (``expressions.installed``), and those that are registered.

A module of windows is a class derived from one of the eight kinds, or a function under ``aggregate_function``; a
function under ``scalar_function`` is called by expressions. Tests and notebooks register modules of windows by a call.
A name stands for one module: two of one name, or one with the name of an aggregate that comes with lmerge, are an error
that names where both come from.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.functions import FUNCTIONS, FunctionRegistry, ScalarFunction
from lmerge.temporal.expressions.installed import GROUP, check_own_name, check_unique, installed, loaded, origins
from lmerge.temporal.modules.adapters import NO_CONTEXT, bind_aggregate_module
from lmerge.temporal.modules.aggregates import WindowAggregate
from lmerge.temporal.modules.arguments import Argument, column_argument
from lmerge.temporal.modules.builtin import BUILTIN_AGGREGATES, bind_aggregate
from lmerge.temporal.modules.calls import WindowContext
from lmerge.temporal.modules.functions import FunctionAggregate
from lmerge.temporal.modules.kinds import AggregateModule, OperatorModule, UserModule
from lmerge.temporal.user_code import is_interrupt
from lmerge.wire.schema import Schema

Declared: TypeAlias = "type[UserModule] | FunctionAggregate"
"""A module of windows, as a package or a registration declares it."""


class ModuleRegistry:
    """The modules that are installed, and those that are registered. ``functions``: those of this process."""

    def __init__(self, functions: FunctionRegistry = FUNCTIONS) -> None:
        self._registered: dict[str, Declared] = {}
        self._functions = functions

    def register(self, declared: Declared, name: str | None = None) -> None:
        """Make a module known by a name, its own if none is given. Raises PlanError if the name is taken."""
        if not _is_module(declared):
            raise PlanError(f"{declared!r:.64} is no module: derive a class from a kind, or declare a function")
        found = name or own_name(declared)
        taken = self.origins(found)
        if taken:
            raise PlanError(f"a module {found!r:.64} is there already: {', '.join(taken)}")
        self._registered[found] = declared

    def named(self, declared: Declared) -> str:
        """Return the name of a module, registered now if no package declares it. Raises PlanError if it is taken."""
        name = own_name(declared)
        if self.origins(name) and name not in BUILTIN_AGGREGATES and self.find(name) is declared:
            return name
        self.register(declared)
        return name

    def forget(self, name: str) -> None:
        """Make a registered module unknown."""
        self._registered.pop(name, None)

    def names(self) -> list[str]:
        """Return the names of all that packages declare and that is registered, in order. Imports nothing."""
        return sorted({*self._registered, *installed()})

    def find(self, name: str) -> Declared:
        """Import and return the module of windows of a name. Raises PlanError if there is none, or several."""
        found = self.declared(name)
        if isinstance(found, ScalarFunction):
            raise PlanError(f"{name!r:.64} is a function of rows: expressions call it, and not windows")
        return found

    def declared(self, name: str) -> Declared | ScalarFunction:
        """Import and return what is declared under a name. Raises PlanError if there is nothing, or several."""
        check_unique(name, self.origins(name))
        if name in self._registered:
            return self._registered[name]
        found = loaded(name)
        if found is None:
            versions = self._functions.versions(name)
            if versions:
                return ScalarFunction(versions[max(versions)])
            names = ", ".join(self.names()) or "none: no installed package declares one"
            raise PlanError(f"there is no module {name!r:.64}; there are {names}")
        if not _is_module(found) and not isinstance(found, ScalarFunction):
            raise PlanError(f"the entry point {name} of {GROUP} is no module: {origins(name)[0]}")
        result: Declared | ScalarFunction = found  # type: ignore[assignment]  # as _is_module has it
        check_own_name(name, own_name(result))
        return result

    def module(self, name: str, parameters: Mapping[str, Any] | None = None, version: int | None = None) -> UserModule:
        """Return a module with parameters. ``version``: what a plan has recorded.

        Raises PlanError if it is not installed in that version, or for a parameter that does not fit.
        """
        if version is not None and not self.origins(name):
            raise PlanError(f"the plan needs module {name!r:.64} version {version}, which is not installed")
        declared = self.find(name)
        if version is not None and version != declared.version:
            raise PlanError(f"the plan needs module {name!r} version {version}, and version {declared.version} is here")
        module = constructed(name, declared, parameters or {})
        module.name = name
        return module

    def recorded_version(self, name: str) -> int | None:
        """Return the version that a plan records of an aggregate; None if it comes with lmerge, or is not there."""
        is_own = name in BUILTIN_AGGREGATES or not self.origins(name)
        return None if is_own else self.find(name).version

    def origins(self, name: str) -> list[str]:
        """Return where modules of a name come from."""
        found = ["it comes with lmerge"] if name in BUILTIN_AGGREGATES else []
        found += ["it is registered"] if name in self._registered else []
        return found + origins(name)


def constructed(name: str, declared: Declared, parameters: Mapping[str, Any]) -> UserModule:
    """Return a module with parameters. Raises PlanError, which names the parameter that does not fit."""
    signature = signature_of(declared)
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
        made = declared.given(**parameters) if isinstance(declared, FunctionAggregate) else declared(**parameters)
        made.input_schema()  # what is declared, or computed from the parameters
        return made
    except BaseException as error:
        if is_interrupt(error):
            raise
        given = ", ".join(f"{key}={value!r:.64}" for key, value in parameters.items())
        raise PlanError(f"{shown} cannot be made with ({given}): {type(error).__name__}: {error}") from error


def own_name(declared: Declared | ScalarFunction) -> str:
    """Return the name of a module, whatever it is registered as."""
    return declared.name_of_class() if isinstance(declared, type) else declared.module_name


def signature_of(declared: Declared) -> inspect.Signature:
    """Return the parameters of a module."""
    return declared.signature if isinstance(declared, FunctionAggregate) else inspect.signature(declared)


def _is_module(declared: object) -> bool:
    if isinstance(declared, FunctionAggregate):
        return True
    is_kind = isinstance(declared, type) and issubclass(declared, (AggregateModule, OperatorModule))
    return is_kind and not inspect.isabstract(declared)


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
    if version is None and not modules.origins(name):
        names = ", ".join([*BUILTIN_AGGREGATES, *modules.names()])
        raise PlanError(f"there is no aggregate {name!r:.64}; there are {names}")
    module = modules.module(name, parameters, version)
    if not isinstance(module, AggregateModule):
        raise PlanError(f"{module.shown} is an operator: it returns rows, and not one value")
    inputs = module.input_schema()
    if arguments is None and inputs is not None:
        arguments = [column_argument(schema, column, module.shown) for column in inputs.names]
    return bind_aggregate_module(module, arguments or (), result, context)
