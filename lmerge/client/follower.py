"""What a subscriber has told its reader, and how it goes on after a break without saying anything twice.

Sans-I/O. Until the first break the server's stream is the reader's stream. After a break a subscription is exactly
an input that joins, so the core's own merge does the work: what the reader knows enters as one input and leaves;
the new connection is another. What the snapshot repeats is not said again, what it changes is adjusted, and nothing
contradicts a stable point that the reader has seen.

If the new snapshot's stable point is beyond the reader's, events may have come and been frozen in between, and nobody
can tell them any more: a gap. It is reported, not hidden. Of the events that the reader holds and the snapshot lacks,
those that could still be taken back are; those that were half frozen keep the end that was said last.
"""

from __future__ import annotations

from typing import NamedTuple

from lmerge.core.batch import EMPTY, Batch, BatchBuilder
from lmerge.core.elements import INF, NEG_INF, Event
from lmerge.core.merge import Merge
from lmerge.core.tdb import Tdb


class SubscriptionGap(NamedTuple):
    """Events that were frozen between these two stable points may be missing."""

    start: int
    end: int


class Follower:
    """The reader's view: ``table`` holds its live events."""

    def __init__(self) -> None:
        self.table = Tdb("subscription", keep_frozen=False)
        self.gaps: list[SubscriptionGap] = []
        self._merge: Merge | None = None
        self._since: int | None = None  # where the first snapshot was taken; None: none has come
        self._joining: BatchBuilder | None = None

    @property
    def stable_point(self) -> int:
        """The last stable that the reader has seen."""
        return self.table.stable_point

    @property
    def is_complete(self) -> bool:
        """Whether stable(+inf) has been said: nothing more will come."""
        return self.table.stable_point == INF

    def begin(self, stable_point: int) -> SubscriptionGap | None:
        """A snapshot taken at ``stable_point`` begins. The gap that it leaves, if any."""
        if self._since is None:
            self._since = stable_point
            return None
        gap = None
        known_to = max(self._since, self.stable_point)
        if known_to < stable_point:
            gap = SubscriptionGap(known_to, stable_point)
            self.gaps.append(gap)
        self._merge = merge = Merge("r4", "eager", "any")
        merge.attach("before")
        known = BatchBuilder()
        for vs, payload, ve in self.table.live_events():
            known.insert(payload, vs, ve)
        if self.stable_point > NEG_INF:
            known.stable(self.stable_point)
        merge.apply("before", known.build())
        merge.detach("before")
        merge.attach("now")
        self._joining = BatchBuilder()
        return gap

    def take(self, batch: Batch) -> Batch:
        """A batch of the server; what the reader must be told of it."""
        if self._joining is not None:  # the whole snapshot is needed before anything in it can be judged
            self._joining.extend(batch)
            return EMPTY
        return self._told(batch)

    def end(self) -> Batch:
        """The snapshot is complete; what the reader must be told of it."""
        if self._joining is None:
            return EMPTY
        snapshot, self._joining = self._joining.build(), None
        return self._told(snapshot)

    def live_events(self) -> list[Event]:
        """The reader's live events, ordered by (vs, payload, ve)."""
        return self.table.live_events()

    def _told(self, batch: Batch) -> Batch:
        if self._merge is not None:
            batch = self._merge.apply("now", batch).batch
        self.table.apply_batch(batch)
        return batch
