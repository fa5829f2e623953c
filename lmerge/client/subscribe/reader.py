"""What a reader has been handed: its live table, what waits for it, and where it can go on after a restart.

A batch that was handed over is applied element by element as the reader goes on, so that a token or a checkpoint taken
in the middle of a batch says no more than what was seen. The reader may be another thread than the one that tells.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from lmerge.core.batch import EMPTY, AnyBatch, BatchBuilder
from lmerge.core.elements import NEG_INF, STABLE, Event
from lmerge.core.engines import selection
from lmerge.core.engines.selection import LiveTdb
from lmerge.core.tdb import Tdb
from lmerge.wire.codec import slice_batch


class Known(NamedTuple):
    """Where a reader goes on: the last stable that it has seen and the events that it holds as live.

    ``since``: events that end before never mattered to it. With no more than a token that is all there is.
    """

    stable_point: int
    since: int
    events: Sequence[Event] = ()


class Reader:
    """``table``: the live events as far as the reader has looked; ``waiting``: batches that it has not taken yet."""

    def __init__(self, engine: str) -> None:
        self.table: LiveTdb = selection.live_tdb("subscription", engine)
        self.waiting: deque[AnyBatch] = deque()
        self.told_to = NEG_INF  # the last stable of all that was told; any thread may look
        self._lock = threading.Lock()
        self._batch: AnyBatch = EMPTY
        self._applied = 0  # elements of the batch that are in the table
        self._seen = 0

    def restore(self, known: Known) -> None:
        """Begin with a checkpoint."""
        for vs, payload, ve in known.events:
            self.table.enter(vs, payload, ve)
        if known.stable_point > NEG_INF:
            builder = BatchBuilder()
            builder.stable(known.stable_point)
            self.table.apply_batch(builder.build())
        self.told_to = known.stable_point

    def tell(self, batch: AnyBatch) -> None:
        """The reader will be handed ``batch``."""
        self.waiting.append(batch)  # first: a reader that sees the end in told_to must find the batch that brought it
        self.told_to = max(self.told_to, last_stable(batch))

    def take(self, *, at_once: bool = True) -> AnyBatch | None:
        """The next batch, None if there is none. All of the one before has been seen; of this one as well, if it is
        looked at ``at_once``; otherwise ``see`` says how far.
        """
        with self._lock:
            self._seen = self._batch.count
            self._settle()
            if not self.waiting:
                return None
            batch = self.waiting.popleft()
            self._batch, self._applied, self._seen = batch, 0, batch.count if at_once else 0
            self._settle()
            return batch

    def see(self, count: int) -> None:
        """The reader has been handed the first ``count`` elements of the batch."""
        self._seen = count

    @property
    def stable_point(self) -> int:
        """The last stable that the reader has seen."""
        with self._lock:
            self._settle()
            return self.table.stable_point

    def seen(self) -> LiveTdb:
        """The table, with all that the reader has seen."""
        with self._lock:
            self._settle()
            return self.table

    def position(self) -> tuple[int, list[Event]]:
        """The stable point that the reader has seen, and the events that are live there."""
        with self._lock:
            self._settle()
            return self.table.stable_point, self.table.live_events()

    def copied(self) -> Tdb:
        """A copy of the table, with all that the reader has seen."""
        with self._lock:
            self._settle()
            copied = Tdb("subscription", keep_frozen=False, stable_point=self.table.stable_point)
            for vs, payload, ve in self.table.live_events():
                copied.enter(vs, payload, ve)
            return copied

    def everything(self) -> tuple[list[Event], int, list[AnyBatch]]:
        """The live events of the table, its stable point, and all that was told and is not in it."""
        with self._lock:
            return self.table.live_events(), self.table.stable_point, self._rest()

    def _settle(self) -> None:
        if self._applied < self._seen:
            is_whole = self._applied == 0 and self._seen == self._batch.count
            self.table.apply_batch(self._batch if is_whole else slice_batch(self._batch, self._applied, self._seen))
            self._applied = self._seen
        if self._applied == self._batch.count:
            self._batch, self._applied, self._seen = EMPTY, 0, 0

    def _rest(self) -> list[AnyBatch]:
        left = self._applied < self._batch.count
        return [*([slice_batch(self._batch, self._applied, self._batch.count)] if left else []), *self.waiting]


def last_stable(batch: AnyBatch) -> int:
    """The last stable of a batch, -inf if it has none."""
    at = batch.kinds.rfind(STABLE)
    return NEG_INF if at < 0 else slice_batch(batch, at, at + 1).vs[0]
