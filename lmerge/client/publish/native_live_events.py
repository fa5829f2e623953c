"""A publisher's live events on the native core. ``live_events`` chooses between the engines and explains the purpose.

Importing this module imports the compiled core.
"""

from __future__ import annotations

from typing import Final

from lmerge._native import Columns, Tdb
from lmerge.client.publish.live_events import check_columns, describe_ends
from lmerge.core.batch import AnyBatch, Batch, Row
from lmerge.core.elements import NEG_INF
from lmerge.core.engines import selection
from lmerge.core.engines.native_engine import columns_of, violation_of
from lmerge.errors import InvalidBatch


class NativeLiveEvents:
    """``LiveEvents`` that applies a whole batch in one call."""

    engine: Final = selection.NATIVE

    def __init__(self, name: str) -> None:
        self.name = name
        self._tdb = Tdb(NEG_INF, NEG_INF)

    def __len__(self) -> int:
        return len(self._tdb)

    @property
    def stable(self) -> int:
        """The publisher's own stable point."""
        return self._tdb.stable_point

    @property
    def trimmed(self) -> int:
        """The merge's stable point, as last acked."""
        return self._tdb.trimmed

    @property
    def at_most(self) -> int:
        """An upper bound of the number of live events, in O(1): batches that wait unindexed are counted whole."""
        return self._tdb.at_most

    def apply_row(self, row: Row, index: int = 0) -> None:
        """Apply one element. Raises InputViolation, changing nothing, if the element is illegal here."""
        broken = self._tdb.apply_row(*row)
        if broken is not None:
            violation = violation_of(self.name, broken, describe_ends)
            violation.index = index
            raise violation

    def own(self, batch: AnyBatch) -> AnyBatch:
        """Return the batch in this engine's own form. Raises InvalidBatch if it has none."""
        try:
            return columns_of(self.name, batch)
        except InvalidBatch:
            if isinstance(batch, Batch):
                check_columns(batch)  # names the column
            raise

    def apply_batch(self, batch: AnyBatch) -> None:
        """Apply a batch. On InputViolation the elements before the offender, ``index``, have been applied."""
        broken = self._tdb.apply(columns_of(self.name, batch))
        if broken is not None:
            raise violation_of(self.name, broken, describe_ends)

    def trim(self, stable_point: int) -> None:
        """Note that the merge is stable at ``stable_point``."""
        self._tdb.trim(stable_point)

    def prelude(self) -> Columns:
        """Return what a new connection publishes first: live events by order of insertion, then the own stable."""
        return self._tdb.prelude()
