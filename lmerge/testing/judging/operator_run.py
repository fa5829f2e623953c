"""What each operator of a run read and emitted, batch by batch, as a trace of the run has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Delta
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.running import QueryRun
from lmerge.temporal.runs.settings import Item

RECORDS_MAX: Final = 10**7


Step = tuple[int, tuple[Delta, ...], Delta]
"""A batch: its number in the run, what came from each stream that is read, and what was emitted."""


@dataclass(frozen=True)
class OperatorRun:
    """One operator of a run, or a whole query seen as one. ``result``: the node whose stream is emitted.

    ``reads``: the nodes whose streams are taken, in order; all between them and the result is judged together.
    """

    name: str
    result: PlanNode
    reads: tuple[PlanNode, ...]
    steps: list[Step] = field(default_factory=list)

    def begun(self, at: int) -> int:
        """Return the latest finite watermark or stable point of a stream: where windows of a grid stop (D13)."""
        times = [t for _, read, _ in self.steps for t in (read[at].mark, read[at].stable)]
        return max((t for t in times if t is not None and t < INF), default=NEG_INF)

    def has_ended(self) -> bool:
        """Return whether all streams that it takes have ended."""
        return all(any(read[at].stable == INF for _, read, _ in self.steps) for at in range(len(self.reads)))


def recorded(
    run: QueryRun, batches: Sequence[tuple[str, Sequence[Item]]]
) -> tuple[list[OperatorRun], dict[str, list[tuple[int, Delta]]]]:
    """Give a run batches of items of its sources; return what came out.

    First what each operator read and emitted, in the run's order; then the batches of each result, with the number of
    input batches that had come by then.
    """
    operators = {part.name: OperatorRun(part.name, part.result, part.reads) for part in run.parts}
    results: dict[str, list[tuple[int, Delta]]] = {name: [] for name in run.outputs}
    trace = run.trace(RECORDS_MAX)
    try:
        for number, (source, items) in enumerate(batches, 1):
            for step in run.take(source, items):
                for name, delta in step.items():
                    results[name].append((number, delta))
    finally:
        run.end_trace(trace)
    for record in trace.records:
        operators[record.name].steps.append((record.step, record.read, record.found))
    return list(operators.values()), results
