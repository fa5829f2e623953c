"""Expressions as text, as a person would write them with ``surface``: ``(col.delay > 15) & ~col.late``.

Python reads the text back as the same tree, if user-defined functions are there by their names.
"""

from __future__ import annotations

import math
from keyword import iskeyword
from typing import Any, Final

from lmerge.temporal.expressions.literals import plain_literal
from lmerge.temporal.expressions.tree import BLANKS, ColumnReference, LiteralValue, Node, Operation, UserCall

# How tightly Python binds: comparisons less than | and &, those less than arithmetic.
_COMPARISON, _OR, _AND, _SUM, _PRODUCT, _UNARY, _ATOM = range(7)

_BINARY: Final = {
    "equal": ("==", _COMPARISON),
    "not_equal": ("!=", _COMPARISON),
    "less": ("<", _COMPARISON),
    "less_equal": ("<=", _COMPARISON),
    "greater": (">", _COMPARISON),
    "greater_equal": (">=", _COMPARISON),
    "or": ("|", _OR),
    "and": ("&", _AND),
    "add": ("+", _SUM),
    "subtract": ("-", _SUM),
    "multiply": ("*", _PRODUCT),
    "divide": ("/", _PRODUCT),
    "floor_divide": ("//", _PRODUCT),
    "modulo": ("%", _PRODUCT),
}
_PREFIXES: Final = {"negate": "-", "not": "~"}
_FUNCTIONS: Final = frozenset(("coalesce", "concat", "least", "greatest"))


def shown(node: Node) -> str:
    """Return an expression as text."""
    return _shown(node, _COMPARISON)


def _shown(node: Node, tightness: int) -> str:
    """Return a node as text, in parentheses if it binds less than ``tightness``."""
    text, own = _text(node)
    return text if own >= tightness else f"({text})"


def _text(node: Node) -> tuple[str, int]:
    if isinstance(node, ColumnReference):
        is_plain = node.name.isidentifier() and not node.name.startswith("_") and not iskeyword(node.name)
        return (f"col.{node.name}" if is_plain else f"col[{node.name!r}]"), _ATOM
    if isinstance(node, LiteralValue):
        return _literal(node), _ATOM
    if isinstance(node, UserCall):
        return f"{node.function.name}({_arguments(node.operands)})", _ATOM
    if node.name in _BINARY and len(node.operands) >= 2:
        return _binary(node)
    if node.name in _PREFIXES and len(node.operands) == 1:
        return f"{_PREFIXES[node.name]}{_shown(node.operands[0], _UNARY)}", _UNARY
    if node.name in _FUNCTIONS:
        return f"{node.name}({_arguments(node.operands)})", _ATOM
    if node.name == "case":
        return _case(node), _ATOM
    return _method(node), _ATOM


def _binary(node: Operation) -> tuple[str, int]:
    symbol, tightness = _BINARY[node.name]
    first, *others = node.operands
    is_comparison = tightness == _COMPARISON
    # Python turns 15 < col.delay around, and computes 1 + 2 by itself.
    is_bare = isinstance(first, LiteralValue) and not is_comparison and not isinstance(others[0], LiteralValue)
    left = _bare(first) if is_bare else _shown(first, tightness + is_comparison)
    parts = [left, *(_bare(one) if isinstance(one, LiteralValue) else _shown(one, tightness + 1) for one in others)]
    return f" {symbol} ".join(parts), tightness


def _case(node: Operation) -> str:
    *branches, rest = node.operands
    pairs = zip(branches[::2], branches[1::2], strict=False)
    text = ".".join(f"when({_bare(condition)}).then({_bare(value)})" for condition, value in pairs)
    is_open = isinstance(rest, LiteralValue) and rest.type is None
    return text if is_open else f"{text}.otherwise({_bare(rest)})"


def _method(node: Operation) -> str:
    if not node.operands:
        return f"{node.name}()"
    first, *others = node.operands
    receiver = _shown(first, _ATOM)
    arguments = [_bare(other) for other in others]
    if node.name == "is_in":
        arguments = [f"[{', '.join(arguments)}]"]
    for name, value in node.parameters:
        if (node.name, name, value) == ("cast", "strict", True) or (name, value) == ("characters", BLANKS):
            continue
        arguments.append(f"{name}={value!r}" if name == "strict" else repr(value))
    return f"{receiver}.{node.name}({', '.join(arguments)})"


def _arguments(nodes: tuple[Node, ...]) -> str:
    return ", ".join(map(_bare, nodes))


def _bare(node: Node) -> str:
    """Return a node for a place where the surface makes a literal of a Python value."""
    if isinstance(node, LiteralValue):
        text = _literal(node)
        is_plain = node.type is not None and text.startswith("lit(") and ", " not in _after_value(node)
        return text[len("lit(") : -1] if is_plain else text
    return _shown(node, _COMPARISON)


def _after_value(node: LiteralValue) -> str:
    return ", " if _declared(node) is not None else ""


def _declared(node: LiteralValue) -> str | None:
    """Return the type that a literal is written with, or None if its value shows the type."""
    column = node.type
    if column is None:
        return None
    has_own_form = column.type in ("bool", "int", "string", "bytes", "decimal") or (
        column.type == "float" and column.round_digits is None and node.value is not None and math.isfinite(node.value)
    )
    return None if has_own_form and node.value is not None else column.describe().removesuffix("?")


def _literal(node: LiteralValue) -> str:
    declared = _declared(node)
    value = _written(node)
    return f"lit({value})" if declared is None else f"lit({value}, {declared!r})"


def _written(node: LiteralValue) -> str:
    value: Any = node.value
    if value is None or node.type is None:
        return "None"
    if node.type.type == "decimal":
        return f"Decimal({f'{value:f}'!r})"
    if node.type.type == "bytes":
        return repr(value)
    return repr(plain_literal(node))
