"""Types of expressions: which types have a common one, and how messages show them.

A type is a ``Column`` without a name. The only casts that are not written are int to float, int to decimal, and
decimals to more digits after the point.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lmerge.errors import UsageError
from lmerge.temporal.errors import PlanError
from lmerge.wire.schema import DECIMAL_DIGITS_MAX, Column, parse_schema

BOOL: Final = Column("", "bool")
INT: Final = Column("", "int")
FLOAT: Final = Column("", "float")
STRING: Final = Column("", "string")
BYTES: Final = Column("", "bytes")
TIMESTAMP: Final = Column("", "timestamp")
DATE: Final = Column("", "date")

NUMBERS: Final = frozenset(("int", "float", "decimal"))
NESTED: Final = frozenset(("list", "struct"))


def decimal_type(scale: int) -> Column:
    """Return the type of decimals with that many digits after the point."""
    return Column("", "decimal", scale=scale)


def type_of(declared: object) -> Column:
    """Return a type from its text, such as ``"float?"``, or from the fields of a struct. Raises PlanError."""
    try:
        (column,) = parse_schema({"type": declared}).columns
    except UsageError as problem:
        raise PlanError(str(problem).removeprefix("column 'type': ")) from None
    return replace(column, name="")


def with_null(column: Column, nullable: bool) -> Column:
    """Return a type whose values can be NULL, or cannot be."""
    return column if column.nullable is nullable else replace(column, nullable=nullable)


def common_type(left: Column, right: Column) -> Column | None:
    """Return the type that both have without loss of meaning, or None. It is nullable if one of them is.

    Names do not matter. Floats with different declared digits are floats without.
    """
    nullable = left.nullable or right.nullable
    if left.type != right.type:
        wider = {frozenset(("int", "float")): "float", frozenset(("int", "decimal")): "decimal"}
        found = wider.get(frozenset((left.type, right.type)))
        if found is None:
            return None
        one = left if left.type == found else right
        return Column("", found, nullable, scale=one.scale)
    if left.type == "decimal":
        return Column("", "decimal", nullable, scale=max(left.scale, right.scale))
    if left.type == "float":
        digits = left.round_digits if left.round_digits == right.round_digits else None
        return Column("", "float", nullable, digits)
    if left.type in NESTED:
        return _common_nested(left, right, nullable)
    return Column("", left.type, nullable)


def _common_nested(left: Column, right: Column, nullable: bool) -> Column | None:
    """Return the common type of lists or structs, whose values are not converted."""
    if len(left.children) != len(right.children):
        return None
    children = []
    for one, other in zip(left.children, right.children, strict=True):
        found = common_type(one, other)
        if found is None or one.type != other.type or one.scale != other.scale:
            return None
        if left.type == "struct" and one.name != other.name:
            return None
        children.append(replace(found, name=one.name))
    return Column("", left.type, nullable, children=tuple(children))


def fits_without_cast(source: Column, target: Column) -> bool:
    """Return whether values of one type are taken where another is declared. NULL does not matter."""
    if target.type == "decimal" and source.type == "int":
        return True
    if target.type == "float" and target.round_digits is not None:
        return source.type == "float" and source.round_digits == target.round_digits
    found = common_type(source, target)
    return found is not None and with_null(found, False) == with_null(replace(target, name=""), False)


def shown_type(column: Column) -> str:
    """Return a type for messages."""
    return column.describe()


def check_scale(scale: int) -> str | None:
    """Return what is wrong with the number of digits of a result, or None."""
    if scale > DECIMAL_DIGITS_MAX:
        return f"the result has {scale} digits after the point, and a decimal has at most {DECIMAL_DIGITS_MAX}"
    return None
