"""Rules of ``& | ~``, ``is_null``, ``coalesce`` and ``case``.

Logic has three values. And, or, coalesce and case evaluate from left to right, and only what decides: a condition
guards what stands behind it.
"""

from __future__ import annotations

from lmerge.temporal.expressions.coercion import coerced, is_untyped_null
from lmerge.temporal.expressions.rules import Request, operation
from lmerge.temporal.expressions.typed import FirstPresent, FirstTrue, Junction, TypedNode
from lmerge.temporal.expressions.typing_rules import BOOL, shown_type, with_null


def _junction(name: str, *, is_all: bool) -> None:
    @operation(name, 1, None)
    def junction(request: Request) -> TypedNode:
        for operand in request.operands:
            if operand.column.type != "bool":
                raise request.refusal(f"it takes bool, not {shown_type(operand.column)}; compare it with something")
        column = with_null(BOOL, any(operand.nullable for operand in request.operands))
        return request.of_code(column, Junction(is_all))


_junction("and", is_all=True)
_junction("or", is_all=False)


@operation("not")
def _not(request: Request) -> TypedNode:
    request.require(0, ("bool",))
    return request.strict(BOOL, "not {0}")


@operation("is_null")
def _is_null(request: Request) -> TypedNode:
    return request.lenient(BOOL, "{0} is None")


@operation("coalesce", 1, None, keeps_types_open=True)
def _coalesce(request: Request) -> TypedNode:
    column = request.common(request.operands, "operands")
    nullable = all(operand.nullable for operand in request.operands)
    operands = tuple(coerced(operand, column) for operand in request.operands)
    return request.of_code(with_null(column, nullable), FirstPresent(), operands)


@operation("case", 3, None, keeps_types_open=True)
def _case(request: Request) -> TypedNode:
    operands = request.operands
    if len(operands) % 2 == 0:
        raise request.refusal("it has a condition and a value for each branch, and a value for the rest")
    conditions, values = operands[:-1:2], (*operands[1::2], operands[-1])
    for condition in conditions:
        if condition.column.type != "bool" or is_untyped_null(condition):
            raise request.refusal(f"a condition is bool, not {shown_type(condition.column)}")
    column = request.common(values, "the values of its branches")
    chosen = [coerced(value, column) for value in values]
    parts = [part for pair in zip(conditions, chosen, strict=False) for part in pair]
    return request.of_code(column, FirstTrue(), (*parts, chosen[-1]))
