"""Nodes of group-and-apply: a sub-plan for each group of a stream (sheet O8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lmerge.errors import UsageError
from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.binding import BoundProjection, bind_all
from lmerge.temporal.expressions.json_format import node_to_json
from lmerge.temporal.expressions.printing import shown
from lmerge.temporal.expressions.properties import plain_column
from lmerge.temporal.expressions.tree import Node
from lmerge.temporal.modules.calls import NO_EMPTY_WINDOWS
from lmerge.temporal.operators.group_apply import GroupApplyOperator
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.plan.compiling import CompiledPlan, compile_plan, in_order
from lmerge.temporal.plan.functions import check_deterministic
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.sources import SourceNode
from lmerge.temporal.plan.windows import WindowNode, keys_of_fields
from lmerge.temporal.values import order_key, order_of
from lmerge.wire.schema import Schema


@dataclass(frozen=True)
class GroupInputNode(SourceNode):
    """The stream of one group, where a sub-plan begins. Its label tells groups inside groups apart."""

    kind = "group"

    @property
    def shown(self) -> str:
        return f"{self.label} ({self.columns})"

    @classmethod
    def of_stream(cls, node: PlanNode) -> GroupInputNode:
        """Return the stream of one group of a node's."""
        depth = 1 + sum(isinstance(one, GroupInputNode) for one in in_order([node]))
        return cls((), "group" if depth == 1 else f"group {depth}", node.schema)


@dataclass(frozen=True)
class GroupApplyNode(PlanNode):
    """The results of a sub-plan for each group of a stream. ``keys``: pairs of a column's name and its expression.

    ``plan``: the sub-plan's result; it reads a ``GroupInputNode`` alone. ``has_keys``: the keys come before its
    columns.
    """

    kind = "group_apply"

    keys: tuple[tuple[str, Node], ...]
    plan: PlanNode
    has_keys: bool = True

    def __post_init__(self) -> None:
        other = next((source.label for source in self.compiled.sources if source != self.group), None)
        if other is not None:
            raise PlanError(f"{self.title}: the sub-plan reads {other!r:.64}, which is not the stream of its group")
        if any(isinstance(one, WindowNode) and one.on_empty is not None for one in in_order([self.plan])):
            raise PlanError(f"{self.title}: on_empty: {NO_EMPTY_WINDOWS}")
        check_deterministic(self.title, [node for _, node in self.keys])
        _ = self.schema  # raises PlanError where two columns have one name

    @cached_property
    def group(self) -> GroupInputNode:
        """Where the sub-plan begins."""
        return GroupInputNode.of_stream(self.reads[0])

    @cached_property
    def compiled(self) -> CompiledPlan:
        """The sub-plan as operators that run for each group."""
        return compile_plan([self.plan])

    @cached_property
    def bound_keys(self) -> BoundProjection:
        """The group's key for the rows that come in."""
        return bind_all(dict(self.keys), self.input_schema, operator=self.title)

    @property
    def inner(self) -> PlanNode:
        return self.plan

    @cached_property
    def schema(self) -> Schema:
        keys = self.bound_keys.columns if self.has_keys else ()
        clash = next((column.name for column in keys if column.name in self.plan.schema.names), None)
        if clash is not None:
            raise PlanError(
                f"{self.title}: the key {clash!r:.64} comes before the sub-plan's columns, and one of them has its "
                "name: leave it out there, or apply with keys=False"
            )
        try:
            return Schema((*keys, *self.plan.schema.columns))
        except UsageError as problem:
            raise PlanError(f"{self.title}: {problem}") from None

    @property
    def shown(self) -> str:
        parts = [name if plain_column(node) == name else f"{name}={shown(node)}" for name, node in self.keys]
        return f"apply by {', '.join(parts) or 'nothing'}{'' if self.has_keys else ', without keys'}"

    def operator(self, name: str) -> PlanOperator:
        keys = self.bound_keys
        return GroupApplyOperator(
            name,
            order_key(self.schema),
            self.compiled.graph,
            keys.evaluate if self.keys else None,
            order_of(keys.columns),
            self.has_keys,
        )

    def fields(self) -> dict[str, Any]:
        return {"keys": [[name, node_to_json(node)] for name, node in self.keys], "has_keys": self.has_keys}

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> GroupApplyNode:
        has_keys = fields["has_keys"]
        if not isinstance(has_keys, bool):
            raise PlanError(f"has_keys is true or false, not {has_keys!r:.64}")
        return cls(tuple(reads), label, keys_of_fields(fields), fields["plan"], has_keys)
