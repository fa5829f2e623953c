"""The node of users' operators in windows: zero or more rows for each window, which they may stamp (III.A.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.binding import bind, bind_all
from lmerge.temporal.expressions.properties import places_of
from lmerge.temporal.expressions.tree import ColumnReference, Node
from lmerge.temporal.modules.adapters import UserWindowModule
from lmerge.temporal.modules.properties import Properties
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.plan.calls import WindowCall
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.window_fields import window_of_fields
from lmerge.temporal.plan.windows import WindowNode, WindowPolicies, keys_of_fields
from lmerge.temporal.values import order_key, order_of
from lmerge.temporal.windows.declared import DeclaredWindows
from lmerge.temporal.windows.group import EmptyResults
from lmerge.temporal.windows.kinds import Hopping
from lmerge.temporal.windows.policies import Stamp
from lmerge.temporal.windows.window_operator import WindowOperator
from lmerge.wire.schema import Column


@dataclass(frozen=True)
class ApplyNode(WindowNode):
    """A user's operator in the windows of each group.

    ``is_apart``: the module is called for each group of the columns that it declares as ``per_group``, and the results
    are taken together.
    """

    kind = "apply"

    call: WindowCall
    is_apart: bool = False

    def __post_init__(self) -> None:
        if self.call.on_empty is not None:
            raise PlanError(f"{self.title}: an operator computes its rows, also those of a window without events")
        if self.is_apart and not (self.declared.per_group and isinstance(self.window, Hopping)):
            raise PlanError(f"{self.title}: {self.call.name!r:.64} declares no groups to compute apart on a grid")
        super().__post_init__()
        self.call.check_policies(self.title, self.policies.clip, self.policies.stamp)

    @property
    def declared(self) -> Properties:
        """What the module declares of itself."""
        module = self.call.module
        assert module is not None
        return module.properties

    @property
    def given(self) -> dict[str, tuple[Node, Column]]:
        """What the module's inputs are over the rows that come in, and their types, by the names of the inputs."""
        module, schema = self.call.module, self.input_schema
        assert module is not None
        names = (module.input_schema() or schema).names
        nodes = self.call.arguments
        taken: Sequence[Node] = [ColumnReference(name) for name in names] if nodes is None else nodes
        return {
            name: (node, bind(node, schema, operator=self.title).column)
            for name, node in zip(names, taken, strict=True)
        }

    @cached_property
    def module(self) -> UserWindowModule:
        """What computes the results of a window."""
        return self.call.bound_operator(self.input_schema, self.title, self.context)

    @property
    def on_empty(self) -> EmptyResults | None:
        module = self.module
        return (lambda window: module.compute((), window)) if self.call.takes_empty else None

    @property
    def results(self) -> Sequence[Column]:
        return self.module.results.columns

    @property
    def shown(self) -> str:
        apart = f" apart by {', '.join(self.declared.per_group)}" if self.is_apart else ""
        return f"apply {self.call.shown}{apart}{self.shown_windows}"

    def operator(self, name: str) -> PlanOperator:
        declared, given = self.declared, self.given
        apart = declared.per_group if self.is_apart else ()
        nodes = [node for _, node in self.keys] + [given[one][0] for one in apart]
        keys = bind_all(nodes, self.input_schema, operator=self.title)
        rules = replace(self.rules, key_columns=len(self.keys)) if apart else self.rules
        key_of, key_order, output_key = keys.evaluate if nodes else None, order_of(keys.columns), order_key(self.schema)
        if not (declared.insert_only and isinstance(self.window, Hopping)) or self.call.takes_empty:
            places = places_of(nodes, self.input_schema) if nodes else None
            return WindowOperator(name, rules, output_key, key_of, key_order, places)
        is_clipped = self.policies.stamp is Stamp.CLIP and self.window.hop >= self.window.size
        is_ordered = declared.preserves_order and is_clipped and not nodes
        return DeclaredWindows(name, rules, output_key, key_of, key_order, is_ordered)

    def fields(self) -> dict[str, Any]:
        fields = self.window_fields() | {"call": self.call.fields()}
        return fields | ({"is_apart": True} if self.is_apart else {})

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> ApplyNode:
        window, policies = window_of_fields(fields["window"]), WindowPolicies.of_fields(fields)
        call, is_apart = WindowCall.of_fields(fields["call"]), fields.get("is_apart", False)
        if not isinstance(is_apart, bool):
            raise PlanError(f"is_apart is {is_apart!r:.64}, which is neither true nor false")
        return cls(tuple(reads), label, keys_of_fields(fields), window, policies, call, is_apart)
