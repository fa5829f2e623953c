"""The tree of an expression: what it computes, without types, and without the surface that builds it.

Nodes are values: equal trees are equal objects for ``==``, they can be keys of a dict, and parts of the nodes of a
plan. There is no node for the lifetime of an event: an adjust would move the event in or out of a filter below the
stable point (seed 000, II.D.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.array_forms import Arrays
from lmerge.wire.schema import Column

# Deeper trees are not written by people. The limit keeps recursion and generated code shallow.
DEPTH_MAX: Final = 100
# A program may write a table of thousands of branches; more than this is data, and belongs into a join.
NODES_MAX: Final = 10_000

# What trim() removes unless it is asked for other characters.
BLANKS: Final = " \t\n\r\v\f"

Nulls: TypeAlias = Literal["skip", "pass"]
Parameter: TypeAlias = str | int | bool


@dataclass(frozen=True, slots=True)
class ColumnReference:
    """The value of a column of the input."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class LiteralValue:
    """A constant in the form of ``lmerge.temporal.values``. ``type`` is None for a NULL of any type."""

    value: Any
    type: Column | None

    def __eq__(self, other: object) -> bool:
        # As tuples, in which NaN is equal to itself. Fields of a dataclass are compared by == since Python 3.13.
        return isinstance(other, LiteralValue) and (self.value, self.type) == (other.value, other.type)

    def __hash__(self) -> int:
        return hash((self.value, self.type))


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of ``semantics`` by its name. ``parameters``: what is not computed, such as a number of digits."""

    name: str
    operands: tuple[Node, ...]
    parameters: tuple[tuple[str, Parameter], ...] = ()

    def parameter(self, name: str) -> Parameter | None:
        """Return a parameter, or None if it is not there."""
        return dict(self.parameters).get(name)


@dataclass(frozen=True, slots=True, eq=False)
class UserFunction:
    """A function of a user, with what it declares. Two are equal if they are one declaration.

    ``name``, ``version``: how a plan in JSON calls it. ``arguments``, ``result``: types; those of arguments have ``?``
    if the function takes None. ``nulls``: with "skip" the function is not called for a row in which an argument is
    NULL, and the result is NULL; with "pass" it gets None. ``deterministic``: equal arguments give equal results.
    ``injective``: different arguments give different results. ``vectorised``: it gets a list for each argument, and
    returns the list of results; with ``columns`` it gets arrays of NumPy or Arrow, and can return one.
    """

    name: str
    version: int
    arguments: tuple[Column, ...]
    result: Column
    function: Callable[..., Any]
    nulls: Nulls = "skip"
    deterministic: bool = True
    injective: bool = False
    vectorised: bool = False
    columns: Arrays = "list"


@dataclass(frozen=True, slots=True)
class UserCall:
    """A call of a user's function."""

    function: UserFunction
    operands: tuple[Node, ...]


Node: TypeAlias = ColumnReference | LiteralValue | Operation | UserCall


@dataclass(frozen=True, slots=True)
class _Place:
    node: Node
    depth: int = field(default=1)


def operands_of(node: Node) -> tuple[Node, ...]:
    """Return the nodes below a node, in order."""
    return node.operands if isinstance(node, Operation | UserCall) else ()


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it, from left to right. A node that occurs twice is yielded twice."""
    left = [node]
    while left:
        one = left.pop()
        yield one
        left.extend(reversed(operands_of(one)))


def check_size(node: Node) -> None:
    """Raise PlanError if a tree is too deep or has too many nodes. It is not recursive."""
    left, count = [_Place(node)], 0
    while left:
        place = left.pop()
        count += 1
        if place.depth > DEPTH_MAX:
            raise PlanError(f"an expression is nested deeper than {DEPTH_MAX}")
        if count > NODES_MAX:
            raise PlanError(f"an expression has more than {NODES_MAX} parts")
        left.extend(_Place(operand, place.depth + 1) for operand in operands_of(place.node))
