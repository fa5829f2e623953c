"""What a subscriber has told its reader, and how it goes on after a break without saying anything twice.

Sans-I/O. Until the first break the server's stream is the reader's stream. After a break a subscription is exactly
an input that joins, so the core's own merge does the work: what the reader knows enters as one input and leaves;
the new connection is another. What the snapshot repeats is not said again, what it changes is adjusted, and nothing
contradicts a stable point that the reader has seen.

If the new snapshot's stable point is beyond the reader's, events may have come and been frozen in between, and nobody
can tell them any more: a gap. It is reported, not hidden. An event that the reader holds and the snapshot lacks was
frozen in the gap, or removed. If the end that was said last lies in the gap, it is taken to be frozen with it. If not,
that end is wrong, and the event has ended as early as it could: at the start of the gap, or, if it starts in the gap
or later, never was.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from lmerge.core import engines
from lmerge.core.batch import EMPTY, AnyBatch, BatchBuilder, Row
from lmerge.core.elements import INF, INSERT, NEG_INF, Event
from lmerge.core.engines import LiveTdb
from lmerge.core.merge import Merge

# Gaps that are remembered one by one: more breaks than anybody looks at singly, some 100 KB, and each was reported.
GAPS_MAX: Final = 1000


class SubscriptionGap(NamedTuple):
    """Events that were frozen between these two stable points may be missing, or have another end than was told."""

    start: int
    end: int


class Follower:
    """The reader's view: ``table`` holds its live events, ``gaps`` what it may have missed, oldest first.

    Beyond GAPS_MAX the two oldest gaps become one from the start of the first to the end of the second: what lies
    between them is then called uncertain too, but nothing that was missed is ever forgotten.
    """

    def __init__(self, engine: str = engines.AUTO) -> None:
        self.engine: Final = engines.resolve(engine)
        self.table: LiveTdb = engines.live_tdb("subscription", self.engine)
        self.gaps: list[SubscriptionGap] = []
        self._merge: Merge | None = None
        self._since: int | None = None  # where the first snapshot was taken; None: none has come
        self._joining: BatchBuilder | None = None
        self._gap: SubscriptionGap | None = None

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
        self._gap = None
        known_to = max(self._since, self.stable_point)
        if known_to < stable_point:
            self._gap = SubscriptionGap(known_to, stable_point)
            self._remember(self._gap)
        self._merge = merge = Merge("r4", "eager", "any", engine=self.engine)
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
        return self._gap

    def take(self, batch: AnyBatch) -> AnyBatch:
        """A batch of the server; what the reader must be told of it."""
        if self._joining is not None:  # the whole snapshot is needed before anything in it can be judged
            self._joining.extend(batch)
            return EMPTY
        return self._told(batch)

    def end(self) -> AnyBatch:
        """The snapshot is complete; what the reader must be told of it."""
        if self._joining is None:
            return EMPTY
        snapshot, self._joining = self._joining, None
        if self._gap is not None:
            snapshot.rows[:0] = self._frozen_in_gap(snapshot.build(), self._gap.end)
        return self._told(snapshot.build())

    def live_events(self) -> list[Event]:
        """The reader's live events, ordered by (vs, payload, ve)."""
        return self.table.live_events()

    def _remember(self, gap: SubscriptionGap) -> None:
        self.gaps.append(gap)
        if len(self.gaps) > GAPS_MAX:
            self.gaps[:2] = [SubscriptionGap(self.gaps[0].start, self.gaps[1].end)]

    def _frozen_in_gap(self, snapshot: AnyBatch, stable_point: int) -> list[Row]:
        """What the snapshot would say of the events that it lacks, as far as it can be known."""
        there = Counter((vs, payload) for kind, vs, _, _, payload in snapshot.rows() if kind == INSERT)
        rows: list[Row] = []
        # Several events of one key: those that end last are the ones that the snapshot has.
        for vs, payload, ve in reversed(self.table.live_events()):
            if there[vs, payload] > 0:
                there[vs, payload] -= 1
                continue
            end = ve if ve < stable_point else max(vs, self.stable_point)
            if end > vs:
                rows.append((INSERT, vs, end, 0, payload))
        return rows[::-1]

    def _told(self, batch: AnyBatch) -> AnyBatch:
        if self._merge is not None:
            batch = self._merge.apply("now", batch).batch
        self.table.apply_batch(batch)
        return batch
