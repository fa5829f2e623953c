"""A query that runs: its sources' entrances, its operators, and its results as batches of elements.

``QueryRun`` is pure: it takes items, and returns batches. ``lmerge.replica`` connects it to files, sockets and merges.
``collect`` runs a query over history, at full speed, with the same table as a live run has in the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lmerge.core.batch import Batch, BatchBuilder
from lmerge.core.elements import ADJUST, INF, INSERT, NEG_INF, STABLE, show_time
from lmerge.errors import UsageError
from lmerge.temporal.changes import NOTHING_CHANGES, Change, Delta, Lifetime
from lmerge.temporal.entrance import LatePolicy, ProgressRule, StreamEntrance
from lmerge.temporal.plan.compiling import CompiledPlan, compile_plan
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.sources import SourceShape
from lmerge.temporal.row_forms import RowForms

Item: TypeAlias = Change | int
"""A change of a source's table, or a stable point."""


@dataclass(frozen=True)
class SourceSettings:
    """How a source enters. ``rule`` None: it declares its stable points itself."""

    rule: ProgressRule | None = None
    late: LatePolicy = LatePolicy.FAIL


class QueryRun:
    """A plan that runs. ``outputs``: its results by name; ``settings``: of its sources by name.

    Raises PlanError if the plan cannot be compiled, UsageError for settings of a source that it does not have.
    """

    def __init__(self, outputs: Mapping[str, PlanNode], settings: Mapping[str, SourceSettings] | None = None) -> None:
        self.plan: CompiledPlan = compile_plan(list(outputs.values()))
        self.outputs = tuple(outputs)
        settings = settings or {}
        names = [source.label for source in self.plan.sources]
        points = [source.label for source in self.plan.sources if source.shape is SourceShape.POINT]
        unknown = [name for name in settings if name not in names]
        if unknown:
            raise UsageError(f"the plan has no source {unknown[0]!r:.64}; it has {', '.join(names)}")
        self._places = {name: place for place, name in enumerate(names)}
        self.entrances = {
            name: StreamEntrance(name, chosen.rule, chosen.late, has_points=name in points)
            for name in names
            for chosen in (settings.get(name, SourceSettings()),)
        }
        self.graph = self.plan.graph()

    def take(self, source: str, items: Iterable[Item]) -> list[dict[str, Delta]]:
        """Take items of a source, and return the batches of every output, step by step.

        Raises UsageError for a source that the plan does not have, InputViolation for an item that is not legal, and
        what an operator raises. The query cannot go on after an error.
        """
        place = self._places.get(source)
        if place is None:
            raise UsageError(f"the plan has no source {source!r:.64}; it has {', '.join(self._places)}")
        idle = [NOTHING_CHANGES] * len(self._places)
        results = []
        for delta in self.entrances[source].take(items):
            found = self.graph.step([*idle[:place], delta, *idle[place + 1 :]])
            results.append(dict(zip(self.outputs, found, strict=True)))
        return results

    def end(self) -> list[dict[str, Delta]]:
        """Let every source end that has not ended, and return what follows."""
        return [step for name in self.entrances for step in self.take(name, [INF])]


@dataclass
class ResultTable:
    """The table of a result, and its stable point."""

    events: Counter[Lifetime] = field(default_factory=Counter)
    stable: int = NEG_INF

    def apply(self, delta: Delta) -> None:
        """Take a batch of the result."""
        for row, vs, old, new in delta.changes:
            if old > vs:
                self.events[Lifetime(row, vs, old)] -= 1
                if not self.events[Lifetime(row, vs, old)]:
                    del self.events[Lifetime(row, vs, old)]
            if new > vs:
                self.events[Lifetime(row, vs, new)] += 1
        self.stable = self.stable if delta.stable is None else delta.stable


def collect(
    node: PlanNode, history: Mapping[str, Iterable[Item]], settings: Mapping[str, SourceSettings] | None = None
) -> list[Lifetime]:
    """Run a query over what its sources have, to their end; return its events by start and row.

    Sources are read one after the other. Raises what ``QueryRun.take`` does.
    """
    from lmerge.temporal.values import order_key

    run, table = QueryRun({"result": node}, settings), ResultTable()
    for name, items in history.items():
        for step in run.take(name, items):
            table.apply(step["result"])
    for step in run.end():
        table.apply(step["result"])
    key = order_key(node.schema)
    return sorted(table.events.elements(), key=lambda event: (event.vs, key(event.row), event.ve))


class ElementWriter:
    """Makes batches of elements, as a publisher takes them, of the batches of a result."""

    def __init__(self, node: PlanNode) -> None:
        self._forms = RowForms(node.schema)

    def batch(self, deltas: Sequence[Delta]) -> Batch:
        """Return the elements of batches in their order."""
        builder = BatchBuilder()
        rows, payload = builder.rows, self._forms.payload
        for changes, stable, _ in deltas:
            for row, vs, old, new in changes:
                if old == vs:
                    rows.append((INSERT, vs, new, 0, payload(row)))
                else:
                    rows.append((ADJUST, vs, new, old, payload(row)))
            if stable is not None:
                rows.append((STABLE, stable, 0, 0, b""))
        return builder.build()


def shown_event(event: Lifetime, row: Mapping[str, Any]) -> str:
    """Return an event for people: its row by column, and its lifetime."""
    values = ", ".join(f"{name}={value}" for name, value in row.items())
    return f"{values} [{show_time(event.vs)}, {show_time(event.ve)})"
