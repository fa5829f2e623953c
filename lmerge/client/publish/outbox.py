"""The elements that a publisher has accepted and not sent yet: the sans-I/O half of both publishers.

The caller's thread puts elements in, the tasks of the connections take batches out; a lock protects both. There is one
table of live events, and a *lane* for each server: the batches that its connection has still to send, the same objects
in every lane. A lane without a connection keeps nothing: a new connection starts with the prelude, which is the live
table, and continues with what is published after it.

Room. The publisher waits for the lane that is ahead of all others, never for one that is behind: with one server that
is plain flow control; with several, a slow or dead server delays no other. A lane that falls behind the first by as
much as the whole buffer is *dropped*: its connection is broken and starts again with a prelude. The prelude holds each
live event once, however many elements described it. So no lane ever holds more than the buffer, except while its
prelude is sent.

    bytes:   published ............. 100 MB       the publisher may put 16 MB more than the first lane has sent
             lane of h1, up ........  99 MB sent  the first
             lane of h2, up ........  84 MB sent  15 MB behind the first: it goes on
             lane of h3, down ......              holds nothing, and is not waited for

Staged batches. The batches of one call may be *staged* at some servers: the replica's workers have brought them there.
They stand in the lanes as one item, which a connection sends as a short commit or as the elements. A lane that has to
send elements where others commit is behind by all of them at once; that is no reason to drop it.

The prelude of an attempt to connect makes no room until it has been sent: otherwise each attempt would let the caller
put a whole buffer more, all of it kept in the live events.
"""

from __future__ import annotations

import operator
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from lmerge.client.publish.engine_live_events import live_events
from lmerge.core.batch import AnyBatch, Batch, BatchBuilder, Row
from lmerge.core.elements import INF, NEG_INF, STABLE, show_payload, show_time
from lmerge.errors import InputViolation, InvalidBatch, LimitExceeded, UsageError
from lmerge.wire.codec import slice_batch
from lmerge.wire.limits import PAYLOAD_BYTES

# Bytes that may wait before the publisher must: enough to last through a reconnect, few enough to show a slow server.
OUTBOX_BYTES_MAX: Final = 16 * 2**20
ROW_BYTES: Final = 32  # what an element counts besides its payload
# What a lane hands out at once: some messages only, so that a slow lane is noticed in time.
TAKE_BYTES: Final = 2**20
# Live events that are kept for a server that is away, beyond what the others need: some 100 MB of Python objects.
BEHIND_EVENTS_MAX: Final = 100_000


class Skip(NamedTuple):
    """An item of a lane, among the batches: events that end before ``until`` are left out from here on."""

    until: int


@dataclass(frozen=True)
class Staged:
    """Describes a batch whose parts have been staged.

    ``parts`` by (partition, attempt), in the order in which they are published, ``holders`` the servers that have all
    of them (see ``stage``).
    """

    query: str
    batch: int
    parts: tuple[tuple[int, int], ...]
    holders: frozenset[str]

    def __post_init__(self) -> None:
        if len(set(self.parts)) < len(self.parts):
            raise UsageError(f"batch {self.batch} of query {self.query!r} cannot be committed: a part comes twice")


class StagedBatches(NamedTuple):
    """An item of a lane, among the batches: batches that have been staged, then ``stable``, which has not."""

    staged: Staged
    batches: tuple[AnyBatch, ...]
    stable: AnyBatch | None
    elements: int  # of the batches
    payload_bytes: int

    @property
    def all_batches(self) -> tuple[AnyBatch, ...]:
        """What is sent to a server that does not hold the staged batches."""
        return self.batches if self.stable is None else (*self.batches, self.stable)


Item: TypeAlias = AnyBatch | Skip | StagedBatches


class Taken(NamedTuple):
    """What a connection sends next, and how many elements have been published with it."""

    items: list[Item]
    published: int


