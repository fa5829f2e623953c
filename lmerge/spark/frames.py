"""Frames: batches of elements as single values in rows of Spark, in the message by which a publisher sends them.

Called by ``merging``, ``sink``, ``source`` and ``spool``. A merge writes frames and, in place of stables, the report of
each of its shards; the stable of a batch is the least of them, which the reader of the frames finds (``least``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from google.protobuf.message import DecodeError

from lmerge.core.batch import AnyBatch, Batch
from lmerge.core.engines import selection
from lmerge.errors import InvalidBatch, LimitExceeded
from lmerge.wire.engine_frames import frames_of
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import UNLIMITED

REPORT: Final = pa.struct([("before", pa.int64()), ("stable", pa.int64()), ("shards", pa.int32())])
REPORT_DDL: Final = "struct<before: bigint, stable: bigint, shards: int>"


class Report(NamedTuple):
    """How far a shard of a merge has come in a batch. ``before``: its last report. ``shards``: how many report."""

    before: int
    stable: int
    shards: int


def least(reports: Sequence[Report]) -> int | None:
    """Return the new stable point that the reports of one batch make; None if there is none."""
    if not reports or len(reports) < reports[0].shards:
        return None
    stable = min(report.stable for report in reports)
    return stable if stable > min(report.before for report in reports) else None


def frame(batches: Sequence[AnyBatch]) -> bytes:
    """Return batches as one frame: the message by which a publisher sends them."""
    return frames_of(selection.best()).encode_publish(1, batches)


def from_frame(data: bytes) -> AnyBatch:
    """Return the batch of a frame. Raises InvalidBatch."""
    try:
        received: Any = frames_of(selection.best()).read_publish(data)
        if isinstance(received, pb.PublishRequest):
            raise InvalidBatch("the frame holds no batch")
        batch: AnyBatch = received.decode(UNLIMITED)
    except (DecodeError, LimitExceeded) as problem:
        raise InvalidBatch(f"the frame cannot be read: {problem}") from problem
    return batch


def arrays_of(batch: AnyBatch) -> list[Any]:
    """Return a batch as arrays of Arrow: kind, vs, ve, vold, payload."""
    if isinstance(batch, Batch):
        return [
            pa.array(batch.kinds, pa.uint8()),
            pa.array(batch.vs, pa.int64()),
            pa.array(batch.ve, pa.int64()),
            pa.array(batch.vold, pa.int64()),
            pa.array(batch.payloads, pa.binary()),
        ]
    from lmerge import _native
    from lmerge.core.engines.native_engine import columns_of

    return list(pa.record_batch(_native.element_columns(columns_of("frame", batch))).columns)
