"""The output of another merge as a source: merges and queries compose.

A position is a checkpoint of the subscription: a restart goes on from it and receives nothing twice.

**Seeking.** A reader that is behind what feedback needs, and behind the merge, subscribes again with the token of that
time. It receives the events that end then or later, and nothing that has happened before.

    read up to 100      needed from 500      the merge is at 700      a token of 500: the events at 700 with Ve >= 500

What it has read becomes what it receives by changes at 100 or later, so the stream stays legal. An event that has ended
between 100 and 500 is not received, and when it has ended is not known: it ends at 100, which nothing needs either.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lmerge.client import Security, Subscriber, describe_merge
from lmerge.client.connection.streams import parse_targets
from lmerge.client.subscribe.checkpoint import dump
from lmerge.client.subscribe.follower import SubscriptionGap
from lmerge.client.subscribe.reader import ResumePoint
from lmerge.core.batch import AnyBatch, BatchBuilder
from lmerge.core.elements import INF, INSERT, NEG_INF, STABLE, Event, show_time
from lmerge.errors import LmergeError, OutputGap, UsageError
from lmerge.replica.sources.declared import Chunk, PhysicalSource, Position, SourceContext, SourceReader
from lmerge.temporal.changes import Change
from lmerge.temporal.row_forms import RowForms
from lmerge.temporal.running import Item
from lmerge.wire.names import check_name, cut_name
from lmerge.wire.token import format_token

# To seek costs a connection and a snapshot. A reader that catches up sooner than that by itself does not.
SEEK_AFTER_S: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class MergeStream(PhysicalSource):
    """The merged stream ``merge`` of ``servers``, HOST:PORT,..., with its revisions and stable points."""

    kind = "merge"
    is_live = True
    counts_items = False  # the live events of the stream decide what comes

    servers: str
    merge: str

    def __post_init__(self) -> None:
        parse_targets(self.servers)
        check_name("merge", self.merge)
        if self.progress is not None:
            raise UsageError(f"the merge {self.merge!r} declares its stable points itself: it takes no progress=")

    @property
    def where(self) -> str:
        return f"merge {self.merge} of {self.servers}"

    def moved_to(self, place: str) -> MergeStream:
        return replace(self, servers=place)

    def open(self, context: SourceContext, position: Position) -> SourceReader:
        """Return a reader."""
        return MergeReader(self, context, position)


class MergeReader(SourceReader):
    """Reads a subscription, or several: one for each stretch between two seeks, which ``parts_skipped`` counts."""

    def __init__(self, source: MergeStream, context: SourceContext, position: Position) -> None:
        self._name = f"source {context.name!r} ({source.where})"
        self._source, self._context = source, context
        self._forms = RowForms(context.schema)
        self._gap: SubscriptionGap | None = None
        self._since: int | None = None  # from where it is complete; None: it has not begun
        self._needed_from = NEG_INF
        self._behind_s: float | None = None  # since when it has been behind, or has asked where the merge is
        self._lock = threading.Lock()
        self._is_closed = False
        self._subscriber = self._subscribed(None if position is None else self._checkpoint(position))

    def chunks(self) -> Iterator[Chunk]:
        """Yield the batches of the merge. Raises OutputGap where a part of the stream is lost."""
        has_ended = False
        held: _ReadSoFar | None = None
        while not self._is_closed:
            for batch in self._subscriber.batches():
                self._check()
                position = self._position()
                items, held = self._items(batch if held is None else held.changes_to(batch)), None
                self._has_begun()
                has_ended = has_ended or INF in items
                yield Chunk(items, position, position)
                if not has_ended and self._is_to_seek():
                    held = self._seek()
                    break
            else:
                break
        self._has_begun()
        if not has_ended:
            position = self._position()
            yield Chunk([INF], position, position)

    def complete_from(self) -> int | None:
        """Return the time from which the subscription is complete; None: it has not begun."""
        return self._since

    def fast_forward(self, t: int) -> None:
        """Learn that no event is needed that ends before ``t``."""
        self._needed_from = max(self._needed_from, t)

    def close(self) -> None:
        """End the subscription."""
        with self._lock:
            self._is_closed = True
            self._subscriber.close()

    def _subscribed(self, resume: str | bytes | None) -> Subscriber:
        return Subscriber(
            self._source.servers,
            self._source.merge,
            name=cut_name(f"query {self._context.name}"),
            resume=resume,
            on_gap=self._note_gap,
            security=self._context.security,
        )

    def _has_begun(self) -> None:
        if self._since is None:
            self._since = self._subscriber.inner.follower.since

    # Where it is.

    def _position(self) -> Position:
        """Return what a restart needs beside the live events of the stream, which its entrance keeps."""
        subscriber = self._subscriber.inner
        return [subscriber.follower.since, subscriber.epoch or 0]

    def _checkpoint(self, position: Position) -> bytes:
        """Return the checkpoint of a subscription that has read as far as the entrance of the stream."""
        live = self._context.live
        assert live is not None
        since, epoch = position
        events = [Event(event.vs, self._forms.payload(event.row), event.ve) for event in live]
        return dump(self._source.merge, ResumePoint(live.stable, since, events), epoch)

    def _is_to_seek(self) -> bool:
        """Whether it has been behind what is needed for a while, and the merge is not."""
        now_s, needed_from = time.monotonic(), self._needed_from
        if max(self._subscriber.stable_point, self._subscriber.inner.follower.since) >= needed_from:
            self._behind_s = None
            return False
        if self._behind_s is None:
            self._behind_s = now_s
        if now_s - self._behind_s < SEEK_AFTER_S:
            return False
        self._behind_s = now_s
        return _has_reached(self._source, needed_from, self._context.security)

    def _seek(self) -> _ReadSoFar:
        """Go on with a subscription that begins at what is needed; return what the reader has."""
        before, needed_from = self._subscriber.inner, self._needed_from
        held = _ReadSoFar(*before.follower.reader.position(), needed_from)
        following = self._subscribed(format_token(self._source.merge, needed_from, before.epoch or 0))
        with self._lock:
            self._subscriber.close()
            self._subscriber = following
            if self._is_closed:
                following.close()
        self._behind_s = None
        self.parts_skipped += 1
        return held

    # What comes.

    def _note_gap(self, gap: SubscriptionGap) -> None:
        self._gap = gap

    def _check(self) -> None:
        """Raise OutputGap after a gap, and UsageError if the merge has other columns than the plan's source."""
        if self._gap is not None:
            lost = f"what ended between {show_time(self._gap.start)} and {show_time(self._gap.end)}"
            raise OutputGap(f"{self._name}: no server has {lost}: start without the checkpoint, to join there")
        schema = self._subscriber.inner.schema
        if schema != self._context.schema:
            there = "no columns: its payloads are bytes" if schema is None else f"the columns ({schema})"
            raise UsageError(f"{self._name}: the merge has {there}, and the plan has ({self._context.schema})")

    def _items(self, batch: AnyBatch) -> list[Item]:
        values = self._forms.of_payload
        return [
            vs if kind == STABLE else Change(values(payload, index), vs, vs if kind == INSERT else vold, ve)
            for index, (kind, vs, ve, vold, payload) in enumerate(batch.rows())
        ]


