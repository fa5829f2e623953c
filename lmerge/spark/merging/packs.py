"""Packs: elements between the steps of a merge in Spark. Whole columns as bytes, never one row per element.

==========  =========================================================================================================
``Pack``    what one input sends to one shard: a frame, a table or a report
frame       inserts, adjusts and stables in the columns of the wire, as the core takes them; their orders are beside it
table       the columns order, kind, vs, ve, vold, payload. The kinds are those of the wire, and those below
report      how far a shard of the merge that is this input has come: the stable of a batch is the least of them
==========  =========================================================================================================

With the native core, rows become frames, and only rows that are no inserts, adjusts or stables come in tables. The
engine in Python makes tables of all rows.

Some rows go to all shards: a stable, the attaching and leaving of an input, and a row that is no element. So all shards
receive them at the same place of the input, and end an input together where they can.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lmerge.core.batch import AnyBatch, Batch
from lmerge.core.elements import ADJUST, INF, NEG_INF, STABLE, Stable
from lmerge.core.engines import selection
from lmerge.spark.frames import Report, arrays_of, frame, from_frame, least
from lmerge.spark.sink import columns

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
        ("shard", pa.int32()),
        ("input", pa.int32()),
        ("form", pa.int8()),
        ("concerns_all", pa.bool_()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("orders", pa.binary()),
        ("elements", pa.binary()),
        ("place", pa.string()),
    ]
)
# The forms of a pack.
FRAME: Final = 0
TABLE_FORM: Final = 1
REPORT: Final = 2
_NO_PAYLOAD: Final = pa.scalar(b"", pa.binary())
_ZERO: Final = pa.scalar(0, pa.int64())


@dataclass(frozen=True)
class Pack:
    """Elements of one input for one shard, in order.

    ``first``, ``last``: the bounds of their orders. ``orders``: eight bytes for each element of a frame. ``place``: the
    place of the bytes, if they are in a file (``pack_files``). ``concerns_all``: all shards receive an element of it.
    """

    shard: int
    input: int
    form: int
    concerns_all: bool
    first: int
    last: int
    orders: bytes
    elements: bytes
    place: str | None = None

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self.orders) + len(self.elements)

    @property
    def sort_key(self) -> tuple[int, int, int, bytes, bytes]:
        """What packs of an input are sorted by, so that each attempt at a batch takes them in one sequence."""
        return self.first, self.last, self.form, self.orders, self.elements


@dataclass(frozen=True)
class MergeCall:
    """Elements of one input in their order: a frame with its batch, or a table.

    ``data``: its bytes. ``place``: where they are, if they are in a file.
    """

    data: bytes
    batch: AnyBatch | None
    table: Any = None
    place: str | None = None

    @property
    def count(self) -> int:
        """The number of elements, or of rows."""
        count: int = self.table.num_rows if self.batch is None else self.batch.count
        return count

    @classmethod
    def of_table(cls, table: Any) -> MergeCall:
        """Return the call with a table."""
        return cls(to_bytes(table), None, table)

    @classmethod
    def of_batch(cls, batch: AnyBatch) -> MergeCall:
        """Return the call with a batch."""
        return cls(frame([batch]), batch)

    @classmethod
    def read(cls, data: bytes, is_frame: bool, place: str | None = None) -> MergeCall:
        """Return the call with these bytes. Raises InvalidBatch."""
        return cls(data, from_frame(data), None, place) if is_frame else cls(data, None, from_bytes(data), place)


def record_batch(packs: Sequence[Pack]) -> Any:
    """Return packs as rows of ``PACKS``."""
    values = [[getattr(pack, field.name) for pack in packs] for field in PACKS]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(values, PACKS)], PACKS.names
    )


def packs_of(rows: Any) -> list[Pack]:
    """Return rows of ``PACKS`` as packs."""
    return [Pack(**row) for row in rows.to_pylist()]


def packs_of_table(table: Any, number: int, shards: int) -> list[Pack]:
    """Return the packs of a table of one input, by shard."""
    table = _without_empty_stables(table)
    kind = table.column("kind")
    # Malformed rows go to all shards as well: each shard finds them, and the input ends in all shards.
    backwards = pc.and_(pc.less(kind, STABLE), pc.less(table.column("ve"), table.column("vs")))
    to_all = pc.or_(pc.greater_equal(kind, STABLE), backwards)
    concerns_all = bool(pc.any(to_all).as_py())
    shard = pa.array([shard_of(payload, shards) for payload in table.column("payload").to_pylist()], pa.int32())
    packs = []
    for at in range(shards):
        piece = table.filter(pc.or_(to_all, pc.equal(shard, at)))
        if piece.num_rows:
            first, last = bounds(piece) or (NEG_INF, NEG_INF)
            packs.append(Pack(at, number, TABLE_FORM, concerns_all, first, last, b"", to_bytes(piece)))
    return packs


def packs_of_report(report: Report, number: int, shards: int, order: int) -> list[Pack]:
    """Return the packs of a report, which all shards receive."""
    data = json.dumps(report).encode()
    return [Pack(shard, number, REPORT, True, order, order, b"", data) for shard in range(shards)]


def shard_of(payload: bytes, shards: int) -> int:
    """Return the shard of a payload: the same in every process, on either engine."""
    return zlib.crc32(payload) % shards


def bounds(table: Any) -> tuple[int, int] | None:
    """Return the least and the largest order in a table; None if no row has one."""
    orders = table.column("order").filter(pc.not_equal(table.column("kind"), MALFORMED))
    found = pc.min_max(orders).as_py()
    return None if found["min"] is None else (found["min"], found["max"])


def malformed(order: int, reason: str) -> Any:
    """Return the table of a row that is no element."""
    return pa.table([[order], [MALFORMED], [0], [0], [0], [reason.encode()]], schema=TABLE)


def elements_table(rows: Any, has_order: bool) -> Any:
    """Return rows of one input as ``TABLE``. A row that is no element becomes MALFORMED, with the reason."""
    kind_names = rows.column("kind")
    if pa.types.is_dictionary(kind_names.type):
        kind_names = kind_names.cast(pa.string())
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


def calls_of(packs: Sequence[Pack], has_order: bool) -> list[MergeCall]:
    """Return the elements of one input in one batch, by their order, or else inserts, adjusts, stables.

    Frames whose orders do not overlap stay as they are, one after another. Reports come last, as a stable.
    """
    given = sorted((pack for pack in packs if pack.form != REPORT), key=lambda pack: pack.sort_key)
    calls = _calls_in_order(given, has_order) if given else []
    stable = least([Report(*json.loads(pack.elements)) for pack in packs if pack.form == REPORT])
    return calls if stable is None else [*calls, MergeCall.of_batch(Batch.of([Stable(stable)]))]


def _calls_in_order(packs: Sequence[Pack], has_order: bool) -> list[MergeCall]:
    is_sequence = all(before.last <= after.first for before, after in pairwise(packs)) and (
        has_order or len(packs) == 1
    )
    has_table = any(pack.form == TABLE_FORM for pack in packs)
    if has_table or (not is_sequence and selection.best() != selection.NATIVE):
        return [MergeCall.of_table(joined([_table_of(pack) for pack in packs], has_order))]
    calls = [MergeCall.read(pack.elements, True, pack.place) for pack in packs]
    if is_sequence:
        return calls
    from lmerge.spark.merging import native_packs

    batch = native_packs.in_order([(call.batch, pack.orders) for call, pack in zip(calls, packs)], has_order)
    return [MergeCall.of_batch(batch)]


def joined(tables: list[Any], has_order: bool) -> Any:
    """Return the rows of several tables by their order, or else inserts, adjusts, stables."""
    table = pa.concat_tables(tables).combine_chunks()
    if not has_order:
        return table.take(pc.sort_indices(table, sort_keys=[("kind", "ascending"), ("vs", "ascending")]))
    order = table.column("order").combine_chunks()
    if len(order) > 1 and pc.any(pc.less(order.slice(1), order.slice(0, len(order) - 1))).as_py():
        table = table.take(pc.array_sort_indices(order)).combine_chunks()  # stable: equal ones stay as they came
    return table


# Bytes.


def to_bytes(table: Any) -> bytes:
    """Return a table in Arrow's stream format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write(table)
    return bytes(sink.getvalue())


