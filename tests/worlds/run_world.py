"""Runs that are interrupted at random: restored, attached to, detached from and fast-forwarded between two items.

Each query is judged by a run of its own that has had every item from the start, and no interruption.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

from operator_world import LossyInput
from plan_generator import SOURCES, RandomPlan, SourceItem, random_plan
from temporal_world import Item, StreamTable

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Delta, Lifetime
from lmerge.temporal.errors import PlanError
from lmerge.temporal.plan.beginnings import FROM_THE_START, StreamBeginning
from lmerge.temporal.plan.compiling import compile_plan, in_order
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.shaping import CleanseNode
from lmerge.temporal.plan.windows import WindowNode
from lmerge.temporal.running import MAIN, QueryRun
from lmerge.temporal.windows.policies import Form


def sources_of(outputs: Mapping[str, PlanNode]) -> list[str]:
    """Return the names of the sources that results read."""
    return [source.label for source in compile_plan(list(outputs.values())).sources]


def is_prompt(node: PlanNode) -> bool:
    """Whether every result is there as soon as its inputs are: nothing waits until it is final."""
    return not any(
        isinstance(one, CleanseNode)
        or (isinstance(one, WindowNode) and one.policies.form in (Form.FINAL, Form.WATERMARK))
        for one in in_order([node])
    )


def renamed(plan: RandomPlan, prefix: str) -> dict[str, PlanNode]:
    """Return the results of a plan under other names."""
    return {f"{prefix}.{name}": node for name, node in plan.nodes.items()}


class JudgedResult:
    """A result of a query: its table, that of the reference, and which of its events are promised."""

    def __init__(self, node: PlanNode, begins: StreamBeginning = FROM_THE_START) -> None:
        self.node, self.begins = node, begins
        self.needed = NEG_INF
        self.table, self.expected = StreamTable(), StreamTable()

    def check(self, was_fed_back: bool) -> None:
        """Compare what is promised. What is not final yet can come earlier or later in some forms."""
        final = min(self.table.stable, self.expected.stable)
        prompt = is_prompt(self.node) and not was_fed_back
        got, expected = (
            Counter(
                {event: count for event, count in table.events.items() if prompt or event.ve < final or final == INF}
            )
            for table in (self.table, self.expected)
        )
        assert self._promised(got) == self._promised(expected)
        if not was_fed_back:
            assert not got - expected, "a result is there that the whole query does not have"
            assert self.begins != FROM_THE_START or self.table.stable == self.expected.stable

    def _promised(self, events: Counter[Lifetime]) -> Counter[Lifetime]:
        return Counter(
            {
                event: count
                for event, count in events.items()
                if self.begins.has(event.vs, event.ve) and event.ve >= self.needed
            }
        )


class InterruptedRun:
    """A run and the references of its queries. Sources leave out some of what is not needed."""

    def __init__(self, outputs: Mapping[str, PlanNode], random_: Random, *, attachable: bool = True) -> None:
        self.run = QueryRun(outputs, attachable=attachable)
        self.main = dict(outputs)
        self.results = {output: JudgedResult(node) for output, node in outputs.items()}
        self.references = {MAIN: QueryRun(outputs)}
        self.lossy = {name: LossyInput(random_) for name in SOURCES}
        self.past: list[SourceItem] = []
        self.was_fed_back = False
        self.refused = 0

    def take(self, source: str, item: Item) -> None:
        """Give an item to the run, if it has the source, and to the references; judge the results."""
        self.past.append((source, item))
        for name in self.references:
            self._refer(name, source, item)
        if source not in self.run.entrances:
            return
        delta = Delta([], item) if isinstance(item, int) else Delta([item], None)
        for step in self._taken(source, self.lossy[source].take(delta)):
            for output, found in step.items():
                self.results[output].table.apply(found)
        self.check()

    def _taken(self, source: str, given: Delta) -> list[dict[str, Delta]]:
        items: list[Item] = [*given.changes] if given.stable is None else [*given.changes, given.stable]
        return self.run.take(source, items)

    def restore(self) -> None:
        """Let a run that was restored from bytes take over."""
        data = self.run.dump()
        self.run = QueryRun.load(data, self.main)
        assert self.run.dump() == data
        self.run.graph.check()

    def fast_forward(self, output: str, t: int) -> None:
        """Ask for what ends at or behind ``t`` of a result."""
        self.results[output].needed = max(t, self.results[output].needed)
        self.was_fed_back = True
        for source, needed in self.run.fast_forward(output, t).items():
            self.lossy[source].until = needed

    def attach(self, name: str, outputs: Mapping[str, PlanNode]) -> bool:
        """Attach a query, unless it cannot begin now; return whether it runs."""
        if any(source not in self.run.entrances for source in sources_of(outputs)):
            return False  # a source that is new would have an earlier past
        try:
            attached = self.run.attach(name, outputs)
        except PlanError:
            self.refused += 1
            return False
        self.references[name] = QueryRun(outputs)
        for output, node in outputs.items():
            self.results[output] = JudgedResult(node, attached.begins[output])
            self.results[output].table.apply(attached.first[output])
        for source, item in self.past:
            self._refer(name, source, item)
        self.check()
        return True

    def detach(self, name: str) -> None:
        """End a query."""
        self.run.detach(name)
        for output in self.references.pop(name).outputs:
            del self.results[output]

    def check(self) -> None:
        """Judge every result."""
        self.run.graph.check()
        for result in self.results.values():
            result.check(self.was_fed_back)

    def _refer(self, name: str, source: str, item: Item) -> None:
        reference = self.references[name]
        if source in reference.entrances:
            for step in reference.take(source, [item]):
                for output, delta in step.items():
                    self.results[output].expected.apply(delta)


def random_query(random_: Random, shared: Sequence[PlanNode], prefix: str) -> dict[str, PlanNode]:
    """Return a further query: another random plan, or a result that runs already."""
    if random_.random() < 0.2:
        return {f"{prefix}.shared": random_.choice(shared)}
    return renamed(random_plan(random_, steps=4), prefix)
