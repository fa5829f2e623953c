"""Expressions as JSON, and back: a public format with a version.

``{"lmerge_expression": 1, "expression": NODE}``, where a node is one of

* ``{"column": NAME}``
* ``{"literal": VALUE, "type": TYPE}``; timestamps, dates and decimals are text, bytes are hexadecimal text, NaN and
  infinities are ``"nan"``, ``"inf"``, ``"-inf"``. ``{"literal": null}`` is a NULL whose type its place decides.
* ``{"operation": NAME, "operands": [NODE, ...], PARAMETER: VALUE, ...}``
* ``{"function": NAME, "version": NUMBER, "operands": [NODE, ...]}``, a user-defined function

What is read back equals what was written. The names and meanings of operations belong to the version of the format.
"""

from __future__ import annotations

from collections.abc import Mapping
from reprlib import repr as brief  # of documents: neither long nor deep
from typing import Any, Final

from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.families import ALL_RULES
from lmerge.temporal.expressions.functions import FUNCTIONS, FunctionRegistry
from lmerge.temporal.expressions.literals import OPEN_NULL, literal_of, plain_literal
from lmerge.temporal.expressions.surface import Expression
from lmerge.temporal.expressions.tree import (
    DEPTH_MAX,
    ColumnReference,
    LiteralValue,
    Node,
    Operation,
    UserCall,
    check_size,
)

VERSION: Final = 1
_MARK: Final = "lmerge_expression"


def to_json(expression: Expression) -> dict[str, Any]:
    """Return an expression as a document of JSON values."""
    return {_MARK: VERSION, "expression": node_to_json(expression.node)}


def from_json(document: object, functions: FunctionRegistry = FUNCTIONS) -> Expression:
    """Return the expression of a document. Raises PlanError, which names the part that cannot be read."""
    if not isinstance(document, Mapping) or _MARK not in document:
        raise PlanError(f"this is no expression: {brief(document)}")
    if document[_MARK] != VERSION or isinstance(document[_MARK], bool):
        raise PlanError(f"an expression of version {brief(document[_MARK])} cannot be read; this is version {VERSION}")
    _check_keys(document, {_MARK, "expression"})
    return Expression(node_from_json(document["expression"], functions))


def node_to_json(node: Node) -> dict[str, Any]:
    """Return a tree as JSON values, for documents that have a version of their own. Raises PlanError if it is deep."""
    check_size(node)
    return _written(node)


def node_from_json(document: object, functions: FunctionRegistry = FUNCTIONS) -> Node:
    """Return the tree of ``node_to_json``. Raises PlanError."""
    node = _read(document, functions, 1)
    check_size(node)
    return node


def _written(node: Node) -> dict[str, Any]:
    if isinstance(node, ColumnReference):
        return {"column": node.name}
    if isinstance(node, LiteralValue):
        written = {"literal": plain_literal(node)}
        return written if node.type is None else {**written, "type": node.type.describe().removesuffix("?")}
    operands = [_written(operand) for operand in node.operands]
    if isinstance(node, UserCall):
        return {"function": node.function.name, "version": node.function.version, "operands": operands}
    return {"operation": node.name, "operands": operands, **dict(node.parameters)}


def _read(document: object, functions: FunctionRegistry, depth: int) -> Node:
    if depth > DEPTH_MAX:
        raise PlanError(f"an expression is nested deeper than {DEPTH_MAX}")
    if not isinstance(document, Mapping):
        raise PlanError(f"a part of an expression is an object, not {brief(document)}")
    if "column" in document:
        _check_keys(document, {"column"})
        return ColumnReference(_text(document, "column"))
    if "literal" in document:
        return _literal(document)
    if "operation" in document:
        return _operation(document, functions, depth)
    if "function" in document:
        _check_keys(document, {"function", "version", "operands"})
        name, version = _text(document, "function"), document["version"]
        if not isinstance(version, int) or isinstance(version, bool):
            raise PlanError(f"function {name!r:.100}: a version is a number, not {brief(version)}")
        return UserCall(functions.find(name, version), _operands(document, functions, depth))
    raise PlanError(f"a part of an expression is column, literal, operation or function, not {brief(document)}")


def _literal(document: Mapping[str, Any]) -> LiteralValue:
    value = document["literal"]
    if "type" not in document:
        _check_keys(document, {"literal"})
        if value is not None:
            raise PlanError(f"the literal {brief(value)} has no type")
        return OPEN_NULL
    _check_keys(document, {"literal", "type"})
    kind = _text(document, "type")
    if kind == "bytes" and value is not None:
        try:
            value = bytes.fromhex(value)
        except (TypeError, ValueError):
            raise PlanError(f"the literal {brief(value)} is no hexadecimal text") from None
    return literal_of(value, kind)


def _operation(document: Mapping[str, Any], functions: FunctionRegistry, depth: int) -> Operation:
    name = _text(document, "operation")
    rule = ALL_RULES.get(name)
    if rule is None:
        raise PlanError(f"there is no operation {name!r:.100}")
    _check_keys(document, {"operation", "operands", *rule.parameters})
    for parameter in rule.parameters:
        if not isinstance(document[parameter], str | int | bool):
            raise PlanError(f"operation {name}: {parameter} is text, a number or a truth value")
    parameters = tuple((parameter, document[parameter]) for parameter in rule.parameters)
    return Operation(name, _operands(document, functions, depth), parameters)


def _operands(document: Mapping[str, Any], functions: FunctionRegistry, depth: int) -> tuple[Node, ...]:
    operands = document["operands"]
    if not isinstance(operands, list):
        raise PlanError(f"operands are a list, not {brief(operands)}")
    return tuple(_read(operand, functions, depth + 1) for operand in operands)


def _text(document: Mapping[str, Any], key: str) -> str:
    value = document[key]
    if not isinstance(value, str):
        raise PlanError(f"{key} is text, not {brief(value)}")
    return value


def _check_keys(document: Mapping[str, Any], keys: set[str]) -> None:
    """Raise PlanError if a key is missing, or one is there that has no meaning."""
    if set(document) != keys:
        expected, came = ", ".join(sorted(keys)), ", ".join(sorted(map(str, document)))
        raise PlanError(f"a part of an expression has {came:.200}, where it must have {expected}")
