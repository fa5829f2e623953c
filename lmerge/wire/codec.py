"""A core Batch to and from a wire Batch: columns to columns, no object per element.

Called by the service (decoding what publishers send, encoding what subscribers receive) and by the client (the
reverse). ``decode_batch`` checks everything: after it, the columns have one length, kinds are valid, payload ends are
in order, and what must be empty or zero is. What the elements *mean* is checked by the core.

Every column is converted in one call (``memoryview.cast``, ``array``, ``bytes.translate``). Checks that could need a
look at each element are one C-level pass; the offending element is searched only once it is certain that there is one.
bench/service measures it.

A batch of the native core has the wire's columns already: ``native_frames`` reads and writes it. For both kinds of
batches this module returns the size, and a part of a batch.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, compress
from typing import TYPE_CHECKING, Final, cast

from lmerge.core.batch import AnyBatch, Batch
from lmerge.core.elements import ADJUST, STABLE
from lmerge.errors import InvalidBatch, LimitExceeded
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import DEFAULT_LIMITS, ELEMENT_BYTES, MESSAGE_OVERHEAD_BYTES, BatchLimits

if TYPE_CHECKING:
    from lmerge._native import Columns

_KINDS: Final = bytes((0, ADJUST, STABLE))
_IS_STABLE: Final = bytes(kind == STABLE for kind in range(256))
_IS_NOT_ADJUST: Final = bytes(kind != ADJUST for kind in range(256))
_IS_LITTLE: Final = sys.byteorder == "little"
_INT64: Final = "q"
_UINT32: Final = "I"
_PAYLOADS_BYTES_MAX: Final = 2**32 - 1  # payload_ends are 32 bits wide


def decode_batch(message: pb.Batch, limits: BatchLimits = DEFAULT_LIMITS) -> Batch:
    """Return the core batch that ``message`` holds.

    Raises InvalidBatch, naming the column and the element, if the columns disagree; LimitExceeded if there are too
    many elements or a payload is too large.
    """
    kinds = message.kinds
    n = len(kinds)
    if n > limits.elements:
        raise LimitExceeded(f"a batch of {n} elements is above the limit of {limits.elements}")
    unknown = kinds.translate(None, _KINDS)
    if unknown:
        raise InvalidBatch(f"column kinds, element {kinds.index(unknown[:1])}: unknown kind {unknown[0]}")
    stables = kinds.count(STABLE)
    may_be_empty = stables == n
    vs = _times("vs", message.vs, n)
    ve = _times("ve", message.ve, n, may_be_empty=may_be_empty)
    vold = _times("vold", message.vold, n, may_be_empty=ADJUST not in kinds)
    payloads = _payloads(message.payload_ends, message.payloads, n, limits, may_be_empty=may_be_empty)
    if message.vold:
        _must_be_zero("vold", vold, kinds, _IS_NOT_ADJUST, "only an adjust has a Vold")
    if stables:
        _must_be_zero("ve", ve, kinds, _IS_STABLE, "a stable has no Ve")
        _must_be_zero("payloads", payloads, kinds, _IS_STABLE, "a stable has no payload")
    return Batch(kinds, vs, ve, vold, payloads)


def encode_batch(batch: Batch) -> pb.Batch:
    """Return the wire form of ``batch``. Raises InvalidBatch, naming the column and the element, if it has none."""
    kinds, vs, ve, vold, payloads = batch.kinds, batch.vs, batch.ve, batch.vold, batch.payloads
    n = len(kinds)
    for name, column in (("vs", vs), ("ve", ve), ("vold", vold), ("payloads", payloads)):
        if len(column) != n:
            raise InvalidBatch(f"column {name} has {len(column)} elements where kinds has {n}")
    message = pb.Batch(kinds=kinds, vs=_pack_times("vs", vs))
    if kinds.count(STABLE) != n:
        message.ve = _pack_times("ve", ve)
        message.payload_ends, message.payloads = _pack_payloads(payloads)
    if ADJUST in kinds:
        message.vold = _pack_times("vold", vold)
    return message


def split_batch(batch: AnyBatch, limits: BatchLimits = DEFAULT_LIMITS) -> Iterator[AnyBatch]:
    """Yield ``batch`` in pieces, in order, each of which fits into a message. An empty batch gives none.

    Raises LimitExceeded, before anything is yielded, if a single payload is above its limit.
    """
    if isinstance(batch, Batch):
        return _split_lists(batch, limits)
    columns = _columns(batch)
    if columns.payload_sizes[1] > limits.payload_bytes:
        sizes = map(len, columns.payloads)
        at, size = next((at, size) for at, size in enumerate(sizes) if size > limits.payload_bytes)
        raise LimitExceeded(_too_large(at, size, limits))
    return iter(columns.split(limits.elements, limits.message_bytes - MESSAGE_OVERHEAD_BYTES))


def concat_batches(batches: Sequence[Batch]) -> Batch:
    """Return the batches as one, in order."""
    if len(batches) == 1:
        return batches[0]
    vs: list[int] = []
    ve: list[int] = []
    vold: list[int] = []
    payloads: list[bytes] = []
    for batch in batches:
        vs += batch.vs
        ve += batch.ve
        vold += batch.vold
        payloads += batch.payloads
    return Batch(b"".join(batch.kinds for batch in batches), vs, ve, vold, payloads)


def _columns(batch: AnyBatch) -> Columns:
    """Return a batch of the native core as such; ``batch`` is not one of Python's lists."""
    assert not isinstance(batch, Batch)
    return cast("Columns", batch)


