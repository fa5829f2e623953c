"""How the operators over rows and over several streams are filled: each draws what its node leaves open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lmerge.temporal.expressions.surface import Expression, lit
from lmerge.temporal.expressions.tree import ColumnReference
from lmerge.temporal.plan.stream import Stream
from lmerge.testing.intents.fluent import ALTERATIONS, JOINS
from lmerge.testing.intents.placeholders import open_names
from lmerge.testing.intents.trees import IntentNode
from lmerge.testing.transforming.expressions import COMPARABLE, TYPES
from lmerge.testing.transforming.filling import Fill, Filling, NoFit, free_name, has_type
from lmerge.wire.schema import Schema

DISJOINT: Final = 0.3
"""How often the streams of a union get a column in whose value they differ, which is declared."""

# Operators over one stream.


def _where(filling: Filling, node: IntentNode, reads: Sequence[Stream]) -> Stream:
    return reads[0].where(filling.expression(node.value("predicate"), reads[0].schema, "bool"))


def _select(filling: Filling, node: IntentNode, reads: Sequence[Stream]) -> Stream:
    stream = reads[0]

    def draw() -> tuple[tuple[str, Expression], ...]:
        names = list(stream.schema.names)
        kept = sorted(filling.random.sample(names, filling.random.randint(1, len(names))), key=names.index)
        pairs = [(name, Expression(ColumnReference(name))) for name in kept]
        if filling.random.random() < 0.7:
            made = filling.drawing(stream.schema).expression(filling.random.choice(TYPES))
            pairs.append((free_name("e", stream.schema), made))
        return tuple(pairs)

    pairs = filling.value(node.value("columns"), (), draw)
    return stream.select(**{name: filling.expression(value, stream.schema) for name, value in pairs})


def _lifetime(filling: Filling, node: IntentNode, reads: Sequence[Stream]) -> Stream:
    alteration = filling.level(node.value("alteration"), "shift", ALTERATIONS)
    least = -4 if alteration == "shift" else 0 if alteration == "extend" else 1
    amount = filling.number(node.value("amount"), 1, least, 6)
    made: Stream = getattr(reads[0], alteration)(amount)
    return made


def _edges(filling: Filling, node: IntentNode, reads: Sequence[Stream]) -> Stream:
    keys = filling.keys(node.value("by"), reads[0].schema)
    return reads[0].edges([Expression(key) for _, key in keys], lasts=filling.number(node.get("lasts")))


def _coalesce(filling: Filling, node: IntentNode, reads: Sequence[Stream]) -> Stream:
    return reads[0].coalesce()


def _cleanse(filling: Filling, node: IntentNode, reads: Sequence[Stream]) -> Stream:
    return reads[0].cleanse()


# Operators over several.


def _union(filling: Filling, node: IntentNode, reads: Sequence[Stream]) -> Stream:
    first, *others = reads
    names = first.schema.names
    same = [one if one.schema == first.schema else one.select(*names) for one in others]
    if filling.random.random() >= DISJOINT:
        return first.union(*same)
    part = free_name("part", first.schema)
    parts = [one.with_columns(**{part: lit(number)}) for number, one in enumerate((first, *same))]
    return parts[0].union(*parts[1:], disjoint_by=part)


def _join(filling: Filling, node: IntentNode, reads: Sequence[Stream]) -> Stream:
    left, right = reads
    right = _renamed(left, right)
    how = filling.level(node.value("how"), "inner", JOINS)
    given = node.get("on")
    pairs = [(filling.scenario.expr, filling.scenario.expr)] if given is None else list(given)
    keys = [_equal(filling, one, left.schema, other, right.schema) for one, other in pairs]
    where = node.get("where")
    joined = _joined(left, right, keys, how)
    if where is None:
        return joined(None)
    pairs_of = _joined(left, right, keys, "inner")(None)
    return joined(filling.expression(where, pairs_of.schema, "bool"))


def _equal(
    filling: Filling, one: Expression, left: Schema, other: Expression, right: Schema
) -> tuple[Expression, Expression]:
    """Return two expressions of one type."""
    common = [of for of in COMPARABLE if has_type(left, of) and has_type(right, of)]
    if not list(open_names(one)):
        needed = filling.drawing(left).type_of(one).type
        return one, filling.expression(other, right, needed)
    if not list(open_names(other)):
        needed = filling.drawing(right).type_of(other).type
        return filling.expression(one, left, needed), other
    if not common:  # an expression of the other stream has the type, such as the length of a text
        common = [of for of in COMPARABLE if has_type(left, of)] or ["int"]
    needed = filling.random.choice(common)
    return filling.expression(one, left, needed), filling.expression(other, right, needed)


def _as_of(filling: Filling, node: IntentNode, reads: Sequence[Stream]) -> Stream:
    left, right = reads
    right = _renamed(left, right)
    how = filling.level(node.value("how"), "inner", ("inner", "left"))
    within = filling.number(node.get("within"))

    def draw() -> tuple[tuple[str, Expression], ...]:
        types = {column.name: column.type for column in right.schema.columns}
        both = [one.name for one in left.schema.columns if types.get(one.name) == one.type in COMPARABLE]
        return tuple((name, Expression(ColumnReference(name))) for name in both[: filling.random.randint(0, 1)])

    on = filling.value(node.value("on"), (), draw)
    return left.as_of(right, [name for name, _ in on], within=within, how=how)


def _renamed(left: Stream, right: Stream) -> Stream:
    """Return the right stream, without the columns whose names would be there twice even with a suffix."""
    taken = {*left.schema.names, *right.schema.names}
    clash = [name for name in right.schema.names if name in left.schema.names and f"{name}_right" in taken]
    if not clash:
        return right
    kept = [name for name in right.schema.names if name not in clash]
    if not kept:
        raise NoFit(f"all columns of the right stream, {', '.join(clash)}, have names of the left one")
    return right.select(*kept)


def _joined(
    left: Stream, right: Stream, keys: Sequence[tuple[Expression, Expression]], how: str
) -> Callable[[Expression | None], Stream]:
    """Return a function of a predicate that joins on expressions; those that compute something become columns."""
    on: dict[str, str] = {}
    for one, other in keys:
        left, name = _with_column(left, one, "key")
        right, other_name = _with_column(right, other, "key_of")
        on[name] = other_name
    return lambda predicate: left.join(right, on, where=predicate, how=how)


def _with_column(stream: Stream, expression: Expression, name: str) -> tuple[Stream, str]:
    """Return a stream that has an expression as a column, and the name of the column."""
    if isinstance(expression.node, ColumnReference):
        return stream, expression.node.name
    free = free_name(name, stream.schema)
    return stream.with_columns(**{free: expression}), free


ROW_FILLS: Final[Mapping[str, Fill]] = {
    "where": _where,
    "select": _select,
    "lifetime": _lifetime,
    "edges": _edges,
    "coalesce": _coalesce,
    "cleanse": _cleanse,
    "union": _union,
    "join": _join,
    "as_of": _as_of,
}
