"""Keeps the record of a stream: the manifests of its committed batches, and the snapshot before the first of them.

Called by the other modules of the package. The state after batch N is a function of the snapshot and the manifests up
to N. Only one driver writes manifests, which Spark's checkpoint ensures; so it reads them once and keeps them. An
executor calls ``manifest`` and ``base_of`` alone, which then read the files each time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from lmerge.errors import UsageError
from lmerge.spark.spool.files import SpoolFiles
from lmerge.spark.spool.layout import MANIFESTS, SNAPSHOTS, batch_numbers, manifest_name, snapshot_name
from lmerge.spark.spool.manifest import Base, Manifest

SHARE_ADVICE: Final = (
    "the driver and all executors must see one folder; give checkpointLocation (or spool=) as the path or URI of a "
    "file system that they share"
)


class StreamRecord:
    """The committed batches in ``files``. Opening it reads nothing.

    Methods raise StoreDamaged, which names the file, if a committed file is missing or damaged; StoreFull if a file
    cannot be written; UsageError if a newer lmerge wrote it.
    """

    def __init__(self, files: SpoolFiles) -> None:
        self.files = files
        self._base: Base | None = None
        self._manifests: dict[int, Manifest] | None = None  # after the base; None: not read yet

    def __str__(self) -> str:
        return self.files.root

    # Of one batch, for executors too.

    def manifest(self, batch: int) -> Manifest | None:
        """Return the manifest of a batch, or None if it was not committed or is not kept any more."""
        if self._manifests is not None:
            return self._manifests.get(batch)
        return self._read_manifest(batch)

    def base_of(self, batch: int) -> Base | None:
        """Return the head of the snapshot of ``batch``, or None if there is no such snapshot."""
        name = snapshot_name(batch)
        if name.rpartition("/")[2] not in self.files.names(SNAPSHOTS):
            return None
        frames = self.files.read_frames(name, "live")
        try:
            base = Base.from_json(json.loads(frames[0]))
        except (IndexError, KeyError, TypeError, ValueError) as problem:
            raise self.files.damaged(name, f"it has no head: {problem!r}") from problem
        if base.batch != batch or base.messages != len(frames) - 1:
            raise self.files.damaged(name, f"its head is that of batch {base.batch} and {base.messages} messages")
        return base

    def newest_on_disk(self) -> Manifest | None:
        """Return the newest manifest that is there now, or None before the first."""
        numbers = batch_numbers(self.files.names(MANIFESTS), ".json")
        return self.manifest(numbers[-1]) if numbers else None

    # Of the whole stream, for the driver.

    @property
    def base(self) -> Base | None:
        """The head of the newest snapshot, which replaces all batches before the kept manifests."""
        self._loaded()
        return self._base

    @property
    def manifests(self) -> Mapping[int, Manifest]:
        """The manifests that are kept, by batch, in order."""
        return self._loaded()

    @property
    def newest(self) -> Manifest | None:
        """The manifest of the last committed batch."""
        manifests = self._loaded()
        return manifests[max(manifests)] if manifests else None

    @property
    def meta(self) -> Mapping[str, str] | None:
        """What identifies the recorded stream; None: nothing is recorded."""
        newest = self.newest
        if newest is not None:
            return newest.meta
        return None if self._base is None else self._base.meta

    def require(self, batch: int) -> None:
        """Raise UsageError if the stream before ``batch`` is not recorded."""
        manifests, before = self._loaded(), batch - 1
        if before != (-1 if self._base is None else self._base.batch) and before not in manifests:
            raise self.unrecorded(batch)

    def unrecorded(self, batch: int) -> UsageError:
        """Return the error for a query that continues with a batch before which the stream is not recorded."""
        now = StreamRecord(self.files)  # read afresh: the driver may have written since
        recorded = [*now.manifests, *([] if now.base is None else [now.base.batch])]
        if recorded:
            what = f"records the stream up to each of the batches {min(recorded)} to {max(recorded)}"
        else:
            what = (
                "is empty: either the query ran before without it, or the spool was removed, and the query needs "
                f"another checkpoint; or it is not one folder for all: {SHARE_ADVICE}"
            )
        return UsageError(f"cannot continue with batch {batch}: the spool {self} {what}")

    # What the driver writes.

    def write_manifest(self, manifest: Manifest) -> None:
        """Commit a batch. The manifests of later batches go first, the last one first: the batch is run again."""
        manifests, batch = self._loaded(), manifest.batch
        for later in sorted((number for number in manifests if number > batch), reverse=True):
            self.files.remove(manifest_name(later))
            del manifests[later]
        self.files.write_json(manifest_name(batch), "manifest", manifest.to_json())
        manifests[batch] = manifest

    def write_base(self, base: Base, messages: Sequence[bytes]) -> None:
        """Write a snapshot. It replaces the manifests up to its batch; their files are not read any more."""
        manifests = self._loaded()
        head = json.dumps(base.to_json()).encode()
        self.files.write_frames(snapshot_name(base.batch), "live", [head, *messages])
        self._base = base
        for number in [number for number in manifests if number <= base.batch]:
            del manifests[number]

    # Reading.

    def _loaded(self) -> dict[int, Manifest]:
        """Return the manifests after the base, by batch. They are read once."""
        if self._manifests is None:
            numbers = batch_numbers(self.files.names(SNAPSHOTS), ".snapshot")
            self._base = self.base_of(numbers[-1]) if numbers else None
            first = 0 if self._base is None else self._base.batch + 1
            found: dict[int, Manifest] = {}
            for number in batch_numbers(self.files.names(MANIFESTS), ".json"):
                if number < first:
                    continue
                manifest, expected = self._read_manifest(number), first + len(found)
                if manifest is None or number != expected:
                    lost = manifest_name(expected) if found or self._base else snapshot_name(number - 1)
                    raise self.files.damaged(lost, f"it is missing, and there is a manifest of batch {number}")
                found[number] = manifest
            self._manifests = found
        return self._manifests

    def _read_manifest(self, batch: int) -> Manifest | None:
        name = manifest_name(batch)
        body = self.files.read_json(name, "manifest")
        if body is None:
            return None
        try:
            manifest = Manifest.from_json(body)
        except (KeyError, TypeError, ValueError) as problem:
            raise self.files.damaged(name, f"it is not a manifest: {problem!r}") from problem
        if manifest.batch != batch:
            raise self.files.damaged(name, f"it is that of batch {manifest.batch}")
        return manifest
