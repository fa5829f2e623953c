"""A publisher's live events on the native core: see ``live``, which chooses and says what they are for.

Importing this module imports the compiled core.
"""

from __future__ import annotations

from typing import Final

from lmerge._native import Columns, Tdb
from lmerge.client.publish.live_events import known
from lmerge.core.batch import AnyBatch, Row
from lmerge.core.elements import NEG_INF
from lmerge.core.engines import selection
from lmerge.core.engines.native_engine import columns_of, violation_of


class NativeLiveEvents:
    """``LiveEvents``, a whole batch a call."""

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
        """The merge's stable point, as last heard."""
        return self._tdb.trimmed

    @property
    def at_most(self) -> int:
        """No fewer than there are live events, in O(1): batches that wait unindexed are counted whole."""
        return self._tdb.at_most

    def say(self, row: Row, index: int = 0) -> None:
        """Notice one element. Raises InputViolation, changing nothing, if no stream may say it here."""
        broken = self._tdb.apply_row(*row)
        if broken is not None:
            violation = violation_of(self.name, broken, known)
            violation.index = index
            raise violation

    def own(self, batch: AnyBatch) -> AnyBatch:
        """The batch as this engine keeps batches. Raises InvalidBatch if it cannot."""
        return columns_of(self.name, batch)

    def say_batch(self, batch: AnyBatch) -> None:
        """Notice a batch. On InputViolation the elements before the offender, ``index``, have been noticed."""
        broken = self._tdb.apply(columns_of(self.name, batch))
        if broken is not None:
            raise violation_of(self.name, broken, known)

    def trim(self, stable_point: int) -> None:
        """The merge is stable at ``stable_point``."""
        self._tdb.trim(stable_point)

    def prelude(self) -> Columns:
        """What a new connection says first: the live events in order of insertion, then the own stable point."""
        return self._tdb.prelude()
