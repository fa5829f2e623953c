"""Envelopes: the merged stream in the forms that other systems take. Sans-I/O; the subscriber's methods feed them.

=============  ===============================================================================================
``Finals``     events that can no longer change, each exactly once, ordered by (Ve, Vs, payload) from the first to
               the last, on whichever server and whatever the stables were
``Upserts``    rows by key: "this row is now so", "this row is gone"; a row that is final is marked as final
``Retracts``   a changelog: ``+`` and ``-`` of whole rows
=============  ===============================================================================================

Changes come in deliveries. A delivery with a token ends at a stable point: a reader that stores the token together
with the effect of everything up to it can resume there exactly once. The token T divides the reader's events in two:
events that end before T are final and are never delivered again; all others are delivered again, in full, before the
first token after T. So a reader that resumes with T drops its rows with Ve >= T. It may also overwrite them: upserts
have the same keys, and a row that is not delivered again was removed meanwhile.

Keys: (Vs, payload) is not always one, so equal ones are numbered, the event that ends last being 0. Counted from that
end a number survives a restart: what is frozen has the largest numbers, and once an event of a key is frozen no other
can join or leave it. Counted from the other end, a reader that resumes would not have the number to begin with.

At stable(+inf) everything is final, including events that never end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from lmerge.client.subscribe.follower import SubscriptionGap
from lmerge.core.batch import AnyBatch, Row
from lmerge.core.elements import INF, INSERT, NEG_INF, STABLE, Event
from lmerge.core.tdb import Tdb
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Schema
from lmerge.wire.token import format_token

Decode: TypeAlias = Callable[[bytes], "dict[str, Any] | None"]

PLUS: Final = "+"
MINUS: Final = "-"


class FinalEvent(NamedTuple):
    """An event that is fully frozen. ``row``: its payload decoded, if rows were asked for and there is a schema."""

    vs: int
    ve: int
    payload: bytes
    row: dict[str, Any] | None = None


class RowKey(NamedTuple):
    """The identity of an event from its insert to its end. ``ordinal`` is 0 wherever (vs, payload) is a key."""

    vs: int
    payload: bytes
    ordinal: int


class Upsert(NamedTuple):
    """The row of this key ends at ``ve`` now. ``is_final``: no later delivery names the row."""

    key: RowKey
    ve: int
    is_final: bool
    row: dict[str, Any] | None = None


class Delete(NamedTuple):
    """There is no row of this key any more."""

    key: RowKey


class Retract(NamedTuple):
    """``op`` is ``+``: the event occurs once more, or ``-``: it occurs once less."""

    op: str
    vs: int
    ve: int
    payload: bytes
    row: dict[str, Any] | None = None


C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Delivery(Generic[C]):
    """Changes, in order. ``token``: what to store with their effect; None if a stable point is still to come.

    ``gaps``: stretches of time, asked for by the reader, whose events may be missing from this delivery on.
    """

    changes: list[C]
    token: str | None
    stable_point: int
    gaps: tuple[SubscriptionGap, ...] = ()


def no_row(payload: bytes) -> None:
    """Decode nothing: for readers that need the payload as it is."""


def never_reset() -> int:
    """Return 0, the epoch of a merge that was never reset."""
    return 0


class Envelope(ABC, Generic[C]):
    """Turns a stream into deliveries.

    ``since``: the time of the token with which the reader resumes; ``epoch``: returns that of the merge, once something
    has come.
    """

    def __init__(
        self, merge: str, *, since: int = NEG_INF, decode: Decode = no_row, epoch: Callable[[], int] = never_reset
    ) -> None:
        self.merge = merge
        self._epoch = epoch
        self.stable_point = since
        self._decode = decode
        self._catching_up = CatchUp(since)
        self._gaps_reported_to = NEG_INF

    def take(self, batch: AnyBatch, gaps: Sequence[SubscriptionGap] = ()) -> list[Delivery[C]]:
        """Return the deliveries that a batch causes. ``gaps``: all gaps so far, as ``subscriber.gaps``."""
        deliveries: list[Delivery[C]] = []
        for segment, stable in segments(batch):
            rows = self._catching_up.take(segment, stable)
            if rows is None:
                continue
            changes = self._changes(rows, stable)
            if stable is not None:
                self.stable_point = stable
                token = format_token(self.merge, stable, self._epoch())
                deliveries.append(Delivery(changes, token, stable, self._new(gaps)))
            elif changes:
                deliveries.append(Delivery(changes, None, self.stable_point))
        return deliveries

    @abstractmethod
    def _changes(self, rows: list[Row], stable: int | None) -> list[C]:
        """Return the changes by these inserts and adjusts, and then by the stable, if one follows."""

    def _new(self, gaps: Sequence[SubscriptionGap]) -> tuple[SubscriptionGap, ...]:
        """Return the gaps that the stable point has just entered. A subscriber that reads ahead has later ones too."""
        new = tuple(gap for gap in gaps if self._gaps_reported_to <= gap.start < self.stable_point)
        if new:
            self._gaps_reported_to = new[-1].end
        return new


class Finals(Envelope[FinalEvent]):
    """Events once they are final. Every stable gives a delivery; an empty one only moves the token on."""

    def __init__(
        self, merge: str, *, since: int = NEG_INF, decode: Decode = no_row, epoch: Callable[[], int] = never_reset
    ) -> None:
        super().__init__(merge, since=since, decode=decode, epoch=epoch)
        self._table = Tdb(merge)

    def _changes(self, rows: list[Row], stable: int | None) -> list[FinalEvent]:
        decode = self._decode
        return [FinalEvent(vs, ve, payload, decode(payload)) for vs, payload, ve in self._frozen(rows, stable)]

    def _frozen(self, rows: list[Row], stable: int | None) -> list[Event]:
        events = advance(self._table, rows, stable)
        if stable == INF:
            self._table = Tdb(self.merge, stable_point=INF)  # what never ends is final now, and has been delivered
        events.sort(key=_by_end)
        return events


class Upserts(Envelope["Upsert | Delete"]):
    """Rows by key. Only differences are delivered: an event that comes and goes between two deliveries is left out."""

    def __init__(
        self, merge: str, *, since: int = NEG_INF, decode: Decode = no_row, epoch: Callable[[], int] = never_reset
    ) -> None:
        super().__init__(merge, since=since, decode=decode, epoch=epoch)
        self._table = Tdb(merge)
        self._delivered: dict[tuple[int, bytes], tuple[int, ...]] = {}  # ends by ordinal, as the reader has them

    def _changes(self, rows: list[Row], stable: int | None) -> list[Upsert | Delete]:
        table = self._table
        touched: dict[tuple[int, bytes], list[int]] = {(row[1], row[4]): [] for row in rows}
        for vs, payload, ve in advance(table, rows, stable):
            touched.setdefault((vs, payload), []).append(ve)
        changes: list[Upsert | Delete] = []
        for pair, frozen in touched.items():
            live = table.live_ends(*pair) if stable != INF else ()
            self._compare(pair, live[::-1], sorted(frozen, reverse=True), changes)
        if stable == INF:
            self._table = Tdb(self.merge, stable_point=INF)
        return changes

    def _compare(
        self, pair: tuple[int, bytes], live: tuple[int, ...], frozen: list[int], changes: list[Upsert | Delete]
    ) -> None:
        """Append how the rows of one (vs, payload) differ from those delivered before. Ends come latest first."""
        earlier = self._delivered.get(pair, ())
        row = self._decode(pair[1]) if live or frozen else None
        for ordinal, ve in enumerate((*live, *frozen)):
            is_final = ordinal >= len(live)
            if is_final or ordinal >= len(earlier) or earlier[ordinal] != ve:
                changes.append(Upsert(RowKey(*pair, ordinal), ve, is_final, row))
        for ordinal in range(len(live) + len(frozen), len(earlier)):
            changes.append(Delete(RowKey(*pair, ordinal)))
        if live:
            self._delivered[pair] = live
        else:
            self._delivered.pop(pair, None)


class Retracts(Envelope[Retract]):
    """The changelog: an insert is a ``+``, an adjust a ``-`` of the old row and a ``+`` of the new, if any."""

    def _changes(self, rows: list[Row], stable: int | None) -> list[Retract]:
        changes: list[Retract] = []
        for kind, vs, ve, vold, payload in rows:
            was = vs if kind == INSERT else vold
            if was == ve:
                continue
            row = self._decode(payload)
            if was > vs:
                changes.append(Retract(MINUS, vs, was, payload, row))
            if ve > vs:
                changes.append(Retract(PLUS, vs, ve, payload, row))
        return changes


class CatchUp:
    """Turns what a server sends again after a token into what the reader lacks.

    A server may begin before the token, with events that were frozen and states that have changed since. Nothing is
    passed on until the stream has reached ``since``. Then come all events that end there or later, and after them the
    rest of the stream as it is.
    """

    def __init__(self, since: int) -> None:
        self._since = since
        self._table = Tdb("resumed") if since > NEG_INF else None

    def take(self, rows: list[Row], stable: int | None) -> list[Row] | None:
        """Return the rows to go on with; None: the stream has not reached ``since`` yet."""
        if self._table is None:
            return rows
        events = advance(self._table, rows, stable)
        if stable is None or stable < self._since:
            return None
        if stable < INF:
            events += self._table.live_events()
        self._table = None
        if self._since == INF:
            return []
        return [(INSERT, vs, ve, 0, payload) for vs, payload, ve in sorted(events) if ve >= self._since]


def segments(batch: AnyBatch) -> Iterator[tuple[list[Row], int | None]]:
    """Yield a batch cut behind each stable: (inserts and adjusts, the stable that ends them; None for the rest)."""
    rows, kinds, start = list(batch.rows()), batch.kinds, 0
    while (at := kinds.find(STABLE, start)) >= 0:
        yield rows[start:at], rows[at][1]
        start = at + 1
    if start < len(rows):
        yield rows[start:], None


def advance(table: Tdb, rows: list[Row], stable: int | None) -> list[Event]:
    """Apply rows and a stable; return the events that became final: at stable(+inf) all, though some stay."""
    for row in rows:
        table.apply_row(row)
    if stable is None:
        return []
    table.apply_row((STABLE, stable, 0, 0, b""))
    frozen = table.take_frozen()
    return frozen + table.live_events() if stable == INF else frozen


def _by_end(event: Event) -> tuple[int, int, bytes]:
    return event.ve, event.vs, event.payload


ENVELOPES: Final[dict[str, type[Envelope[Any]]]] = {"final": Finals, "upsert": Upserts, "retract": Retracts}


class AnySubscriber(Protocol):
    """What an envelope needs of an ``AsyncSubscriber``."""

    @property
    def gaps(self) -> list[SubscriptionGap]: ...
    def batches(self) -> AsyncIterator[AnyBatch]: ...


class RowReader:
    """Decodes payloads by the schema that ``schema()`` returns at the time; returns None while there is none."""

    def __init__(self, schema: Callable[[], Schema | None]) -> None:
        self._schema = schema
        self._codec: RowCodec | None = None

    def __call__(self, payload: bytes) -> dict[str, Any] | None:
        """Return the row. Raises InvalidRow."""
        schema = self._schema()
        if schema is None:
            return None
        if self._codec is None or self._codec.schema != schema:
            self._codec = RowCodec(schema)
        return self._codec.decode(payload)


async def deliveries(subscriber: AnySubscriber, envelope: Envelope[C]) -> AsyncIterator[Delivery[C]]:
    """Yield the subscriber's stream in an envelope."""
    async for batch in subscriber.batches():
        for delivery in envelope.take(batch, subscriber.gaps):
            yield delivery
