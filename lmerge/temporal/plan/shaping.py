"""Nodes that give a stream another shape, and keep its rows: samples that last, rows that are present, final events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lmerge.temporal.durations import show_duration, whole_duration
from lmerge.temporal.expressions.binding import BoundProjection, bind_all
from lmerge.temporal.expressions.json_format import node_from_json, node_to_json
from lmerge.temporal.expressions.printing import shown
from lmerge.temporal.expressions.tree import Node
from lmerge.temporal.operators.cleanse import CleanseOperator
from lmerge.temporal.operators.coalesce import CoalesceOperator
from lmerge.temporal.operators.edges import EdgeOperator, SampleTies
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.plan.functions import check_deterministic
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.values import order_key
from lmerge.wire.schema import Schema


@dataclass(frozen=True)
class EdgesNode(PlanNode):
    """Each event from its start to the start of the next one with equal ``by``: a signal that was sampled.

    ``ties``: what two different events of one start are. ``lasts``: how long one lasts at most, in units of time.
    """

    kind = "edges"

    by: tuple[Node, ...] = ()
    ties: SampleTies = SampleTies.LAST
    lasts: int | None = None

    def __post_init__(self) -> None:
        check_deterministic(self.title, self.by)
        if self.lasts is not None:
            whole_duration(self.lasts, self.title, "a limit (lasts)")
        self.operator(self.title)  # raises PlanError where the parts do not fit

    @cached_property
    def bound_by(self) -> BoundProjection:
        """What is equal in the events of one signal."""
        return bind_all(self.by, self.input_schema, operator=self.title)

    @property
    def schema(self) -> Schema:
        return self.input_schema

    @property
    def shown(self) -> str:
        by = f" by {', '.join(map(shown, self.by))}" if self.by else ""
        lasts = "" if self.lasts is None else f", for {show_duration(self.lasts)} at most"
        ties = "" if self.ties is SampleTies.LAST else ", without ties"
        return f"edges{by}{lasts}{ties}"

    def operator(self, name: str) -> PlanOperator:
        return EdgeOperator(name, order_key(self.schema), self.bound_by.evaluate, self.ties, self.lasts)

    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"by": list(map(node_to_json, self.by)), "ties": str(self.ties)}
        return fields if self.lasts is None else fields | {"lasts": self.lasts}

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> EdgesNode:
        by = tuple(map(node_from_json, fields["by"]))
        return cls(tuple(reads), label, by, SampleTies(fields["ties"]), fields.get("lasts"))


@dataclass(frozen=True)
class CoalesceNode(PlanNode):
    """For each row the longest stretches of time in which it is there, once each."""

    kind = "coalesce"

    @property
    def schema(self) -> Schema:
        return self.input_schema

    @property
    def shown(self) -> str:
        return "coalesce"

    def operator(self, name: str) -> PlanOperator:
        return CoalesceOperator(name, order_key(self.schema))

    def fields(self) -> dict[str, Any]:
        return {}

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> CoalesceNode:
        return cls(tuple(reads), label)


@dataclass(frozen=True)
class CleanseNode(PlanNode):
    """Each event when it is final, in order of start and row."""

    kind = "cleanse"

    @property
    def schema(self) -> Schema:
        return self.input_schema

    @property
    def shown(self) -> str:
        return "cleanse"

    def operator(self, name: str) -> PlanOperator:
        return CleanseOperator(name, order_key(self.schema))

    def fields(self) -> dict[str, Any]:
        return {}

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> CleanseNode:
        return cls(tuple(reads), label)
