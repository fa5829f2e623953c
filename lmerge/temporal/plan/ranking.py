"""The node of top-k: the rows of each window with the first ranks; rows that tie with the k-th are all there (O10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.json_format import node_from_json, node_to_json
from lmerge.temporal.expressions.printing import shown
from lmerge.temporal.expressions.properties import plain_column
from lmerge.temporal.expressions.tree import Node
from lmerge.temporal.modules.top_k import OrderBy, TopK
from lmerge.temporal.plan.calls import argument_of_node
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.window_fields import whole, window_of_fields
from lmerge.temporal.plan.windows import WindowNode, WindowPolicies, keys_of_fields
from lmerge.wire.schema import Column


@dataclass(frozen=True)
class TopNode(WindowNode):
    """The rows of each window and group with ``rank() <= k``.

    ``order_by``: pairs of an expression and whether the largest comes first. ``rank``: the name of a column for the
    rank, behind the others, or None. Columns that are keys are not repeated.
    """

    kind = "top"

    k: int
    order_by: tuple[tuple[Node, bool], ...]
    rank: str | None

    def __post_init__(self) -> None:
        stamp = self.policies.stamp
        if stamp.keeps_own:
            raise PlanError(f"{self.title}: ranked rows have the window's lifetime, so the output cannot be {stamp}")
        super().__post_init__()

    @cached_property
    def module(self) -> TopK:
        """What computes the results of a window."""
        schema = self.input_schema
        order = [OrderBy(argument_of_node(node, schema, self.title), is_last) for node, is_last in self.order_by]
        keys = {plain_column(node) for name, node in self.keys if plain_column(node) == name}
        try:
            return TopK(schema, self.k, order, self.rank, [name for name in schema.names if name not in keys])
        except PlanError as problem:
            raise PlanError(f"{self.title}: {problem}") from None

    @property
    def results(self) -> Sequence[Column]:
        return self.module.results.columns

    @property
    def shown(self) -> str:
        by = ", ".join(f"{shown(node)}{' desc' * is_last}" for node, is_last in self.order_by)
        return f"top {self.k} by {by}{',' * bool(self.keys)}{self.shown_windows}"

    def fields(self) -> dict[str, Any]:
        order = [[node_to_json(node), "desc" if is_last else "asc"] for node, is_last in self.order_by]
        return self.window_fields() | {"k": self.k, "order_by": order, "rank": self.rank}

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> TopNode:
        order = []
        for node, direction in fields["order_by"]:
            if direction not in ("asc", "desc"):
                raise PlanError(f"an order is asc or desc, not {direction!r:.64}")
            order.append((node_from_json(node), direction == "desc"))
        rank = fields["rank"]
        if rank is not None and not isinstance(rank, str):
            raise PlanError(f"the rank's column has the name {rank!r:.64}, which is no text")
        window, policies = window_of_fields(fields["window"]), WindowPolicies.of_fields(fields)
        return cls(
            tuple(reads), label, keys_of_fields(fields), window, policies, whole(fields, "k"), tuple(order), rank
        )
