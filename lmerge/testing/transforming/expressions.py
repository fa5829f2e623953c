"""Random expressions of a type over the columns of a stream, for what an intent leaves open.

They compute nothing that fails: no overflow, no division by zero, no text that is no number. With ``is_extreme`` rows,
whose numbers go to the ends of their types, no arithmetic is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Final, TypeAlias

from lmerge.errors import UsageError
from lmerge.temporal.expressions.binding import bind
from lmerge.temporal.expressions.surface import Expression, coalesce, col, concat, greatest, least, lit, when
from lmerge.wire.schema import Column, Schema

TYPES: Final = ("bool", "int", "float", "string", "decimal", "timestamp", "date")
"""The types of expressions that can be drawn."""
COMPARABLE: Final = ("int", "string", "bool", "timestamp", "date")
"""The types of keys."""
DEPTH_MAX: Final = 2

Producer: TypeAlias = "Callable[[ExpressionDraw, int], Expression | None]"


@dataclass(frozen=True)
class ExpressionDraw:
    """Draws expressions over the columns of ``schema``."""

    random: Random
    schema: Schema
    is_extreme: bool = False

    def expression(self, of_type: str, depth: int = DEPTH_MAX) -> Expression:
        """Return an expression of a type. Raises UsageError for a type that no expression is drawn of."""
        if of_type not in _PRODUCERS:
            raise UsageError(f"no expression of type {of_type!r:.64} is drawn; there are {', '.join(_PRODUCERS)}")
        columns = self.columns(of_type)
        if columns and (depth == 0 or self.random.random() < 0.35):
            return col[self.random.choice(columns)]
        if depth:
            for _ in range(4):
                made = self.random.choice(_PRODUCERS[of_type])(self, depth - 1)
                if made is not None:
                    return made
        return col[self.random.choice(columns)] if columns else self.constant(of_type)

    def columns(self, *types: str) -> list[str]:
        """Return the names of the columns of these types."""
        return [column.name for column in self.schema.columns if column.type in types]

    def constant(self, of_type: str) -> Expression:
        """Return a constant."""
        pick = self.random.randrange(4)
        if of_type == "timestamp":
            return lit("2024-05-01T00:00:00Z").cast("timestamp")
        if of_type == "date":
            return lit("2024-05-01").cast("date")
        constants: dict[str, Sequence[bool | int | float | str | Decimal]] = {
            "bool": (True, True, False, True),
            "int": (0, 1, 2, -1),
            "float": (0.5, -0.0, 1.5, 2.0),
            "string": ("", "x", "é", "y"),
            "decimal": (Decimal("0.5"), Decimal("1.0"), Decimal("-2.5"), Decimal("0.0")),
        }
        return lit(constants[of_type][pick])

    def type_of(self, expression: Expression) -> Column:
        """Return the type of an expression over the columns. Raises PlanError if it has none."""
        return bind(expression.node, self.schema, operator="an expression").column


# Producers, by the type of what they give. None: the columns have nothing for them.


def _compared(draw: ExpressionDraw, depth: int) -> Expression | None:
    of_type = draw.random.choice(("int", "string", "timestamp", "date", "float"))
    if not draw.columns(of_type):
        return None
    one, other = draw.expression(of_type, depth), draw.expression(of_type, min(depth, 1))
    return (one < other, one >= other, one == other, one != other)[draw.random.randrange(4)]


def _combined(draw: ExpressionDraw, depth: int) -> Expression | None:
    one, other = draw.expression("bool", depth), draw.expression("bool", depth)
    return (one & other, one | other, ~one)[draw.random.randrange(3)]


def _missing(draw: ExpressionDraw, depth: int) -> Expression | None:
    column = col[draw.random.choice(draw.schema.names)]
    return column.is_null() if draw.random.random() < 0.5 else column.is_not_null()


def _in_list(draw: ExpressionDraw, depth: int) -> Expression | None:
    if draw.columns("string"):
        return draw.expression("string", depth).is_in(["x", "é"])
    return draw.expression("int", depth).is_in([0, 2]) if draw.columns("int") else None


def _in_text(draw: ExpressionDraw, depth: int) -> Expression | None:
    if not draw.columns("string"):
        return None
    text = draw.expression("string", depth)
    return (text.contains("x"), text.starts_with("y"), text.ends_with(""))[draw.random.randrange(3)]


def _chosen(of_type: str) -> Producer:
    def produce(draw: ExpressionDraw, depth: int) -> Expression | None:
        condition = draw.expression("bool", depth)
        return when(condition).then(draw.expression(of_type, depth)).otherwise(draw.expression(of_type, depth))

    return produce


def _first_present(of_type: str) -> Producer:
    def produce(draw: ExpressionDraw, depth: int) -> Expression | None:
        return coalesce(draw.expression(of_type, depth), draw.expression(of_type, 0))

    return produce


def _extreme_of(of_type: str) -> Producer:
    def produce(draw: ExpressionDraw, depth: int) -> Expression | None:
        pick = least if draw.random.random() < 0.5 else greatest
        return pick(draw.expression(of_type, depth), draw.expression(of_type, 0))

    return produce


def _whole(draw: ExpressionDraw, depth: int) -> Expression | None:
    if draw.is_extreme:
        return None
    one = draw.expression("int", depth)
    return (one + 1, -one, one * 2, one % 3, one // 2, one - draw.expression("int", 0))[draw.random.randrange(6)]


def _length(draw: ExpressionDraw, depth: int) -> Expression | None:
    return draw.expression("string", depth).length() if draw.columns("string") else None


def _hour(draw: ExpressionDraw, depth: int) -> Expression | None:
    return draw.expression("timestamp", depth).hour_of_day() if draw.columns("timestamp") else None


def _real(draw: ExpressionDraw, depth: int) -> Expression | None:
    if not draw.columns("float") or draw.is_extreme:
        return None
    one = draw.expression("float", depth)
    return (one + one, abs(one), -one, one * lit(0.5))[draw.random.randrange(4)]


def _exact(draw: ExpressionDraw, depth: int) -> Expression | None:
    if not draw.columns("decimal") or draw.is_extreme:
        return None
    one = draw.expression("decimal", depth)
    return (one + one, abs(one), -one)[draw.random.randrange(3)]


def _text(draw: ExpressionDraw, depth: int) -> Expression | None:
    if not draw.columns("string"):
        return draw.expression("int", depth).cast("string") if draw.columns("int") else None
    one = draw.expression("string", depth)
    return (one.upper(), one.lower(), concat(one, lit("!")), one.substring(1, 2))[draw.random.randrange(4)]


def _truncated(draw: ExpressionDraw, depth: int) -> Expression | None:
    return draw.expression("timestamp", depth).truncate("day") if draw.columns("timestamp") else None


def _day(draw: ExpressionDraw, depth: int) -> Expression | None:
    return draw.expression("timestamp", depth).date_of() if draw.columns("timestamp") else None


_PRODUCERS: Final[dict[str, tuple[Producer, ...]]] = {
    "bool": (_compared, _compared, _combined, _missing, _in_list, _in_text),
    "int": (_whole, _whole, _chosen("int"), _first_present("int"), _extreme_of("int"), _length, _hour),
    "float": (_real, _chosen("float"), _first_present("float"), _extreme_of("float")),
    "string": (_text, _text, _chosen("string"), _first_present("string"), _extreme_of("string")),
    "decimal": (_exact, _chosen("decimal"), _first_present("decimal")),
    "timestamp": (_truncated, _chosen("timestamp"), _extreme_of("timestamp")),
    "date": (_day, _chosen("date"), _first_present("date")),
}
