"""A merge's TDB in columns, as of its last stable point: the data of a view's queries. Sans-I/O.

Every event has a slot. Its times stand in flat arrays; its payload stands in a list until the first query that sees it
decodes it, once, into an Arrow chunk. So an element costs some dictionary operations, and a query costs the copy of the
flat arrays and a filter, whatever the number of columns. Slots of events that are gone are removed when there are too
many.

The loop calls ``take``, the querying thread calls ``table``. One lock keeps a query from seeing half of a stable.
Decoding and filtering happen under another lock, so that a query does not delay the stream.
"""

from __future__ import annotations

from array import array
from threading import Lock
from typing import Any, Final

from lmerge.client.subscribe.envelopes import segments
from lmerge.client.views.arrow_tables import FINAL_COLUMN, TIME_COLUMNS, blamed_table, import_pyarrow, payload_schema
from lmerge.core.batch import AnyBatch, Row
from lmerge.core.elements import ADJUST, INF, NEG_INF
from lmerge.wire.schema import Schema

# The most empty slots, beside as many as are in use, before they are removed.
EMPTY_MAX: Final = 16_384
# The most Arrow chunks, one for each query that met new events, before they become one.
CHUNKS_MAX: Final = 64


class ViewTable:
    """The events of a view. ``keep``: how long an ended event stays, in units of time; 0: only live events stay.

    ``keep_events_max``: the most ended events that are kept; the ones that ended first go first.
    """

    def __init__(self, keep: int, keep_events_max: int) -> None:
        import_pyarrow()
        self.at = NEG_INF
        self._keep, self._keep_events_max = keep, keep_events_max
        self._kept_from = NEG_INF  # events that ended before were dropped because of ``keep_events_max``
        self._pending: list[Row] = []  # since the last stable
        self._slots: dict[tuple[int, bytes], list[int]] = {}
        self._vs, self._ve = array("q"), array("q")
        self._there = bytearray()  # per slot: 1 if the event is there
        self._payloads: list[bytes] = []
        self._sweep_at = EMPTY_MAX
        self._chunks: list[Any] = []  # of the first _decoded slots
        self._decoded = 0
        self._schema: Schema | None = None  # of the chunks
        self._cached: tuple[object, Any] = (None, None)
        self._state = Lock()
        self._query = Lock()

    def take(self, batch: AnyBatch) -> bool:
        """Take a batch; return whether the stable point has moved. Elements after its last stable wait for the next."""
        before = self.at
        for rows, stable in segments(batch):
            self._pending += rows
            if stable is not None:
                with self._state:
                    self._apply(self._pending)
                    self.at = stable
                self._pending = []
        if len(self._there) > self._sweep_at and self._query.acquire(blocking=False):
            try:
                with self._state:
                    self._sweep()
            finally:
                self._query.release()
        return self.at != before

    def table(self, schema: Schema | None) -> tuple[int, Any]:
        """Return the stable point, and the table as of it, ordered by vs. Raises InvalidRow."""
        pa = import_pyarrow()
        with self._query:
            with self._state:
                at = self.at
                key = (at, schema)
                if self._cached[0] == key:
                    return at, self._cached[1]
                vs, ve, there = self._vs.tobytes(), self._ve.tobytes(), bytes(self._there)
                if schema != self._schema:
                    self._chunks, self._decoded, self._schema = [], 0, schema
                new = self._payloads[self._decoded :]
            self._decode(schema, new, vs)
            count = len(there)
            times = [pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(column)]) for column in (vs, ve)]
            mask = pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(there)]).cast(pa.bool_())
            table = self._selected(schema, times, mask, at)
            self._cached = key, table
            return at, table

    def _decode(self, schema: Schema | None, payloads: list[bytes], starts: bytes) -> None:
        """Decode the payloads of new slots. A payload that is no row fails here until its slot is removed."""
        pa = import_pyarrow()
        if payloads:
            vs = memoryview(starts).cast("q")[self._decoded :]
            self._chunks.append(blamed_table(schema, payloads, vs))
            self._decoded += len(payloads)
        if len(self._chunks) > CHUNKS_MAX:
            self._chunks = [pa.concat_tables(self._chunks).combine_chunks()]

    def _selected(self, schema: Schema | None, times: list[Any], mask: Any, at: int) -> Any:
        pa = import_pyarrow()
        import pyarrow.compute as pc

        payloads = pa.concat_tables(self._chunks) if self._chunks else payload_schema(schema).empty_table()
        table = payloads
        for name, column in zip(TIME_COLUMNS, times):
            table = table.append_column(pa.field(name, pa.int64(), nullable=False), column)
        is_final = (pc.less if at < INF else pc.less_equal)(times[1], at)  # at the end, what never ends is final too
        table = table.append_column(pa.field(FINAL_COLUMN, pa.bool_(), nullable=False), is_final)
        bound = self._bound(at)
        if bound > NEG_INF:
            mask = pc.and_(mask, pc.greater_equal(times[1], bound))
        return table.filter(mask).sort_by([("vs", "ascending"), ("ve", "ascending")])

    def _bound(self, at: int) -> int:
        """Return the earliest end that is kept."""
        bound = NEG_INF if at == NEG_INF else max(NEG_INF, at - self._keep)
        return max(bound, self._kept_from)

    def _apply(self, rows: list[Row]) -> None:
        slots, starts, ends, there, payloads = self._slots, self._vs, self._ve, self._there, self._payloads
        for kind, vs, ve, vold, payload in rows:
            at = slots.get((vs, payload))
            if kind == ADJUST:
                assert at is not None, "an adjust of an event that the stream has not inserted"
                slot = next(slot for slot in at if ends[slot] == vold)
                if ve > vs:
                    ends[slot] = ve
                    continue
                there[slot] = 0
                at.remove(slot)
                if not at:
                    del slots[vs, payload]
            elif ve > vs:
                if at is None:
                    slots[vs, payload] = [len(there)]
                else:
                    at.append(len(there))
                starts.append(vs)
                ends.append(ve)
                there.append(1)
                payloads.append(payload)

    def _sweep(self) -> None:
        """Remove the slots of events that are gone or ended too long ago. O(slots), once per as many elements."""
        self._forget_by_number()
        bound = self._bound(self.at)
        ends, there = self._ve, self._there
        kept = [slot for slot in range(len(there)) if there[slot] and ends[slot] >= bound]
        self._vs = array("q", [self._vs[slot] for slot in kept])
        self._ve = array("q", [ends[slot] for slot in kept])
        self._payloads = [self._payloads[slot] for slot in kept]
        self._there = bytearray(b"\1" * len(kept))
        self._slots = {}
        for slot, (vs, payload) in enumerate(zip(self._vs, self._payloads)):
            self._slots.setdefault((vs, payload), []).append(slot)
        self._sweep_at = 2 * len(kept) + EMPTY_MAX
        if self._chunks:
            pa = import_pyarrow()
            decoded = [slot for slot in kept if slot < self._decoded]
            self._chunks = [pa.concat_tables(self._chunks).take(pa.array(decoded, pa.int64())).combine_chunks()]
            self._decoded = len(decoded)
        self._cached = None, None

    def _forget_by_number(self) -> None:
        """Raise the bound if more ended events are kept than ``keep_events_max``."""
        at, bound = self.at, self._bound(self.at)
        ended = sorted(ve for ve, is_there in zip(self._ve, self._there) if is_there and bound <= ve < at)
        if len(ended) > self._keep_events_max:
            self._kept_from = ended[len(ended) - self._keep_events_max] if self._keep_events_max else at
