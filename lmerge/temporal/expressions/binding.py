"""Binding: an expression and a schema become a type and a function of rows.

``bind`` is for one expression, such as a predicate. ``bind_all`` is for all expressions of one operator: equal parts of
them are evaluated once a row. Errors at bind are PlanErrors, errors at run are ModuleViolations. Both name the operator
and the expression; the first also the columns with their types, the second the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from lmerge.errors import UsageError
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.expressions.batches import evaluate_together
from lmerge.temporal.expressions.coercion import coerced, is_untyped_null
from lmerge.temporal.expressions.families import ALL_RULES
from lmerge.temporal.expressions.generating import Generated, generate
from lmerge.temporal.expressions.printing import shown
from lmerge.temporal.expressions.properties import columns_read
from lmerge.temporal.expressions.rules import Request, TypeMismatch
from lmerge.temporal.expressions.surface import Expression
from lmerge.temporal.expressions.tree import ColumnReference, LiteralValue, Node, Operation, UserCall, check_size
from lmerge.temporal.expressions.typed import Constant, EvaluationFailure, FunctionCall, LoadColumn, TypedNode
from lmerge.temporal.expressions.typing_rules import fits_without_cast, shown_type, with_null
from lmerge.temporal.values import Values, show_values
from lmerge.wire.names import NAME_BYTES, cut_name
from lmerge.wire.schema import Column, Schema

# What a query writer may look for. An adjust would move an event in or out of such a filter below the stable point.
_LIFETIME: Final = frozenset(("vs", "ve", "le", "re", "start_time", "end_time"))

ExpressionLike: TypeAlias = Expression | Node


@dataclass(frozen=True, slots=True)
class BoundExpression:
    """An expression for rows of one schema.

    ``column``: the type of its values. The name is that of the column if the expression is a plain column, else the
    expression as text. ``evaluate`` gives the value for a row, ``evaluate_batch`` those for rows: a vectorised function
    is called once for them. Both raise ModuleViolation. ``code``: the generated function, for people.
    """

    node: Node
    column: Column
    evaluate: Callable[[Values], Any]
    evaluate_batch: Callable[[Sequence[Values]], list[Any]]
    code: Generated

    @property
    def evaluate_together(self) -> Callable[[Sequence[Values]], list[Any]] | None:
        """``evaluate_batch`` if it costs less than row by row: if a vectorised function is called."""
        return self.evaluate_batch if self.code.is_vectorised else None


@dataclass(frozen=True, slots=True)
class BoundProjection:
    """Several expressions for rows of one schema. ``evaluate`` gives a row with their values, in order."""

    nodes: tuple[Node, ...]
    columns: tuple[Column, ...]
    evaluate: Callable[[Values], Values]
    evaluate_batch: Callable[[Sequence[Values]], list[Values]]
    code: Generated

    @property
    def evaluate_together(self) -> Callable[[Sequence[Values]], list[Values]] | None:
        """As in ``BoundExpression``."""
        return self.evaluate_batch if self.code.is_vectorised else None

    @property
    def schema(self) -> Schema:
        """The schema of the rows that it gives. Raises PlanError if two columns have one name."""
        try:
            return Schema(self.columns)
        except UsageError as problem:
            raise PlanError(str(problem)) from None


def bind(expression: ExpressionLike, schema: Schema, *, operator: str = "") -> BoundExpression:
    """Return an expression for rows of ``schema``. ``operator``: its name, for messages.

    Raises PlanError, which names the expression, its columns and their types.
    """
    node = _node(expression)
    typed = _Binder(schema, operator).bound(node)
    code = _generated([typed], operator, is_row=False)
    column = replace(typed.column, name=_name_of(node))
    return BoundExpression(node, column, *_callables(code), code)


def bind_all(
    expressions: Mapping[str, ExpressionLike] | Iterable[ExpressionLike], schema: Schema, *, operator: str = ""
) -> BoundProjection:
    """Return several expressions for rows of ``schema``, with names or without. Raises PlanError as ``bind``."""
    if isinstance(expressions, Mapping):
        nodes = [_node(one) for one in expressions.values()]
        names = list(expressions)
    else:
        nodes = [_node(one) for one in expressions]
        names = [_name_of(node) for node in nodes]
    binder = _Binder(schema, operator)
    typed = [binder.bound(node) for node in nodes]
    code = _generated(typed, operator, is_row=True)
    columns = tuple(replace(one.column, name=name) for one, name in zip(typed, names, strict=True))
    return BoundProjection(tuple(nodes), columns, *_callables(code), code)


def typed_tree(expression: ExpressionLike, schema: Schema, *, operator: str = "") -> TypedNode:
    """Return an expression as a tree with types, for what asks about its parts. Raises PlanError as ``bind``."""
    return _Binder(schema, operator).bound(_node(expression))


def _node(expression: ExpressionLike) -> Node:
    return expression.node if isinstance(expression, Expression) else expression


def _name_of(node: Node) -> str:
    """Return the name of a result without one: at most as many bytes as a name may have."""
    name = node.name if isinstance(node, ColumnReference) else shown(node)
    return name if len(name.encode()) <= NAME_BYTES else cut_name(name)


class _Binder:
    """Gives types to the trees of one operator."""

    def __init__(self, schema: Schema, operator: str) -> None:
        self._schema = schema
        self._operator = operator
        self._indexes = {column.name: index for index, column in enumerate(schema.columns)}

    def bound(self, node: Node) -> TypedNode:
        """Return a tree with types. Raises PlanError."""
        check_size(node)
        try:
            typed = self._typed(node)
            if is_untyped_null(typed):
                raise TypeMismatch(node, "the type of NULL is open; write lit(None, 'int') or another type")
        except TypeMismatch as mismatch:
            raise self._error(node, mismatch) from None
        return typed

    def _typed(self, node: Node) -> TypedNode:
        if isinstance(node, ColumnReference):
            return self._column(node)
        if isinstance(node, LiteralValue):
            column = Column("", "int", nullable=True) if node.type is None else node.type
            return TypedNode(node, with_null(column, node.value is None), (), Constant(node.value))
        operands = tuple(map(self._typed, node.operands))
        if isinstance(node, UserCall):
            return self._call(node, operands)
        return _operation(node, operands)

    def _column(self, node: ColumnReference) -> TypedNode:
        index = self._indexes.get(node.name)
        if index is None:
            names = ", ".join(self._indexes)
            hint = "; no expression reads the lifetime of an event" if node.name.lower() in _LIFETIME else ""
            raise TypeMismatch(node, f"there is no column {node.name!r:.64}; the columns are {names:.400}{hint}")
        return TypedNode(node, replace(self._schema.columns[index], name=""), (), LoadColumn(index))

    def _call(self, node: UserCall, operands: tuple[TypedNode, ...]) -> TypedNode:
        function = node.function
        if len(operands) != len(function.arguments):
            raise TypeMismatch(node, f"it takes {len(function.arguments)} arguments, not {len(operands)}")
        taken = []
        for number, (operand, declared) in enumerate(zip(operands, function.arguments, strict=True), 1):
            if is_untyped_null(operand):
                operand = coerced(operand, declared)
            if not fits_without_cast(operand.column, declared):
                expected, came = shown_type(declared), shown_type(operand.column)
                raise TypeMismatch(node, f"argument {number} is {expected}, not {came}")
            if operand.nullable and function.nulls == "pass" and not declared.nullable:
                raise TypeMismatch(
                    node, f"argument {number} can be NULL, and the function takes {shown_type(declared)}"
                )
            taken.append(coerced(operand, with_null(replace(declared, name=""), False)))
        is_skipped = function.nulls == "skip" and any(operand.nullable for operand in taken)
        result = with_null(replace(function.result, name=""), function.result.nullable or is_skipped)
        return TypedNode(node, result, tuple(taken), FunctionCall(function))

    def _error(self, node: Node, mismatch: TypeMismatch) -> PlanError:
        whole, part = shown(node), shown(mismatch.node)
        where = f"{part!s:.200}" if whole == part else f"{part!s:.200} in {whole!s:.400}"
        types = {column.name: column for column in self._schema.columns}
        read = [f"{name}: {shown_type(types[name])}" for name in columns_read(node) if name in types]
        columns = f" ({', '.join(read)})" if read else ""
        return PlanError(f"{_prefix(self._operator)}{where}: {mismatch.problem}{columns:.800}")


def _operation(node: Operation, operands: tuple[TypedNode, ...]) -> TypedNode:
    rule = ALL_RULES.get(node.name)
    if rule is None:
        raise TypeMismatch(node, f"there is no operation {node.name!r:.64}")
    if len(operands) < rule.least or (rule.most is not None and len(operands) > rule.most):
        counts = f"{rule.least}" if rule.most == rule.least else f"{rule.least} to {rule.most or 'any number of'}"
        raise TypeMismatch(node, f"it takes {counts} operands, not {len(operands)}")
    if {name for name, _ in node.parameters} != set(rule.parameters) or len(node.parameters) != len(rule.parameters):
        raise TypeMismatch(node, f"its parameters are {', '.join(rule.parameters) or 'none'}")
    if not rule.keeps_types_open and any(map(is_untyped_null, operands)):
        raise TypeMismatch(node, "the type of NULL is open; write lit(None, 'int') or another type; is_null() finds it")
    return rule.rule(Request(node, operands))


def _prefix(operator: str) -> str:
    return f"operator {operator!r:.100}: " if operator else ""


def _generated(trees: list[TypedNode], operator: str, *, is_row: bool) -> Generated:
    def violation(failure: EvaluationFailure, row: Values) -> ModuleViolation:
        return ModuleViolation(
            f"{_prefix(operator)}{failure.expression:.400}: {failure.problem:.800}, in row {show_values(row, 200)}"
        )

    return generate(trees, is_row, violation)


def _callables(code: Generated) -> tuple[Callable[[Values], Any], Callable[[Sequence[Values]], list[Any]]]:
    function = code.function
    if code.is_vectorised:
        return (lambda row: evaluate_together(code, [row])[0]), (lambda rows: evaluate_together(code, rows))
    return function, lambda rows: list(map(function, rows))
