"""Nodes of a plan: an operator with its parameters, over the nodes that it reads. They are values, and know no state.

A node has the schema of its rows when it is built, so what does not fit is an error at the line that builds it. Two
nodes with the same fields mean the same stream, and are computed once (``compiling``). ``fields`` and ``of_fields`` are
the node in JSON, without what it reads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Any, ClassVar

from lmerge.temporal.operators.operator import PlanOperator
from lmerge.wire.schema import Schema


@dataclass(frozen=True)
class PlanNode(ABC):
    """A node. ``reads``: the nodes whose streams it takes, in order. ``label``: its name if it has been given one."""

    kind: ClassVar[str]

    reads: tuple[PlanNode, ...]
    label: str

    def __init_subclass__(cls) -> None:
        # Before the decorator, which keeps what a class has.
        super().__init_subclass__()
        setattr(cls, "__hash__", PlanNode.__hash__)  # noqa: B010  (a type checker takes it for a method's override)
        setattr(cls, "__eq__", PlanNode.__eq__)  # noqa: B010
        setattr(cls, "__repr__", PlanNode.__repr__)  # noqa: B010

    def __hash__(self) -> int:
        """Return the hash of the fields, computed once: a diamond of diamonds has exponentially many paths."""
        found: int | None = self.__dict__.get("_hash")
        if found is None:
            found = hash((type(self), self.reads, _own_values(self)))
            object.__setattr__(self, "_hash", found)
        return found

    def __eq__(self, other: object) -> bool:
        """Whether two nodes have the same fields; each pair of nodes below them is compared once."""
        if not isinstance(other, PlanNode):
            return NotImplemented
        left: list[tuple[PlanNode, PlanNode]] = [(self, other)]
        seen: set[tuple[int, int]] = set()
        while left:
            one, two = left.pop()
            if one is two or (id(one), id(two)) in seen:
                continue
            if type(one) is not type(two) or hash(one) != hash(two) or _own_values(one) != _own_values(two):
                return False
            if len(one.reads) != len(two.reads):
                return False
            seen.add((id(one), id(two)))
            left += zip(one.reads, two.reads, strict=True)
        return True

    def __repr__(self) -> str:
        """Return the node and the names of those that it reads: all below them would be exponentially long as well."""
        below = f" of {', '.join(read.title for read in self.reads)}" if self.reads else ""
        return f"<{self.title}: {self.shown}{below}>"

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


def _own_values(node: PlanNode) -> tuple[Any, ...]:
    """Return the fields of a node, but for what it reads."""
    return tuple(getattr(node, one.name) for one in dataclass_fields(node) if one.name != "reads")
