"""Nodes of joins: pairs of events that are valid together, and the parts of events without a partner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.binding import BoundExpression, BoundProjection, bind, bind_all
from lmerge.temporal.expressions.json_format import node_from_json, node_to_json
from lmerge.temporal.expressions.printing import shown
from lmerge.temporal.expressions.tree import Node
from lmerge.temporal.operators.join import JoinKind, JoinOperator, JoinRules
from lmerge.temporal.operators.join_side import JoinInput
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.values import order_key
from lmerge.wire.schema import Column, Schema


@dataclass(frozen=True)
class JoinNode(PlanNode):
    """A join of two streams. ``keys``: pairs of a left and a right expression that are equal in a pair of events.

    ``predicate`` sees the columns of both. A right column whose name the left stream has gets ``suffix``.
    """

    kind = "join"

    how: JoinKind
    keys: tuple[tuple[Node, Node], ...] = ()
    predicate: Node | None = None
    suffix: str = "_right"

    def __post_init__(self) -> None:
        if len(self.reads) != 2:
            raise PlanError(f"{self.title}: a join of {len(self.reads)} streams; it takes two")
        for left, right in zip(self.bound_keys[0].columns, self.bound_keys[1].columns, strict=True):
            if replace(left, name="", nullable=False) != replace(right, name="", nullable=False):
                raise PlanError(
                    f"{self.title}: {left.name} is {left.describe()} and {right.name} is {right.describe()}; "
                    "only values of one type can be equal: cast one of them"
                )
        if self.bound_predicate is not None and self.bound_predicate.column.type != "bool":
            raise PlanError(f"{self.title}: the predicate is {self.bound_predicate.column.describe()}, not bool")
        self.operator(self.title)  # raises PlanError where the parts do not fit

    @cached_property
    def bound_keys(self) -> tuple[BoundProjection, BoundProjection]:
        """The keys for the rows of either side."""
        sides = ([left for left, _ in self.keys], [right for _, right in self.keys])
        left, right = (
            bind_all({f"{at}": node for at, node in enumerate(side)}, read.schema, operator=self.title)
            for side, read in zip(sides, self.reads, strict=True)
        )
        return left, right

    @cached_property
    def bound_predicate(self) -> BoundExpression | None:
        """The predicate for a left row with the right row behind it."""
        return None if self.predicate is None else bind(self.predicate, self._pairs, operator=self.title)

    @cached_property
    def _pairs(self) -> Schema:
        left, right = self.reads
        taken = set(left.schema.names)
        columns = [
            replace(column, name=f"{column.name}{self.suffix}") if column.name in taken else column
            for column in right.schema.columns
        ]
        clash = next((column.name for column in columns if column.name in taken), None)
        if clash is not None:
            raise PlanError(
                f"{self.title}: both streams have the column {clash!r:.64}, also with {self.suffix!r} behind it"
            )
        return Schema((*left.schema.columns, *columns))

    @property
    def schema(self) -> Schema:
        if self.how is JoinKind.ANTI:
            return self.reads[0].schema
        width = len(self.reads[0].schema.columns)
        columns = self._pairs.columns
        return Schema(
            _missing(columns[:width], self.how.reports_right) + _missing(columns[width:], self.how.reports_left)
        )

    @property
    def shown(self) -> str:
        parts = [f"{shown(left)} == {shown(right)}" for left, right in self.keys]
        parts += [] if self.predicate is None else [shown(self.predicate)]
        return f"{self.how} join on {' and '.join(parts)}"

    def operator(self, name: str) -> PlanOperator:
        left, right = (
            JoinInput(order_key(read.schema), len(read.schema.columns), bound.evaluate if self.keys else None)
            for read, bound in zip(self.reads, self.bound_keys, strict=True)
        )
        rules = JoinRules(self.how, left, right)
        if self.predicate is not None and self.bound_predicate is not None:
            rules = replace(rules, predicate=self.bound_predicate.evaluate, shown=shown(self.predicate))
        return JoinOperator(name, order_key(self.schema), rules)

    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"how": str(self.how), "suffix": self.suffix}
        fields["keys"] = [[node_to_json(left), node_to_json(right)] for left, right in self.keys]
        if self.predicate is not None:
            fields["predicate"] = node_to_json(self.predicate)
        return fields

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> JoinNode:
        keys = tuple((node_from_json(left), node_from_json(right)) for left, right in fields["keys"])
        predicate = fields.get("predicate")
        node = None if predicate is None else node_from_json(predicate)
        return cls(tuple(reads), label, JoinKind(fields["how"]), keys, node, fields["suffix"])


def _missing(columns: tuple[Column, ...], can_be: bool) -> tuple[Column, ...]:
    return tuple(replace(column, nullable=True) for column in columns) if can_be else columns
