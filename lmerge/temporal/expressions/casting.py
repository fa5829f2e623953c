"""The rule of casts. A value that the type does not have is an error at run, or NULL if the cast is not strict."""

from __future__ import annotations

from lmerge.temporal.expressions.coercion import cast_to, coerced, is_untyped_null
from lmerge.temporal.expressions.conversions import CONVERSIONS
from lmerge.temporal.expressions.rules import Request, operation
from lmerge.temporal.expressions.typed import Typed
from lmerge.temporal.expressions.typing_rules import shown_type, type_of_text, with_null


@operation("cast", parameters=("type", "strict"), keeps_types_open=True)
def _cast(request: Request) -> Typed:
    (operand,) = request.operands
    target = type_of_text(request.text("type"), "a cast")
    if target.nullable:
        raise request.refusal("the type of a cast has no ?: the result can be NULL if the operand can")
    is_strict = request.flag("strict")
    if is_untyped_null(operand):
        return coerced(operand, target)
    source = with_null(operand.column, False)
    if source == target or (target.type == source.type == "float" and target.round_digits is None):
        return Typed(request.node, with_null(target, operand.nullable), operand.operands, operand.code)
    if (source.type, target.type) not in CONVERSIONS:
        raise request.refusal(f"there is no cast from {shown_type(source)} to {shown_type(target)}")
    typed = cast_to(operand, target, is_strict=is_strict)
    return Typed(request.node, typed.column, typed.operands, typed.code)
