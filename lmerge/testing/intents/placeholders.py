"""Placeholders: the parts of an intent that the tester leaves open (seed 001, 4).

A placeholder has a name, such as ``?3``, and is one choice wherever it stands. In an expression it is a column of that
name, so all that builds expressions of columns builds expressions of placeholders; no schema of a scenario may have
such a column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from lmerge.errors import UsageError
from lmerge.temporal.expressions.surface import Expression
from lmerge.temporal.expressions.tree import ColumnReference, Node, Operation, UserCall
from lmerge.text_enum import TextEnum

MARK: Final = "?"


class PlaceholderKind(TextEnum):
    """What a placeholder stands for."""

    SCHEMA = "schema"
    COLUMN = "column"
    COLUMNS = "columns"
    EXPRESSION = "expression"
    NUMBER = "number"
    WINDOW = "window"
    CHOICE = "choice"
    MODULE = "module"
    CALLS = "calls"
    TREE = "tree"


@dataclass(frozen=True)
class Placeholder:
    """A part that is open.

    ``type``: of an expression or column, such as ``int``; empty for any. ``least``, ``most``: of a number, or of the
    operators of a tree. ``choices``: of a choice, in order.
    """

    name: str
    kind: PlaceholderKind
    type: str = ""
    least: int | None = None
    most: int | None = None
    choices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.least is not None and self.most is not None and self.least > self.most:
            raise UsageError(f"{self.shown}: no number is from {self.least} to {self.most}")

    @property
    def shown(self) -> str:
        """The placeholder as text: ``any int expression ?3``."""
        kinds = f"{self.type} {self.kind}" if self.type else str(self.kind)
        limits = ""
        if self.least is not None:
            limits += f" of at least {self.least}"
        if self.most is not None:
            limits += f" of at most {self.most}"
        of = f" of {', '.join(self.choices)}" if self.choices else ""
        return f"any {kinds}{of}{limits} {self.name}"

    def to_json(self) -> dict[str, Any]:
        """Return the placeholder as JSON values, without its name."""
        fields: dict[str, Any] = {"kind": str(self.kind)}
        for name, value in (("type", self.type), ("least", self.least), ("most", self.most)):
            if value not in ("", None):
                fields[name] = value
        return fields | ({"choices": list(self.choices)} if self.choices else {})


class AnyValue:
    """The class of ``ANY``: a placeholder that has no name yet."""

    def __repr__(self) -> str:
        return "ANY"


ANY: Final = AnyValue()
"""Leaves open what stands here."""


def placeholder_from_json(name: str, fields: object) -> Placeholder:
    """Return the placeholder of ``to_json``. Raises UsageError, which names what is wrong."""
    if not isinstance(fields, dict) or not name.startswith(MARK):
        raise UsageError(f"placeholder {name!r:.64}: it is an object, and its name begins with {MARK}")
    unknown = fields.keys() - {"kind", "type", "least", "most", "choices"}
    if unknown:
        raise UsageError(f"placeholder {name!r:.64} has no field {min(unknown)!r:.64}")
    try:
        kind = PlaceholderKind(fields.get("kind"))
    except ValueError:
        there = ", ".join(PlaceholderKind)
        raise UsageError(
            f"placeholder {name!r:.64} has no kind {fields.get('kind')!r:.64}: there are {there}"
        ) from None
    numbers = fields.get("least"), fields.get("most")
    if any(one is not None and (not isinstance(one, int) or isinstance(one, bool)) for one in numbers):
        raise UsageError(f"placeholder {name!r:.64}: least and most are whole numbers, not {numbers!r:.64}")
    choices, of_type = fields.get("choices", []), fields.get("type", "")
    if (
        not isinstance(choices, list)
        or not all(isinstance(one, str) for one in choices)
        or not isinstance(of_type, str)
    ):
        raise UsageError(f"placeholder {name!r:.64}: its type is text, and its choices are a list of texts")
    return Placeholder(name, kind, of_type, *numbers, tuple(choices))


def open_names(expression: Expression | Node) -> Iterator[str]:
    """Yield the names of the placeholders of an expression, from left to right, each as often as it stands there."""
    node = expression.node if isinstance(expression, Expression) else expression
    if isinstance(node, ColumnReference):
        if node.name.startswith(MARK):
            yield node.name
    elif isinstance(node, (Operation, UserCall)):
        for operand in node.operands:
            yield from open_names(operand)


def filled(node: Node, chosen: dict[str, Node]) -> Node:
    """Return an expression with the placeholders of ``chosen`` replaced."""
    if isinstance(node, ColumnReference):
        return chosen.get(node.name, node)
    if isinstance(node, Operation):
        return Operation(node.name, tuple(filled(one, chosen) for one in node.operands), node.parameters)
    if isinstance(node, UserCall):
        return replace(node, operands=tuple(filled(one, chosen) for one in node.operands))
    return node
