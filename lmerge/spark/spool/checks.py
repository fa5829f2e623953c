"""Checks what a driver commits: that it is the recorded stream, and that the parts are whole and in one folder.

Called by ``Spool``. Every function raises UsageError with advice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from lmerge.errors import UsageError
from lmerge.spark.spool.files import SpoolFiles
from lmerge.spark.spool.manifest import Manifest, SpoolPart
from lmerge.spark.spool.part_files import files_of
from lmerge.spark.spool.record import SHARE_ADVICE, StreamRecord

# The identity of a stream: all its manifests agree on these fields.
IDENTITY: Final = ("query", "merge", "replica", "mode", "schema", "keys")
_ADVICE: Final = {
    "query": "each query needs a spool of its own; if the checkpoint was removed on purpose, remove the spool as well",
    "schema": "all payloads of one stream are of one schema: begin anew, with another checkpoint",
}


def check_identity(record: StreamRecord, meta: Mapping[str, str]) -> None:
    """Raise UsageError if another stream than that of ``meta`` is recorded."""
    recorded = record.meta
    if recorded is None:
        return
    for field in IDENTITY:
        if field in meta and field in recorded and meta[field] != recorded[field]:
            advice = _ADVICE.get(field, "two streams need two checkpoints")
            raise UsageError(
                f"the spool {record} holds a stream whose {field} is {recorded[field]!r:.400}, and this one's is "
                f"{meta[field]!r:.400}: {advice}"
            )


def check_shared(files: SpoolFiles, parts: Iterable[SpoolPart]) -> None:
    """Raise UsageError if an executor's file is not in this folder: executors and driver use different folders."""
    name = files.first_missing(name for part in parts for name in files_of(part))
    if name is not None:
        raise UsageError(f"an executor has written {files.path(name)}, and the driver does not see it: {SHARE_ADVICE}")


def parts_in_order(
    record: StreamRecord, batch: int, parts: Sequence[SpoolPart], before: Manifest | None
) -> tuple[SpoolPart, ...]:
    """Return the parts in order of partition. Partitions without a part keep the state that they had ``before``.

    Raises UsageError if a part is of another batch or comes twice, or if the number of partitions has changed.
    """
    by_partition: dict[int, SpoolPart] = {}
    for part in parts:
        if part.batch != batch:
            raise UsageError(f"cannot commit batch {batch} in {record}: a part is of batch {part.batch}")
        if part.partition in by_partition:
            raise UsageError(f"cannot commit batch {batch} in {record}: partition {part.partition} came twice")
        by_partition[part.partition] = part
    keyed = {part.partition: part for part in before.parts if part.keyed_state} if before else {}
    absent = [partition for partition in keyed if partition not in by_partition]
    if before is not None and absent and any(part.elements for part in parts):
        raise repartitioned(record, before, f"{len(parts)} without number {absent[0]}")
    for partition in absent:
        by_partition[partition] = SpoolPart(batch, partition, 0, keyed_state=keyed[partition].keyed_state)
    return tuple(by_partition[partition] for partition in sorted(by_partition))


def repartitioned(record: StreamRecord, manifest: Manifest, now: str) -> UsageError:
    """Return the error for a keyed stream whose number of partitions has changed."""
    return UsageError(
        f"the spool {record} holds the keyed state of {len(manifest.parts)} partitions up to batch "
        f"{manifest.batch}, and now there is {now}: the number of partitions of a keyed stream is fixed; begin "
        "with another checkpoint to change it"
    )
