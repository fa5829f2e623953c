"""Persists what a query has published, in files that driver and executors share. So a restart publishes nothing twice.

A Spark replica is one input of a merge. ``sink`` and ``skipping`` call ``Spool``. Its methods stand in the order in
which a batch passes them:

    a task begins    what the batches before have left: stable point, skip time, keyed state
    a task writes    a part: ``part_files``; the keyed state: ``published_state``
    the driver       a restarted one asks for the events that are live before the batch: ``live_events``
    commits          ``checks``, then the manifest: ``record``
    cleans up        files of failed attempts, and what no batch needs any more: ``retention``, ``trimming``

**Invariant.** The state after batch N is a function of the snapshot and the manifests up to N. All other files are
orphans until a manifest names them. Every operation consists of steps that each replace one file as a whole. The steps
are ordered so that a reader after any step finds either the state before the operation or the state after it:

    commit       parts and states are there; write the manifest
    again        (batch N is run again, and there may be later ones) remove later manifests, the last first; write N's
    trim         write the snapshot; then remove the files that it replaces, in any order: they are not read any more

Only one driver writes manifests, which Spark's checkpoint ensures. Many executors may write parts at once. The files
are those of ``layout``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from lmerge.core.batch import AnyBatch
from lmerge.core.elements import NEG_INF
from lmerge.spark.spool import part_files
from lmerge.spark.spool.checks import check_identity, check_shared, parts_in_order, repartitioned
from lmerge.spark.spool.files import SpoolFiles
from lmerge.spark.spool.layout import LIFE
from lmerge.spark.spool.live_events import seed_after
from lmerge.spark.spool.manifest import Base, Manifest, PublishedStateRef, SpoolPart
from lmerge.spark.spool.record import StreamRecord
from lmerge.spark.spool.trimming import Trimming


class Spool:
    """The spool at ``place``, a path or URI. Opening it reads and writes nothing.

    Every method raises StoreDamaged, which names the file, if a committed file is missing or damaged; StoreFull if a
    file cannot be written; UsageError if a newer lmerge wrote it. The driver's methods are for one thread.
    """

    def __init__(self, place: str | SpoolFiles) -> None:
        self.files = SpoolFiles.at(place) if isinstance(place, str) else place
        self.record = StreamRecord(self.files)
        self._trimming = Trimming(self.record)
        self._merge_stable = NEG_INF

    def __str__(self) -> str:
        return self.files.root

    # A task begins an attempt.

    def last_stable(self, batch: int) -> int:
        """Return the stable point published before ``batch``, -inf if there was none.

        Raises UsageError if the spool does not record it.
        """
        before = self._before(batch)
        return NEG_INF if before is None else before.stable_point

    def skips_to(self, batch: int) -> int:
        """Return the time before which ended events are left out of ``batch``, whenever it runs; -inf: none are.

        Raises UsageError if the spool does not record it.
        """
        before = self._before(batch)
        # A snapshot: an older batch than Spark runs again. To leave nothing out is always right.
        return before.skipped if isinstance(before, Manifest) else NEG_INF

    def skips_next(self) -> int:
        """Return the same for the batch after the newest committed one; -inf before the first."""
        manifest = self.record.newest_on_disk()
        return NEG_INF if manifest is None else manifest.skipped

    def state_ref(self, partition: int, version: int) -> PublishedStateRef | None:
        """Return where the keyed state of a partition after batch ``version`` is, or None if nothing was published.

        Raises UsageError if the spool does not record it, or if the number of partitions has changed.
        """
        if version < 0:
            return None
        manifest = self.record.manifest(version)
        if manifest is None:
            raise self.record.unrecorded(version + 1)
        for part in manifest.parts:
            if part.partition == partition:
                return part.keyed_state
        if any(part.keyed_state for part in manifest.parts):
            raise repartitioned(self.record, manifest, f"one with number {partition}")
        return None

    def _before(self, batch: int) -> Manifest | Base | None:
        """Return what records the stream up to the batch before; None: ``batch`` is the first one."""
        if batch == 0:
            return None
        before = self.record.manifest(batch - 1) or self.record.base_of(batch - 1)
        if before is None:
            raise self.record.unrecorded(batch)
        return before

    # The task writes what the rows make.

    def write_part(
        self,
        batch: int,
        partition: int,
        attempt: int,
        batches: Iterable[AnyBatch],
        on_message: Callable[[bytes], None] | None = None,
    ) -> SpoolPart:
        """Write the elements of an attempt as they come. They count once the part is committed.

        ``on_message`` receives each message as it is written. Raises UsageError if an element is a stable,
        LimitExceeded if a payload is too large.
        """
        return part_files.write_part(self.files, SpoolPart(batch, partition, attempt), batches, on_message)

    # The driver begins a publisher.

    def check(self, meta: Mapping[str, str]) -> None:
        """Raise UsageError if the spool holds another stream than that of ``meta``."""
        check_identity(self.record, meta)

    def newest_life(self) -> int:
        """Return the incarnation with which the newest publisher began; 0: there was none."""
        life = self.files.read_json(LIFE, "life")
        if life is None:
            return 0
        incarnation = life.get("incarnation")
        if type(incarnation) is not int:
            raise self.files.damaged(LIFE, f"its incarnation is {incarnation!r:.40}")
        return incarnation

    def begin_life(self, incarnation: int) -> None:
        """Note the incarnation of a publisher that begins: it may end before a manifest has it."""
        self.files.write_json(LIFE, "life", {"incarnation": incarnation})

    def complete_from(self, batch: int) -> int:
        """Return the time from which ``live_before(batch)`` is right.

        Raises UsageError if the spool does not record the batch before.
        """
        self.record.require(batch)
        base, before = self.record.base, self.record.manifest(batch - 1)
        return max(NEG_INF if base is None else base.complete_from, NEG_INF if before is None else before.complete_from)

    def live_before(self, batch: int) -> AnyBatch | None:
        """Return the events that were live before ``batch``: inserts and one stable, as a publisher's ``seed``.

        None if nothing was published. It is right for events that end at ``complete_from(batch)`` or later. Raises
        UsageError if the spool does not record the batch before.
        """
        return seed_after(self.record, batch - 1, self.complete_from(batch))

    # The driver commits the parts that won, and publishes them.

    def commit(
        self,
        batch: int,
        parts: Sequence[SpoolPart],
        stable: int | None,
        meta: Mapping[str, str],
        skipped: int = NEG_INF,
    ) -> Manifest:
        """Commit ``parts`` as the elements of the batch, and ``stable`` as its end. Return the manifest.

        ``stable`` of the manifest is what to publish: None if the stable point does not advance. ``skipped``: the
        batches after this one leave out events that end before it, as announced to the servers; it never decreases.

        ``meta`` identifies the stream. Raises UsageError if the spool holds another stream, if it does not record the
        batch before, or if parts were written to another folder because executors and driver do not share this one.
        """
        check_identity(self.record, meta)
        self.record.require(batch)
        check_shared(self.files, parts)
        base, before = self.record.base, self.record.manifest(batch - 1)
        point = before.stable_point if before else base.stable_point if base else NEG_INF
        advance = None if stable is None or stable <= point else stable
        manifest = Manifest(
            batch,
            parts_in_order(self.record, batch, parts, before),
            advance,
            point if advance is None else advance,
            self._merge_stable,
            max(skipped, before.skipped if before else NEG_INF),
            dict(meta),
        )
        self.record.write_manifest(manifest)
        return manifest

    def read_part(self, part: SpoolPart) -> list[AnyBatch]:
        """Return the elements of a part."""
        return part_files.read_part(self.files, part)

    # Cleaning up.

    def abort(self, batch: int, parts: Iterable[SpoolPart | None]) -> None:
        """Remove the files of failed attempts, except those that a manifest names."""
        manifest = self.record.manifest(batch)
        counts = {name for part in manifest.parts for name in part_files.files_of(part)} if manifest else set()
        for part in parts:
            for name in part_files.files_of(part) if part is not None else ():
                if name not in counts:
                    self.files.remove(name)

    def trim(self, stable_point: int) -> None:
        """Remove what is not needed once the merge is stable at ``stable_point`` (see ``retention``).

        Most calls do nothing. Now and then live events are written as a snapshot, and files are removed.
        """
        self._merge_stable = max(self._merge_stable, stable_point)
        self._trimming.trim(self._merge_stable)
