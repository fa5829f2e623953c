"""User-defined scalar functions: Python callables with declared types, which expressions and plans call by name.

::

    @scalar_function(["int"], "float")
    def threshold(id):
        return {1: 5.0, 2: 7.0}[id]

    readings.where(col.value < threshold(col.id))

A plan in JSON has the name and the version, never the code. The process that reads it has imported the module that
declares the function, or a package has declared the function as an entry point (``installed``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, get_args

from lmerge.errors import UsageError
from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.array_forms import Arrays
from lmerge.temporal.expressions.installed import check_own_name, loaded
from lmerge.temporal.expressions.surface import Expression, Operand, node_of
from lmerge.temporal.expressions.tree import Nulls, UserCall, UserFunction
from lmerge.temporal.expressions.typing_rules import type_of
from lmerge.wire.names import check_name
from lmerge.wire.schema import Column

TypeLike: TypeAlias = str | Mapping[str, object] | Column
"""A type as a schema has it: ``"float?"``, or the fields of a struct; or a column, whose name does not matter."""

Declare: TypeAlias = "Callable[[Callable[..., Any]], ScalarFunction]"


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A declared function. Called with expressions and constants, it gives an expression. ``declared``: what it is."""

    declared: UserFunction

    @property
    def module_name(self) -> str:
        """The name by which plans call it."""
        return self.declared.name

    @property
    def version(self) -> int:
        """The version that plans record."""
        return self.declared.version

    def __call__(self, *operands: Operand) -> Expression:
        count = len(self.declared.arguments)
        if len(operands) != count:
            raise PlanError(f"function {self.declared.name!r} takes {count} arguments, not {len(operands)}")
        return Expression(UserCall(self.declared, tuple(map(node_of, operands))))


class FunctionRegistry:
    """Functions by name and version: those of this process, and of packages. A name and a version are declared once."""

    def __init__(self) -> None:
        self._functions: dict[tuple[str, int], UserFunction] = {}

    def scalar(
        self,
        arguments: Sequence[TypeLike],
        result: TypeLike,
        *,
        name: str | None = None,
        version: int = 1,
        nulls: Nulls = "skip",
        deterministic: bool = True,
        injective: bool = False,
        vectorised: bool = False,
        columns: Arrays = "list",
    ) -> Declare:
        """Declare a function of one row, or with ``vectorised`` of lists with a value for each row of a batch.

        ``columns``: what a vectorised function gets for each argument. It may not write to an array, and returns an
        array or a list. In arrays of NumPy numbers and truth values that are there are as they are, others objects.
        ``name``: that of the callable if there is none. What else is declared: see ``UserFunction``. Raises PlanError
        if the name is taken or a type is wrong.
        """
        taken, given = tuple(map(_type, arguments)), _type(result)

        def declare(function: Callable[..., Any]) -> ScalarFunction:
            declared = UserFunction(
                getattr(function, "__name__", "") if name is None else name,
                version,
                taken,
                given,
                function,
                nulls,
                deterministic,
                injective,
                vectorised,
                columns,
            )
            self._add(declared)
            return ScalarFunction(declared)

        return declare

    def _add(self, function: UserFunction) -> None:
        try:
            check_name("function", function.name)
        except UsageError as problem:
            raise PlanError(str(problem)) from None
        if function.nulls not in ("skip", "pass"):
            raise PlanError(f"function {function.name!r}: nulls is 'skip' or 'pass', not {function.nulls!r:.64}")
        if function.vectorised and not function.arguments:
            raise PlanError(f"function {function.name!r} is vectorised, and has no argument with the length of a batch")
        if function.columns not in get_args(Arrays):
            raise PlanError(
                f"function {function.name!r}: columns is {function.columns!r:.64}; it is one of "
                f"{', '.join(get_args(Arrays))}"
            )
        if function.columns != "list" and not function.vectorised:
            raise PlanError(f"function {function.name!r} takes columns, so it has to be declared vectorised")
        if not isinstance(function.version, int) or isinstance(function.version, bool) or function.version < 1:
            raise PlanError(f"function {function.name!r}: a version is a number from 1, not {function.version!r:.64}")
        if (function.name, function.version) in self._functions:
            raise PlanError(f"function {function.name!r} version {function.version} is declared twice")
        self._functions[function.name, function.version] = function

    def find(self, name: str, version: int) -> UserFunction:
        """Return a function; import the package that declares it, if none is here. Raises PlanError.

        The message names the versions that are there.
        """
        found = self._functions.get((name, version))
        if found is not None:
            return found
        versions = self.versions(name)
        if version in versions:
            return versions[version]
        if versions:
            others = ", ".join(map(str, sorted(versions)))
            raise PlanError(f"function {name!r:.100} has no version {version!r:.20}; it is declared in {others}")
        raise PlanError(
            f"the plan needs function {name!r:.100} version {version!r:.20}, which is not installed; "
            "import the module that declares it, or install its package"
        )

    def versions(self, name: str) -> dict[int, UserFunction]:
        """Return a function by its versions, after the import of the package that declares it. Raises PlanError."""
        declared = loaded(name)
        if isinstance(declared, ScalarFunction):
            check_own_name(name, declared.module_name)
        versions = {number: one for (other, number), one in self._functions.items() if other == name}
        if isinstance(declared, ScalarFunction):
            versions.setdefault(declared.version, declared.declared)
        return versions


def _type(declared: TypeLike) -> Column:
    return replace(declared, name="") if isinstance(declared, Column) else type_of(declared)


FUNCTIONS: Final = FunctionRegistry()
"""The functions of the process."""

scalar_function = FUNCTIONS.scalar


def call(name: str, *operands: Operand, version: int = 1, functions: FunctionRegistry = FUNCTIONS) -> Expression:
    """Return the call of a declared function by its name. Raises PlanError if there is none."""
    return ScalarFunction(functions.find(name, version))(*operands)
