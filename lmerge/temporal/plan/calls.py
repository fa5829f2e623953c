"""Calls of aggregates and modules in a plan: by name, with arguments over the rows that come in, and parameters.

A call is a value, and is bound where its node is built. An aggregate that comes with lmerge has no version. A user's
module has one: the plan records it, and is refused where another version is installed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any, Final

from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.binding import bind
from lmerge.temporal.expressions.json_format import node_from_json, node_to_json
from lmerge.temporal.expressions.printing import shown
from lmerge.temporal.expressions.properties import plain_column
from lmerge.temporal.expressions.tree import LiteralValue, Node
from lmerge.temporal.modules.adapters import UserWindowModule, bind_operator_module, check_policies
from lmerge.temporal.modules.aggregates import WindowAggregate
from lmerge.temporal.modules.arguments import Argument
from lmerge.temporal.modules.builtin import BUILTIN_AGGREGATES
from lmerge.temporal.modules.calls import WindowContext
from lmerge.temporal.modules.kinds import OperatorModule, UserModule
from lmerge.temporal.modules.registry import MODULES, bind_call
from lmerge.temporal.plan.functions import check_deterministic
from lmerge.temporal.python_values import canonical_form, python_form
from lmerge.temporal.windows.policies import Clip, Stamp
from lmerge.wire.schema import Column, Schema


class CallParameters(Mapping[str, Any]):
    """Parameters by name: numbers, text, truth values, None and lists of them. Raises PlanError for others.

    They are equal if their JSON is: 1, 1.0 and True are different parameters.
    """

    __slots__ = ("_text", "_values")

    def __init__(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError):
                raise PlanError(f"parameter {name!r:.64} is {value!r:.64}, which a plan cannot record") from None
        self._text = json.dumps(dict(values), sort_keys=True)
        self._values: dict[str, Any] = json.loads(self._text)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CallParameters) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return f"CallParameters({self._text})"


NO_PARAMETERS: Final = CallParameters({})


@dataclass(frozen=True)
class WindowCall:
    """A call in a window. ``arguments`` None: the columns that have the names of the module's inputs.

    ``version``: of a user's module; None: an aggregate that comes with lmerge. ``on_empty``: the result of a window
    without events; None: such a window has no results, unless the module declares that it has some.
    """

    name: str
    arguments: tuple[Node, ...] | None = ()
    parameters: CallParameters = NO_PARAMETERS
    version: int | None = None
    on_empty: LiteralValue | None = None

    @property
    def shown(self) -> str:
        """The call as text."""
        inside = [shown(node) for node in self.arguments or ()]
        inside += [f"{key}={value!r}" for key, value in self.parameters.items()]
        inside += [] if self.on_empty is None else [f"on_empty={shown(self.on_empty)}"]
        return f"{self.name}({', '.join(inside)})"

    @cached_property
    def module(self) -> UserModule | None:
        """The user's module that is called, or None. Raises PlanError if it is not installed in this version."""
        if self.version is None and self.name in BUILTIN_AGGREGATES:
            return None
        return MODULES.module(self.name, self.parameters, self.version)

    def fields(self) -> dict[str, Any]:
        """Return the call as JSON values."""
        fields: dict[str, Any] = {"name": self.name, "parameters": dict(self.parameters)}
        if self.arguments is not None:
            fields["arguments"] = [node_to_json(node) for node in self.arguments]
        if self.version is not None:
            fields["version"] = self.version
        return fields | ({} if self.on_empty is None else {"on_empty": node_to_json(self.on_empty)})

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> WindowCall:
        """Return the call of ``fields``. Raises PlanError."""
        unknown = fields.keys() - {"name", "parameters", "arguments", "version", "on_empty"}
        if unknown:
            raise PlanError(f"a call has no field {min(unknown)!r:.64}")
        arguments, version = fields.get("arguments"), fields.get("version")
        if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
            raise PlanError(f"the version of {fields['name']!r:.64} is {version!r:.64}, which is no whole number")
        made = None if arguments is None else tuple(map(node_from_json, arguments))
        on_empty = node_from_json(fields["on_empty"]) if "on_empty" in fields else None
        return cls(fields["name"], made, CallParameters(fields["parameters"]), version, constant(on_empty))

    @property
    def takes_empty(self) -> bool:
        """Whether a window without events has a result."""
        module = self.module
        return self.on_empty is not None or (module is not None and not module.properties.empty_preserving)

    def bound_aggregate(self, result: str, schema: Schema, title: str, context: WindowContext) -> WindowAggregate:
        """Return the aggregate over rows of ``schema``. Raises PlanError, which begins with ``title``."""
        arguments = (
            None if self.arguments is None else [argument_of_node(node, schema, title) for node in self.arguments]
        )
        try:
            return bind_call(self.name, arguments, self.parameters, result, schema, context, version=self.version)
        except PlanError as problem:
            raise PlanError(f"{title}: {problem}") from None

    def bound_operator(self, schema: Schema, title: str, context: WindowContext) -> UserWindowModule:
        """Return the module over rows of ``schema``. Raises PlanError, which begins with ``title``."""
        arguments = (
            None if self.arguments is None else [argument_of_node(node, schema, title) for node in self.arguments]
        )
        try:
            module = self.module
            if not isinstance(module, OperatorModule):
                raise PlanError(f"{self.name!r:.64} is an aggregate: it returns one value, and no rows")
            return bind_operator_module(module, schema, arguments, context)
        except PlanError as problem:
            raise PlanError(f"{title}: {problem}") from None

    def check_policies(self, title: str, clip: Clip, stamp: Stamp) -> None:
        """Raise PlanError if clipping or timestamps do not go with the module that is called."""
        module = self.module
        if module is None:
            return
        try:
            check_policies(module, clip, stamp)
        except PlanError as problem:
            raise PlanError(f"{title}: {problem}") from None


def constant(node: Node | None) -> LiteralValue | None:
    """Return a constant, or None. Raises PlanError for an expression that is computed from rows."""
    if node is None or isinstance(node, LiteralValue):
        return node
    raise PlanError(f"on_empty is ({shown(node)}); a window without events has no rows, so it is a constant")


def value_of_constant(literal: LiteralValue, column: Column) -> Any:
    """Return a constant as a value of a column. Raises PlanError if it does not fit."""
    value = literal.value
    if literal.type is not None and value is not None:
        form = python_form(literal.type)
        value = value if form is None else form(value)
    if value is None and not column.nullable:
        column = replace(column, nullable=True)
    try:
        return canonical_form(column)(value)
    except ValueError as problem:
        raise PlanError(f"on_empty of {column.name!r:.64}, which is {column.describe()}: {problem}") from None


def argument_of_node(node: Node, schema: Schema, title: str) -> Argument:
    """Return an expression over rows of ``schema`` as an argument. Raises PlanError, which begins with ``title``."""
    check_deterministic(title, [node])
    bound = bind(node, schema, operator=title)
    name = plain_column(node)
    if name is None:
        return Argument(bound.column, node, bound.evaluate)
    place = schema.names.index(name)
    return Argument(replace(bound.column, name=name), place, itemgetter(place))
