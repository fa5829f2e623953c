"""The output that a merge retains, so that a subscriber can resume in the past.

The journal is a row of *segments*. A segment begins with a snapshot: the live output events at a stable point C. A
reader that has every event with Ve < C needs nothing else. The segment then holds the messages that followed. To resume
at T, a subscriber reads the newest segment with C <= T and all messages since. A segment begins when the one before has
grown to several times its snapshot, so snapshots cost a fixed part of the output. Whole segments are forgotten, oldest
first, beyond ``retain_bytes`` and ``retain_time``.

The hub writes, in its own order. If there is a ``store``, the snapshots and messages are in it, and the journal has
only the table of contents.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from lmerge.core.batch import AnyBatch
from lmerge.core.elements import NEG_INF
from lmerge.service.output.fanout import Message
from lmerge.service.output.transaction import Changes, NewSegment
from lmerge.wire.limits import ELEMENT_BYTES

# A segment grows to this many times its snapshot. This bounds what snapshots cost, as a share of the output.
SNAPSHOTS_PER_SEGMENT: Final = 2
# At a low rate messages are small, and each costs a resuming reader about 0.1 ms however few bytes it has: 4 MiB of
# them would take it two seconds.
MESSAGES_PER_SEGMENT: Final = 1_000


class Segment:
    """One segment. ``complete_from``: its content is right for events with Ve >= this.

    ``first`` and ``next`` are numbers of messages; ``snapshot`` and ``messages`` are None if a store has them.
    """

    def __init__(
        self, number: int, first: int, stable_point: int, complete_from: int, snapshot_bytes: int, events: int
    ) -> None:
        self.number = number
        self.first = first
        self.next = first
        self.stable_point = stable_point
        self.complete_from = complete_from
        self.snapshot_bytes = snapshot_bytes
        self.message_bytes = 0
        self.events = events
        self.inserts = 0
        self.snapshot: AnyBatch | None = None
        self.messages: list[Message] | None = None

    @property
    def bytes(self) -> int:
        return self.snapshot_bytes + self.message_bytes


class History(NamedTuple):
    """What a resuming reader gets before its queue, as of one moment. ``events``: the number of inserts in it.

    In memory, ``snapshot`` and ``messages`` are all of it. In a store, it is the snapshot of ``segment`` and the
    messages from number ``first`` to before ``end``.
    """

    complete_from: int
    events: int
    snapshot: AnyBatch | None
    messages: list[Message]
    segment: int
    first: int
    end: int


class Journal:
    """The journal of one merge. ``changes``: collects what the store must write; None: all is kept in memory."""

    def __init__(
        self, retain_bytes: int, retain_time: int | None, segment_bytes: int, changes: Changes | None = None
    ) -> None:
        self._retain_bytes = retain_bytes
        self._retain_time = retain_time
        self._segment_bytes = min(segment_bytes, retain_bytes // 4)
        self._changes = changes
        self._segments: deque[Segment] = deque()
        self._next = 1
        self._next_segment = 1
        self._bytes = 0
        self._unkept = 0  # bytes that were emitted while a snapshot was too large to be kept

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def bytes(self) -> int:
        """The bytes of all segments, as they count against ``retain_bytes``."""
        return self._bytes

    @property
    def retained_from(self) -> int | None:
        """The earliest time at which a subscriber can resume; None: only at the stable point."""
        return self._segments[0].complete_from if self._segments else None

    # The hub writes.

    def begin(self, live: AnyBatch, stable_point: int, complete_from: int) -> None:
        """Begin a segment. ``live``: the live events, then ``stable_point`` if there is one."""
        payloads, _ = live.payload_sizes
        size = live.count * ELEMENT_BYTES + payloads
        self._unkept = 0
        if size > self._retain_bytes and self._changes is None:  # a store takes it: a restart begins from it
            self.skip()
            return
        segment = Segment(
            self._next_segment,
            self._next,
            stable_point,
            max(stable_point, complete_from),
            size,
            live.counts(live.count)[0],
        )
        self._next_segment += 1
        if self._changes is None:
            segment.snapshot, segment.messages = live, []
        else:
            self._changes.segments.append(
                NewSegment(
                    segment.number, segment.first, stable_point, segment.complete_from, size, segment.events, live
                )
            )
        self._segments.append(segment)
        self._bytes += size

    def skip(self) -> None:
        """Keep nothing for now: a segment is due, and its snapshot is too large to be kept."""
        self._unkept = 0
        self.forget()

    def reopen(self, segments: list[Segment]) -> None:
        """Continue with the segments of a store."""
        self._segments.extend(segments)
        self._bytes = sum(segment.bytes for segment in segments)
        if segments:
            self._next, self._next_segment = segments[-1].next, segments[-1].number + 1

    def append(self, message: Message) -> None:
        """Add a message that the merge has emitted."""
        if not self._segments:
            self._unkept += len(message.data)
            return
        segment = self._segments[-1]
        if self._changes is None:
            assert segment.messages is not None
            segment.messages.append(message)
        else:
            self._changes.messages.append((self._next, segment.number, *message))
            self._changes.bytes += len(message.data)
        self._next += 1
        segment.next = self._next
        segment.message_bytes += len(message.data)
        segment.inserts += message.inserts
        self._bytes += len(message.data)

    def needs_segment(self, stable_point: int) -> bool:
        """Whether it is time to ``begin`` the next segment."""
        if not self._segments:
            return self._unkept > self._retain_bytes
        segment = self._segments[-1]
        if segment.bytes > self._retain_bytes and (
            self._changes is None or segment.message_bytes >= segment.snapshot_bytes
        ):
            return True
        enough = SNAPSHOTS_PER_SEGMENT * segment.snapshot_bytes
        is_long = segment.next - segment.first >= MESSAGES_PER_SEGMENT
        if segment.message_bytes >= enough and (is_long or segment.message_bytes >= self._segment_bytes):
            return True
        is_old = self._retain_time is not None and stable_point - segment.stable_point >= self._retain_time
        return is_old and stable_point > NEG_INF and segment.message_bytes > enough

    def trim(self, stable_point: int) -> None:
        """Forget the oldest segments beyond the bounds."""
        while len(self._segments) > 1 and (self._bytes > self._retain_bytes or self._is_past(stable_point)):
            self._forget_oldest()

    def forget(self) -> None:
        """Forget all segments: their content is not right any more, or there is no room for one."""
        while self._segments:
            self._forget_oldest()

    # Subscribers read.

    def find(self, t: int) -> Segment | None:
        """Return the newest segment from which a subscriber can resume at ``t``; None if there is none."""
        for segment in reversed(self._segments):
            if segment.complete_from <= t:
                return segment
        return None

    def oldest(self) -> Segment | None:
        """Return the segment that reaches back farthest; None if there is none."""
        return self._segments[0] if self._segments else None

    def history(self, segment: Segment) -> History:
        """Return everything from the beginning of ``segment`` up to now."""
        events = segment.events
        messages: list[Message] = []
        for later in self._segments:
            if later.number >= segment.number:
                events += later.inserts
                messages += later.messages or ()
        return History(
            segment.complete_from, events, segment.snapshot, messages, segment.number, segment.first, self._next
        )

    def _is_past(self, stable_point: int) -> bool:
        """Whether the second segment already reaches back as far as ``retain_time`` requires."""
        if self._retain_time is None or stable_point == NEG_INF:
            return False
        return self._segments[1].complete_from <= stable_point - self._retain_time

    def _forget_oldest(self) -> None:
        segment = self._segments.popleft()
        self._bytes -= segment.bytes
        if self._changes is not None:
            self._changes.forgotten.append(segment.number)
