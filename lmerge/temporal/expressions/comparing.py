"""Rules of comparisons, ``between``, ``is_in``, ``least`` and ``greatest``.

All types have the order of ``lmerge.temporal.values``; lists and structs are only equal or not. NaN equals itself and
is greater than every other float, which Python's operators do not give, so comparisons of floats have texts of their
own. They are shorter where an operand is a constant that is not NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lmerge.temporal.expressions.coercion import coerced
from lmerge.temporal.expressions.rules import Request, operation
from lmerge.temporal.expressions.tree import Node, Operation
from lmerge.temporal.expressions.typed import Constant, Junction, TypedNode
from lmerge.temporal.expressions.typing_rules import BOOL, NESTED, shown_type, with_null

SYMBOLS: Final = {
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}

_FLOATS: Final = {
    "equal": "{0} == {1} or ({0} != {0} and {1} != {1})",
    "not_equal": "{0} != {1} and ({0} == {0} or {1} == {1})",
    "less": "{0} < {1} or ({1} != {1} and {0} == {0})",
    "less_equal": "{0} <= {1} or {1} != {1}",
    "greater": "{0} > {1} or ({0} != {0} and {1} == {1})",
    "greater_equal": "{0} >= {1} or {0} != {0}",
}
# For operands of which one cannot be NaN.
_LEFT_CAN_BE_NAN: Final = {"greater": "not {0} <= {1}", "greater_equal": "not {0} < {1}"}
_RIGHT_CAN_BE_NAN: Final = {"less": "not {0} >= {1}", "less_equal": "not {0} > {1}"}


def _comparison(name: str) -> None:
    @operation(name, 2)
    def compare(request: Request) -> TypedNode:
        return compared(request, name, *request.operands)


def compared(request: Request, name: str, left: TypedNode, right: TypedNode) -> TypedNode:
    """Return the comparison of two values of one type, or with a common type."""
    column = request.common((left, right), "what it compares")
    if column.type in NESTED and name not in ("equal", "not_equal"):
        raise request.refusal(f"{shown_type(column)} has no order; only == and != compare it")
    text = f"{{0}} {SYMBOLS[name]} {{1}}"
    if column.type == "float":
        left, right = coerced(left, column), coerced(right, column)
        if _is_no_nan(right):
            text = _LEFT_CAN_BE_NAN.get(name, text)
        elif _is_no_nan(left):
            text = _RIGHT_CAN_BE_NAN.get(name, text)
        else:
            text = _FLOATS[name]
    return request.strict(BOOL, text, operands=(left, right))


def _is_no_nan(operand: TypedNode) -> bool:
    return isinstance(operand.code, Constant) and operand.code.value == operand.code.value


for _name in SYMBOLS:
    _comparison(_name)


@operation("between", 3)
def _between(request: Request) -> TypedNode:
    value, low, high = request.operands
    at_least = compared(_part(request, "greater_equal", value, low), "greater_equal", value, low)
    at_most = compared(_part(request, "less_equal", value, high), "less_equal", value, high)
    column = with_null(BOOL, at_least.nullable or at_most.nullable)
    return request.of_code(column, Junction(is_all=True), (at_least, at_most))


def _part(request: Request, name: str, left: TypedNode, right: TypedNode) -> Request:
    """Return the request of a comparison that is part of another operation, for messages."""
    nodes: tuple[Node, ...] = (left.node, right.node)
    return Request(Operation(name, nodes), (left, right))


@operation("is_in", 1, None)
def _is_in(request: Request) -> TypedNode:
    value, *others = request.operands
    if not others:
        return request.strict(BOOL, "False", operands=(value,))
    if not all(isinstance(other.code, Constant) for other in others):
        raise request.refusal("it takes constants")
    column = request.common(request.operands, "the value and what it is looked for in")
    constants = [coerced(other, column).code for other in others]
    values = frozenset(constant.value for constant in constants if isinstance(constant, Constant))
    if None in values:
        raise request.refusal("NULL is equal to nothing; use is_null()")
    return request.strict(BOOL, "{0} in {values}", operands=(coerced(value, column),), bindings=(("values", values),))


def _extreme(name: str, choose: Callable[..., Any], choose_float: Callable[..., Any]) -> None:
    @operation(name, 1, None, keeps_types_open=True)
    def extreme(request: Request) -> TypedNode:
        column = request.common(request.operands, "operands")
        if column.type in NESTED:
            raise request.refusal(f"{shown_type(column)} has no order")
        operands = tuple(coerced(operand, column) for operand in request.operands)
        function = choose_float if column.type == "float" else choose
        marks = ", ".join(f"{{{index}}}" for index in range(len(operands)))
        bindings = (("choose", function),)
        if any(operand.nullable for operand in operands):
            is_missing = all(operand.nullable for operand in operands)
            return request.lenient(
                with_null(column, is_missing),
                f"{{choose}}([v for v in ({marks},) if v is not None])",
                bindings,
                operands,
            )
        return request.strict(column, f"{{choose}}(({marks},))", operands=operands, bindings=bindings)


def _least(values: Any) -> Any:
    return min(values, default=None)


def _greatest(values: Any) -> Any:
    return max(values, default=None)


def _float_key(value: float) -> tuple[bool, float]:
    return (value != value, value)


def _least_float(values: Any) -> Any:
    return min(values, key=_float_key, default=None)


def _greatest_float(values: Any) -> Any:
    return max(values, key=_float_key, default=None)


_extreme("least", _least, _least_float)
_extreme("greatest", _greatest, _greatest_float)
