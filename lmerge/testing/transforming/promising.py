"""What sources promise in a tree: some of what their streams keep, so plans derive promises that a run can break."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from lmerge.core.elements import NEG_INF, Adjust, Element, Insert
from lmerge.core.properties import INSERT_ONLY, KEY, ORDERED, STRICTLY_ORDERED
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.testing.streams.facets import Facets
from lmerge.testing.streams.generator import generate
from lmerge.testing.transforming.concrete import ConcreteTree, SourceData, replaced

PROMISED: Final = 0.5
"""How often a source promises something that its stream keeps."""


def kept_promises(elements: Sequence[Element]) -> list[str]:
    """Return the properties that a stream keeps (IV.G); of its order, if it has inserts alone."""
    inserts = [one for one in elements if isinstance(one, Insert)]
    found = []
    if not any(isinstance(one, Adjust) for one in elements):
        starts = [one.vs for one in inserts]
        found.append(INSERT_ONLY)
        if starts == sorted(starts):
            found.append(ORDERED)
            # The definition of strict order lets several begin at -inf, an entrance does not: so none may.
            if len(set(starts)) == len(starts) and NEG_INF not in starts:
                found.append(STRICTLY_ORDERED)
    if max(Counter((one.payload, one.vs) for one in inserts).values(), default=1) == 1:
        found.append(KEY)
    return found


def with_promises(
    outputs: Mapping[str, PlanNode], data: Mapping[str, SourceData], random: Random
) -> dict[str, PlanNode]:
    """Return results whose sources promise some of what the streams of ``data`` keep."""
    promising: dict[PlanNode, PlanNode] = {}
    for name, node in ConcreteTree("", outputs, {}, {}).sources.items():
        given = data[name]
        stream = generate(Facets.from_json(given.facets), node.columns, given.seed)
        chosen = [one for one in kept_promises(stream.elements) if random.random() < PROMISED]
        if chosen and not node.promises:
            promising[node] = replace(node, promises=frozenset(chosen))
    return {name: replaced(node, promising) for name, node in outputs.items()}
