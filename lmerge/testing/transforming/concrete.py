"""Concrete trees: a query with nothing open, the nature of its data in numbers, and how it runs. All of it is JSON.

``{"lmerge_tree": 1, "scenario": TEXT, "seed": NUMBER, "row": NUMBER, "cell": {FACTOR: WORD}, "plan": PLAN, "data":
{SOURCE: {"facets": FACETS, "seed": NUMBER}}, "run": {WORD: WORD}}`` with the plans of ``lmerge.temporal``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from reprlib import repr as brief
from typing import Any, Final

from lmerge.errors import UsageError
from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.json_format import plan_from_json, plan_to_json
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.showing import trees
from lmerge.temporal.plan.sources import SourceNode

VERSION: Final = 1
MARK: Final = "lmerge_tree"


@dataclass(frozen=True)
class SourceData:
    """The data of a source: facets as JSON, and the seed of its events."""

    facets: Mapping[str, Any]
    seed: int


@dataclass(frozen=True)
class ConcreteTree:
    """A test with nothing open.

    ``outputs``: the results as plans; ``data``: of each source by name; ``run``: how it runs, such as
    ``implementation`` and ``batching``; ``cell``: the words that it was made of; ``row``: its number among the trees of
    the scenario.
    """

    scenario: str
    outputs: Mapping[str, PlanNode]
    data: Mapping[str, SourceData]
    run: Mapping[str, str]
    seed: int = 0
    row: int = 0
    cell: Mapping[str, str] = field(default_factory=dict)

    @property
    def sources(self) -> dict[str, SourceNode]:
        """The sources by name."""
        nodes = in_order(list(self.outputs.values()))
        return {node.label: node for node in nodes if isinstance(node, SourceNode)}

    @property
    def name(self) -> str:
        """The scenario, and which of its trees this is."""
        return f"{self.scenario} #{self.row}"

    @property
    def is_given(self) -> bool:
        """Whether it was not made of an intent: a case of a file, which is small already."""
        return not self.cell

    def __str__(self) -> str:
        lines = [self.name, trees(self.outputs)]
        for source, data in self.data.items():
            facets = ", ".join(f"{name}={value}" for name, value in data.facets.items())
            lines.append(f"{source}: {facets} (seed {data.seed})")
        lines.append(", ".join(f"{name}={level}" for name, level in self.run.items()))
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the tree as JSON values."""
        data = {name: {"facets": dict(one.facets), "seed": one.seed} for name, one in self.data.items()}
        return {
            MARK: VERSION,
            "scenario": self.scenario,
            "seed": self.seed,
            "row": self.row,
            "cell": dict(self.cell),
            "plan": plan_to_json(self.outputs),
            "data": data,
            "run": dict(self.run),
        }


def tree_from_json(document: object) -> ConcreteTree:
    """Return the tree of a document. Raises UsageError, which names what is wrong."""
    if not isinstance(document, Mapping) or MARK not in document:
        raise UsageError(f"this is no concrete tree: {brief(document)}")
    if document[MARK] != VERSION or isinstance(document[MARK], bool):
        raise UsageError(f"a tree of version {brief(document[MARK])} cannot be read; this is version {VERSION}")
    try:
        data = {str(name): SourceData(dict(one["facets"]), int(one["seed"])) for name, one in document["data"].items()}
        run = {str(name): str(level) for name, level in document["run"].items()}
        cell = {str(name): str(level) for name, level in document.get("cell", {}).items()}
        scenario, seed, row = str(document["scenario"]), int(document["seed"]), int(document["row"])
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise UsageError(f"the tree cannot be read: {brief(problem)}") from None
    tree = ConcreteTree(scenario, plan_from_json(document.get("plan")), data, run, seed, row, cell)
    missing = sorted(set(tree.sources) - set(data))
    if missing:
        raise UsageError(f"the tree has no data for source {missing[0]!r:.64}")
    return tree


def replaced(node: PlanNode, others: Mapping[PlanNode, PlanNode]) -> PlanNode:
    """Return a plan with some nodes replaced by others."""
    found: dict[PlanNode, PlanNode] = dict(others)
    for one in in_order([node], found):
        if one not in found:
            reads = tuple(found[read] for read in one.reads)
            found[one] = one if reads == one.reads else replace(one, reads=reads)
    return found[node]
