"""Removes what is not needed any more: it folds old batches into a snapshot, and sweeps the files that nothing names.

Called by ``Spool.trim``. ``retention`` decides what can go. The snapshot is written first. The files that it replaces
are then removed in any order, because they are not read any more; a driver that dies in between leaves them to the
next one. Orphans, the files of attempts that no manifest names, go with their batch's folder.
"""

from __future__ import annotations

from lmerge.core.elements import NEG_INF
from lmerge.spark.spool.layout import BATCHES, MANIFESTS, SNAPSHOTS, number_of, snapshot_name, state_folder
from lmerge.spark.spool.live_events import events_after
from lmerge.spark.spool.manifest import Base, PublishedStateRef
from lmerge.spark.spool.part_files import PartSummary, messages_of
from lmerge.spark.spool.record import StreamRecord
from lmerge.spark.spool.retention import KEPT_BATCHES, Cut, cut_of


class Trimming:
    """Trims one spool, for its driver. Raises what ``record`` raises."""

    def __init__(self, record: StreamRecord) -> None:
        self._record = record
        self._is_swept = False
        self._oldest_files: dict[int, str] = {}  # of the keyed states, by partition: older files are removed

    def trim(self, merge_stable: int) -> None:
        """Remove what is not needed once the merge is stable at ``merge_stable``. Most calls do nothing."""
        manifests = self._record.manifests
        cut = cut_of(self._record.base, [manifests[number] for number in sorted(manifests)], merge_stable)
        if cut is not None:
            self._fold(cut, merge_stable)
        if cut is not None or not self._is_swept:
            self._sweep_batches()
            self._is_swept = True
        self._sweep_states()

    def _fold(self, cut: Cut, merge_stable: int) -> None:
        """Replace all batches up to the cut by one snapshot."""
        record, base = self._record, self._record.base
        last = record.manifests[cut.batch]
        complete_from = last.skipped
        largest = max(one.largest_end for number, one in record.manifests.items() if number <= cut.batch)
        if base is not None:
            complete_from, largest = max(complete_from, base.complete_from), max(largest, base.largest_end)
        summary = PartSummary()
        messages: list[bytes] = []
        if cut.folds:
            complete_from = max(complete_from, min(merge_stable, last.stable_point))
            messages = list(messages_of([events_after(record, cut.batch, complete_from)], summary))
        elif largest > NEG_INF:
            complete_from = max(complete_from, largest + 1)
        record.write_base(
            Base(
                cut.batch,
                last.stable_point,
                complete_from,
                summary.messages,
                summary.elements,
                summary.largest_end,
                summary.ends,
                last.meta,
            ),
            messages,
        )

    def _sweep_batches(self) -> None:
        """Remove the files that the snapshot replaces, and orphans of the same batches."""
        files, base = self._record.files, self._record.base
        last = -1 if base is None else base.batch
        for folder in (MANIFESTS, SNAPSHOTS):
            for name in files.names(folder):
                number = number_of(name)
                if number is not None and number <= last and f"{folder}/{name}" != snapshot_name(last):
                    files.remove(f"{folder}/{name}")
        for name in files.names(BATCHES):
            if name.isdigit() and int(name) <= last:
                files.remove_folder(f"{BATCHES}/{name}")

    def _sweep_states(self) -> None:
        """Remove the files of keyed states with which no batch that can be run again begins."""
        files, manifests = self._record.files, self._record.manifests
        first: dict[int, PublishedStateRef] = {}
        for number in sorted(manifests)[-KEPT_BATCHES:]:
            for part in manifests[number].parts:
                state = part.keyed_state
                if state is not None and state.since <= first.get(part.partition, state).since:
                    first[part.partition] = state
        for partition, ref in first.items():
            if self._oldest_files.get(partition) == ref.whole:
                continue
            folder = state_folder(partition)
            for base in files.names(folder):
                version, name = number_of(base), f"{folder}/{base}"
                if version is not None and (version < ref.since or (version == ref.since and name != ref.whole)):
                    files.remove(name)
            self._oldest_files[partition] = ref.whole