class Lane:
    """What one connection has still to send. Made by ``Outbox.lane``; used by one task.

    ``needs``: its server does not need events that end before. ``counts``: whether the live table waits for ``needs``.
    ``acked``: of all published elements, so many has the server merged in this connection.
    """

    def __init__(self, outbox: Outbox) -> None:
        self.needs = NEG_INF
        self.counts = True
        self.is_up = False
        self.was_dropped = False  # it fell behind, or must join at a later time than it declared
        self.acked = 0
        self.joins_at = NEG_INF  # the join_at that the present connection has declared
        self._outbox = outbox
        self._queue: deque[tuple[Item, int, int]] = deque()  # item, elements and bytes published with it
        self._sent_bytes = 0  # of all published bytes, those handed out
        self._prelude_bytes = 0  # bytes that the prelude covers; they count once it has been sent
        self._allowance = 0  # it may be behind by so many bytes more: the size of the prelude

    def join_at(self) -> int:
        """Begin a new attempt: return where it joins, from which on the live table is complete and now stays so."""
        outbox = self._outbox
        with outbox.lock:
            self.needs = self.joins_at = max(outbox.complete_from, outbox.skipped)
            self.counts, self.was_dropped = True, False
            return self.joins_at

    def restart(self) -> Taken | None:
        """Return the prelude of a connection that has been accepted.

        None: the table is not complete from ``joins_at`` any more, because the server took too long to answer; attach
        again.
        """
        outbox = self._outbox
        with outbox.lock:
            if max(outbox.complete_from, outbox.skipped) > self.joins_at:
                return None
            outbox.close_rows()
            self._queue.clear()
            self.is_up, self.acked = True, 0
            prelude = outbox.live.prelude()
            self._prelude_bytes = outbox.total_bytes
            self._allowance = prelude.count * ROW_BYTES + prelude.payload_sizes[0]
            return Taken([prelude], outbox.published)

    def take(self) -> Taken | None:
        """Return some of what waits, in order; None if nothing does. What was taken before has been sent."""
        outbox = self._outbox
        with outbox.lock:
            outbox.close_rows()
            self._sent_bytes = self._covered_bytes
            items: list[Item] = []
            published, start = 0, self._sent_bytes
            while self._queue and (not items or self._sent_bytes - start < TAKE_BYTES):
                item, published, self._sent_bytes = self._queue.popleft()
                items.append(item)
            if not self._queue:
                self._allowance = 0
            outbox.drop_slow(self)
            return Taken(items, published) if items else None

    @property
    def waits(self) -> bool:
        """Whether there is something to take."""
        return bool(self._queue) or self._outbox.has_rows

    @property
    def waiting_bytes(self) -> int:
        """The size of what there is to take."""
        return self._outbox.total_bytes - self._covered_bytes

    @property
    def _covered_bytes(self) -> int:
        """Of all published bytes, those that are not in the queue of this connection: handed out, or in its prelude."""
        return max(self._sent_bytes, self._prelude_bytes)

    def disconnected(self) -> None:
        """Note that the connection is lost: nothing is kept for it."""
        with self._outbox.lock:
            self.is_up = False
            self._queue.clear()

    def note_stable(self, stable_point: int) -> None:
        """Note that the server's merge is stable at ``stable_point``."""
        self._outbox.note_stable(self, stable_point)

    def put(self, item: Item, published: int, published_bytes: int) -> None:
        """Add an item. Called by the outbox, under its lock."""
        if self.is_up:
            self._queue.append((item, published, published_bytes))
            if isinstance(item, StagedBatches):
                self._allowance = max(self._allowance, item.elements * ROW_BYTES + item.payload_bytes)

    def drop(self) -> None:
        """Make the connection start again. Called by the outbox, under its lock."""
        self.is_up = False
        self.was_dropped = True
        self._queue.clear()

    @property
    def sent_bytes(self) -> int:
        return self._sent_bytes

    def is_behind(self, first_bytes: int, bytes_max: int) -> bool:
        """Return whether the lane is too far behind one that has sent ``first_bytes``."""
        return self.is_up and first_bytes - self._covered_bytes >= bytes_max + self._allowance


