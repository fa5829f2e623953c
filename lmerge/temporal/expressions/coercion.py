"""Conversions that are not written: to the common type of operands, and of numbers to floats.

A constant is converted at once, so that nothing is converted for each row.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from lmerge.temporal.expressions.conversions import CONVERSIONS, Conversion
from lmerge.temporal.expressions.tree import LiteralValue
from lmerge.temporal.expressions.typed import Constant, Site, Strict, TypedNode
from lmerge.temporal.expressions.typing_rules import FLOAT, decimal_type, with_null
from lmerge.wire.schema import Column


def is_untyped_null(operand: TypedNode) -> bool:
    """Return whether an operand is a NULL whose type its place decides."""
    return isinstance(operand.node, LiteralValue) and operand.node.type is None


def coerced(operand: TypedNode, target: Column) -> TypedNode:
    """Return an operand as a value of the common type ``target``; the nullability stays the operand's."""
    if is_untyped_null(operand):
        return TypedNode(operand.node, with_null(target, True), (), Constant(None))
    source, result = operand.column, with_null(target, operand.nullable)
    if target.type == "float" and source.type == "int":
        return as_float(operand)
    if target.type == "decimal" and (source.type, source.scale) != ("decimal", target.scale):
        return cast_to(operand, decimal_type(target.scale), is_strict=True)
    return operand if source == result else replace(operand, column=result)


def as_float(operand: TypedNode) -> TypedNode:
    """Return a number as the nearest float."""
    source = operand.column.type
    if source == "float":
        return operand
    column = with_null(FLOAT, operand.nullable)
    if isinstance(operand.code, Constant):
        value = operand.code.value
        return TypedNode(operand.node, column, (), Constant(None if value is None else float(value)))
    return TypedNode(operand.node, column, (operand,), Strict("float({0})", operation="cast"))


def cast_to(operand: TypedNode, target: Column, *, is_strict: bool) -> TypedNode:
    """Return an operand as another type. A value that it does not have is an error, or NULL if not ``is_strict``."""
    convert = CONVERSIONS[operand.column.type, target.type]
    column = with_null(target, operand.nullable or not is_strict)
    plain = with_null(target, False)
    if isinstance(operand.code, Constant):
        value = operand.code.value
        try:
            return TypedNode(operand.node, column, (), Constant(None if value is None else convert(value, plain)))
        except ValueError:
            pass  # an error of the row, if a row needs it
    bindings = (("run", _convert if is_strict else _convert_or_null), ("convert", convert), ("target", plain))
    text = "{run}({0}, {convert}, {target}, {site})"
    code = Strict(text, bindings, operation="cast" if is_strict else "cast_or_null")
    return TypedNode(operand.node, column, (operand,), code)


def _convert(value: Any, convert: Conversion, target: Column, site: Site) -> Any:
    try:
        return convert(value, target)
    except ValueError as problem:
        raise site.failure(f"{_shown(value)} {problem}") from None


def _convert_or_null(value: Any, convert: Conversion, target: Column, _: Site) -> Any:
    try:
        return convert(value, target)
    except ValueError:
        return None


def _shown(value: object) -> str:
    return str(value)[:64] if isinstance(value, Decimal) else repr(value)[:64]
