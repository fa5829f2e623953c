"""Nodes of span operators: each event by itself (II.D.1), and the union of streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from lmerge.temporal.durations import show_duration, whole_duration
from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.binding import BoundExpression, BoundProjection, bind, bind_all
from lmerge.temporal.expressions.json_format import node_from_json, node_to_json
from lmerge.temporal.expressions.printing import shown
from lmerge.temporal.expressions.properties import plain_column
from lmerge.temporal.expressions.tree import ColumnReference, Node, UserCall, walk
from lmerge.temporal.operators.lifetimes import AlterLifetime, AtEnd, ClipDuration, Extend, SetDuration, Shift
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.operators.span import KeepRows, MapRows, SpanOperator, SpanPart, rechecked
from lmerge.temporal.operators.union import DisjointUnionOperator, UnionOperator
from lmerge.temporal.plan.functions import check_deterministic
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.values import Values, order_key, order_of
from lmerge.text_enum import TextEnum
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


class OnError(TextEnum):
    """What a row for which an expression has no value does: it ends the query, or is dropped and counted."""

    FAIL = "fail"
    DROP = "drop"


@dataclass(frozen=True)
class RowNode(SpanNode):
    """A node that computes expressions of each row. ``on_error``: what a row without a value does.

    ``rechecks``: a row with functions of users is computed twice. One that gives two results ends the query then.
    """

    on_error: OnError = field(default=OnError.FAIL, kw_only=True)
    rechecks: bool = field(default=False, kw_only=True)

    @property
    def computed(self) -> tuple[Node, ...]:
        """The expressions."""
        raise NotImplementedError

    @property
    def is_plain(self) -> bool:
        """Whether nothing but the expressions decides what comes out."""
        return self.on_error is OnError.FAIL and not self.rechecks

    @property
    def shown_policy(self) -> str:
        """What is not the default, as text."""
        return f"{'' if self.on_error is OnError.FAIL else ', failed rows dropped'}{', rechecked' * self.rechecks}"

    def checked(self, evaluate: Callable[[Values], Any]) -> Callable[[Values], Any]:
        """Return what computes the expressions of a row, twice if the node rechecks."""
        called = dict.fromkeys(
            one.function.name for node in self.computed for one in walk(node) if isinstance(one, UserCall)
        )
        return rechecked(evaluate, self.title, list(called)) if self.rechecks and called else evaluate

    def policy_fields(self) -> dict[str, Any]:
        """Return what is not the default as JSON values."""
        dropped = {} if self.on_error is OnError.FAIL else {"on_error": str(self.on_error)}
        return dropped | ({"rechecks": True} if self.rechecks else {})


def policy_of_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the policy of ``policy_fields``. Raises PlanError."""
    rechecks = fields.get("rechecks", False)
    if not isinstance(rechecks, bool):
        raise PlanError(f"rechecks is {rechecks!r:.64}, which is neither true nor false")
    return {"on_error": OnError(fields.get("on_error", OnError.FAIL)), "rechecks": rechecks}


@dataclass(frozen=True)
class FilterNode(RowNode):
    """The events whose rows fulfil a predicate."""

    kind = "filter"

    predicate: Node

    def __post_init__(self) -> None:
        check_deterministic(self.title, self.computed)
        if self.bound.column.type != "bool":
            raise PlanError(
                f"{self.title}: {shown(self.predicate)} is {self.bound.column.describe()}; a filter takes bool"
            )

    @property
    def computed(self) -> tuple[Node, ...]:
        return (self.predicate,)

    @cached_property
    def bound(self) -> BoundExpression:
        """The predicate for the rows that come in."""
        return bind(self.predicate, self.input_schema, operator=self.title)

    @property
    def schema(self) -> Schema:
        return self.input_schema

    @property
    def shown(self) -> str:
        return f"filter {shown(self.predicate)}{self.shown_policy}"

    @property
    def part(self) -> SpanPart:
        bound = self.bound
        together = None if self.rechecks else bound.evaluate_together
        evaluate = self.checked(bound.evaluate)
        return KeepRows(evaluate, shown(self.predicate), self.on_error is OnError.DROP, together)

    def fields(self) -> dict[str, Any]:
        return {"predicate": node_to_json(self.predicate)} | self.policy_fields()

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> FilterNode:
        return cls(tuple(reads), label, node_from_json(fields["predicate"]), **policy_of_fields(fields))


