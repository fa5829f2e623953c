"""A query as its user declares it: plans with one meaning under stable names, and the sources that they read.

The plans of a query differ in how they compute their result, such as the form of a window or the order of joins. Any
set of them can be merged. Where a source is, and when it is stable, stands beside the plans, because it differs from
replica to replica and changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from lmerge.errors import UsageError
from lmerge.replica.sources.declared import PhysicalSource
from lmerge.temporal.errors import PlanError
from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.sources import SourceNode
from lmerge.temporal.plan.stream import Stream
from lmerge.temporal.running import SourceSettings


@dataclass(frozen=True)
class Query:
    """Plans by name, and sources by the names that the plans give them. Raises UsageError if they do not fit.

    A plan can be shown without its sources; to run it, each must be there.
    """

    plans: Mapping[str, Stream | PlanNode]
    sources: Mapping[str, PhysicalSource] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.plans:
            raise UsageError("a query has at least one plan")
        nodes = {name: plan.node if isinstance(plan, Stream) else plan for name, plan in self.plans.items()}
        for name, node in nodes.items():
            if not isinstance(node, PlanNode):
                raise UsageError(f"plan {name!r:.64} is {node!r:.64}, and no stream")
        first, *others = nodes
        for name in others:
            if nodes[name].schema != nodes[first].schema:
                there = f"plan {first!r} gives ({nodes[first].schema}), and plan {name!r} gives ({nodes[name].schema})"
                raise UsageError(f"the plans of a query have one result: {there}")
        for name, source in self.sources.items():
            if not isinstance(source, PhysicalSource):
                raise UsageError(f"source {name!r:.64} is {source!r:.64}: it is declared by a CsvFile or the like")
        names = {source.label for node in nodes.values() for source in sources_of(node)}
        unknown = [name for name in self.sources if name not in names]
        if unknown:
            raise UsageError(f"no plan reads the source {unknown[0]!r:.64}; there are {', '.join(sorted(names))}")
        object.__setattr__(self, "plans", MappingProxyType(nodes))
        object.__setattr__(self, "sources", MappingProxyType(dict(self.sources)))

    @property
    def nodes(self) -> Mapping[str, PlanNode]:
        """The results of the plans."""
        return {name: plan.node if isinstance(plan, Stream) else plan for name, plan in self.plans.items()}

    def plan(self, name: str | None) -> tuple[str, PlanNode]:
        """Return a plan with its name; None: the only one. Raises UsageError if there is none."""
        if name is None and len(self.plans) == 1:
            (name,) = self.plans
        found = None if name is None else self.nodes.get(name)
        if name is None or found is None:
            missing = "name one of its plans" if name is None else f"there is no plan {name!r:.64}"
            raise UsageError(f"{missing}: there are {', '.join(self.plans)}")
        return name, found

    def located(self, places: Mapping[str, str]) -> Query:
        """Return the query with some sources at other places: files or addresses. Raises UsageError."""
        unknown = [name for name in places if name not in self.sources]
        if unknown:
            raise UsageError(f"there is no source {unknown[0]!r:.64}; there are {', '.join(self.sources) or 'none'}")
        moved = {name: self.sources[name].moved_to(place) for name, place in places.items()}
        return replace(self, sources={**self.sources, **moved})

    def sources_of(self, node: PlanNode) -> dict[str, PhysicalSource]:
        """Return the sources of a plan. Raises UsageError if one is not declared."""
        missing = [source.label for source in sources_of(node) if source.label not in self.sources]
        if missing:
            raise UsageError(f"the plan reads {missing[0]!r:.64}, and the query does not declare where that is")
        return {source.label: self.sources[source.label] for source in sources_of(node)}


def sources_of(node: PlanNode) -> list[SourceNode]:
    """Return the sources that a plan reads."""
    return [one for one in in_order([node]) if isinstance(one, SourceNode)]


def settings_of(source: PhysicalSource) -> SourceSettings:
    """Return how a source enters a plan."""
    progress = source.progress
    return SourceSettings() if progress is None else SourceSettings(progress.rule, progress.late)


def checked_plans(found: object, where: str) -> Query:
    """Return what a module declares as its query. Raises PlanError if it is none."""
    if isinstance(found, Query):
        return found
    raise PlanError(f"{where} declares no query: it has a line `query = Query(plans, sources)`, not {found!r:.64}")
