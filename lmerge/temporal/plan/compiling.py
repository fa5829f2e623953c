"""From a plan to operators that run: equal parts are computed once, and span operators side by side in one pass.

Both rewrites keep the output, byte for byte. ``CompiledPlan.steps`` shows what they have made of the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lmerge.temporal.errors import PlanError
from lmerge.temporal.graph import GraphStep, OperatorGraph
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.sources import SourceNode
from lmerge.temporal.plan.spans import SpanNode, chain_operator


@dataclass(frozen=True)
class CompiledStep:
    """An operator to be: its name, the nodes that it computes in one pass, and the places that it reads."""

    name: str
    nodes: tuple[PlanNode, ...]
    reads: tuple[int, ...]


@dataclass(frozen=True)
class CompiledPlan:
    """Sources, then steps in an order in which each comes behind what it reads; ``outputs``: places of the results."""

    sources: tuple[SourceNode, ...]
    steps: tuple[CompiledStep, ...]
    outputs: tuple[int, ...]

    def graph(self) -> OperatorGraph:
        """Return new operators for the plan."""
        return OperatorGraph(
            len(self.sources), [GraphStep(_operator(step), step.reads) for step in self.steps], self.outputs
        )


def compile_plan(outputs: Sequence[PlanNode]) -> CompiledPlan:
    """Return the plan of several results. Raises PlanError if two different sources have one name."""
    order = in_order(outputs)
    sources = [node for node in order if isinstance(node, SourceNode)]
    names = Counter(source.label for source in sources)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise PlanError(f"two different sources are named {twice[0]!r:.64}")
    chains = _chains(order, outputs)
    places: dict[PlanNode, int] = {source: place for place, source in enumerate(sources)}
    steps: list[CompiledStep] = []
    taken: Counter[str] = Counter()
    for chain in chains:
        reads = tuple(places[node] for node in chain[0].reads)
        steps.append(CompiledStep(_name(chain, taken), chain, reads))
        places[chain[-1]] = len(sources) + len(steps) - 1
    return CompiledPlan(tuple(sources), tuple(steps), tuple(places[output] for output in outputs))


def in_order(outputs: Sequence[PlanNode]) -> list[PlanNode]:
    """Return the different nodes of a plan, each behind those that it reads."""
    found: dict[PlanNode, None] = {}
    left = [*reversed(outputs)]
    while left:
        node = left[-1]
        missing = [read for read in node.reads if read not in found]
        if missing:
            left += reversed(missing)
            continue
        found[node] = None
        left.pop()
    return list(found)


def _chains(order: Sequence[PlanNode], outputs: Sequence[PlanNode]) -> list[tuple[PlanNode, ...]]:
    """Return the nodes that are computed, in order; span nodes that only each other read are together."""
    readers = Counter(read for node in order for read in node.reads) + Counter(outputs)
    begun: dict[PlanNode, list[PlanNode]] = {}
    chains: list[list[PlanNode]] = []
    for node in order:
        if isinstance(node, SourceNode):
            continue
        before = node.reads[0] if isinstance(node, SpanNode) else None
        if isinstance(before, SpanNode) and readers[before] == 1:
            chain = begun.pop(before)
            chain.append(node)
        else:
            chain = [node]
            chains.append(chain)
        begun[node] = chain
    return _sorted_by_end(chains, order)


def _sorted_by_end(chains: Sequence[list[PlanNode]], order: Sequence[PlanNode]) -> list[tuple[PlanNode, ...]]:
    place = {node: at for at, node in enumerate(order)}
    return sorted((tuple(chain) for chain in chains), key=lambda chain: place[chain[-1]])


def _name(chain: Sequence[PlanNode], taken: Counter[str]) -> str:
    """Return a name that no other step has: the label that one of the nodes was given, or the kinds."""
    labels = [node.label for node in chain if node.label]
    name = labels[-1] if labels else "+".join(dict.fromkeys(node.kind for node in chain))
    taken[name] += 1
    return name if taken[name] == 1 else f"{name} {taken[name]}"


def _operator(step: CompiledStep) -> PlanOperator:
    spans = [node for node in step.nodes if isinstance(node, SpanNode)]
    return chain_operator(step.name, spans) if spans else step.nodes[0].operator(step.name)
