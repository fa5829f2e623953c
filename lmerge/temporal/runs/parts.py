"""The operators of a run, which its queries share: which nodes each one computes, and for which events it is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lmerge.core.elements import NEG_INF
from lmerge.temporal.entrance import StreamEntrance
from lmerge.temporal.errors import PlanError
from lmerge.temporal.graph import GraphStep, OperatorGraph, StepCounters
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.operators.since import SinceOperator
from lmerge.temporal.plan.beginnings import FROM_THE_START, Opening, StreamBeginning, opening
from lmerge.temporal.plan.compiling import chains_of, in_order, step_operator
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.sources import SourceNode


@dataclass(frozen=True)
class RunPart:
    """An operator that runs. ``nodes``: what it computes in one pass; ``opening``: how it has begun."""

    name: str
    nodes: tuple[PlanNode, ...]
    opening: Opening
    operator: PlanOperator
    counters: StepCounters = field(default_factory=StepCounters, compare=False)

    @property
    def result(self) -> PlanNode:
        """The node whose stream it puts out."""
        return self.nodes[-1]

    @property
    def reads(self) -> tuple[PlanNode, ...]:
        """The nodes whose streams it takes."""
        return self.nodes[0].reads

    def fields(self, places: Mapping[PlanNode, int], is_packed: bool) -> dict[str, Any]:
        """Return the part with its state, as plain values or packed. ``places``: of its nodes in the plan."""
        (t, by_end), since = self.opening
        nodes = [places[node] for node in self.nodes]
        state = self.operator.packed_state() if is_packed else self.operator.state()
        return {"name": self.name, "nodes": nodes, "opening": [t, by_end, since], "state": state}

    @property
    def begins(self) -> StreamBeginning:
        """Which events its stream has, for a reader that begins now and gets those that live."""
        gone = max(self.operator.stable, self.operator.fast_forwarded)
        t, by_end = self.opening.begins
        return StreamBeginning(max(t, gone), by_end)


def new_part(name: str, nodes: tuple[PlanNode, ...], begun: Opening, implementation: str) -> RunPart:
    """Return a part with a new operator. ``implementation``: as in ``CompiledPlan.graph``."""
    operator = step_operator(name, nodes, implementation)
    return RunPart(name, nodes, begun, operator if begun.since == NEG_INF else SinceOperator(operator, begun.since))


def restore_state(new: PlanOperator | StreamEntrance, state: dict[str, Any] | bytes) -> None:
    """Give a new operator or entrance its state: plain values, or MessagePack of them."""
    if isinstance(state, bytes):
        new.restore_packed(state)
    else:
        new.restore(state)


def restored_part(fields: Mapping[str, Any], order: Sequence[PlanNode], implementation: str) -> RunPart:
    """Return the part of ``RunPart.fields``. ``order``: the nodes of the plan by their places."""
    t, by_end, since = fields["opening"]
    nodes = tuple(order[place] for place in fields["nodes"])
    part = new_part(fields["name"], nodes, Opening(StreamBeginning(t, by_end), since), implementation)
    restore_state(part.operator, fields["state"])
    return part


@dataclass(frozen=True)
class RunParts:
    """Sources, and parts in an order in which each comes behind what it reads."""

    sources: tuple[SourceNode, ...] = ()
    parts: tuple[RunPart, ...] = ()

    @property
    def places(self) -> dict[PlanNode, int]:
        """The place of each stream in a graph, sources first."""
        results: list[PlanNode] = [*self.sources, *(part.result for part in self.parts)]
        return {node: place for place, node in enumerate(results)}

    def graph(self, outputs: Sequence[PlanNode], needed: Sequence[int]) -> OperatorGraph:
        """Return a graph of the operators, with their states. ``needed``: the feedback of the outputs."""
        places = self.places
        steps = [
            GraphStep(part.operator, tuple(places[read] for read in part.reads), part.counters) for part in self.parts
        ]
        return OperatorGraph(len(self.sources), steps, [places[output] for output in outputs], needed)

    def missing(
        self, outputs: Sequence[PlanNode], begins: Mapping[PlanNode, StreamBeginning], implementation: str
    ) -> RunParts:
        """Return what results need that is not here, new. ``begins``: of the streams that are here.

        Raises PlanError for another source of a name that is taken, and for an operator that cannot begin.
        """
        there = self.places
        names = {source.label for source in self.sources}
        sources = [node for node in in_order(outputs, there) if isinstance(node, SourceNode) and node not in there]
        for source in sources:
            if source.label in names:
                raise PlanError(f"two different sources are named {source.label!r:.64}")
            names.add(source.label)
        begun: dict[PlanNode, StreamBeginning] = dict(begins) | dict.fromkeys(sources, FROM_THE_START)
        parts = []
        for name, nodes in chains_of(outputs, there, [part.name for part in self.parts]):
            found = Opening(FROM_THE_START)
            inputs: Sequence[StreamBeginning] = [begun[read] for read in nodes[0].reads]
            for node in nodes:
                found = opening(node, inputs)
                inputs = [found.begins]
            begun[nodes[-1]] = found.begins
            parts.append(new_part(name, nodes, found, implementation))
        return RunParts(tuple(sources), tuple(parts))

    def needed_for(self, outputs: Sequence[PlanNode]) -> RunParts:
        """Return the sources and parts that results need."""
        needed = set(outputs)
        parts = []
        for part in reversed(self.parts):
            if part.result in needed:
                parts.append(part)
                needed.update(part.reads)
        return RunParts(tuple(source for source in self.sources if source in needed), tuple(reversed(parts)))

    def __add__(self, other: RunParts) -> RunParts:
        return RunParts(self.sources + other.sources, self.parts + other.parts)
