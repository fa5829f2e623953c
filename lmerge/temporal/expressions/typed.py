"""A tree with types: what binding makes of an expression for one schema, and what the generator makes code of.

Casts that are not written are nodes here. Each node has one kind of code:

* ``LoadColumn`` and ``Constant``;
* ``Strict``: NULL if an operand is NULL, else a Python expression of the operands;
* ``Lenient``: a Python expression of the operands, which can be None;
* ``Junction``, ``FirstTrue``, ``FirstPresent``: they evaluate only the operands that decide;
* ``FunctionCall``: a user's function.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from lmerge.temporal.expressions.printing import shown
from lmerge.temporal.expressions.tree import Node, UserFunction
from lmerge.wire.schema import Column

Bindings: TypeAlias = tuple[tuple[str, Any], ...]
"""Constants and functions that a Python expression uses, by their names in its text."""


class EvaluationFailure(Exception):
    """A value that cannot be computed. Caught in the code of a bound expression, which adds the row and operator."""

    def __init__(self, expression: str, problem: str) -> None:
        super().__init__(problem)
        self.expression = expression
        self.problem = problem


class Site:
    """The place of an operation in an expression, for messages."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    def failure(self, problem: str) -> EvaluationFailure:
        """Return the error of a value that this operation cannot compute."""
        return EvaluationFailure(shown(self.node), problem)


@dataclass(frozen=True, slots=True)
class LoadColumn:
    """The value of a row at an index."""

    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A value that is the same for all rows."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and (self.value,) == (other.value,)  # NaN is equal to itself

    def __hash__(self) -> int:
        return hash((self.value,))


@dataclass(frozen=True, slots=True)
class Strict:
    """A Python expression with ``{0}``, ``{1}`` for operands, ``{name}`` for ``bindings`` and ``{site}``.

    ``after``: a statement that checks or corrects the result ``{t}``. ``operation``: the name of what it computes, for
    evaluators that do not run Python.
    """

    text: str
    bindings: Bindings = ()
    after: str = ""
    operation: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Lenient:
    """As ``Strict``, for operands that can be None."""

    text: str
    bindings: Bindings = ()
    operation: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Junction:
    """Three-valued and (``is_all``) or or: from left to right, until the result is settled."""

    is_all: bool


@dataclass(frozen=True, slots=True)
class FirstTrue:
    """The value behind the first condition that is true. Operands: condition, value, ..., and a value for the rest."""


@dataclass(frozen=True, slots=True)
class FirstPresent:
    """The first operand that is not NULL."""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a user's function on converted values."""

    function: UserFunction


Code: TypeAlias = LoadColumn | Constant | Strict | Lenient | Junction | FirstTrue | FirstPresent | FunctionCall


@dataclass(frozen=True, slots=True, eq=False)
class TypedNode:
    """A node with its type, the nodes that it is computed from, and its code. ``node``: for messages."""

    node: Node
    column: Column
    operands: tuple[TypedNode, ...]
    code: Code

    @property
    def nullable(self) -> bool:
        """Whether the value can be NULL."""
        return self.column.nullable

    @property
    def is_constant(self) -> bool:
        """Whether the value is the same for all rows."""
        return isinstance(self.code, Constant)


CANONICAL_NAN: Final = "if {t} != {t}: {t} = {nan}"
"""The statement behind an operation of floats: one object for every NaN."""
