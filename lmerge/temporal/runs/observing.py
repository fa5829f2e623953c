"""What can be seen of a run: traces of its operators, the causes of its results, and its plan with live counters.

``lmerge.temporal.running`` derives its run from ``ObservedRun``, which keeps what these need and computes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lmerge.errors import UsageError
from lmerge.temporal.changes import Delta, Lifetime
from lmerge.temporal.entrance import StreamEntrance
from lmerge.temporal.graph import OperatorGraph
from lmerge.temporal.plan.drawing import mime_bundle, svg
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.showing import mermaid, trees
from lmerge.temporal.runs.causes import why
from lmerge.temporal.runs.parts import RunParts
from lmerge.temporal.runs.pictures import part_notes, source_notes
from lmerge.temporal.runs.place_tables import PlaceTable
from lmerge.temporal.runs.recording import SourceRecorder
from lmerge.temporal.runs.tracing import RECORDS_MAX, RowFilter, RunTrace


class ObservedRun:
    """The queries of a run by name, and the parts that compute them. The arguments are those of ``QueryRun``."""

    graph: OperatorGraph

    def __init__(self, is_attachable: bool, recorded: int) -> None:
        self.entrances: dict[str, StreamEntrance] = {}
        self.recorders: dict[str, SourceRecorder] = {}
        self._queries: dict[str, dict[str, PlanNode]] = {}
        self._parts = RunParts()
        # The live events of each stream, if queries can be attached.
        self._tables: dict[PlanNode, PlaceTable] | None = {} if is_attachable else None
        self._recorded = recorded
        self._steps = 0
        self._traces: list[RunTrace] = []

    def _results(self) -> dict[str, PlanNode]:
        return {output: node for outputs in self._queries.values() for output, node in outputs.items()}

    # Traces.

    def trace(
        self, most: int = RECORDS_MAX, operators: Collection[str] | None = None, row: RowFilter | None = None
    ) -> RunTrace:
        """Begin a trace of the next steps: the latest ``most``, of all operators or some, of all rows or some.

        Raises UsageError for an operator that the run does not have.
        """
        names = [part.name for part in self._parts.parts]
        unknown = sorted(set(operators or ()) - set(names))
        if unknown:
            raise UsageError(f"there is no operator {unknown[0]!r:.64} in the run; there are {', '.join(names)}")
        trace = RunTrace(most, operators, row)
        self._traces.append(trace)
        self._watch()
        return trace

    def end_trace(self, trace: RunTrace) -> None:
        """End a trace. Its records stay."""
        self._traces.remove(trace)
        self._watch()

    def why(self, output: str, event: Lifetime) -> dict[str, list[Lifetime]]:
        """Return the events of each source that an event of a result comes from, as the result is now.

        Raises UsageError for a run that records nothing, or an event that the result does not have; after a snapshot
        the events that were final are not recorded.
        """
        if not self._recorded:
            raise UsageError("the run does not record the events of its sources (recorded=)")
        results = self._results()
        if output not in results:
            raise UsageError(f"there is no result {output!r:.64} in the run; there are {', '.join(results)}")
        return why(results[output], {name: kept.record() for name, kept in self.recorders.items()}, event)

    # Pictures.

    @property
    def notes(self) -> dict[PlanNode, list[str]]:
        """What has gone through the nodes of the plan, as lines for its picture; of fused nodes, at the last one."""
        found: dict[PlanNode, list[str]] = {part.result: part_notes(part) for part in self._parts.parts}
        return found | {source: source_notes(self.entrances[source.label]) for source in self._parts.sources}

    def mermaid(self) -> str:
        """Return the plan with its counters as a Mermaid flow chart."""
        return mermaid(self._results(), self.notes)

    def svg(self) -> str:
        """Return the plan with its counters as an SVG picture."""
        return svg(self._results(), self.notes)

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the plan with its counters for notebooks."""
        return mime_bundle(trees(self._results()), self.svg())

    def _watch(self) -> None:
        self.graph.observer = None if self._tables is None and not self._traces else self._observe

    def _observe(self, place: int, read: Sequence[Delta], found: Delta) -> None:
        part = self._parts.parts[place - len(self.entrances)]
        if self._tables is not None:
            self._tables[part.result].apply(found)
        for trace in self._traces:
            trace.note(self._steps, part, read, found)
