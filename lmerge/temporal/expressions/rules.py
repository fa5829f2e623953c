"""The registry of operations: for each name how many operands it takes, and the rule that gives it a type and code.

A rule is a function of a ``Request`` that returns a ``TypedNode``, or raises the request's ``refusal``. The modules
beside this one register rules by family; ``families`` has them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from lmerge.temporal.expressions.coercion import is_untyped_null
from lmerge.temporal.expressions.tree import Node, Operation, Parameter
from lmerge.temporal.expressions.typed import CANONICAL_NAN, Bindings, Code, Lenient, Strict, TypedNode
from lmerge.temporal.expressions.typing_rules import common_type, shown_type, with_null
from lmerge.temporal.values import NAN
from lmerge.wire.schema import Column


class TypeMismatch(Exception):
    """An operation does not fit its operands. Caught where an expression is bound, which raises PlanError."""

    def __init__(self, node: Node, problem: str) -> None:
        super().__init__(problem)
        self.node = node
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Request:
    """An operation with typed operands, for its rule."""

    node: Operation
    operands: tuple[TypedNode, ...]

    def refusal(self, problem: str) -> TypeMismatch:
        """Return the error of an operation that does not fit its operands."""
        return TypeMismatch(self.node, problem)

    @property
    def shown_types(self) -> str:
        """The types of the operands, for messages."""
        return " and ".join(shown_type(operand.column) for operand in self.operands)

    def text(self, name: str) -> str:
        """Return a parameter that is text."""
        return str(self._parameter(name, str))

    def number(self, name: str) -> int:
        """Return a parameter that is a whole number."""
        return int(self._parameter(name, int))

    def flag(self, name: str) -> bool:
        """Return a parameter that is true or false."""
        return bool(self._parameter(name, bool))

    def _parameter(self, name: str, kind: type[Parameter]) -> Parameter:
        value = self.node.parameter(name)
        if type(value) is not kind:
            raise self.refusal(f"{name} is {value!r:.64}, which is no {kind.__name__}")
        return value

    def require(self, index: int, types: Sequence[str] | frozenset[str]) -> TypedNode:
        """Return an operand of one of these types; raise the refusal for another one."""
        operand = self.operands[index]
        if operand.column.type not in types:
            expected = " or ".join(sorted(types))
            raise self.refusal(f"it takes {expected}, not {shown_type(operand.column)}")
        return operand

    def strict(
        self,
        result: Column,
        text: str,
        *,
        operands: tuple[TypedNode, ...] | None = None,
        bindings: Bindings = (),
        after: str = "",
        can_be_null: bool = False,
    ) -> TypedNode:
        """Return the node of an operation that is NULL if an operand is NULL."""
        inputs = self.operands if operands is None else operands
        if result.type == "float" and after == CANONICAL_NAN:
            bindings = (*bindings, ("nan", NAN))
        nullable = can_be_null or any(operand.nullable for operand in inputs)
        code = Strict(text, bindings, after, self.node.name)
        return TypedNode(self.node, with_null(result, nullable), inputs, code)

    def lenient(
        self, result: Column, text: str, bindings: Bindings = (), operands: tuple[TypedNode, ...] | None = None
    ) -> TypedNode:
        """Return the node of an operation that gets NULL as None. ``result`` has the nullability."""
        return self.of_code(result, Lenient(text, bindings, self.node.name), operands)

    def of_code(self, result: Column, code: Code, operands: tuple[TypedNode, ...] | None = None) -> TypedNode:
        """Return the node of an operation with code of its own. ``result`` has the nullability."""
        return TypedNode(self.node, result, self.operands if operands is None else operands, code)

    def common(self, operands: Sequence[TypedNode], what: str) -> Column:
        """Return the common type of operands, nullable if one of them is. NULL without a type takes any."""
        found: Column | None = None
        for operand in operands:
            if is_untyped_null(operand):
                continue
            both = operand.column if found is None else common_type(found, operand.column)
            if both is None:
                assert found is not None
                raise self.refusal(f"{what} are {shown_type(found)} and {shown_type(operand.column)}")
            found = both
        if found is None:
            raise self.refusal("the type of NULL is open; write lit(None, 'int') or another type")
        return with_null(found, any(operand.nullable for operand in operands))


Rule: TypeAlias = Callable[[Request], TypedNode]


@dataclass(frozen=True, slots=True)
class OperationRule:
    """An operation: its rule, the number of operands (``most`` None: any), and the names of its parameters.

    ``keeps_types_open``: operands can be a NULL without a type.
    """

    name: str
    rule: Rule
    least: int
    most: int | None
    parameters: tuple[str, ...]
    keeps_types_open: bool


_RULES: Final[dict[str, OperationRule]] = {}


def operation(
    name: str,
    least: int = 1,
    most: int | None = -1,
    *,
    parameters: tuple[str, ...] = (),
    keeps_types_open: bool = False,
) -> Callable[[Rule], Rule]:
    """Register a rule for ``least`` to ``most`` operands; without ``most`` for exactly ``least``."""

    def register(rule: Rule) -> Rule:
        assert name not in _RULES
        _RULES[name] = OperationRule(name, rule, least, least if most == -1 else most, parameters, keeps_types_open)
        return rule

    return register


def registered_rules() -> dict[str, OperationRule]:
    """Return the rules of all families that are imported."""
    return _RULES
