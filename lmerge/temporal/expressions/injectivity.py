"""Which columns a row of expressions keeps: those that can be computed back from it.

A projection keeps the key of a stream if it keeps every column of the key (seed 000, IV.G). What is returned is a lower
bound: an expression that keeps its column in a way that no rule here sees counts as one that loses it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lmerge.temporal.expressions.binding import ExpressionLike, typed_tree
from lmerge.temporal.expressions.tree import ColumnReference, Operation, UserCall
from lmerge.temporal.expressions.typed import Constant, TypedNode
from lmerge.wire.schema import Schema

# Different values of the first type are different values of the second.
_INJECTIVE_CASTS: Final = frozenset(
    (
        ("bool", "int"),
        ("bool", "string"),
        ("int", "decimal"),
        ("int", "string"),
        ("int", "timestamp"),
        ("float", "string"),
        ("decimal", "string"),
        ("timestamp", "int"),
        ("timestamp", "string"),
        ("date", "timestamp"),
        ("date", "string"),
    )
)
_EXACT: Final = frozenset(("int", "decimal", "timestamp", "date"))
_NOTHING: Final[frozenset[str]] = frozenset()


def kept_columns(expressions: Iterable[ExpressionLike], schema: Schema) -> frozenset[str]:
    """Return the columns of ``schema`` whose values follow from those of the expressions. Raises PlanError."""
    return frozenset().union(*(_kept(typed_tree(expression, schema)) for expression in expressions))


def is_injective(expressions: Iterable[ExpressionLike], schema: Schema, columns: Iterable[str] | None = None) -> bool:
    """Return whether rows that differ in ``columns`` (all, if there are none) differ in the expressions' values."""
    return kept_columns(expressions, schema).issuperset(schema.names if columns is None else columns)


def _kept(typed: TypedNode) -> frozenset[str]:
    """Return the columns that follow from the value of one expression."""
    node = typed.node
    if typed.operands and typed.operands[0].node is node:  # a conversion that is not written
        return _NOTHING if typed.column.type == "float" else _kept(typed.operands[0])
    if isinstance(node, ColumnReference):
        return frozenset((node.name,))
    if isinstance(node, UserCall):
        return _kept_below(typed) if _is_injective_call(node, typed) else _NOTHING
    return _kept_below(typed) if isinstance(node, Operation) and _keeps(node, typed) else _NOTHING


def _is_injective_call(node: UserCall, typed: TypedNode) -> bool:
    """Return whether a call gives different values for different arguments, also if NULL is one of them."""
    function = node.function
    if not (function.injective and function.deterministic):
        return False
    return function.nulls == "pass" or not any(operand.nullable for operand in typed.operands)


def _kept_below(typed: TypedNode) -> frozenset[str]:
    """Return the columns of the operands that are no constants: of all of a function's, or of the only one."""
    return frozenset().union(*(_kept(operand) for operand in typed.operands if not operand.is_constant))


def _keeps(node: Operation, typed: TypedNode) -> bool:
    """Return whether an operation with at most one operand that is no constant gives different values for it."""
    open_operands = [operand for operand in typed.operands if not operand.is_constant]
    if len(open_operands) != 1:
        return False
    constants = [operand for operand in typed.operands if operand.is_constant]
    if any(operand.nullable for operand in constants):
        return False
    kinds = {operand.column.type for operand in typed.operands}
    if node.name in ("negate", "not"):
        return True
    if node.name in ("add", "subtract"):
        return kinds <= _EXACT
    if node.name == "multiply":
        return kinds <= _EXACT and not any(isinstance(one.code, Constant) and not one.code.value for one in constants)
    if node.name == "concat":
        return True
    if node.name == "cast" and node.parameter("strict") is True:  # else what does not fit is NULL
        source, target = open_operands[0].column, typed.column
        if source.type == target.type:
            return target.type != "float" and source.scale <= target.scale
        return (source.type, target.type) in _INJECTIVE_CASTS
    return False
