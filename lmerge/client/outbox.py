"""What a publisher has said and not sent yet: the sans-I/O half of both publishers.

The caller's thread puts elements in, the connection's task takes batches out; a lock stands between them. Whatever
is in the outbox is in the live events too, so a new connection starts with the prelude and what is said after it.

``bytes`` goes up as elements are said and down to zero as they are taken, and by nothing else. A restart hands out all
that waits as part of the prelude, but makes no room until the next ``take``, when the prelude has been sent: otherwise
each attempt to connect would let the caller say a whole buffer more, all of it kept in the live events.
"""

from __future__ import annotations

import operator
import threading
from array import array
from typing import Any, Final

from lmerge.client.live import live_events
from lmerge.core.batch import AnyBatch, Batch, BatchBuilder, Row
from lmerge.core.elements import INF, NEG_INF, STABLE, show_payload
from lmerge.errors import InputViolation, InvalidBatch, LimitExceeded
from lmerge.wire.codec import payload_sizes, slice_batch
from lmerge.wire.limits import PAYLOAD_BYTES

# Bytes that wait before a publisher has to: enough to ride out a reconnect, little enough not to hide a slow server.
OUTBOX_BYTES_MAX: Final = 16 * 2**20
ROW_BYTES: Final = 32  # what an element counts besides its payload


class Outbox:
    """Said and not sent. ``said`` and ``acked`` count elements over the publisher's whole life."""

    def __init__(self, name: str, *, bytes_max: int = OUTBOX_BYTES_MAX, payload_bytes_max: int = PAYLOAD_BYTES) -> None:
        self.lock = threading.Lock()
        self.live = live_events(name)
        self.said = 0
        self.acked = 0
        self.bytes = 0
        self.bytes_max = bytes_max
        self.payload_bytes_max = payload_bytes_max
        self._chunks: list[AnyBatch] = []
        self._rows: list[Row] = []

    @property
    def trimmed(self) -> int:
        """The merge's stable point, as last heard."""
        with self.lock:
            return self.live.trimmed

    @property
    def is_full(self) -> bool:
        return self.bytes >= self.bytes_max

    def put_row(self, row: Row) -> None:
        """One element. Raises InputViolation, InvalidBatch or LimitExceeded, changing nothing."""
        kind, vs, ve, vold, payload = row
        self._check_payload(payload, 0)
        if not (type(vs) is type(ve) is type(vold) is int):
            vs, ve, vold = (_as_int(t, payload) for t in (vs, ve, vold))
            row = (kind, vs, ve, vold, payload)
        for t in (vs, ve, vold):
            if not NEG_INF <= t <= INF:
                raise InvalidBatch(f"cannot publish {show_payload(payload)}: {t} is not a 64-bit time")
        with self.lock:
            self.live.say(row)
            self._rows.append(row)
            self.said += 1
            self.bytes += ROW_BYTES + len(row[4])

    def put_batch(self, batch: AnyBatch) -> None:
        """A batch. Raises what ``put_row`` raises; the elements before the offender have then been said."""
        if isinstance(batch, Batch):
            _check_columns(batch)
        batch = self.live.own(batch)
        size, largest = payload_sizes(batch)
        if largest > self.payload_bytes_max:
            for index, payload in enumerate(batch.payloads):
                self._check_payload(payload, index)
        with self.lock:
            try:
                self.live.say_batch(batch)
            except InputViolation as violation:
                said = slice_batch(batch, 0, violation.index)
                self._put(said, payload_sizes(said)[0])
                raise
            self._put(batch, size)

    def take(self) -> tuple[list[AnyBatch], int] | None:
        """Everything that waits, in order, and how much has been said with it; there is room again."""
        with self.lock:
            self.bytes = 0
            self._close_rows()
            if not self._chunks:
                return None
            chunks, self._chunks = self._chunks, []
            return chunks, self.said

    def restart(self) -> tuple[list[AnyBatch], int]:
        """A new connection: the prelude, and how much has been said with it."""
        with self.lock:
            self._chunks, self._rows = [], []
            return [self.live.prelude()], self.said

    def heard(self, stable_point: int) -> None:
        """The merge is stable at ``stable_point``."""
        with self.lock:
            self.live.trim(stable_point)

    def _put(self, batch: AnyBatch, size: int) -> None:
        self._close_rows()
        if batch.count:
            self._chunks.append(batch)
            self.said += batch.count
            self.bytes += batch.count * ROW_BYTES + size

    def _close_rows(self) -> None:
        if self._rows:
            builder = BatchBuilder()
            builder.rows, self._rows = self._rows, []
            self._chunks.append(self.live.own(builder.build()))

    def _check_payload(self, payload: bytes, index: int) -> None:
        if len(payload) > self.payload_bytes_max:
            raise LimitExceeded(
                f"cannot publish element {index}: its payload has {len(payload)} bytes, above the limit of "
                f"{self.payload_bytes_max}"
            )


def _as_int(t: Any, payload: bytes) -> int:
    """numpy's integers and the like; never a float, which rounds."""
    try:
        return operator.index(t)
    except TypeError:
        raise InvalidBatch(f"cannot publish {show_payload(payload)}: {t!r:.64} is not a time") from None


def _check_columns(batch: Batch) -> None:
    """What could not be sent must not wait to be: one pass per column."""
    for name, column in (("vs", batch.vs), ("ve", batch.ve), ("vold", batch.vold)):
        try:
            array("q", column)
        except (OverflowError, TypeError) as problem:
            raise InvalidBatch(f"cannot publish a batch: column {name} is not one of 64-bit times") from problem
        _check_length(name, len(column), batch.count)
    _check_length("payloads", len(batch.payloads), batch.count)
    if not set(map(type, batch.payloads)) <= {bytes}:
        raise InvalidBatch("cannot publish a batch: column payloads is not one of bytes")
    if batch.kinds and max(batch.kinds) > STABLE:
        raise InvalidBatch(f"cannot publish a batch: column kinds has the unknown kind {max(batch.kinds)}")


def _check_length(name: str, length: int, count: int) -> None:
    if length != count:
        raise InvalidBatch(f"cannot publish a batch: column {name} has {length} elements where kinds has {count}")
