"""The output of another merge as a source: merges and queries compose.

A position is a checkpoint of the subscription: a restart goes on from it and receives nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lmerge.client import Subscriber
from lmerge.client.connection.streams import parse_targets
from lmerge.client.subscribe.checkpoint import dump
from lmerge.client.subscribe.follower import SubscriptionGap
from lmerge.client.subscribe.reader import ResumePoint
from lmerge.core.batch import AnyBatch
from lmerge.core.elements import INF, INSERT, STABLE, Event, show_time
from lmerge.errors import OutputGap, UsageError
from lmerge.replica.sources.declared import Chunk, PhysicalSource, Position, SourceContext, SourceReader
from lmerge.temporal.changes import Change
from lmerge.temporal.row_forms import RowForms
from lmerge.temporal.running import Item
from lmerge.wire.names import check_name, cut_name


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
    """Reads a subscription."""

    def __init__(self, source: MergeStream, context: SourceContext, position: Position) -> None:
        self._name = f"source {context.name!r} ({source.where})"
        self._schema, self._forms = context.schema, RowForms(context.schema)
        self._gap: SubscriptionGap | None = None
        self._has_begun = False
        self._subscriber = Subscriber(
            source.servers,
            source.merge,
            name=cut_name(f"query {context.name}"),
            resume=None if position is None else self._checkpoint(source.merge, position, context),
            on_gap=self._note_gap,
            security=context.security,
        )

    def chunks(self) -> Iterator[Chunk]:
        """Yield the batches of the merge. Raises OutputGap where a part of the stream is lost."""
        has_ended = False
        for batch in self._subscriber.batches():
            self._check()
            self._has_begun = True
            position, items = self._position(), self._items(batch)
            has_ended = has_ended or INF in items
            yield Chunk(items, position, position)
        self._has_begun = True
        if not has_ended:
            position = self._position()
            yield Chunk([INF], position, position)

    def complete_from(self) -> int | None:
        """Return the time from which the subscription is complete; None: it has not begun."""
        return self._subscriber.inner.follower.since if self._has_begun else None

    def close(self) -> None:
        """End the subscription."""
        self._subscriber.close()

    def _position(self) -> Position:
        """Return what a restart needs beside the live events of the stream, which its entrance keeps."""
        subscriber = self._subscriber.inner
        return [subscriber.follower.since, subscriber.epoch or 0]

    def _checkpoint(self, merge: str, position: Position, context: SourceContext) -> bytes:
        """Return the checkpoint of a subscription that has read as far as the entrance of the stream."""
        assert context.live is not None
        since, epoch = position
        events = [Event(event.vs, self._forms.payload(event.row), event.ve) for event in context.live]
        return dump(merge, ResumePoint(context.live.stable, since, events), epoch)

    def _note_gap(self, gap: SubscriptionGap) -> None:
        self._gap = gap

    def _check(self) -> None:
        """Raise OutputGap after a gap, and UsageError if the merge has other columns than the plan's source."""
        if self._gap is not None:
            lost = f"what ended between {show_time(self._gap.start)} and {show_time(self._gap.end)}"
            raise OutputGap(f"{self._name}: no server has {lost}: start without the checkpoint, to join there")
        schema = self._subscriber.inner.schema
        if schema != self._schema:
            there = "no columns: its payloads are bytes" if schema is None else f"the columns ({schema})"
            raise UsageError(f"{self._name}: the merge has {there}, and the plan has ({self._schema})")

    def _items(self, batch: AnyBatch) -> list[Item]:
        values = self._forms.of_payload
        return [
            vs if kind == STABLE else Change(values(payload, index), vs, vs if kind == INSERT else vold, ve)
            for index, (kind, vs, ve, vold, payload) in enumerate(batch.rows())
        ]
