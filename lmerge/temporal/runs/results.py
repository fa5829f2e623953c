"""What becomes of the batches of a result: a table, or elements for a publisher."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from lmerge.core.batch import AnyBatch, BatchBuilder
from lmerge.core.elements import ADJUST, INF, INSERT, NEG_INF, STABLE
from lmerge.temporal.changes import Delta, Lifetime
from lmerge.temporal.columns import AnyDelta, as_rows
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.row_forms import RowForms
from lmerge.text_enum import TextEnum


class Emitted(TextEnum):
    """Which results a run emits: ``all``, with their revisions, or ``final``, each one once."""

    ALL = "all"
    FINAL = "final"


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

    def is_final(self, event: Lifetime) -> bool:
        """Whether nothing can change an event of the table any more."""
        return event.ve < self.stable or self.stable == INF

    def marked(self) -> Iterator[tuple[Lifetime, bool]]:
        """Yield the events, each with whether it is final, by start and end."""
        for event in sorted(self.events.elements(), key=lambda event: (event.vs, event.ve)):
            yield event, self.is_final(event)


class ElementWriter:
    """Makes batches of elements, as a publisher takes them, of the batches of a result."""

    def __init__(self, node: PlanNode) -> None:
        self._schema = node.schema
        self._forms = RowForms(node.schema)

    def batch(self, deltas: Sequence[AnyDelta]) -> AnyBatch:
        """Return the elements of batches in their order: as columns of the core where the batches are columns."""
        given = [delta for delta in deltas if not delta.is_empty]
        columns = [delta for delta in given if not isinstance(delta, Delta)]
        if columns and len(columns) == len(given):
            from lmerge.temporal.native.writing import element_columns

            found = element_columns(self._schema, columns)
            if found is not None:
                return found
        return self._of_rows(map(as_rows, given))

    def _of_rows(self, deltas: Iterable[Delta]) -> AnyBatch:
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
