"""Arguments of aggregates and modules: a column's type, and how its value is taken from a row.

The plan makes an argument of an expression (``argument_of``) or of a column (``column_argument``). Arguments with equal
source and column have equal values for every row, so aggregates of them share what they keep.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Final

from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.binding import ExpressionLike, bind
from lmerge.temporal.expressions.properties import plain_column
from lmerge.temporal.expressions.surface import Expression
from lmerge.temporal.values import Values, order_key
from lmerge.wire.schema import Column, Schema

# Types whose values Python orders as rows are ordered. Floats are, but for NaN.
_NATURAL: Final = frozenset(("bool", "int", "float", "string", "bytes", "timestamp", "date", "decimal"))


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument. ``column``: its type and name. ``source``: the column's place, or the expression."""

    column: Column
    source: Hashable
    value_of: Callable[[Values], Any] = field(compare=False)

    @property
    def is_natural(self) -> bool:
        """Whether Python orders the values as rows are ordered, but for NaN."""
        return self.column.type in _NATURAL

    @property
    def key(self) -> Callable[[Any], Any]:
        """A function of a present value whose results Python orders as rows are ordered."""
        key_of_row = order_key(Schema((replace(self.column, name="value", nullable=False),)))
        return lambda value: key_of_row((value,))


def argument_of(expression: ExpressionLike, schema: Schema, where: str) -> Argument:
    """Return an expression over rows of ``schema`` as an argument. Raises PlanError, which begins with ``where``."""
    node = expression.node if isinstance(expression, Expression) else expression
    name = plain_column(node)
    if name is not None:
        return column_argument(schema, name, where)
    bound = bind(node, schema, operator=where)
    return Argument(bound.column, node, bound.evaluate)


def column_argument(schema: Schema, name: str, where: str) -> Argument:
    """Return a column as an argument. Raises PlanError, which begins with ``where``, if there is none of that name."""
    for place, column in enumerate(schema.columns):
        if column.name == name:
            return Argument(column, place, itemgetter(place))
    raise PlanError(f"{where}: there is no column {name!r:.64} in ({schema})")
