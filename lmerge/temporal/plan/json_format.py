"""Plans as JSON, and back: a public format with a version.

``{"lmerge_plan": 1, "nodes": [NODE, ...], "outputs": {NAME: ID, ...}}``. A node is ``{"id": ID, "kind": KIND, "reads":
[ID, ...], "label": NAME, ...}``, with the fields of its kind, behind all nodes that it reads. What is read back equals
what was written. A plan holds no code: functions and modules are named, with their versions. A node that runs a plan
for itself, such as that of each group, has it as ``plan``, with the output ``result``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from lmerge.errors import LmergeError
from lmerge.temporal.errors import PlanError
from lmerge.temporal.plan.applying import ApplyNode
from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.groups import GroupApplyNode, GroupInputNode
from lmerge.temporal.plan.joins import AsOfJoinNode, JoinNode
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.ranking import TopNode
from lmerge.temporal.plan.shaping import CleanseNode, CoalesceNode, EdgesNode
from lmerge.temporal.plan.sources import SourceNode
from lmerge.temporal.plan.spans import FilterNode, LifetimeNode, SelectNode, UnionNode
from lmerge.temporal.plan.windows import AggregateNode

VERSION: Final = 1
_MARK: Final = "lmerge_plan"
_RESULT: Final = "result"

KINDS: Final[Mapping[str, type[PlanNode]]] = {
    node.kind: node
    for node in (
        SourceNode,
        FilterNode,
        SelectNode,
        LifetimeNode,
        EdgesNode,
        CoalesceNode,
        CleanseNode,
        UnionNode,
        GroupInputNode,
        GroupApplyNode,
        JoinNode,
        AsOfJoinNode,
        AggregateNode,
        ApplyNode,
        TopNode,
    )
}
_COMMON: Final = frozenset(("id", "kind", "reads", "label"))


def plan_to_json(outputs: Mapping[str, PlanNode]) -> dict[str, Any]:
    """Return a plan as a document of JSON values. ``outputs``: its results by name."""
    order = in_order(list(outputs.values()))
    ids = {node: f"n{at}" for at, node in enumerate(order, 1)}
    nodes = []
    for node in order:
        common = {"id": ids[node], "kind": node.kind, "reads": [ids[read] for read in node.reads]}
        inner = {} if node.inner is None else {"plan": plan_to_json({_RESULT: node.inner})}
        nodes.append(common | ({"label": node.label} if node.label else {}) | node.fields() | inner)
    return {_MARK: VERSION, "nodes": nodes, "outputs": {name: ids[node] for name, node in outputs.items()}}


def plan_from_json(document: object) -> dict[str, PlanNode]:
    """Return the results of a plan by name. Raises PlanError, which names the node that cannot be read."""
    if not isinstance(document, Mapping) or _MARK not in document:
        raise PlanError(f"this is no plan: {document!r:.100}")
    if document[_MARK] != VERSION or isinstance(document[_MARK], bool):
        raise PlanError(f"a plan of version {document[_MARK]!r:.20} cannot be read; this is version {VERSION}")
    nodes, outputs = document.get("nodes"), document.get("outputs")
    if not isinstance(nodes, list) or not isinstance(outputs, Mapping) or not outputs:
        raise PlanError("a plan has a list of nodes, and outputs by name")
    found: dict[str, PlanNode] = {}
    for fields in nodes:
        _read(fields, found)
    try:
        return {str(name): found[place] for name, place in outputs.items()}
    except (KeyError, TypeError):
        unknown = next(place for place in outputs.values() if not isinstance(place, str) or place not in found)
        raise PlanError(f"an output is node {unknown!r:.64}, and there is none") from None


def fingerprint(node: PlanNode) -> str:
    """Return a text that two nodes share if they mean the same stream, whatever their labels."""
    document = plan_to_json({"it": node})
    for fields in document["nodes"]:
        if fields["kind"] != SourceNode.kind:
            fields.pop("label", None)
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def _read(fields: object, found: dict[str, PlanNode]) -> None:
    if not isinstance(fields, Mapping) or not isinstance(fields.get("id"), str):
        raise PlanError(f"a node of a plan is an object with an id, not {fields!r:.100}")
    name = fields["id"]
    where = f"node {name!r:.64}"
    kind, reads, label = fields.get("kind"), fields.get("reads", []), fields.get("label", "")
    if name in found:
        raise PlanError(f"two nodes have the id {name!r:.64}")
    if not isinstance(kind, str) or kind not in KINDS:
        raise PlanError(f"{where}: there is no kind {kind!r:.64}; there are {', '.join(KINDS)}")
    if not isinstance(reads, list) or not isinstance(label, str):
        raise PlanError(f"{where}: it reads a list of nodes, and its label is text")
    missing = [read for read in reads if not isinstance(read, str) or read not in found]
    if missing:
        raise PlanError(f"{where}: it reads {missing[0]!r:.64}, which is no node before it")
    inputs = [found[read] for read in reads]
    own = {key: value for key, value in fields.items() if key not in _COMMON}
    try:
        if "plan" in own:
            own["plan"] = plan_from_json(own["plan"])[_RESULT]
        node = KINDS[kind].of_fields(inputs, label, own)
    except LmergeError as problem:
        raise PlanError(f"{where}: {problem}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise PlanError(f"{where}: its fields are not those of {kind!r}: {problem!r:.200}") from None
    unknown = own.keys() - node.fields().keys() - (set() if node.inner is None else {"plan"})
    if unknown:
        raise PlanError(f"{where}: {kind} has no field {min(unknown)!r:.64}")
    found[name] = node
