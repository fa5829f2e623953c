"""Composition: scenarios of scenarios, to any depth (seed 001, 1.2 and 7). What is open stays open.

``then``: the results of one are the streams of another. ``beside``: two over shared streams. ``embedded``: one in the
place of a stream of another. The scenarios that are composed stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lmerge.errors import UsageError
from lmerge.temporal.expressions.surface import Expression
from lmerge.temporal.expressions.tree import ColumnReference, Node
from lmerge.temporal.plan.calls import WindowCall
from lmerge.testing.intents.placeholders import MARK, Placeholder, filled, open_names
from lmerge.testing.intents.trees import IntentNode, in_order

if TYPE_CHECKING:
    from lmerge.testing.intents.fluent import IntentScenario


def then(first: IntentScenario, second: IntentScenario) -> IntentScenario:
    """Return a scenario in which the results of ``first``, in order, are the first streams of ``second``.

    Raises UsageError if ``second`` has fewer streams than ``first`` has results.
    """
    made = _named(first, f"{first.name}, then {second.name}")
    results = list(_Copy(made, first).results(first).values())
    streams = list(second.streams)
    if len(results) > len(streams):
        raise UsageError(f"{first.name!r:.64} has {len(results)} results, {second.name!r:.64} {len(streams)} streams")
    given = dict(zip(streams, results, strict=False))
    outputs = _Copy(made, second, given).results(second)
    made.outputs.update(outputs)
    return made


def beside(one: IntentScenario, other: IntentScenario) -> IntentScenario:
    """Return a scenario with the results of both, over streams that are shared where they have one name."""
    made = _named(one, f"{one.name}, beside {other.name}")
    outputs = _Copy(made, one).results(one)
    for name, node in _Copy(made, other).results(other).items():
        free, number = name, 2
        while free in outputs:
            free, number = f"{name}{number}", number + 1
        outputs[free] = node
    made.outputs.update(outputs)
    return made


def embedded(outer: IntentScenario, stream: str, inner: IntentScenario) -> IntentScenario:
    """Return ``outer`` with the only result of ``inner`` in the place of its stream of a name.

    Raises UsageError if there is no such stream, or ``inner`` has several results.
    """
    if stream not in outer.streams:
        there = ", ".join(outer.streams) or "none"
        raise UsageError(f"scenario {outer.name!r:.64} has no stream {stream!r:.64}; there are {there}")
    made = _named(outer, f"{outer.name}, on {inner.name}")
    results = list(_Copy(made, inner).results(inner).values())
    if len(results) != 1:
        raise UsageError(f"scenario {inner.name!r:.64} has {len(results)} results; one takes the place of a stream")
    made.outputs.update(_Copy(made, outer, {stream: results[0]}).results(outer))
    return made


def _named(first: IntentScenario, name: str) -> IntentScenario:
    return type(first)(name)


@dataclass
class _Copy:
    """Copies the nodes of a scenario into another, with placeholders of new names. ``given``: nodes for streams."""

    into: IntentScenario
    source: IntentScenario
    given: Mapping[str, IntentNode] = field(default_factory=dict)
    _nodes: dict[int, IntentNode] = field(default_factory=dict)
    _placeholders: dict[str, Placeholder] = field(default_factory=dict)

    def results(self, scenario: IntentScenario) -> dict[str, IntentNode]:
        """Return the copies of the results by name, with what is stated of the data of streams that are kept."""
        found = {name: self._node(root) for name, root in scenario.results().items()}
        for stream, facets in scenario.facets.items():
            if stream not in self.given:
                self.into.facets.setdefault(stream, {}).update(facets)
        return found

    def _node(self, root: IntentNode) -> IntentNode:
        for node in in_order([root]):
            if id(node) not in self._nodes:
                self._nodes[id(node)] = self._copied(node)
        return self._nodes[id(root)]

    def _copied(self, node: IntentNode) -> IntentNode:
        if node.operator == "stream":
            return self._stream(node)
        parameters = tuple((name, self._value(value)) for name, value in node.parameters)
        made = IntentNode(node.operator, tuple(self._nodes[id(read)] for read in node.reads), parameters)
        self.into.add(made)
        return made

    def _stream(self, node: IntentNode) -> IntentNode:
        name, schema = node.value("name"), node.value("schema")
        if name in self.given:
            return self.given[name]
        there = self.into.streams.get(name)
        if there is None:
            made = self.into.stream(name) if isinstance(schema, Placeholder) else self.into.stream(name, schema)
            return made.node
        if not isinstance(schema, Placeholder) and there.node.value("schema") != schema:
            raise UsageError(f"both scenarios have a stream {name!r:.64}, with other columns")
        return there.node

    def _value(self, value: Any) -> Any:
        if isinstance(value, Placeholder):
            return self._placeholder(value.name)
        if isinstance(value, Expression):
            return Expression(self._expression(value.node))
        if isinstance(value, WindowCall) and value.arguments is not None:
            return replace(value, arguments=tuple(map(self._expression, value.arguments)))
        if isinstance(value, IntentNode):
            return self._node(value)
        if isinstance(value, Mapping):
            return {name: self._value(one) for name, one in value.items()}
        if isinstance(value, tuple):
            return tuple(self._value(one) for one in value)
        return value

    def _expression(self, node: Node) -> Node:
        names: dict[str, Node] = {name: ColumnReference(self._placeholder(name).name) for name in open_names(node)}
        return filled(node, names)

    def _placeholder(self, name: str) -> Placeholder:
        if name not in self._placeholders:
            made = replace(self.source.placeholders[name], name=f"{MARK}{len(self.into.placeholders) + 1}")
            self.into.placeholders[made.name] = made
            self._placeholders[name] = made
        return self._placeholders[name]
