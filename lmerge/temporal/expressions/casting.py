"""The rule of casts. A value that the type does not have is an error at run, or NULL if the cast is not strict."""

from __future__ import annotations

from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.coercion import cast_to, coerced, is_untyped_null
from lmerge.temporal.expressions.conversions import CONVERSIONS
from lmerge.temporal.expressions.rules import Request, operation
from lmerge.temporal.expressions.typed import TypedNode
from lmerge.temporal.expressions.typing_rules import shown_type, type_of, with_null


@operation("cast", parameters=("type", "strict"), keeps_types_open=True)
def _cast(request: Request) -> TypedNode:
    (operand,) = request.operands
    try:
        target = type_of(request.text("type"))
    except PlanError as problem:
        raise request.refusal(str(problem)) from None
    if target.nullable:
        raise request.refusal("the type of a cast has no ?: the result can be NULL if the operand can")
    is_strict = request.flag("strict")
    if is_untyped_null(operand):
        return coerced(operand, target)
    source = with_null(operand.column, False)
    if source == target or (target.type == source.type == "float" and target.round_digits is None):
        return request.strict(target, "{0}")
    if (source.type, target.type) not in CONVERSIONS:
        raise request.refusal(f"there is no cast from {shown_type(source)} to {shown_type(target)}")
    typed = cast_to(operand, target, is_strict=is_strict)
    return TypedNode(request.node, typed.column, typed.operands, typed.code)
