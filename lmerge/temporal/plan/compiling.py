"""From a plan to operators that run: equal parts are computed once, and span operators side by side in one pass.

Both rewrites keep the output, byte for byte. ``CompiledPlan.steps`` shows what they have made of the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain as chained
from itertools import count

from lmerge.core.engines.selection import NATIVE, PYTHON, resolve
from lmerge.errors import UsageError
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

    def graph(self, implementation: str = PYTHON) -> OperatorGraph:
        """Return new operators for the plan. ``implementation``: a name in ``selection.ENGINES``.

        ``native`` computes on the native core what it can, and the rest in Python; ``auto`` does so where the core is
        built. Raises UsageError for ``native`` where it is not.
        """
        return OperatorGraph(
            len(self.sources),
            [GraphStep(step_operator(step.name, step.nodes, implementation), step.reads) for step in self.steps],
            self.outputs,
        )


def compile_plan(outputs: Sequence[PlanNode]) -> CompiledPlan:
    """Return the plan of several results. Raises PlanError if two different sources have one name."""
    order = in_order(outputs)
    sources = [node for node in order if isinstance(node, SourceNode)]
    names = Counter(source.label for source in sources)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise PlanError(f"two different sources are named {twice[0]!r:.64}")
    places: dict[PlanNode, int] = {source: place for place, source in enumerate(sources)}
    steps: list[CompiledStep] = []
    for name, chain in chains_of(outputs):
        reads = tuple(places[node] for node in chain[0].reads)
        steps.append(CompiledStep(name, chain, reads))
        places[chain[-1]] = len(sources) + len(steps) - 1
    return CompiledPlan(tuple(sources), tuple(steps), tuple(places[output] for output in outputs))


def chains_of(
    outputs: Sequence[PlanNode], there: Collection[PlanNode] = (), names: Iterable[str] = ()
) -> list[tuple[str, tuple[PlanNode, ...]]]:
    """Return the nodes that one operator computes, in order, with a name for it that is not one of ``names``.

    ``there``: nodes that are computed already, by operators that run.
    """
    computed = [node for node in in_order(outputs, there) if node not in there and not isinstance(node, SourceNode)]
    taken = set(names)
    return [(_name(chain, taken), chain) for chain in _chains(computed, outputs)]


def in_order(outputs: Sequence[PlanNode], there: Collection[PlanNode] = ()) -> list[PlanNode]:
    """Return the different nodes of a plan, each behind those that it reads; nodes that are ``there`` read nothing."""
    found: dict[PlanNode, None] = {}
    left = [*reversed(outputs)]
    while left:
        node = left[-1]
        missing = [] if node in there else [read for read in node.reads if read not in found]
        if missing:
            left += reversed(missing)
            continue
        found[node] = None
        left.pop()
    return list(found)


def _chains(order: Sequence[PlanNode], outputs: Sequence[PlanNode]) -> list[tuple[PlanNode, ...]]:
    """Return nodes in order; span nodes that only each other read are together."""
    readers = Counter(read for node in order for read in node.reads) + Counter(outputs)
    begun: dict[PlanNode, list[PlanNode]] = {}
    chains: list[list[PlanNode]] = []
    for node in order:
        before = node.reads[0] if isinstance(node, SpanNode) else None
        if isinstance(before, SpanNode) and before in begun and readers[before] == 1:
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


def _name(chain: Sequence[PlanNode], taken: set[str]) -> str:
    """Return a name that no other step has: the label that one of the nodes was given, or the kinds."""
    labels = [node.label for node in chain if node.label]
    title = labels[-1] if labels else "+".join(dict.fromkeys(node.kind for node in chain))
    numbered = (f"{title} {number}" for number in count(2))
    name = next(name for name in chained([title], numbered) if name not in taken)
    taken.add(name)
    return name


def step_operator(name: str, nodes: Sequence[PlanNode], implementation: str = PYTHON) -> PlanOperator:
    """Return a new operator that computes a chain of nodes, or a single one. Raises as ``CompiledPlan.graph``."""
    if _is_native(implementation):
        from lmerge.temporal.native.describing import native_step

        native = native_step(name, nodes)
        if native is not None:
            return native
    spans = [node for node in nodes if isinstance(node, SpanNode)]
    return chain_operator(name, spans) if spans else nodes[0].operator(name)


def _is_native(implementation: str) -> bool:
    """Return whether steps run on the native core where they can. Raises UsageError if it cannot be used."""
    if resolve(implementation) == PYTHON:
        return False
    problem = _native_problem()
    if problem is not None and implementation == NATIVE:
        raise UsageError(f"the native operators cannot be used: {problem}")
    return problem is None


@cache
def _native_problem() -> str | None:
    """Return why the native operators cannot be used, such as a core that was built before they were."""
    try:
        import lmerge.temporal.native.describing  # noqa: F401 - whether it can be imported is the question
    except ImportError as problem:
        return str(problem)
    return None
