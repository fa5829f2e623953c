"""What a relation is: two runs of a query whose results must belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from lmerge.core.elements import Event
from lmerge.errors import UsageError
from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.testing.decided import Events
from lmerge.testing.streams.batches import batched
from lmerge.testing.streams.facets import Facets
from lmerge.testing.streams.generator import presented
from lmerge.testing.systems.inputs import TreeInputs
from lmerge.testing.transforming.concrete import ConcreteTree


class CannotHold(UsageError):
    """A relation does not hold for a query, whatever its results are. The message has the reason."""


@dataclass(frozen=True)
class RelatedRun:
    """A query that is related to itself. ``run`` gives the table of a result; ``key``: a column that splits the query.

    ``events``: the tables of the sources; ``inputs``: the streams of the first run; ``expected``: its table.
    """

    tree: ConcreteTree
    random: Random
    events: Mapping[str, Sequence[Event]]
    inputs: TreeInputs
    expected: Events
    run: Callable[[ConcreteTree, TreeInputs], Events]
    key: str = ""

    @property
    def implementation(self) -> str:
        """The implementation of the engine that the tree chooses."""
        return self.tree.run.get("implementation", "auto")

    def presented(self, facets: Facets) -> TreeInputs:
        """Return other streams of the same tables."""
        seed = self.random.randrange(2**31)
        streams = {
            name: presented(self.events[name], facets, node.columns, seed + at)
            for at, (name, node) in enumerate(self.tree.sources.items())
        }
        return TreeInputs(batched(self.random, streams, facets.interleaving, facets.batching))


Relation = Callable[[RelatedRun], Iterator[tuple[Events, Events]]]
"""Yields pairs of tables that must be equal: what was expected, and what came. Raises CannotHold."""


def every_node(roots: Sequence[PlanNode]) -> Iterator[PlanNode]:
    """Yield the nodes of plans, and of the plans in them."""
    for node in in_order(roots):
        yield node
        if node.inner is not None:
            yield from every_node([node.inner])
