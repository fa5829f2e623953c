"""The node of users' operators in windows: zero or more rows for each window, which they may stamp (III.A.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lmerge.temporal.errors import PlanError
from lmerge.temporal.modules.adapters import UserWindowModule
from lmerge.temporal.modules.properties import Properties
from lmerge.temporal.plan.calls import WindowCall
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.window_fields import window_of_fields
from lmerge.temporal.plan.windows import WindowNode, WindowPolicies, keys_of_fields
from lmerge.temporal.windows.group import EmptyResults
from lmerge.wire.schema import Column


@dataclass(frozen=True)
class ApplyNode(WindowNode):
    """A user's operator in the windows of each group."""

    kind = "apply"

    call: WindowCall

    def __post_init__(self) -> None:
        if self.call.on_empty is not None:
            raise PlanError(f"{self.title}: an operator computes its rows, also those of a window without events")
        super().__post_init__()
        self.call.check_policies(self.title, self.policies.clip, self.policies.stamp)

    @property
    def declared(self) -> Properties:
        """What the module declares of itself."""
        module = self.call.module
        assert module is not None
        return module.properties

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
        return f"apply {self.call.shown}{self.shown_windows}"

    def fields(self) -> dict[str, Any]:
        return self.window_fields() | {"call": self.call.fields()}

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> ApplyNode:
        window, policies = window_of_fields(fields["window"]), WindowPolicies.of_fields(fields)
        return cls(tuple(reads), label, keys_of_fields(fields), window, policies, WindowCall.of_fields(fields["call"]))