def _too_large(at: int, size: int, limits: BatchLimits) -> str:
    return f"the payload of element {at} has {size} bytes, above the limit of {limits.payload_bytes}"


def _split_lists(batch: Batch, limits: BatchLimits) -> Iterator[Batch]:
    n = len(batch.kinds)
    room = limits.message_bytes - MESSAGE_OVERHEAD_BYTES
    sizes = list(map(len, batch.payloads))
    if n and max(sizes) > limits.payload_bytes:
        at = next(i for i, size in enumerate(sizes) if size > limits.payload_bytes)
        raise LimitExceeded(_too_large(at, sizes[at], limits))
    if 0 < n <= limits.elements and sum(sizes) + n * ELEMENT_BYTES <= room:
        yield batch
        return
    start = used = 0
    for i, size in enumerate(sizes):
        used += size + ELEMENT_BYTES
        if i > start and (used > room or i - start == limits.elements):
            yield _slice_lists(batch, start, i)
            start, used = i, size + ELEMENT_BYTES
    if start < n:
        yield _slice_lists(batch, start, n)


def slice_batch(batch: AnyBatch, start: int, stop: int) -> AnyBatch:
    """Return the elements of ``batch`` from index ``start`` up to, not including, ``stop``."""
    return _slice_lists(batch, start, stop) if isinstance(batch, Batch) else _columns(batch).slice(start, stop)


def _slice_lists(batch: Batch, start: int, stop: int) -> Batch:
    kinds, vs, ve, vold, payloads = batch.kinds, batch.vs, batch.ve, batch.vold, batch.payloads
    return Batch(kinds[start:stop], vs[start:stop], ve[start:stop], vold[start:stop], payloads[start:stop])


def _times(name: str, data: bytes, n: int, *, may_be_empty: bool = False) -> list[int]:
    if not data and may_be_empty:
        return [0] * n
    if len(data) != 8 * n:
        raise InvalidBatch(f"column {name} has {len(data)} bytes where {n} elements need {8 * n}")
    if _IS_LITTLE:
        return memoryview(data).cast(_INT64).tolist()
    return _swapped(_INT64, data).tolist()


def _payloads(ends_data: bytes, data: bytes, n: int, limits: BatchLimits, *, may_be_empty: bool) -> list[bytes]:
    if not ends_data and may_be_empty:
        if data:
            raise InvalidBatch(f"column payloads has {len(data)} bytes, but column payload_ends is empty")
        return [b""] * n
    if len(ends_data) != 4 * n:
        raise InvalidBatch(f"column payload_ends has {len(ends_data)} bytes where {n} elements need {4 * n}")
    view = memoryview(ends_data).cast(_UINT32) if _IS_LITTLE else _swapped(_UINT32, ends_data)
    ends: list[int] = view.tolist()
    if ends != sorted(ends):  # linear for what is sorted already
        at = next(i for i in range(1, n) if ends[i] < ends[i - 1])
        raise InvalidBatch(f"column payload_ends, element {at}: {ends[at]} is less than {ends[at - 1]} before it")
    last = ends[-1] if ends else 0
    if last != len(data):
        raise InvalidBatch(f"column payload_ends ends at {last}, but column payloads has {len(data)} bytes")
    starts = [0, *ends]
    if last > limits.payload_bytes:
        for i, (start, end) in enumerate(zip(starts, ends, strict=False)):
            if end - start > limits.payload_bytes:
                raise LimitExceeded(
                    f"column payloads, element {i}: {end - start} bytes are above the limit of {limits.payload_bytes}"
                )
    return [data[start:end] for start, end in zip(starts, ends, strict=False)]  # starts is one longer


def _must_be_zero(name: str, column: list[int] | list[bytes], kinds: bytes, table: bytes, why: str) -> None:
    """Raise InvalidBatch unless elements whose kind maps to 1 in ``table`` are 0 or empty in ``column``."""
    if any(compress(column, kinds.translate(table))):
        at = next(i for i, kind in enumerate(kinds) if table[kind] and column[i])
        raise InvalidBatch(f"column {name}, element {at}: {why}, but {column[at]!r:.64} came")


def _pack_times(name: str, column: list[int]) -> bytes:
    try:
        packed = array(_INT64, column)
    except (OverflowError, TypeError) as error:
        at = next(i for i, t in enumerate(column) if not (isinstance(t, int) and -(2**63) <= t < 2**63))
        raise InvalidBatch(f"column {name}, element {at}: {column[at]!r:.64} is not a 64-bit integer") from error
    if not _IS_LITTLE:
        packed.byteswap()
    return packed.tobytes()


def _pack_payloads(payloads: list[bytes]) -> tuple[bytes, bytes]:
    try:
        joined = b"".join(payloads)
    except TypeError as error:
        at = next(i for i, p in enumerate(payloads) if not isinstance(p, (bytes, bytearray, memoryview)))
        raise InvalidBatch(f"column payloads, element {at}: {type(payloads[at]).__name__} is not bytes") from error
    if len(joined) > _PAYLOADS_BYTES_MAX:
        raise LimitExceeded(f"{len(joined)} bytes of payloads do not fit into one batch; split it")
    ends = array(_UINT32, accumulate(map(len, payloads)))
    if not _IS_LITTLE:
        ends.byteswap()
    return ends.tobytes(), joined


def _swapped(typecode: str, data: bytes) -> array[int]:
    column = array(typecode, data)
    column.byteswap()
    return column
