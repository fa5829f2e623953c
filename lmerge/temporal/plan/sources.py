"""Where a plan begins: a stream by its name, with the columns and the promises of its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lmerge.core.properties import Properties, parse_properties
from lmerge.temporal.errors import PlanError
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.text_enum import TextEnum
from lmerge.wire.schema import Column, Schema, parse_schema


class SourceShape(TextEnum):
    """What the lifetimes of a source's events are (II.B).

    ``interval``: any. ``point``: one unit of time. ``edge``: each event is a sample of a signal, and only its start
    counts; the plan extends it to the next one.
    """

    INTERVAL = "interval"
    POINT = "point"
    EDGE = "edge"


@dataclass(frozen=True)
class SourceNode(PlanNode):
    """A stream that enters the plan. ``promises``: its properties (IV.G), which are believed and checked."""

    kind = "source"

    columns: Schema
    promises: Properties = frozenset()
    shape: SourceShape = SourceShape.INTERVAL

    def __post_init__(self) -> None:
        if not self.label:
            raise PlanError("a source needs a name")
        if self.reads:
            raise PlanError(f"source {self.label!r} reads {len(self.reads)} streams")

    @property
    def schema(self) -> Schema:
        return self.columns

    @property
    def shown(self) -> str:
        promised = f", promises {', '.join(sorted(self.promises))}" if self.promises else ""
        shape = "" if self.shape is SourceShape.INTERVAL else f", {self.shape} events"
        return f"{self.label} ({self.columns}{shape}{promised})"

    def operator(self, name: str) -> PlanOperator:
        raise PlanError(f"{name} is a source: nothing computes it")

    def fields(self) -> dict[str, Any]:
        columns = fields_of_schema(self.columns)
        return {"columns": columns, "promises": sorted(self.promises), "shape": str(self.shape)}

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> SourceNode:
        columns = schema_of_fields(fields["columns"])
        shape = SourceShape(fields.get("shape", SourceShape.INTERVAL))
        return cls(tuple(reads), label, columns, parse_properties(fields.get("promises", ())), shape)


def fields_of_schema(schema: Schema) -> list[Any]:
    """Return the columns as JSON values: pairs of a name and a type, in order."""
    return [_fields_of_column(column) for column in schema.columns]


def schema_of_fields(fields: Sequence[Any]) -> Schema:
    """Return the schema of ``fields_of_schema``. Raises UsageError, or PlanError if it is none."""
    return Schema(tuple(map(_column_of_fields, fields)))


def _fields_of_column(column: Column) -> list[Any]:
    if column.type == "struct":
        return [column.name, [_fields_of_column(child) for child in column.children], column.nullable]
    if column.type == "list":
        return [column.name, {"list": _fields_of_column(column.children[0])}, column.nullable]
    return [column.name, column.describe()]


def _column_of_fields(fields: Any) -> Column:
    if not isinstance(fields, (list, tuple)) or not 2 <= len(fields) <= 3 or not isinstance(fields[0], str):
        raise PlanError(f"a column is a name and a type, not {fields!r:.100}")
    name, kind, nullable = (*fields, False)[:3]
    if isinstance(kind, str):
        return parse_schema({name: kind}).columns[0]
    if isinstance(kind, Mapping) and set(kind) == {"list"}:
        return Column(name, "list", bool(nullable), children=(_column_of_fields(kind["list"]),))
    if isinstance(kind, (list, tuple)):
        return Column(name, "struct", bool(nullable), children=tuple(map(_column_of_fields, kind)))
    raise PlanError(f"column {name!r:.64} has no type: {kind!r:.100}")


def renamed(schema: Schema, names: Mapping[str, str]) -> Schema:
    """Return the schema with other names for some columns."""
    return Schema(tuple(replace(column, name=names.get(column.name, column.name)) for column in schema.columns))
