"""Packs: elements between the steps of a merge in Spark. Whole columns as Arrow's bytes, never one row per element.

==========  =========================================================================================================
``pack``    from rows of elements, as Spark has them, to packs: what one input sends to one shard, in a table
``table``   the columns order, kind, vs, ve, vold, payload. The kinds are those of the wire, and those below
``output``  what a shard emits, on its way to the rows that the query gives
==========  =========================================================================================================

Some rows go to all shards: a stable, the attaching and leaving of an input, and a row that is no element. So all shards
receive them at the same place of the input, and end an input together where they can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lmerge.core.batch import AnyBatch, Batch
from lmerge.core.elements import ADJUST, INF, NEG_INF, STABLE
from lmerge.core.engines.selection import NATIVE
from lmerge.spark.sink import columns
from lmerge.wire.engine_frames import frames_of
from lmerge.wire.generated import lmerge_pb2 as pb

# Kinds beyond those of elements.
ATTACH: Final = 3  # a new life of the input; Vs: from when on it is right, null: always
DETACH: Final = 4  # the input leaves
MALFORMED: Final = 5  # no element; the payload is the reason

KIND_NAMES: Final = ("insert", "adjust", "stable", "attach", "detach")  # in the order of their numbers
TABLE: Final = pa.schema(
    [
        ("order", pa.int64()),
        ("kind", pa.uint8()),
        ("vs", pa.int64()),
        ("ve", pa.int64()),
        ("vold", pa.int64()),
        ("payload", pa.binary()),
    ]
)
PACKS: Final = pa.schema(
    [
        ("lane", pa.int32()),
        ("shard", pa.int32()),
        ("input", pa.int32()),
        ("concerns_all", pa.bool_()),
        ("elements", pa.binary()),
    ]
)
_NO_PAYLOAD: Final = pa.scalar(b"", pa.binary())
_ZERO: Final = pa.scalar(0, pa.int64())


@dataclass(frozen=True)
class Packer:
    """Turns record batches (input, shard, order, kind, payload, vs, ve, vold) into packs, for ``mapInArrow``.

    ``lanes``: the number by which Spark groups each shard. ``has_order``: the column of order has values.
    """

    lanes: tuple[int, ...]
    has_order: bool

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for rows in batches:
            for number in pc.unique(rows.column("input")).to_pylist():
                own = rows.filter(pc.and_not(pc.equal(rows.column("input"), number), _is_empty_stable(rows)))
                yield self._packs(number, own)

    def _packs(self, number: int, rows: Any) -> Any:
        table = elements_table(rows, self.has_order)
        kind, shard = table.column("kind"), rows.column("shard")
        # Malformed rows go to all shards as well: each shard finds them, and the input ends in all shards.
        backwards = pc.and_(pc.less(kind, STABLE), pc.less(table.column("ve"), table.column("vs")))
        to_all = pc.or_(pc.greater_equal(kind, STABLE), backwards)
        concerns_all = bool(pc.any(to_all).as_py())
        packs: list[tuple[int, int, int, bool, bytes]] = []
        for at, lane in enumerate(self.lanes):
            piece = table
            if len(self.lanes) > 1:
                piece = table.filter(pc.or_(to_all, pc.fill_null(pc.equal(shard, at), False)))
            # The first shard receives every batch, so that it notices a state of other settings (``shard``).
            if piece.num_rows or at == 0:
                packs.append((lane, at, number, concerns_all, to_bytes(piece)))
        return pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(zip(*packs), PACKS)], schema=PACKS
        )


def elements_table(rows: Any, has_order: bool) -> Any:
    """Return rows of one input as ``TABLE``. A row that is no element becomes MALFORMED, with the reason."""
    kind_names = rows.column("kind")
    index = pc.index_in(kind_names, value_set=pa.array(KIND_NAMES))
    kind = pc.fill_null(index, MALFORMED).cast(pa.uint8())
    vs, ve, vold, payload = (rows.column(name) for name in ("vs", "ve", "vold", "payload"))
    order = rows.column("order")
    is_event = pc.less(kind, STABLE)
    problems = [
        (pc.is_null(index), "kind {kind!r} is none of " + ", ".join(KIND_NAMES)),
        (pc.and_(pc.is_null(vs), pc.less_equal(kind, STABLE)), "{kind} without vs"),
        (pc.and_(pc.is_null(payload), is_event), "{kind} without a payload"),
    ]
    if has_order:
        problems.append((pc.is_null(order), "{kind} without an order"))
    else:
        problems.append((pc.greater(index, STABLE), "{kind} in an input without a column of order"))
    ends, olds = pc.fill_null(ve, INF), pc.fill_null(vold, INF)
    table = pa.table(
        [
            pc.fill_null(order, 0) if has_order else pa.repeat(_ZERO, len(kind)),
            kind,
            # The kind separates a null from a time: only an attach may lack ``vs``, and its ``ve`` records that.
            pc.fill_null(vs, 0),
            pc.if_else(pc.equal(kind, ATTACH), pc.is_valid(vs).cast(pa.int64()), pc.if_else(is_event, ends, _ZERO)),
            pc.if_else(pc.equal(kind, ADJUST), olds, _ZERO),
            pc.if_else(is_event, payload, _NO_PAYLOAD),
        ],
        schema=TABLE,
    )
    for mask, template in problems:
        if pc.any(mask).as_py():
            table = _blamed(table, pc.fill_null(mask, False), kind_names, template)
    return table.combine_chunks()


def to_bytes(table: Any) -> bytes:
    """Return a table in Arrow's stream format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write(table)
    return bytes(sink.getvalue())


