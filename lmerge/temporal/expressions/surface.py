"""How query writers write expressions: ``(col.delay > 15) & col.origin.is_in(["JFK"])``.

``col`` has the columns of the input, ``lit`` makes constants, operators and methods combine them. What they build is an
``Expression`` around a tree (``tree``); nothing is checked against columns or evaluated before it is bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import NoReturn, TypeAlias

from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.literals import OPEN_NULL, literal_of
from lmerge.temporal.expressions.printing import shown
from lmerge.temporal.expressions.tree import BLANKS, ColumnReference, Node, Operation, Parameter

Scalar: TypeAlias = "bool | int | float | str | bytes | Decimal | datetime | date"
Operand: TypeAlias = "Expression | Scalar"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Expression:
    """An expression over the columns of a row. ``node``: its tree, a value that can be compared and be a key."""

    node: Node

    def __str__(self) -> str:
        return shown(self.node)

    def __repr__(self) -> str:
        return f"<expression {shown(self.node)}>"

    def __bool__(self) -> NoReturn:
        raise PlanError(
            f"({self}) has no truth value before a row is there; write & for and, | for or, ~ for not, "
            "between() for a < b < c, is_in() for in, when() for if"
        )

    __hash__ = None  # type: ignore[assignment]  # == builds an expression; node is the key

    # Arithmetic.

    def __add__(self, other: Operand) -> Expression:
        return _operation("add", self, other)

    def __radd__(self, other: Operand) -> Expression:
        return _operation("add", other, self)

    def __sub__(self, other: Operand) -> Expression:
        return _operation("subtract", self, other)

    def __rsub__(self, other: Operand) -> Expression:
        return _operation("subtract", other, self)

    def __mul__(self, other: Operand) -> Expression:
        return _operation("multiply", self, other)

    def __rmul__(self, other: Operand) -> Expression:
        return _operation("multiply", other, self)

    def __truediv__(self, other: Operand) -> Expression:
        return _operation("divide", self, other)

    def __rtruediv__(self, other: Operand) -> Expression:
        return _operation("divide", other, self)

    def __floordiv__(self, other: Operand) -> Expression:
        return _operation("floor_divide", self, other)

    def __rfloordiv__(self, other: Operand) -> Expression:
        return _operation("floor_divide", other, self)

    def __mod__(self, other: Operand) -> Expression:
        return _operation("modulo", self, other)

    def __rmod__(self, other: Operand) -> Expression:
        return _operation("modulo", other, self)

    def __neg__(self) -> Expression:
        return _operation("negate", self)

    # Comparison.

    def __eq__(self, other: Operand) -> Expression:  # type: ignore[override]  # it builds an expression
        return _operation("equal", self, other)

    def __ne__(self, other: Operand) -> Expression:  # type: ignore[override]  # it builds an expression
        return _operation("not_equal", self, other)

    def __lt__(self, other: Operand) -> Expression:
        return _operation("less", self, other)

    def __le__(self, other: Operand) -> Expression:
        return _operation("less_equal", self, other)

    def __gt__(self, other: Operand) -> Expression:
        return _operation("greater", self, other)

    def __ge__(self, other: Operand) -> Expression:
        return _operation("greater_equal", self, other)

    def between(self, low: Operand, high: Operand) -> Expression:
        """Return whether the value is from ``low`` to ``high``, both included."""
        return _operation("between", self, low, high)

    def is_in(self, values: Iterable[Scalar]) -> Expression:
        """Return whether the value is one of these constants."""
        if isinstance(values, str | bytes):
            raise PlanError(f"is_in() takes several values, not {values!r:.64}")
        return _operation("is_in", self, *values)

    def is_null(self) -> Expression:
        """Return whether the value is NULL."""
        return _operation("is_null", self)

    def is_not_null(self) -> Expression:
        """Return whether the value is not NULL."""
        return ~self.is_null()

    # Logic.

    def __and__(self, other: Operand) -> Expression:
        return _junction("and", self, other)

    def __rand__(self, other: Operand) -> Expression:
        return _junction("and", other, self)

    def __or__(self, other: Operand) -> Expression:
        return _junction("or", self, other)

    def __ror__(self, other: Operand) -> Expression:
        return _junction("or", other, self)

    def __invert__(self) -> Expression:
        return _operation("not", self)

    def cast(self, to: str, *, strict: bool = True) -> Expression:
        """Return the value as another type, such as ``"int"``. A value that it does not have is an error at run.

        Without ``strict`` it is NULL.
        """
        return _operation("cast", self, type=to, strict=strict)

    # Numbers.

    def __abs__(self) -> Expression:
        return self.abs()

    def abs(self) -> Expression:
        """Return the absolute value."""
        return _operation("abs", self)

    def sign(self) -> Expression:
        """Return -1, 0 or 1, in the type of the value."""
        return _operation("sign", self)

    def floor(self) -> Expression:
        """Return the largest whole number that is not greater."""
        return _operation("floor", self)

    def ceil(self) -> Expression:
        """Return the smallest whole number that is not less."""
        return _operation("ceil", self)

    def round(self, digits: int = 0) -> Expression:
        """Return the nearest number with that many digits after the point, half to even."""
        return _operation("round", self, digits=digits)

    def sqrt(self) -> Expression:
        """Return the square root, as float."""
        return _operation("sqrt", self)

    def exp(self) -> Expression:
        """Return e to this power, as float."""
        return _operation("exp", self)

    def ln(self) -> Expression:
        """Return the natural logarithm, as float."""
        return _operation("ln", self)

    def power(self, exponent: Operand) -> Expression:
        """Return the value to a power, as float."""
        return _operation("power", self, exponent)

    # Text.

    def lower(self) -> Expression:
        """Return text in small letters."""
        return _operation("lower", self)

    def upper(self) -> Expression:
        """Return text in capital letters."""
        return _operation("upper", self)

    def length(self) -> Expression:
        """Return the number of characters of text, of bytes, or of elements of a list."""
        return _operation("length", self)

    def substring(self, start: Operand, length: Operand | None = None) -> Expression:
        """Return the part from ``start``, counted from 0, or from the end if negative; to the end without a length."""
        return _operation("substring", self, start, *(() if length is None else (length,)))

    def starts_with(self, text: Operand) -> Expression:
        """Return whether text begins with another one."""
        return _operation("starts_with", self, text)

    def ends_with(self, text: Operand) -> Expression:
        """Return whether text ends with another one."""
        return _operation("ends_with", self, text)

    def contains(self, text: Operand) -> Expression:
        """Return whether another text is in it."""
        return _operation("contains", self, text)

    def replace(self, old: Operand, new: Operand) -> Expression:
        """Return text with ``new`` wherever ``old`` is."""
        return _operation("replace", self, old, new)

    def trim(self, characters: str = BLANKS) -> Expression:
        """Return text without these characters at both ends."""
        return _operation("trim", self, characters=characters)

    # Time, in UTC.

    def truncate(self, unit: str) -> Expression:
        """Return the beginning of the ``second``, ``minute``, ``hour`` or ``day`` of a moment."""
        return _operation("truncate", self, unit=unit)

    def hour_of_day(self) -> Expression:
        """Return the hour of a moment, 0 to 23."""
        return _operation("hour_of_day", self)

    def day_of_week(self) -> Expression:
        """Return the day of a moment or a date: 1 for Monday to 7 for Sunday."""
        return _operation("day_of_week", self)

    def date_of(self) -> Expression:
        """Return the date of a moment."""
        return _operation("date_of", self)

    # Structs and lists.

    def field(self, name: str) -> Expression:
        """Return a field of a struct."""
        return _operation("field", self, name=name)

    def element(self, index: Operand) -> Expression:
        """Return an element of a list, counted from 0, or from the end if negative; NULL if it is not there."""
        return _operation("element", self, index)

    # Order.

    def asc(self) -> Ranking:
        """Return an order of rows in which the least value is first, and NULL last."""
        return Ranking(self.node)

    def desc(self) -> Ranking:
        """Return an order of rows in which the greatest value is first, and NULL last."""
        return Ranking(self.node, descending=True)


@dataclass(frozen=True, slots=True)
class Ranking:
    """What rows are ranked by."""

    node: Node
    descending: bool = False


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Branches(Expression):
    """A ``case`` that is NULL where no condition is true, until ``otherwise`` gives it another value."""

    __hash__ = None

    def when(self, condition: Operand) -> Branch:
        """Begin another branch, for rows for which no condition before it is true."""
        assert isinstance(self.node, Operation)
        return Branch((*self.node.operands[:-1], node_of(condition)))

    def otherwise(self, value: Operand | None) -> Expression:
        """Return the case with a value for all other rows."""
        assert isinstance(self.node, Operation)
        return Expression(Operation("case", (*self.node.operands[:-1], node_of(value))))


@dataclass(frozen=True, slots=True)
class Branch:
    """A condition that waits for its value."""

    operands: tuple[Node, ...]

    def then(self, value: Operand | None) -> Branches:
        """Give the value for rows for which the condition is true."""
        return Branches(Operation("case", (*self.operands, node_of(value), OPEN_NULL)))


class Columns:
    """The columns of the input: ``col.delay``, or ``col["any name"]``."""

    def __getitem__(self, name: str) -> Expression:
        if not isinstance(name, str):
            raise PlanError(f"a column has a name, not {name!r:.64}")
        return Expression(ColumnReference(name))

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("_"):  # probed by copy, pickle and notebooks
            raise AttributeError(f"write col[{name!r}] for a column whose name begins with _")
        return self[name]

    def __repr__(self) -> str:
        return "<columns>"


col = Columns()


def lit(value: Scalar | None, type: str | None = None) -> Expression:  # noqa: A002  (the name that users expect)
    """Return a constant. ``type``: of NULL, or of a value that is given as text: ``lit("2013-01-31", "date")``."""
    return Expression(literal_of(value, type))


def when(condition: Operand) -> Branch:
    """Begin a case: ``when(col.delay > 15).then("late").otherwise("in time")``."""
    return Branch((node_of(condition),))


def coalesce(*values: Operand) -> Expression:
    """Return the first value that is not NULL."""
    return _operation("coalesce", *values)


def concat(*texts: Operand) -> Expression:
    """Return texts, joined; NULL if one is NULL."""
    return _operation("concat", *texts)


def least(*values: Operand) -> Expression:
    """Return the least value that is not NULL."""
    return _operation("least", *values)


def greatest(*values: Operand) -> Expression:
    """Return the greatest value that is not NULL."""
    return _operation("greatest", *values)


def node_of(value: object) -> Node:
    """Return the tree of an expression or a constant. Raises PlanError if it is neither."""
    return value.node if isinstance(value, Expression) else literal_of(value)


def _operation(name: str, /, *operands: Operand, **parameters: Parameter) -> Expression:
    for operand in operands:
        if operand is None:
            raise PlanError("NULL is equal to nothing and computes nothing; use is_null(), or lit(None, 'int')")
    return Expression(Operation(name, tuple(map(node_of, operands)), tuple(parameters.items())))


def _junction(name: str, left: Operand, right: Operand) -> Expression:
    """Return and, or; chains of one are one node, so that they are not deep."""
    parts: list[Node] = []
    for node in (node_of(left), node_of(right)):
        parts += node.operands if isinstance(node, Operation) and node.name == name else [node]
    return Expression(Operation(name, tuple(parts)))
