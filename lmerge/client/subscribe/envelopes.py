"""Envelopes: the merged stream in the forms that other systems take. Sans-I/O; the subscriber's methods feed them.

=============  ===============================================================================================
``Finals``     events that can no longer change, each exactly once, ordered by (Ve, Vs, payload) from the first to
               the last, on whichever server and however the stables fell
``Upserts``    rows by key: "this row is now so", "this row is gone"; a row that is final says so
``Retracts``   a changelog: ``+`` and ``-`` of whole rows
=============  ===============================================================================================

What happened comes in deliveries. A delivery with a token ends at a stable point: whoever stores the token together
with the effect of everything up to it can go on from there exactly once. The token T splits what the reader has in two:
events that end before T are its own for good and are never said again; all others are said again, in full, before
the first token after T. So a reader that comes back with T drops its rows with Ve >= T (or overwrites them: upserts
have the same keys, and what is not said again was removed meanwhile).

Keys: (Vs, payload) is not always one, so equal ones are numbered, the event that ends last being 0. Counted from that
end a number survives a restart: what is frozen has the largest numbers, and once an event of a key is frozen no other
can join or leave it. Counted from the other end, a reader that resumes would not know where to begin.

At stable(+inf) everything is final, events that never end among it.
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
from lmerge.errors import UsageError
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Schema
from lmerge.wire.token import format_token

Decode: TypeAlias = Callable[[bytes], "dict[str, Any] | None"]

PLUS: Final = "+"
MINUS: Final = "-"


class FinalEvent(NamedTuple):
    """An event that is fully frozen. ``row``: its payload decoded, if that was asked for and there is a schema."""

    vs: int
    ve: int
    payload: bytes
    row: dict[str, Any] | None = None


class RowKey(NamedTuple):
    """What an event keeps from its insert to its end. ``ordinal`` is 0 wherever (vs, payload) is a key."""

    vs: int
    payload: bytes
    ordinal: int


class Upsert(NamedTuple):
    """The row of this key ends at ``ve`` now. ``is_final``: it will not be spoken of again."""

    key: RowKey
    ve: int
    is_final: bool
    row: dict[str, Any] | None = None


class Delete(NamedTuple):
    """There is no row of this key any more."""

    key: RowKey


class Retract(NamedTuple):
    """``op`` is ``+``: this event is there (once more), or ``-``: it is not there any more (once less)."""

    op: str
    vs: int
    ve: int
    payload: bytes
    row: dict[str, Any] | None = None


C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Delivery(Generic[C]):
    """Changes, in order. ``token``: what to store with their effect; None if a stable point is still to come.

    ``gaps``: stretches of time whose events may be missing from this delivery on, although they were asked for.
    """

    changes: list[C]
    token: str | None
    stable_point: int
    gaps: tuple[SubscriptionGap, ...] = ()


def no_row(payload: bytes) -> None:
    """For readers that want the payload as it is."""


def never_reset() -> int:
    """The epoch of a merge that was never reset."""
    return 0


class Envelope(ABC, Generic[C]):
    """Turns a stream into deliveries. ``since``: the time of the token with which its reader comes back;
    ``epoch``: that of the merge, once something has come.
    """

    def __init__(
        self, merge: str, *, since: int = NEG_INF, decode: Decode = no_row, epoch: Callable[[], int] = never_reset
    ) -> None:
        self.merge = merge
        self._epoch = epoch
        self.stable_point = since
        self._decode = decode
        self._catching_up = CatchUp(since)
        self._gaps_told_to = NEG_INF

    def take(self, batch: AnyBatch, gaps: Sequence[SubscriptionGap] = ()) -> list[Delivery[C]]:
        """The deliveries that a batch causes. ``gaps``: all that the subscriber has met, as ``subscriber.gaps``."""
        deliveries: list[Delivery[C]] = []
        for told, stable in segments(batch):
            rows = self._catching_up.take(told, stable)
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
        """What these inserts and adjusts, and then the stable, if one follows, change."""

    def _new(self, gaps: Sequence[SubscriptionGap]) -> tuple[SubscriptionGap, ...]:
        """The gaps that the stable point has just passed into. A subscriber that reads ahead knows later ones too."""
        new = tuple(gap for gap in gaps if self._gaps_told_to <= gap.start < self.stable_point)
        if new:
            self._gaps_told_to = new[-1].end
        return new


class Finals(Envelope[FinalEvent]):
    """Events once they are final. Every stable gives a delivery; many are empty and only carry the token on."""

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
            self._table = Tdb(self.merge, stable_point=INF)  # what never ends is final now, and has been said
        events.sort(key=_by_end)
        return events


class Upserts(Envelope["Upsert | Delete"]):
    """Rows by key. Only what differs is said: an event that comes and goes between two deliveries is not mentioned."""

    def __init__(
        self, merge: str, *, since: int = NEG_INF, decode: Decode = no_row, epoch: Callable[[], int] = never_reset
    ) -> None:
        super().__init__(merge, since=since, decode=decode, epoch=epoch)
        self._table = Tdb(merge)
        self._said: dict[tuple[int, bytes], tuple[int, ...]] = {}  # ends by ordinal, as the reader has them

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
        """Append how the rows of one (vs, payload) differ from what was said of them. Ends come latest first."""
        said = self._said.get(pair, ())
        row = self._decode(pair[1]) if live or frozen else None
        for ordinal, ve in enumerate((*live, *frozen)):
            is_final = ordinal >= len(live)
            if is_final or ordinal >= len(said) or said[ordinal] != ve:
                changes.append(Upsert(RowKey(*pair, ordinal), ve, is_final, row))
        for ordinal in range(len(live) + len(frozen), len(said)):
            changes.append(Delete(RowKey(*pair, ordinal)))
        if live:
            self._said[pair] = live
        else:
            self._said.pop(pair, None)


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
    """What is said again after a token, made into what its reader lacks.

    A server may begin before the token, with events that were frozen and states that were left since. Nothing is let
    through until the stream has come to ``since``; then come all events that end there or later, and the rest as it is.
    """

    def __init__(self, since: int) -> None:
        self._since = since
        self._table = Tdb("resumed") if since > NEG_INF else None

    def take(self, rows: list[Row], stable: int | None) -> list[Row] | None:
        """The rows to go on with; None: not there yet."""
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
    """A batch cut behind each stable: (inserts and adjusts, the stable that ends them; None for the rest)."""
    rows, kinds, start = list(batch.rows()), batch.kinds, 0
    while (at := kinds.find(STABLE, start)) >= 0:
        yield rows[start:at], rows[at][1]
        start = at + 1
    if start < len(rows):
        yield rows[start:], None


def advance(table: Tdb, rows: list[Row], stable: int | None) -> list[Event]:
    """Apply rows and a stable; the events that became final: at stable(+inf) all of them, though some stay."""
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
    """Decodes payloads by the schema that ``schema()`` gives at the time; None while there is none."""

    def __init__(self, schema: Callable[[], Schema | None]) -> None:
        self._schema = schema
        self._codec: RowCodec | None = None

    def __call__(self, payload: bytes) -> dict[str, Any] | None:
        """The row. Raises InvalidRow."""
        schema = self._schema()
        if schema is None:
            return None
        if self._codec is None or self._codec.schema != schema:
            self._codec = RowCodec(schema)
        return self._codec.decode(payload)


async def deliveries(subscriber: AnySubscriber, envelope: Envelope[C]) -> AsyncIterator[Delivery[C]]:
    """The subscriber's stream in an envelope."""
    async for batch in subscriber.batches():
        for delivery in envelope.take(batch, subscriber.gaps):
            yield delivery


def envelope_named(word: str) -> type[Envelope[Any]]:
    """The envelope that a user's word names. Raises UsageError."""
    if word not in ENVELOPES:
        raise UsageError(f"there is no envelope {word!r}; they are elements, {', '.join(ENVELOPES)}")
    return ENVELOPES[word]
