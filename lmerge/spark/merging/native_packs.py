"""Packs on the native core: rows of Arrow to frames for each shard in one pass, and merged elements to rows.

``packs`` is the definition. Importing this module imports the compiled core, so it is imported in functions only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lmerge import _native
from lmerge.core.batch import AnyBatch
from lmerge.core.engines.native_engine import columns_of
from lmerge.spark.frames import frame
from lmerge.spark.merging.packs import FRAME, Pack


def packs_of_rows(rows: Sequence[Any], number: int, shards: int, has_order: bool) -> list[Pack] | None:
    """Return the packs of record batches of one input; None if a row is no insert, adjust or stable."""
    packed = _native.pack_elements(rows, shards, has_order)
    return None if packed is None else _packs(packed, number)


def packs_of_frame(batch: AnyBatch, number: int, shards: int, order: int) -> list[Pack]:
    """Return the packs of a frame's batch, whose elements all have one order."""
    return _packs(_native.divide(_columns(batch), shards, order), number)


def in_order(batches: Sequence[tuple[AnyBatch | None, bytes]], has_order: bool) -> AnyBatch:
    """Return the elements of batches by the orders beside them, or else inserts, adjusts, stables."""
    return _native.in_order([(_columns(batch), orders) for batch, orders in batches if batch is not None], has_order)


def without_stables(batch: AnyBatch) -> AnyBatch:
    """Return the inserts and adjusts of a batch."""
    return _native.without_stables(_columns(batch))


def rows_of(batch: AnyBatch, shard: int, first: int) -> Any:
    """Return inserts and adjusts as a record batch of ``rows.ROWS``, whose orders count from ``first`` on."""
    rows = _native.element_rows(_columns(batch), shard, first)
    assert rows is not None, "a stable among the elements of a shard"
    return pa.record_batch(rows)


def _columns(batch: AnyBatch) -> _native.Columns:
    return columns_of("a pack", batch)


def _packs(packed: Any, number: int) -> list[Pack]:
    found, concerns_all = packed
    packs = []
    for shard, pack in enumerate(found):
        if pack is not None:
            columns, orders, first, last = pack
            packs.append(Pack(shard, number, FRAME, concerns_all, first, last, orders, frame([columns])))
    return packs
