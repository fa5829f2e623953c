"""Finds the key that identifies a row of a plan, from the operators that make rows unique.

A key is a list of parts. Each part is the set of attributes that carry it: the grouping column itself, a renamed copy
of it, or the start or end of its window (windows have one length; sessions of one key do not overlap). Rows that agree
in all parts are one row. (Vs, payload) of the published events is a key (III.C) if every part is in Vs or in the
payload.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from lmerge.spark.plan.bounds import interval_us
from lmerge.spark.plan.tree import ROWS_KEPT, WATERMARKS, Expr, Node


class KeyPart(NamedTuple):
    """One part of a key: its name, and the attributes that carry it (none: it was projected away)."""

    name: str
    ids: frozenset[int]


class Key(NamedTuple):
    """The key of a plan's rows. ``parts`` None: nothing makes rows unique. ``reason``: why it is the key."""

    parts: tuple[KeyPart, ...] | None
    reason: str

    @property
    def lost(self) -> list[str]:
        """The names of parts that no column carries any longer."""
        return [part.name for part in self.parts or () if not part.ids]


# Operators that only drop or move rows, so that no row is doubled.
_KEEPING: Final = ROWS_KEPT | WATERMARKS
# Operators that keep each row in its partition.
_STAYING: Final = frozenset(
    {
        "Project",
        "Filter",
        "SubqueryAlias",
        "View",
        "CollectMetrics",
        "EventTimeWatermark",
        "UpdateEventTimeWatermarkColumn",
    }
)
# Operators for which Spark brings the rows of a key to the partition with the key's state.
_GATHERING: Final = frozenset({"Aggregate", "Deduplicate", "DeduplicateWithinWatermark"})


def key_of(node: Node) -> Key:
    """Return the key that makes the rows of ``node`` unique."""
    if node.kind == "Aggregate":
        return _grouped(node)
    if node.kind in ("Deduplicate", "DeduplicateWithinWatermark"):
        return _deduplicated(node)
    if node.kind == "Project":
        return _projected(key_of(node.children[0]), node)
    if node.kind in _KEEPING:
        return key_of(node.children[0])
    if node.kind == "Join":
        return _joined(node)
    if not node.children:
        return Key(None, "rows of a source can be equal")
    if node.kind == "Union":
        return Key(None, "the united streams can hold equal rows")
    return Key(None, f"{node.kind} can give equal rows")


def carriers(key: Key, columns: Iterable[int]) -> list[int] | None:
    """Return for each part the first of ``columns`` that carries it; None without a key, or if a part has none."""
    order = list(columns)
    found = [next((c for c in order if c in part.ids), None) for part in key.parts or ()]
    carried = [c for c in found if c is not None]
    return carried if key.parts is not None and len(carried) == len(found) else None


def lie_together(node: Node, columns: Iterable[int]) -> bool:
    """Whether rows of ``node`` that agree in ``columns`` come out of the same partition in every batch."""
    gathering = node
    while gathering.kind in _STAYING:
        gathering = gathering.children[0]
    return gathering.kind in _GATHERING and carriers(key_of(node), columns) is not None


def _grouped(node: Node) -> Key:
    parts = []
    for grouping in node.exprs["grouping"]:
        ids = (e.expr_id for e in node.exprs["list"] if _carries(e, grouping, node))
        parts.append(KeyPart(_title(grouping), frozenset(i for i in ids if i is not None)))
    names = ", ".join(part.name for part in parts)
    return Key(tuple(parts), f"grouped: one row for each ({names})" if names else "one row for all")


def _carries(e: Expr, grouping: Expr, node: Node) -> bool:
    if grouping.kind == "AttributeReference" and grouping.expr_id is not None:
        return _identifies(e, frozenset({grouping.expr_id}), node.children[0])
    inner = e.children[0] if e.kind == "Alias" else e
    return inner.kind == grouping.kind and inner.sql == grouping.sql


def _deduplicated(node: Node) -> Key:
    names = {e.expr_id: e.name for e in node.exprs["keys"] if e.expr_id is not None}
    if node.kind == "DeduplicateWithinWatermark":
        # The state keeps a row for longer than any duplicate with the same event time can be late.
        names |= {c.expr_id: c.name for c in node.output if c.delay_ms is not None}
    parts = tuple(KeyPart(name, frozenset({i})) for i, name in names.items())
    return Key(parts, f"dropDuplicates: one row for each ({', '.join(names.values())})")


def _projected(key: Key, node: Node) -> Key:
    if key.parts is None:
        return key
    below, items = node.children[0], node.exprs["list"]
    parts = []
    for part in key.parts:
        ids = (e.expr_id for e in items if _identifies(e, part.ids, below))
        parts.append(KeyPart(part.name, frozenset(i for i in ids if i is not None)))
    return Key(tuple(parts), key.reason)


def _identifies(e: Expr, ids: frozenset[int], below: Node) -> bool:
    """Whether different values of the attributes ``ids`` of ``below`` give different values of ``e``."""
    while e.kind == "Alias":
        e = e.children[0]
    while e.kind in ("TimeAdd", "TimestampAddInterval") and interval_us(e.children[1]) is not None:
        e = e.children[0]
    if e.kind == "GetStructField" and e.name in ("start", "end"):
        column = below.column(e.children[0].expr_id)
        return column is not None and bool(column.window) and column.expr_id in ids
    return e.kind == "AttributeReference" and e.expr_id in ids


def _joined(node: Node) -> Key:
    left, right = (key_of(child) for child in node.children)
    if node.details["type"] in ("LeftSemi", "LeftAnti"):
        return left
    if node.details["type"] != "Inner" or left.parts is None or right.parts is None:
        return Key(None, "a join can give equal rows")
    return Key(left.parts + right.parts, f"{left.reason}; {right.reason}; joined: one row for each pair")


def _title(e: Expr) -> str:
    return e.name if e.kind in ("AttributeReference", "Alias") else e.sql
