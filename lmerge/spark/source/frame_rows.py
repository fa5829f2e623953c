"""Elements that a query reads of a merge, as frames: a row for many of them, which never becomes a row for each.

The order of a frame is the start of its range, that of the frame with the range's stable is its end. So orders never
fall from one batch of a query to the next, and the stable comes behind all else of its batch.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lmerge.core.batch import Batch
from lmerge.core.elements import ADJUST, INF, NEG_INF, Stable
from lmerge.spark.frames import frame
from lmerge.spark.sink import columns

ROWS: Final = pa.schema([("frame", pa.binary()), ("elements", pa.int32()), ("order", pa.int64())])
# Elements of one frame.
_FRAME: Final = 65_536
_KINDS: Final = ("insert", "adjust")


def frames_of(elements: Any, start: int, end: int, *, is_last: bool) -> Any:
    """Return rows of the envelope ``elements`` as rows of ``ROWS``; the stable at ``end`` is added if ``is_last``."""
    found: list[tuple[bytes, int, int]] = []
    order = max(start, NEG_INF + 1)  # a merge takes -inf for a row without an order
    for at in range(0, elements.num_rows, _FRAME):
        part = elements.slice(at, _FRAME).combine_chunks()
        kinds = columns.bytes_of(columns.numbered(part.to_batches()[0], "kind", _KINDS))
        vs, ve, vold, payload = (part.column(name).combine_chunks() for name in ("vs", "ve", "vold", "payload"))
        olds = pc.fill_null(vold, 0) if ADJUST in kinds else None
        found.append((frame([columns.batch_of(kinds, vs, pc.fill_null(ve, INF), olds, payload)]), part.num_rows, order))
    if is_last:
        found.append((frame([Batch.of([Stable(end)])]), 1, max(end, order)))
    if not found:
        return ROWS.empty_table()
    return pa.table([pa.array(column, field.type) for column, field in zip(zip(*found), ROWS)], schema=ROWS)


def element_count(table: Any) -> int:
    """Return the number of elements, or of other rows, in a table of any envelope."""
    if table.schema != ROWS:
        return int(table.num_rows)
    return int(pc.sum(table.column("elements")).as_py() or 0)
