"""Nodes of span operators: each event by itself (II.D.1), and the union of streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from lmerge.temporal.durations import show_duration
from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.binding import BoundExpression, BoundProjection, bind, bind_all
from lmerge.temporal.expressions.json_format import node_from_json, node_to_json
from lmerge.temporal.expressions.printing import shown
from lmerge.temporal.expressions.properties import plain_column
from lmerge.temporal.expressions.tree import Node
from lmerge.temporal.operators.lifetimes import AlterLifetime, AtEnd, ClipDuration, Extend, SetDuration, Shift
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.operators.span import KeepRows, MapRows, SpanOperator, SpanPart
from lmerge.temporal.operators.union import UnionOperator
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.values import order_key
from lmerge.wire.schema import Schema

ALTERATIONS: Final[Mapping[str, type[AlterLifetime]]] = {
    "shift": Shift,
    "set_duration": SetDuration,
    "clip_duration": ClipDuration,
    "extend": Extend,
    "at_end": AtEnd,
}


@dataclass(frozen=True)
class SpanNode(PlanNode):
    """A node of one span operator. Chains of them run in one pass (``compiling``)."""

    @property
    def part(self) -> SpanPart:
        """What it does to each event."""
        raise NotImplementedError

    def operator(self, name: str) -> PlanOperator:
        return chain_operator(name, [self])


def chain_operator(name: str, chain: Sequence[SpanNode]) -> SpanOperator:
    """Return the operator of a chain of nodes, each of which reads the one before."""
    first, last = order_key(chain[0].input_schema), order_key(chain[-1].schema)
    return SpanOperator(name, first, last, [node.part for node in chain])


@dataclass(frozen=True)
class FilterNode(SpanNode):
    """The events whose rows fulfil a predicate."""

    kind = "filter"

    predicate: Node

    def __post_init__(self) -> None:
        if self.bound.column.type != "bool":
            raise PlanError(
                f"{self.title}: {shown(self.predicate)} is {self.bound.column.describe()}; a filter takes bool"
            )

    @cached_property
    def bound(self) -> BoundExpression:
        """The predicate for the rows that come in."""
        return bind(self.predicate, self.input_schema, operator=self.title)

    @property
    def schema(self) -> Schema:
        return self.input_schema

    @property
    def shown(self) -> str:
        return f"filter {shown(self.predicate)}"

    @property
    def part(self) -> SpanPart:
        bound = self.bound
        return KeepRows(bound.evaluate, shown(self.predicate), together=bound.evaluate_together)

    def fields(self) -> dict[str, Any]:
        return {"predicate": node_to_json(self.predicate)}

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> FilterNode:
        return cls(tuple(reads), label, node_from_json(fields["predicate"]))


@dataclass(frozen=True)
class SelectNode(SpanNode):
    """Other columns for each event, computed from its row. ``columns``: pairs of a name and an expression."""

    kind = "select"

    columns: tuple[tuple[str, Node], ...]

    def __post_init__(self) -> None:
        if not self.columns:
            raise PlanError(f"{self.title}: it selects no columns")
        _ = self.bound.schema  # raises PlanError where two have one name

    @cached_property
    def bound(self) -> BoundProjection:
        """The columns for the rows that come in."""
        return bind_all(dict(self._distinct()), self.input_schema, operator=self.title)

    def _distinct(self) -> Sequence[tuple[str, Node]]:
        names = [name for name, _ in self.columns]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise PlanError(f"{self.title}: it has two columns named {twice!r:.64}")
        return self.columns

    @property
    def schema(self) -> Schema:
        return self.bound.schema

    @property
    def shown(self) -> str:
        parts = [name if plain_column(node) == name else f"{name}={shown(node)}" for name, node in self.columns]
        return f"select {', '.join(parts)}"

    @property
    def part(self) -> SpanPart:
        return MapRows(self.bound.evaluate, self.shown, together=self.bound.evaluate_together)

    def fields(self) -> dict[str, Any]:
        return {"columns": [[name, node_to_json(node)] for name, node in self.columns]}

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> SelectNode:
        return cls(tuple(reads), label, tuple((name, node_from_json(node)) for name, node in fields["columns"]))


@dataclass(frozen=True)
class LifetimeNode(SpanNode):
    """Other lifetimes for the same rows: one of ``ALTERATIONS``, by ``amount`` units of time."""

    kind = "lifetime"

    alteration: str
    amount: int

    def __post_init__(self) -> None:
        if self.alteration not in ALTERATIONS:
            raise PlanError(f"{self.title}: there is no {self.alteration!r:.64}; there are {', '.join(ALTERATIONS)}")
        _ = self.part  # raises PlanError where the amount does not fit

    @property
    def schema(self) -> Schema:
        return self.input_schema

    @property
    def shown(self) -> str:
        return f"{self.alteration} {show_duration(self.amount)}"

    @property
    def part(self) -> SpanPart:
        made: AlterLifetime = ALTERATIONS[self.alteration](self.amount)  # type: ignore[call-arg]
        return made

    def fields(self) -> dict[str, Any]:
        return {"alteration": self.alteration, "amount": self.amount}

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> LifetimeNode:
        return cls(tuple(reads), label, fields["alteration"], fields["amount"])


@dataclass(frozen=True)
class UnionNode(PlanNode):
    """All events of several streams with the same columns."""

    kind = "union"

    def __post_init__(self) -> None:
        if not self.reads:
            raise PlanError(f"{self.title}: a union of no streams")
        first = self.reads[0]
        for other in self.reads[1:]:
            if other.schema != first.schema:
                columns = f"{first.title} has the columns ({first.schema}), and {other.title} has ({other.schema})"
                raise PlanError(f"{self.title}: {columns}")

    @property
    def schema(self) -> Schema:
        return self.reads[0].schema

    @property
    def shown(self) -> str:
        return "union"

    def operator(self, name: str) -> PlanOperator:
        return UnionOperator(name, order_key(self.schema), len(self.reads))

    def fields(self) -> dict[str, Any]:
        return {}

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> UnionNode:
        return cls(tuple(reads), label)