@dataclass(frozen=True)
class SelectNode(RowNode):
    """Other columns for each event, computed from its row. ``columns``: pairs of a name and an expression."""

    kind = "select"

    columns: tuple[tuple[str, Node], ...]

    def __post_init__(self) -> None:
        if not self.columns:
            raise PlanError(f"{self.title}: it selects no columns")
        check_deterministic(self.title, self.computed)
        _ = self.bound.schema  # raises PlanError where two have one name

    @property
    def computed(self) -> tuple[Node, ...]:
        return tuple(node for _, node in self.columns)

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
        return f"select {', '.join(parts)}{self.shown_policy}"

    @property
    def part(self) -> SpanPart:
        together = None if self.rechecks else self.bound.evaluate_together
        return MapRows(self.checked(self.bound.evaluate), self.shown, self.on_error is OnError.DROP, together)

    def fields(self) -> dict[str, Any]:
        return {"columns": [[name, node_to_json(node)] for name, node in self.columns]} | self.policy_fields()

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> SelectNode:
        columns = tuple((name, node_from_json(node)) for name, node in fields["columns"])
        return cls(tuple(reads), label, columns, **policy_of_fields(fields))


@dataclass(frozen=True)
class LifetimeNode(SpanNode):
    """Other lifetimes for the same rows: one of ``ALTERATIONS``, by ``amount`` units of time."""

    kind = "lifetime"

    alteration: str
    amount: int

    def __post_init__(self) -> None:
        if self.alteration not in ALTERATIONS:
            raise PlanError(f"{self.title}: there is no {self.alteration!r:.64}; there are {', '.join(ALTERATIONS)}")
        whole_duration(self.amount, self.label or self.alteration, "an amount")
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
    """All events of several streams with the same columns.

    ``disjoint_by``: columns in whose values the streams differ from each other. It is declared, and checked at run.
    """

    kind = "union"

    disjoint_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.reads:
            raise PlanError(f"{self.title}: a union of no streams")
        first = self.reads[0]
        for other in self.reads[1:]:
            if other.schema != first.schema:
                columns = f"{first.title} has the columns ({first.schema}), and {other.title} has ({other.schema})"
                raise PlanError(f"{self.title}: {columns}")
        missing = next((name for name in self.disjoint_by if name not in first.schema.names), None)
        if missing is not None:
            names = ", ".join(first.schema.names)
            raise PlanError(
                f"{self.title}: disjoint by {missing!r:.64}, and there is no such column; there are {names}"
            )

    @property
    def schema(self) -> Schema:
        return self.reads[0].schema

    @property
    def shown(self) -> str:
        return f"union{', disjoint by ' * bool(self.disjoint_by)}{', '.join(self.disjoint_by)}"

    def operator(self, name: str) -> PlanOperator:
        key, count = order_key(self.schema), len(self.reads)
        if not self.disjoint_by:
            return UnionOperator(name, key, count)
        parts = bind_all([ColumnReference(one) for one in self.disjoint_by], self.schema, operator=self.title)
        shown_columns = ", ".join(self.disjoint_by)
        return DisjointUnionOperator(name, key, count, parts.evaluate, order_of(parts.columns), shown_columns)

    def fields(self) -> dict[str, Any]:
        return {"disjoint_by": list(self.disjoint_by)} if self.disjoint_by else {}

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> UnionNode:
        return cls(tuple(reads), label, tuple(fields.get("disjoint_by", ())))