class Outbox:
    """The live events, and a lane for each server. ``published`` counts elements over the publisher's whole life."""

    def __init__(
        self,
        name: str,
        *,
        bytes_max: int = OUTBOX_BYTES_MAX,
        payload_bytes_max: int = PAYLOAD_BYTES,
        behind_events_max: int = BEHIND_EVENTS_MAX,
    ) -> None:
        self.lock = threading.Lock()
        self.live = live_events(name)
        self.published = 0
        self.total_bytes = 0
        self.bytes_max = bytes_max
        self.payload_bytes_max = payload_bytes_max
        self.behind_events_max = behind_events_max
        self.skipped = NEG_INF  # events that end before have been left out
        self.lanes: list[Lane] = []
        self._rows: list[Row] = []
        self._count_at = behind_events_max  # at so many live events look which servers need them

    def lane(self) -> Lane:
        """Return a lane for one more server."""
        with self.lock:
            lane = Lane(self)
            self.lanes.append(lane)
            return lane

    @property
    def complete_from(self) -> int:
        """The live table holds every published event that ends here or later."""
        return min(self.live.trimmed, self.live.stable)

    @property
    def trimmed(self) -> int:
        """The stable point up to which no server needs any event."""
        with self.lock:
            return self.live.trimmed

    @property
    def stable_point(self) -> int:
        """The publisher's own stable point."""
        with self.lock:
            return self.live.stable

    @property
    def acked(self) -> int:
        """Of all published elements, so many have been merged by some server."""
        return max((lane.acked for lane in self.lanes), default=0)

    @property
    def waiting_bytes(self) -> int:
        """The bytes that the first lane has not sent yet."""
        lanes = [lane for lane in self.lanes if lane.is_up] or self.lanes
        return self.total_bytes - max((lane.sent_bytes for lane in lanes), default=0)

    @property
    def is_full(self) -> bool:
        return self.waiting_bytes >= self.bytes_max

    @property
    def has_room(self) -> bool:
        """Whether a caller that waits for room may go on. Only when half empty: each wait costs a thread switch."""
        return self.waiting_bytes <= self.bytes_max // 2

    @property
    def has_rows(self) -> bool:
        return bool(self._rows)

    def put_row(self, row: Row) -> None:
        """Put one element. Raises InputViolation, InvalidBatch or LimitExceeded, changing nothing."""
        kind, vs, ve, vold, payload = row
        self._check_payload(payload, 0)
        if not (type(vs) is type(ve) is type(vold) is int):
            vs, ve, vold = (_as_int(t, payload) for t in (vs, ve, vold))
            row = (kind, vs, ve, vold, payload)
        for t in (vs, ve, vold):
            if not NEG_INF <= t <= INF:
                raise InvalidBatch(f"cannot publish {show_payload(payload)}: {t} is not a 64-bit time")
        with self.lock:
            self.live.apply_row(row)
            self._rows.append(row)
            self.published += 1
            self.total_bytes += ROW_BYTES + len(row[4])

    def put_batch(self, batch: AnyBatch) -> None:
        """Put a batch. Raises what ``put_row`` raises; the elements before the offender have then been published."""
        self.put_batches((batch,))

    def put_batches(self, batches: Sequence[AnyBatch], stable: int | None = None, staged: Staged | None = None) -> None:
        """Put batches and then a stable, as one. ``staged``: where the batches are; the stable is not among them.

        Raises what ``put_row`` raises: InvalidBatch and LimitExceeded before any element has been published;
        InputViolation when the elements before the offender have been; its index counts within its batch.
        """
        owned = [self._checked_batch(batch) for batch in batches]
        last = [] if stable is None else [self._checked_batch(Batch(bytes([STABLE]), [stable], [0], [0], [b""]))]
        with self.lock:
            self.close_rows()
            applied: list[AnyBatch] = []
            try:
                for batch in (*owned, *last):
                    self.live.apply_batch(batch)
                    applied.append(batch)
            except InputViolation as violation:
                self._put([*applied, slice_batch(batch, 0, violation.index)])
                raise
            if staged is None:
                self._put(applied)
            else:
                self._put_staged(staged, owned, last)

    def skip(self, until: int) -> None:
        """Leave out events that end before ``until`` from here on.

        A server whose merge has not come so far gets a new connection, which joins there. Raises UsageError if
        ``until`` is no time.
        """
        if type(until) is not int or not NEG_INF < until < INF:
            shown = show_time(until) if type(until) is int else repr(until)
            raise UsageError(f"cannot skip to {shown}: it is no time that ends")
        with self.lock:
            if until <= self.skipped:
                return
            self.close_rows()
            self.skipped = until
            for lane in self.lanes:
                if lane.is_up and until > lane.needs:
                    lane.drop()
                lane.put(Skip(until), self.published, self.total_bytes)

    def seed(self, batch: AnyBatch) -> None:
        """Publish the events of a checkpoint before anything else.

        They are right for events that end at the checkpoint's stable or later, and so is all that follows.
        """
        assert not self.published
        self.put_batch(batch)
        with self.lock:
            self.skipped = max(self.skipped, self.live.stable)

    def note_stable(self, lane: Lane, stable_point: int) -> None:
        """Note that the merge of the lane's server is stable at ``stable_point``."""
        with self.lock:
            lane.needs = stable_point
            self._trim()

    def close_rows(self) -> None:
        """Make a batch of the single elements that were put. Called under the lock."""
        if self._rows:
            builder = BatchBuilder()
            builder.rows, self._rows = self._rows, []
            self._enqueue(self.live.own(builder.build()))

    def _checked_batch(self, batch: AnyBatch) -> AnyBatch:
        """Return the batch in the live table's form. Raises InvalidBatch, LimitExceeded."""
        batch = self.live.own(batch)
        if batch.payload_sizes[1] > self.payload_bytes_max:
            for index, payload in enumerate(batch.payloads):
                self._check_payload(payload, index)
        return batch

    def drop_slow(self, first: Lane) -> None:
        """Drop the lanes that are too far behind ``first``, which has sent more. Called under the lock."""
        for lane in self.lanes:
            if lane.is_behind(first.sent_bytes, self.bytes_max):
                lane.drop()

    def _trim(self) -> None:
        """Forget what no server needs. A server that is away is not waited for when that would keep too many events."""
        away = [lane for lane in self.lanes if not lane.is_up and lane.counts]
        present = min((lane.needs for lane in self.lanes if lane.is_up), default=NEG_INF)
        self.live.trim(min([present, *(lane.needs for lane in away)]))
        # ``len`` indexes every waiting batch, event by event: it is not called while all servers are there.
        if not any(lane.needs < present for lane in away):
            self._count_at = self.live.at_most + self.behind_events_max
        elif self.live.at_most > self._count_at:
            needed_from = min(present, self.live.stable)
            needed = sum(map(needed_from.__le__, self.live.prelude().ve))
            room = needed + self.behind_events_max - len(self.live)
            if room < 0:
                for lane in away:
                    lane.counts = lane.needs >= present
                self.live.trim(present)
            # Counting scans all events: not for every ack.
            self._count_at = len(self.live) + max(room, self.behind_events_max // 8)

    def _put(self, batches: Sequence[AnyBatch]) -> None:
        for batch in batches:
            if batch.count:
                self._count(batch.count, batch.payload_sizes[0])
                self._enqueue(batch)

    def _put_staged(self, staged: Staged, batches: Sequence[AnyBatch], last: Sequence[AnyBatch]) -> None:
        elements = sum(batch.count for batch in batches)
        payload_bytes = sum(batch.payload_sizes[0] for batch in batches)
        self._count(elements + len(last), payload_bytes)
        self._enqueue(StagedBatches(staged, tuple(batches), last[0] if last else None, elements, payload_bytes))

    def _count(self, elements: int, payload_bytes: int) -> None:
        self.published += elements
        self.total_bytes += elements * ROW_BYTES + payload_bytes

    def _enqueue(self, item: Item) -> None:
        for lane in self.lanes:
            lane.put(item, self.published, self.total_bytes)

    def _check_payload(self, payload: bytes, index: int) -> None:
        if len(payload) > self.payload_bytes_max:
            raise LimitExceeded(
                f"cannot publish element {index}: its payload has {len(payload)} bytes, above the limit of "
                f"{self.payload_bytes_max}"
            )


def _as_int(t: Any, payload: bytes) -> int:
    """Return an integer for numpy's integers and the like; never for a float, which rounds."""
    try:
        return operator.index(t)
    except TypeError:
        raise InvalidBatch(f"cannot publish {show_payload(payload)}: {t!r:.64} is not a time") from None