def from_bytes(data: bytes) -> Any:
    """Return the table of ``to_bytes``, without copying its data."""
    return pa.ipc.open_stream(data).read_all()


# Batches and tables.


def batch_of(table: Any) -> AnyBatch:
    """Return a table that holds only elements as a batch of the core."""
    parts = [table.column(name).combine_chunks() for name in TABLE.names]
    _, kind, vs, ve, vold, payload = parts
    return columns.batch_of(columns.bytes_of(kind), vs, ve, vold, payload)


def table_of(batch: AnyBatch, orders: Any) -> Any:
    """Return a batch of the core as a table with these orders."""
    return pa.table([orders, *arrays_of(batch)], schema=TABLE)


def without_stables(batch: AnyBatch) -> AnyBatch:
    """Return the inserts and adjusts of a batch."""
    if batch.counts(batch.count)[2] == 0:
        return batch
    if isinstance(batch, Batch):
        return Batch.of([element for element, kind in zip(batch.elements(), batch.kinds) if kind != STABLE])
    from lmerge.spark.merging import native_packs

    return native_packs.without_stables(batch)


def _without_empty_stables(table: Any) -> Any:
    """Return a table without stable(-inf), by which another merge reports only that one of its inputs has ended."""
    is_stable = pc.equal(table.column("kind"), STABLE)
    return table.filter(pc.invert(pc.and_(is_stable, pc.equal(table.column("vs"), NEG_INF))))


def _table_of(pack: Pack) -> Any:
    if pack.form == TABLE_FORM:
        return from_bytes(pack.elements)
    batch = from_frame(pack.elements)
    orders = pa.Array.from_buffers(pa.int64(), batch.count, [None, pa.py_buffer(pack.orders)])
    return table_of(batch, orders)


def _blamed(table: Any, mask: Any, kind_names: Any, template: str) -> Any:
    """Return the table, with MALFORMED where ``mask`` is true."""
    kinds, payloads = table.column("kind").to_pylist(), table.column("payload").to_pylist()
    for at, is_wrong in enumerate(mask.to_pylist()):
        if is_wrong:
            kinds[at], payloads[at] = MALFORMED, template.format(kind=kind_names[at].as_py()).encode()
    table = table.set_column(1, TABLE.field("kind"), pa.array(kinds, pa.uint8()))
    return table.set_column(5, TABLE.field("payload"), pa.array(payloads, pa.binary()))