@dataclass(frozen=True)
class _ReadSoFar:
    """What a reader has where it leaves a subscription for one that begins at ``needed_from``."""

    stable: int
    events: Sequence[Event]
    needed_from: int

    def changes_to(self, batch: AnyBatch) -> AnyBatch:
        """Return the changes from what it has to the first batch of the other: all events there, and a stable."""
        builder = BatchBuilder()
        there = Counter(Event(vs, payload, ve) for kind, vs, ve, _, payload in batch.rows() if kind != STABLE)
        left = _by_key(Counter(self.events) - there)
        for vs, payload, ve in sorted((there - Counter(self.events)).elements()):
            ends = left.get((vs, payload))
            if ends:
                builder.adjust(payload, vs, ends.pop(), ve)
            else:
                builder.insert(payload, vs, ve)
        for (vs, payload), ends in sorted(left.items()):
            for end in ends:
                if end >= self.needed_from:
                    builder.adjust(payload, vs, end, max(vs, self.stable))
        for kind, at, *_ in batch.rows():
            if kind == STABLE:
                builder.stable(at)
        return builder.build()


def _by_key(events: Counter[Event]) -> dict[tuple[int, bytes], list[int]]:
    """Return the ends of events by start and payload, in ascending order."""
    found: dict[tuple[int, bytes], list[int]] = {}
    for vs, payload, ve in sorted(events.elements()):
        found.setdefault((vs, payload), []).append(ve)
    return found


def _has_reached(source: MergeStream, t: int, security: Security | None) -> bool:
    """Whether the stable point of the merge is at ``t`` or later at a server that answers."""
    for server in parse_targets(source.servers):
        with contextlib.suppress(LmergeError):
            if int(describe_merge(server, source.merge, security=security).summary.stable_point) >= t:
                return True
    return False