def from_bytes(data: bytes) -> Any:
    """Return the table of ``to_bytes``, without copying its data."""
    return pa.ipc.open_stream(data).read_all()


def joined(tables: list[Any], has_order: bool) -> Any:
    """Return the rows of one input in one batch, by its column of order, or else inserts, adjusts, stables."""
    table = pa.concat_tables(tables).combine_chunks()
    if not has_order:
        return table.take(pc.sort_indices(table, sort_keys=[("kind", "ascending"), ("vs", "ascending")]))
    order = table.column("order").combine_chunks()
    if len(order) > 1 and pc.any(pc.less(order.slice(1), order.slice(0, len(order) - 1))).as_py():
        table = table.take(pc.array_sort_indices(order)).combine_chunks()  # stable: equal ones stay as they came
    return table


def batch_of(table: Any) -> AnyBatch:
    """Return a table that holds only elements as a batch of the core."""
    parts = [table.column(name).combine_chunks() for name in TABLE.names]
    _, kind, vs, ve, vold, payload = parts
    return columns.batch_of(_bytes_of(kind), vs, ve, vold, payload)


def table_of(batch: AnyBatch, first: int) -> Any:
    """Return a batch of the core as a table without its stables; ``order`` counts from ``first``."""
    if isinstance(batch, Batch):
        arrays = [
            pa.array(batch.kinds, pa.uint8()),
            pa.array(batch.vs, pa.int64()),
            pa.array(batch.ve, pa.int64()),
            pa.array(batch.vold, pa.int64()),
            pa.array(batch.payloads, pa.binary()),
        ]
    else:
        # The native core's columns are those of the wire: no object per element is made here.
        message = pb.SubscribeResponse.FromString(frames_of(NATIVE).encode_subscribe([batch])).batch
        arrays = _arrays_of(message)
    order = pa.array(range(first, first + batch.count), pa.int64())
    table = pa.table([order, *arrays], schema=TABLE)
    return table.filter(pc.not_equal(table.column("kind"), STABLE)).combine_chunks()


def _is_empty_stable(rows: Any) -> Any:
    """Find stable(-inf), the row by which another merge reports only that one of its inputs has ended."""
    is_stable = pc.fill_null(pc.equal(rows.column("kind"), KIND_NAMES[STABLE]), False)
    return pc.and_(is_stable, pc.fill_null(pc.equal(rows.column("vs"), NEG_INF), False))


def _arrays_of(message: pb.Batch) -> list[Any]:
    count = len(message.kinds)
    zeros = bytes(8 * count)
    times = [
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(column or zeros)])
        for column in (message.vs, message.ve, message.vold)
    ]
    ends = b"\0\0\0\0" + (message.payload_ends or bytes(4 * count))
    payload = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(message.payloads)])
    kind = pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(message.kinds)])
    return [kind, *times, payload]


def _bytes_of(kinds: Any) -> bytes:
    data = kinds.buffers()[1]
    return b"" if data is None else bytes(memoryview(data)[kinds.offset : kinds.offset + len(kinds)])


def _blamed(table: Any, mask: Any, kind_names: Any, template: str) -> Any:
    """Return the table, with MALFORMED where ``mask`` is true."""
    kinds, payloads = table.column("kind").to_pylist(), table.column("payload").to_pylist()
    for at, is_wrong in enumerate(mask.to_pylist()):
        if is_wrong:
            kinds[at], payloads[at] = MALFORMED, template.format(kind=kind_names[at].as_py()).encode()
    table = table.set_column(1, TABLE.field("kind"), pa.array(kinds, pa.uint8()))
    return table.set_column(5, TABLE.field("payload"), pa.array(payloads, pa.binary()))
