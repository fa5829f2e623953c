"""Nodes of a plan: an operator with its parameters, over the nodes that it reads. They are values, and know no state.

A node has the schema of its rows when it is built, so what does not fit is an error at the line that builds it. Two
nodes with the same fields mean the same stream, and are computed once (``compiling``). ``fields`` and ``of_fields`` are
the node in JSON, without what it reads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lmerge.temporal.operators.operator import PlanOperator
from lmerge.wire.schema import Schema


@dataclass(frozen=True)
class PlanNode(ABC):
    """A node. ``reads``: the nodes whose streams it takes, in order. ``label``: its name if it has been given one."""

    kind: ClassVar[str]

    reads: tuple[PlanNode, ...]
    label: str

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The columns of its rows."""

    @property
    @abstractmethod
    def shown(self) -> str:
        """What it does, on one line."""

    @abstractmethod
    def operator(self, name: str) -> PlanOperator:
        """Return a new operator that computes it. ``name`` is for messages and metrics."""

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """Return its parameters as JSON values."""

    @classmethod
    @abstractmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> PlanNode:
        """Return the node with these parameters. Raises PlanError."""

    @property
    def inner(self) -> PlanNode | None:
        """The result of a plan that the node runs for itself, such as that of each group."""
        return None

    @property
    def input_schema(self) -> Schema:
        """The columns of the only stream that it reads."""
        (read,) = self.reads
        return read.schema

    @property
    def title(self) -> str:
        """Its label, or its kind."""
        return self.label or self.kind
