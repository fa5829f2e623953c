"""Nodes of windows: groups, a division of time, and what is computed for each window (II.D.2, III.B, III.C)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from lmerge.errors import UsageError
from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.binding import BoundProjection, bind, bind_all
from lmerge.temporal.expressions.json_format import node_from_json, node_to_json
from lmerge.temporal.expressions.printing import shown
from lmerge.temporal.expressions.tree import Node
from lmerge.temporal.modules.aggregates import aggregate_module
from lmerge.temporal.modules.arguments import Argument
from lmerge.temporal.modules.builtin import bind_aggregate
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.values import order_key, order_of
from lmerge.temporal.windows.group import WindowRules
from lmerge.temporal.windows.kinds import CountedEnd, CountWindows, Hopping, Snapshots, WindowKind
from lmerge.temporal.windows.module import WindowModule
from lmerge.temporal.windows.policies import Clip, Form, Stamp
from lmerge.temporal.windows.window_operator import WindowOperator
from lmerge.wire.schema import Column, Schema

WINDOWS_MAX: Final = 1_000_000


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate in a window: its name, its arguments over the rows that come in, its parameters, and its column."""

    result: str
    name: str
    arguments: tuple[Node, ...] = ()
    parameters: tuple[tuple[str, Any], ...] = ()

    @property
    def shown(self) -> str:
        """The call as text."""
        inside = [shown(node) for node in self.arguments] + [f"{key}={value!r}" for key, value in self.parameters]
        return f"{self.result}={self.name}({', '.join(inside)})"

    def fields(self) -> dict[str, Any]:
        """Return the call as JSON values."""
        return {
            "result": self.result,
            "name": self.name,
            "arguments": [node_to_json(node) for node in self.arguments],
            "parameters": dict(self.parameters),
        }

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> AggregateCall:
        """Return the call of ``fields``."""
        arguments = tuple(map(node_from_json, fields["arguments"]))
        return cls(fields["result"], fields["name"], arguments, tuple(fields["parameters"].items()))


@dataclass(frozen=True)
class AggregateNode(PlanNode):
    """Aggregates in the windows of each group. ``keys``: columns by which rows are grouped, which come first."""

    kind = "aggregate"

    keys: tuple[tuple[str, Node], ...]
    window: WindowKind
    calls: tuple[AggregateCall, ...]
    form: Form = Form.FINAL
    stamp: Stamp = Stamp.ALIGN
    windows_max: int = WINDOWS_MAX

    def __post_init__(self) -> None:
        if not self.calls:
            raise PlanError(f"{self.title}: it computes nothing")
        if self.stamp.keeps_own:
            raise PlanError(
                f"{self.title}: an aggregate has no lifetime of its own, so the output cannot be {self.stamp}"
            )
        if isinstance(self.window, Snapshots) and self.stamp is Stamp.POINT_AT_END:
            raise PlanError(f"{self.title}: the end of a snapshot can move, so a result cannot be a point at it")
        _ = self.schema  # raises PlanError where two columns have one name

    @cached_property
    def bound_keys(self) -> BoundProjection:
        """The group's key for the rows that come in."""
        return bind_all(dict(self.keys), self.input_schema, operator=self.title)

    @cached_property
    def module(self) -> WindowModule:
        """What computes the results of a window."""
        return aggregate_module([bound for bound, _ in self._bound], self.input_schema)

    @cached_property
    def _bound(self) -> list[tuple[Any, Column]]:
        found = []
        for call in self.calls:
            arguments = [self._argument(node) for node in call.arguments]
            try:
                bound = bind_aggregate(call.name, arguments, dict(call.parameters), call.result, self.input_schema)
            except PlanError as problem:
                raise PlanError(f"{self.title}: {problem}") from None
            found.append((bound, bound.result))
        return found

    def _argument(self, node: Node) -> Argument:
        bound = bind(node, self.input_schema, operator=self.title)
        return Argument(bound.column, node, bound.evaluate)

    @property
    def schema(self) -> Schema:
        results = [replace(column, name=call.result) for (_, column), call in zip(self._bound, self.calls, strict=True)]
        try:
            return Schema((*self.bound_keys.columns, *results))
        except UsageError as problem:
            raise PlanError(f"{self.title}: {problem}") from None

    @property
    def shown(self) -> str:
        by = f" by {', '.join(name for name, _ in self.keys)}" if self.keys else ""
        stamp = "" if self.stamp is Stamp.ALIGN else f", {self.stamp}"
        return f"{', '.join(call.shown for call in self.calls)}{by} in {self.window.shown}, {self.form}{stamp}"

    def operator(self, name: str) -> PlanOperator:
        rules = WindowRules(
            self.window, self.module, Clip.NONE, self.stamp, self.form, order_key(self.input_schema), self.windows_max
        )
        keys = self.bound_keys
        key_of, key_order = keys.evaluate if self.keys else None, order_of(keys.columns)
        return WindowOperator(name, rules, order_key(self.schema), key_of, key_order)

    def fields(self) -> dict[str, Any]:
        return {
            "keys": [[name, node_to_json(node)] for name, node in self.keys],
            "window": fields_of_window(self.window),
            "calls": [call.fields() for call in self.calls],
            "form": str(self.form),
            "stamp": str(self.stamp),
            "windows_max": self.windows_max,
        }

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> AggregateNode:
        return cls(
            tuple(reads),
            label,
            tuple((name, node_from_json(node)) for name, node in fields["keys"]),
            window_of_fields(fields["window"]),
            tuple(map(AggregateCall.of_fields, fields["calls"])),
            Form(fields["form"]),
            Stamp(fields["stamp"]),
            fields["windows_max"],
        )


def fields_of_window(window: WindowKind) -> dict[str, Any]:
    """Return a kind of window as JSON values."""
    if isinstance(window, Hopping):
        return {"kind": "hopping", "size": window.size, "hop": window.hop, "offset": window.offset}
    if isinstance(window, CountWindows):
        return {"kind": "count", "count": window.count, "by": window.by.value}
    return {"kind": "snapshot"}


def window_of_fields(fields: Mapping[str, Any]) -> WindowKind:
    """Return the kind of window of ``fields_of_window``. Raises PlanError."""
    kind = fields.get("kind")
    if kind == "hopping":
        return Hopping(fields["size"], fields["hop"], fields["offset"])
    if kind == "count":
        return CountWindows(fields["count"], CountedEnd(fields["by"]))
    if kind == "snapshot":
        return Snapshots()
    raise PlanError(f"there is no window of kind {kind!r:.64}")
