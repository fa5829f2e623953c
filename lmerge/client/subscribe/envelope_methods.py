"""The envelopes as methods of the subscribers: ``final``, ``upserts``, ``retracts``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Protocol, TypeVar

from lmerge.client.subscribe.envelopes import (
    Delete,
    Delivery,
    Envelope,
    FinalEvent,
    Finals,
    Retract,
    Retracts,
    RowReader,
    Upsert,
    Upserts,
    deliveries,
    no_row,
)
from lmerge.client.subscribe.follower import SubscriptionGap
from lmerge.core.batch import AnyBatch
from lmerge.core.elements import NEG_INF
from lmerge.errors import UsageError
from lmerge.wire.schema import Schema
from lmerge.wire.token import parse_token

C = TypeVar("C")


class Resumable(Protocol):
    """What an envelope needs of its subscriber."""

    merge: str
    schema: Schema | None
    resumed: str | bytes | None
    epoch: int | None


def wrapped(subscriber: Resumable, kind: Callable[..., Envelope[C]], rows: bool) -> Envelope[C]:
    """Return an envelope for a subscriber, from its token on. Raises UsageError if it resumes from a checkpoint."""
    resumed = subscriber.resumed
    if isinstance(resumed, bytes):
        raise UsageError(
            f"an envelope of merge {subscriber.merge!r} cannot go on from a checkpoint: give the token of a delivery"
        )
    since = NEG_INF if resumed is None else parse_token(resumed, subscriber.merge)
    decode = RowReader(lambda: subscriber.schema) if rows else no_row
    return kind(subscriber.merge, since=since, decode=decode, epoch=lambda: subscriber.epoch or 0)


class AsyncEnvelopes:
    """The methods of ``AsyncSubscriber``. ``rows``: decode payloads by the declared schema, which can raise InvalidRow.

    The token of a delivery, stored with its effect, is what ``resume`` takes after a restart.
    """

    merge: str
    schema: Schema | None
    resumed: str | bytes | None
    epoch: int | None

    @property
    def gaps(self) -> list[SubscriptionGap]:
        """Stretches of time in which frozen events may be missing."""
        raise NotImplementedError

    def batches(self) -> AsyncIterator[AnyBatch]:
        """Iterate over the stream in batches."""
        raise NotImplementedError

    def final(self, *, rows: bool = True) -> AsyncIterator[Delivery[FinalEvent]]:
        """Iterate over events that can no longer change, each exactly once, in order of (Ve, Vs, payload)."""
        return deliveries(self, wrapped(self, Finals, rows))

    def upserts(self, *, rows: bool = True) -> AsyncIterator[Delivery[Upsert | Delete]]:
        """Iterate over rows by key, with their present ends."""
        return deliveries(self, wrapped(self, Upserts, rows))

    def retracts(self, *, rows: bool = True) -> AsyncIterator[Delivery[Retract]]:
        """Iterate over a changelog of + and -."""
        return deliveries(self, wrapped(self, Retracts, rows))


class Envelopes:
    """The methods of ``Subscriber``; see ``AsyncEnvelopes``."""

    _async: AsyncEnvelopes

    def batches(self) -> Iterator[AnyBatch]:
        """Iterate over the stream in batches."""
        raise NotImplementedError

    def final(self, *, rows: bool = True) -> Iterator[Delivery[FinalEvent]]:
        """Iterate over events that can no longer change, each exactly once, in order of (Ve, Vs, payload)."""
        return self._delivered(wrapped(self._async, Finals, rows))

    def upserts(self, *, rows: bool = True) -> Iterator[Delivery[Upsert | Delete]]:
        """Iterate over rows by key, with their present ends."""
        return self._delivered(wrapped(self._async, Upserts, rows))

    def retracts(self, *, rows: bool = True) -> Iterator[Delivery[Retract]]:
        """Iterate over a changelog of + and -."""
        return self._delivered(wrapped(self._async, Retracts, rows))

    def _delivered(self, envelope: Envelope[C]) -> Iterator[Delivery[C]]:
        for batch in self.batches():
            yield from envelope.take(batch, self._async.gaps)
