"""Intent trees: operators over streams, with parts that are open (seed 001, figure 2).

A parameter is a ``Placeholder``, an ``Expression`` (of columns and placeholders), a ``WindowCall``, the sub-tree of
each group, or a JSON value. ``OPERATORS`` has the operators and what each takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lmerge.errors import UsageError
from lmerge.temporal.expressions.surface import Expression
from lmerge.temporal.plan.calls import WindowCall
from lmerge.testing.intents.placeholders import Placeholder, open_names


@dataclass(frozen=True)
class IntentOperator:
    """What an operator of intents takes. ``parameters``: their names, in the order in which they are shown."""

    least_reads: int
    most_reads: int | None
    parameters: tuple[str, ...] = ()


_POLICIES: Final = ("form", "output")
OPERATORS: Final[Mapping[str, IntentOperator]] = {
    "stream": IntentOperator(0, 0, ("name", "schema")),
    "group": IntentOperator(0, 0),
    "where": IntentOperator(1, 1, ("predicate",)),
    "select": IntentOperator(1, 1, ("columns",)),
    "lifetime": IntentOperator(1, 1, ("alteration", "amount")),
    "edges": IntentOperator(1, 1, ("by", "lasts")),
    "coalesce": IntentOperator(1, 1),
    "cleanse": IntentOperator(1, 1),
    "union": IntentOperator(2, None),
    "join": IntentOperator(2, 2, ("how", "on", "where")),
    "as_of": IntentOperator(2, 2, ("how", "on", "within")),
    "aggregate": IntentOperator(1, 1, ("keys", "window", "calls", *_POLICIES, "clip")),
    "top": IntentOperator(1, 1, ("keys", "window", "k", "by", *_POLICIES)),
    "apply": IntentOperator(1, 1, ("window", "module", *_POLICIES, "clip")),
    "group_apply": IntentOperator(1, 1, ("keys", "plan")),
    "any": IntentOperator(1, None, ("operators",)),
}
"""Operators by name. ``any`` is a sub-tree that is open, ``group`` the stream of a group in its sub-tree."""


@dataclass(frozen=True, eq=False)
class IntentNode:
    """An operator of an intent. Nodes are equal if they are one object: a stream that is read twice is one stream."""

    operator: str
    reads: tuple[IntentNode, ...] = ()
    parameters: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        known = OPERATORS.get(self.operator)
        if known is None:
            raise UsageError(f"there is no operator {self.operator!r:.64}; there are {', '.join(OPERATORS)}")
        count = len(self.reads)
        if count < known.least_reads or (known.most_reads is not None and count > known.most_reads):
            raise UsageError(f"{self.operator} reads {known.least_reads} streams or more, not {count}")
        names = [name for name, _ in self.parameters]
        wrong = next((name for name in names if name not in known.parameters), None)
        if wrong is not None:
            takes = ", ".join(known.parameters) or "nothing"
            raise UsageError(f"{self.operator} has no {wrong!r:.64}; it takes {takes}")

    def get(self, name: str, default: Any = None) -> Any:
        """Return a parameter."""
        return dict(self.parameters).get(name, default)

    def value(self, name: str) -> Any:
        """Return a parameter that must be there. Raises UsageError."""
        found = dict(self.parameters)
        if name not in found:
            raise UsageError(f"{self.operator} needs {name!r}, a value or a placeholder")
        return found[name]


def in_order(roots: Sequence[IntentNode]) -> list[IntentNode]:
    """Return all nodes, each behind those that it reads; sub-trees of groups are not among them."""
    found: dict[int, IntentNode] = {}

    def visit(node: IntentNode) -> None:
        if id(node) in found:
            return
        for read in node.reads:
            visit(read)
        found[id(node)] = node

    for root in roots:
        visit(root)
    return list(found.values())


def placeholders_of(roots: Sequence[IntentNode]) -> list[str]:
    """Return the names of the placeholders of trees, sub-trees of groups included, each once, in order."""
    found: dict[str, None] = {}
    for node in in_order(roots):
        for _, value in node.parameters:
            found.update(dict.fromkeys(_names_in(value)))
    return list(found)


def _names_in(value: Any) -> Iterator[str]:
    if isinstance(value, Placeholder):
        yield value.name
    elif isinstance(value, Expression):
        yield from open_names(value)
    elif isinstance(value, WindowCall):
        for node in value.arguments or ():
            yield from open_names(node)
    elif isinstance(value, IntentNode):
        yield from placeholders_of([value])
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _names_in(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _names_in(one)


# The tree as text.


_IN_TITLES: Final = ("name", "schema", "alteration", "how")


def tree(root: IntentNode, placeholders: Mapping[str, Placeholder]) -> str:
    """Return an intent as a tree, the result at the top, with its open parts as leaves (figure 2)."""
    return "\n".join(_lines(root, placeholders, {}, "", ""))


def _lines(
    node: IntentNode, names: Mapping[str, Placeholder], seen: dict[int, int], first: str, rest: str
) -> Iterator[str]:
    if id(node) in seen and node.reads:
        yield f"{first}{node.operator} (as above)"
        return
    seen[id(node)] = len(seen)
    yield f"{first}{_title(node)}"
    below: list[tuple[str, IntentNode | None]] = [("", read) for read in node.reads]
    if node.operator == "join" and "on" not in dict(node.parameters):
        below.append(("on: any equality", None))
    for name, value in node.parameters:
        if name in _IN_TITLES and (node.operator == "stream" or not isinstance(value, Placeholder)):
            continue
        if isinstance(value, IntentNode):
            below.append((f"{name}: ", value))
        elif value is not None and not (isinstance(value, tuple) and not value):
            shown = _shown_pairs(value, names) if name == "on" else shown_value(value, names)
            below.append((f"{name}: {shown}", None))
    for at, (text, child) in enumerate(below):
        is_last = at == len(below) - 1
        branch, bar = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
        if child is None:
            yield f"{rest}{branch}{text}"
        else:
            yield from _lines(child, names, seen, f"{rest}{branch}{text}", f"{rest}{bar}")


def _title(node: IntentNode) -> str:
    if node.operator == "stream":
        schema = node.get("schema")
        shown = f"any stream {schema.name}" if isinstance(schema, Placeholder) else f"stream of {shown_schema(schema)}"
        return f"{node.get('name')}: {shown}"
    levels = [str(node.get(name)) for name in ("how", "alteration") if isinstance(node.get(name), str)]
    return " ".join([*levels, node.operator])


def shown_value(value: Any, names: Mapping[str, Placeholder]) -> str:
    """Return a parameter as text."""
    if isinstance(value, Placeholder):
        return value.shown
    if isinstance(value, Expression):
        return _named(str(value), open_names(value), names)
    if isinstance(value, WindowCall):
        of = [name for node in value.arguments or () for name in open_names(node)]
        return _named(value.shown, of, names)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {shown_value(one, names)}" for name, one in value.items() if one is not None)
    if isinstance(value, (list, tuple)):
        if len(value) == 2 and isinstance(value[0], str):
            return f"{value[0]}={shown_value(value[1], names)}"
        return ", ".join(shown_value(one, names) for one in value)
    return str(value)


def shown_schema(schema: Any) -> str:
    """Return columns with their types as text."""
    return ", ".join(f"{name} {kind}" for name, kind in dict(schema or {}).items())


def _shown_pairs(value: Any, names: Mapping[str, Placeholder]) -> str:
    """Return the columns of an as-of join, or the equalities of a join."""
    if not isinstance(value, tuple) or isinstance(value[0][0], str):
        return shown_value(value, names)
    return " and ".join(f"{shown_value(one, names)} == {shown_value(other, names)}" for one, other in value)


def _named(text: str, used: Iterator[str] | Sequence[str], names: Mapping[str, Placeholder]) -> str:
    """Return the text of an expression with its placeholders shown for what they are."""
    for name in sorted(set(used), key=len, reverse=True):
        kind = names[name].shown if name in names else name
        text = text.replace(f'col["{name}"]', kind).replace(f"col['{name}']", kind)
    return text
