"""Scenarios as JSON, and back: a public format with a version, replayed for ever.

``{"lmerge_scenario": 1, "name": TEXT, "open": {NAME: PLACEHOLDER, ...}, "nodes": [NODE, ...], "outputs": {NAME: ID},
"data": {STREAM: FACETS, ...}}``. A node is ``{"id": ID, "operator": NAME, "reads": [ID, ...], PARAMETER: VALUE, ...}``,
behind all that it reads. A value is JSON, or one of ``{"open": NAME}``, ``{"expression": EXPRESSION}`` with the
expressions of plans, in which a placeholder is a column of its name, ``{"call": CALL}``, and ``{"plan": NODES}`` for
the sub-tree of groups. An array of two that begins with text is a name and its value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from reprlib import repr as brief
from typing import Any, Final

from lmerge.errors import LmergeError, UsageError
from lmerge.temporal.expressions.json_format import node_from_json, node_to_json
from lmerge.temporal.expressions.surface import Expression
from lmerge.temporal.plan.calls import WindowCall
from lmerge.testing.intents.fluent import IntentScenario, IntentStream
from lmerge.testing.intents.placeholders import Placeholder, placeholder_from_json
from lmerge.testing.intents.trees import OPERATORS, IntentNode, in_order, placeholders_of

VERSION: Final = 1
MARK: Final = "lmerge_scenario"
NODES_MAX: Final = 1000
"""More than any tester writes. It bounds what a hostile file costs."""
_DEPTH_MAX: Final = 16
_KEYS: Final = frozenset((MARK, "name", "open", "nodes", "outputs", "data"))
_COMMON: Final = frozenset(("id", "operator", "reads"))


def scenario_to_json(scenario: IntentScenario) -> dict[str, Any]:
    """Return a scenario as a document of JSON values. Raises UsageError for one without an operator."""
    outputs = scenario.results()
    roots = list(outputs.values())
    nodes, ids = _nodes_to_json(roots)
    used = placeholders_of(roots)
    return {
        MARK: VERSION,
        "name": scenario.name,
        "open": {name: scenario.placeholders[name].to_json() for name in used},
        "nodes": nodes,
        "outputs": {name: ids[id(node)] for name, node in outputs.items()},
        "data": {stream: dict(facets) for stream, facets in scenario.facets.items()},
    }


def scenario_from_json(document: object) -> IntentScenario:
    """Return the scenario of a document. Raises UsageError, which names the part that cannot be read."""
    if not isinstance(document, Mapping) or MARK not in document:
        raise UsageError(f"this is no scenario: {brief(document)}")
    version = document[MARK]
    if version != VERSION or isinstance(version, bool):
        raise UsageError(f"a scenario of version {brief(version)} cannot be read; this is version {VERSION}")
    unknown = document.keys() - _KEYS
    if unknown:
        raise UsageError(f"a scenario has no field {min(unknown)!r:.64}")
    name, nodes, outputs = document.get("name"), document.get("nodes"), document.get("outputs")
    placeholders, data = document.get("open", {}), document.get("data", {})
    if not isinstance(name, str) or not isinstance(nodes, list) or not isinstance(outputs, Mapping) or not outputs:
        raise UsageError("a scenario has a name, a list of nodes, and outputs by name")
    if not isinstance(placeholders, Mapping) or not isinstance(data, Mapping):
        raise UsageError("the open parts and the data of a scenario are objects")
    if len(nodes) > NODES_MAX:
        raise UsageError(f"the scenario has {len(nodes)} nodes; it has at most {NODES_MAX}")
    made = IntentScenario(name, {one: placeholder_from_json(one, fields) for one, fields in placeholders.items()})
    for stream, facets in data.items():
        if not isinstance(facets, Mapping):
            raise UsageError(f"the data of {stream!r:.64} are an object of facets, not {brief(facets)}")
        made.facets[stream] = dict(facets)
    found = _nodes_from_json(made, nodes, 0)
    for output, place in outputs.items():
        if not isinstance(place, str) or place not in found:
            raise UsageError(f"output {output!r:.64} is node {brief(place)}, and there is none")
        made.output(output, IntentStream(made, found[place]))
    return made


def _nodes_to_json(roots: Sequence[IntentNode]) -> tuple[list[dict[str, Any]], dict[int, str]]:
    order = in_order(roots)
    ids = {id(node): f"n{at}" for at, node in enumerate(order, 1)}
    nodes = []
    for node in order:
        common = {"id": ids[id(node)], "operator": node.operator, "reads": [ids[id(read)] for read in node.reads]}
        nodes.append(common | {name: _to_json(value) for name, value in node.parameters})
    return nodes, ids


def _to_json(value: Any) -> Any:
    if isinstance(value, Placeholder):
        return {"open": value.name}
    if isinstance(value, Expression):
        return {"expression": node_to_json(value.node)}
    if isinstance(value, WindowCall):
        return {"call": value.fields()}
    if isinstance(value, IntentNode):
        return {"plan": _nodes_to_json([value])[0]}
    if isinstance(value, Mapping):
        return {name: _to_json(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(one) for one in value]
    return value


def _nodes_from_json(scenario: IntentScenario, nodes: Sequence[Any], depth: int) -> dict[str, IntentNode]:
    found: dict[str, IntentNode] = {}
    if depth > _DEPTH_MAX:
        raise UsageError(f"the sub-trees of a scenario are nested deeper than {_DEPTH_MAX}")
    for fields in nodes:
        if not isinstance(fields, Mapping) or not isinstance(fields.get("id"), str):
            raise UsageError(f"a node of a scenario is an object with an id, not {brief(fields)}")
        place, operator, reads = fields["id"], fields.get("operator"), fields.get("reads", [])
        where = f"node {place!r:.64}"
        if place in found:
            raise UsageError(f"two nodes have the id {place!r:.64}")
        if not isinstance(operator, str) or operator not in OPERATORS:
            raise UsageError(f"{where}: there is no operator {operator!r:.64}; there are {', '.join(OPERATORS)}")
        missing = reads if not isinstance(reads, list) else [one for one in reads if one not in found]
        if missing:
            raise UsageError(f"{where}: it reads {brief(missing)}, which is no node before it")
        own = {name: value for name, value in fields.items() if name not in _COMMON}
        try:
            given = tuple((name, _from_json(scenario, value, depth)) for name, value in own.items())
            node = IntentNode(operator, tuple(found[one] for one in reads), given)
        except LmergeError as problem:
            raise UsageError(f"{where}: {problem}") from None
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as problem:
            raise UsageError(f"{where}: its parameters are not those of {operator!r}: {brief(problem)}") from None
        if operator == "stream":
            _add_stream(scenario, node, where)
        found[place] = node
        scenario.add(node)
    return found


def _add_stream(scenario: IntentScenario, node: IntentNode, where: str) -> None:
    name = node.get("name")
    if not isinstance(name, str) or name in scenario.streams:
        raise UsageError(f"{where}: a stream has a name of its own, not {brief(name)}")
    scenario.streams[name] = IntentStream(scenario, node)


def _from_json(scenario: IntentScenario, value: Any, depth: int) -> Any:
    if isinstance(value, list):
        return tuple(_from_json(scenario, one, depth) for one in value)
    if not isinstance(value, Mapping):
        return value
    if len(value) == 1:
        ((form, inside),) = value.items()
        if form == "open" and isinstance(inside, str):
            if inside not in scenario.placeholders:
                raise UsageError(f"there is no placeholder {inside!r:.64} among the open parts")
            return scenario.placeholders[inside]
        if form == "expression":
            return Expression(node_from_json(inside))
        if form == "call" and isinstance(inside, Mapping):
            return WindowCall.of_fields(inside)
        if form == "plan" and isinstance(inside, list) and inside:
            return list(_nodes_from_json(scenario, inside, depth + 1).values())[-1]
    return {name: _from_json(scenario, one, depth) for name, one in value.items()}
