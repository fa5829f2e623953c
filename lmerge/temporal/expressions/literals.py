"""Literals: from Python values, from text with a type, and back to text for messages and JSON."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.conversions import converted, text_of_day, text_of_moment
from lmerge.temporal.expressions.tree import LiteralValue
from lmerge.temporal.expressions.typing_rules import (
    BOOL,
    BYTES,
    DATE,
    FLOAT,
    INT,
    NESTED,
    STRING,
    TIMESTAMP,
    decimal_type,
    shown_type,
    type_of,
    with_null,
)
from lmerge.temporal.python_values import canonical_form
from lmerge.wire.schema import DECIMAL_DIGITS_MAX, Column

OPEN_NULL = LiteralValue(None, None)


def literal_of(value: object, type_text: str | None = None) -> LiteralValue:
    """Return the literal of a Python value, with the type that it has or the declared one.

    A declared type of other values than text takes text too: ``("2013-01-31", "date")``. Raises PlanError.
    """
    if type_text is None:
        if value is None:
            return OPEN_NULL
        column = _type_of_value(value)
    else:
        column = type_of(type_text)
    if value is None:
        return LiteralValue(None, with_null(column, True))
    column = with_null(column, False)
    try:
        if isinstance(value, str) and column.type not in ("string", "bytes", *NESTED):
            try:
                return LiteralValue(converted(value, STRING, column), column)
            except ValueError as problem:
                raise ValueError(f"{value!r:.64} {problem}") from None
        return LiteralValue(canonical_form(column)(value), column)
    except ValueError as problem:
        raise PlanError(f"a literal of {shown_type(column)}: {problem}") from None


def _type_of_value(value: object) -> Column:
    value = value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise PlanError(f"{value!r:.64} is no literal: a decimal is finite")
        exponent = value.as_tuple().exponent
        scale = max(0, -exponent) if isinstance(exponent, int) else 0
        if scale > DECIMAL_DIGITS_MAX:
            raise PlanError(f"{value!r:.64} is no literal: a decimal has at most {DECIMAL_DIGITS_MAX} digits")
        return decimal_type(scale)
    kinds: tuple[tuple[type, Column], ...] = (
        (bool, BOOL),
        (int, INT),
        (float, FLOAT),
        (str, STRING),
        (bytes, BYTES),
        (datetime, TIMESTAMP),
        (date, DATE),
    )
    for kind, column in kinds:
        if isinstance(value, kind):
            return column
    raise PlanError(
        f"{value!r:.64} is no literal; it is {type(value).__name__}, not bool, int, float, str, bytes, datetime, date "
        "or Decimal"
    )


def plain_literal(literal: LiteralValue) -> Any:
    """Return a literal's value as JSON has it, and ``literal_of`` takes it with the type; bytes as hexadecimal text."""
    value, column = literal.value, literal.type
    if value is None or column is None:
        return None
    if column.type == "float":
        return value if math.isfinite(value) else str(value)
    if column.type == "decimal":
        return f"{value:f}"
    if column.type == "bytes":
        return value.hex()
    try:
        if column.type == "timestamp":
            return text_of_moment(value)
        if column.type == "date":
            return text_of_day(value)
    except ValueError:  # outside the years that have a text
        return value
    return value
