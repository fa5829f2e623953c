"""Which expressions have a value for every row: what a plan may evaluate for rows that it did not evaluate before."""

from __future__ import annotations

from typing import Final

from lmerge.temporal.expressions.binding import ExpressionLike, typed_tree
from lmerge.temporal.expressions.typed import FunctionCall, Lenient, Strict, TypedNode
from lmerge.wire.schema import Schema

# Code that can fail has the place of its operation, for the message.
_PLACE: Final = "{site}"


def can_fail(expression: ExpressionLike, schema: Schema) -> bool:
    """Whether a row can have no value: an overflow, a strict cast, a user's function. Raises PlanError as ``bind``."""
    return _can_fail(typed_tree(expression, schema))


def _can_fail(typed: TypedNode) -> bool:
    code = typed.code
    if isinstance(code, FunctionCall):
        return True
    if isinstance(code, Strict | Lenient) and _PLACE in code.text:
        return True
    if isinstance(code, Strict) and _PLACE in code.after:
        return True
    return any(map(_can_fail, typed.operands))
