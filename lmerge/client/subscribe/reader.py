"""The reader's side of a subscription: its live table, the batches that wait for it, and where it can resume.

A batch that was handed over is applied element by element as the reader goes on, so that a token or a checkpoint taken
in the middle of a batch covers no more than what was seen. The reader may be in another thread than the follower.
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


class ResumePoint(NamedTuple):
    """Where a reader resumes: the last stable that it has seen and the events that it holds as live.

    ``since``: events that end before never mattered to it. A token alone holds no more than ``since``.
    """

    stable_point: int
    since: int
    events: Sequence[Event] = ()


class Reader:
    """``table``: the live events that the reader has seen; ``waiting``: the batches that it has not taken yet."""

    def __init__(self, engine: str) -> None:
        self.table: LiveTdb = selection.live_tdb("subscription", engine)
        self.waiting: deque[AnyBatch] = deque()
        self.delivered_to = NEG_INF  # the last stable that was delivered; any thread may read it
        self._lock = threading.Lock()
        self._batch: AnyBatch = EMPTY
        self._applied = 0  # elements of the batch that are in the table
        self._seen = 0

    def restore(self, resume_point: ResumePoint) -> None:
        """Begin with the state of a checkpoint."""
        for vs, payload, ve in resume_point.events:
            self.table.enter(vs, payload, ve)
        if resume_point.stable_point > NEG_INF:
            builder = BatchBuilder()
            builder.stable(resume_point.stable_point)
            self.table.apply_batch(builder.build())
        self.delivered_to = resume_point.stable_point

    def deliver(self, batch: AnyBatch) -> None:
        """Queue ``batch`` for the reader."""
        self.waiting.append(batch)  # first: a reader that sees the end in delivered_to must find its batch
        self.delivered_to = max(self.delivered_to, last_stable(batch))

    def take(self, *, at_once: bool = True) -> AnyBatch | None:
        """Return the next batch, None if there is none.

        All of the batch before counts as seen; with ``at_once`` all of this one as well; otherwise ``see`` sets how far
        it was seen.
        """
        with self._lock:
            self._seen = self._batch.count
            self._apply_seen()
            if not self.waiting:
                return None
            batch = self.waiting.popleft()
            self._batch, self._applied, self._seen = batch, 0, batch.count if at_once else 0
            self._apply_seen()
            return batch

    def see(self, count: int) -> None:
        """Note that the reader has seen the first ``count`` elements of the batch."""
        self._seen = count

    @property
    def stable_point(self) -> int:
        """The last stable that the reader has seen."""
        with self._lock:
            self._apply_seen()
            return self.table.stable_point

    def seen(self) -> LiveTdb:
        """Return the table, with all that the reader has seen."""
        with self._lock:
            self._apply_seen()
            return self.table

    def position(self) -> tuple[int, list[Event]]:
        """Return the stable point that the reader has seen, and the events that are live there."""
        with self._lock:
            self._apply_seen()
            return self.table.stable_point, self.table.live_events()

    def copied(self) -> Tdb:
        """Return a copy of the table, with all that the reader has seen."""
        with self._lock:
            self._apply_seen()
            copied = Tdb("subscription", keep_frozen=False, stable_point=self.table.stable_point)
            for vs, payload, ve in self.table.live_events():
                copied.enter(vs, payload, ve)
            return copied

    def everything(self) -> tuple[list[Event], int, list[AnyBatch]]:
        """Return the live events of the table, its stable point, and the delivered batches that are not in it."""
        with self._lock:
            return self.table.live_events(), self.table.stable_point, self._unapplied()

    def _apply_seen(self) -> None:
        if self._applied < self._seen:
            is_whole = self._applied == 0 and self._seen == self._batch.count
            self.table.apply_batch(self._batch if is_whole else slice_batch(self._batch, self._applied, self._seen))
            self._applied = self._seen
        if self._applied == self._batch.count:
            self._batch, self._applied, self._seen = EMPTY, 0, 0

    def _unapplied(self) -> list[AnyBatch]:
        left = self._applied < self._batch.count
        return [*([slice_batch(self._batch, self._applied, self._batch.count)] if left else []), *self.waiting]


def last_stable(batch: AnyBatch) -> int:
    """Return the last stable of a batch, -inf if it has none."""
    at = batch.kinds.rfind(STABLE)
    return NEG_INF if at < 0 else slice_batch(batch, at, at + 1).vs[0]
