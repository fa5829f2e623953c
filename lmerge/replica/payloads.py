"""Results whose only column is the payload itself: for merges whose payloads are text or bytes, and no rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lmerge.core.batch import AnyBatch, BatchBuilder
from lmerge.core.elements import ADJUST, INSERT, STABLE
from lmerge.errors import UsageError
from lmerge.temporal.changes import Delta
from lmerge.temporal.columns import AnyDelta, as_rows
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.running import ElementWriter


class RawWriter(ElementWriter):
    """Makes batches of elements whose payload is the value of the only column. Raises UsageError for other results."""

    def __init__(self, node: PlanNode) -> None:
        super().__init__(node)
        kinds = [column.describe() for column in node.schema.columns]
        if kinds not in (["string"], ["bytes"]):
            raise UsageError(f"raw payloads are one column of string or bytes, and the plan gives ({node.schema})")
        self._is_text = kinds == ["string"]

    def batch(self, deltas: Sequence[AnyDelta]) -> AnyBatch:
        """Return the elements of batches in their order."""
        return self._of_rows(map(as_rows, deltas))

    def _of_rows(self, deltas: Iterable[Delta]) -> AnyBatch:
        builder = BatchBuilder()
        rows, is_text = builder.rows, self._is_text
        for changes, stable, _ in deltas:
            for (value,), vs, old, new in changes:
                payload = value.encode() if is_text else value
                rows.append((INSERT, vs, new, 0, payload) if old == vs else (ADJUST, vs, new, old, payload))
            if stable is not None:
                rows.append((STABLE, stable, 0, 0, b""))
        return builder.build()
