"""Computes the live events of a recorded stream: the snapshot, and the batches after it.

Called by ``Spool.live_before`` when a query begins again, and by ``trimming`` when batches become a snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from lmerge.client.publish.engine_live_events import live_events
from lmerge.client.publish.live_events import LiveEvents
from lmerge.core.batch import AnyBatch, BatchBuilder
from lmerge.core.elements import NEG_INF, STABLE
from lmerge.spark.spool.layout import snapshot_name
from lmerge.spark.spool.part_files import read_elements, read_part
from lmerge.spark.spool.record import StreamRecord
from lmerge.wire.codec import slice_batch

if TYPE_CHECKING:
    from lmerge.client.publish.native_live_events import NativeLiveEvents

Live: TypeAlias = "LiveEvents | NativeLiveEvents"


def seed_after(record: StreamRecord, batch: int, from_: int) -> AnyBatch | None:
    """Return the events that are live after ``batch``, as inserts, and the stable point: a publisher's ``seed``.

    None if nothing was published. Events that end before ``from_`` and cannot change any more are left out.
    """
    live, stable = _fold(record, batch, from_)
    if not len(live) and stable == NEG_INF:
        return None
    prelude = live.prelude()
    if stable > NEG_INF:
        return prelude
    builder = BatchBuilder()
    builder.extend(prelude)
    builder.stable(NEG_INF)
    return live.own(builder.build())


def events_after(record: StreamRecord, batch: int, from_: int) -> AnyBatch:
    """Return the same events without a stable."""
    live, _ = _fold(record, batch, from_)
    events: AnyBatch = live.prelude()
    if events.count and events.kinds[-1] == STABLE:
        events = slice_batch(events, 0, events.count - 1)
    return events


def _fold(record: StreamRecord, batch: int, from_: int) -> tuple[Live, int]:
    """Return the live events after ``batch`` and the stable point."""
    live, stable, files, base = live_events(str(record)), NEG_INF, record.files, record.base
    if base is not None:
        name = snapshot_name(base.batch)
        for piece in read_elements(files, name, files.read_frames(name, "live")[1:]):
            live.apply_batch(live.own(piece))
        stable = base.stable_point
        if stable > NEG_INF:
            live.apply_row((STABLE, stable, 0, 0, b""))
    # Trimmed at the end only: an adjust may name an event that is frozen by now but was not when it was published.
    for number, manifest in sorted(record.manifests.items()):
        if number > batch:
            break
        for part in manifest.parts:
            for piece in read_part(files, part):
                live.apply_batch(live.own(piece))
        if manifest.stable is not None:
            stable = manifest.stable
            live.apply_row((STABLE, stable, 0, 0, b""))
    if from_ > NEG_INF:
        live.trim(from_)
    return live, stable
