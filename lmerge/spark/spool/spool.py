"""Persists what a query has published, in files that driver and executors share. So a restart publishes nothing twice.

A Spark replica is one input of a merge. Executors write the elements of a batch (``write_part``). The driver's sink
commits the batch (``commit``). A restarted driver asks for the events that were live before the batch that it runs
again (``live_before``). There is one folder for each query, beside its checkpoint::

    batches/<batch>/<partition>-<attempt>-<token>.part        element messages of one attempt
    said/<partition>/<batch>-<attempt>-<token>.delta|.whole   the keyed state: see ``published_state``
    manifests/<batch>.json                                    the parts that won, the stable, the stream's identity
    live/<batch>.snapshot                                     the live events after all batches up to this one

**Invariant.** The state after batch N is a function of the snapshot and the manifests up to N. All other files are
orphans until a manifest names them. Every operation consists of steps that each replace one file as a whole. The steps
are ordered so that a reader after any step finds either the state before the operation or the state after it:

    commit       parts and states are there; write the manifest
    again        (batch N is run again, and there may be later ones) remove later manifests, the last first; write N's
    trim         write the snapshot; then remove the files that it replaces, in any order: they are not read any more

Orphans are removed with their batch's folder when the batch is trimmed. Each attempt's files have unique names, so an
abandoned task that still writes cannot damage a committed file.

Only one driver writes manifests, which Spark's checkpoint ensures. Many executors may write parts at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from lmerge.client.publish.engine_live_events import live_events
from lmerge.client.publish.live_events import LiveEvents
from lmerge.core.batch import AnyBatch, BatchBuilder
from lmerge.core.elements import NEG_INF, STABLE
from lmerge.errors import UsageError
from lmerge.spark.spool.files import SpoolFiles, number_of, token
from lmerge.spark.spool.manifest import Base, Manifest, PublishedStateRef, SpoolPart
from lmerge.spark.spool.part_files import PartSummary, messages_of, read_elements
from lmerge.spark.spool.retention import KEPT_BATCHES, Cut, cut_of
from lmerge.wire.codec import slice_batch

if TYPE_CHECKING:
    from lmerge.client.publish.native_live_events import NativeLiveEvents

Live: TypeAlias = "LiveEvents | NativeLiveEvents"

__all__ = ["Base", "Manifest", "PublishedStateRef", "Spool", "SpoolPart"]

# The identity of a stream: all its manifests agree on these fields.
IDENTITY: Final = ("query", "merge", "replica", "mode", "schema", "keys")
_ADVICE: Final = {
    "query": "each query needs a spool of its own; if the checkpoint was removed on purpose, remove the spool as well",
    "schema": "all payloads of one stream are of one schema: begin anew, with another checkpoint",
}
_SHARE: Final = (
    "the driver and all executors must see one folder; give checkpointLocation (or spool=) as the path or URI of a "
    "file system that they share"
)


class Spool:
    """The spool at ``place``, a path or URI. Opening it reads and writes nothing.

    Every method raises StoreDamaged, which names the file, if a committed file is missing or damaged; StoreFull if a
    file cannot be written; UsageError if a newer lmerge wrote it. The driver's methods are for one thread.
    """

    def __init__(self, place: str | SpoolFiles) -> None:
        self.files = SpoolFiles.at(place) if isinstance(place, str) else place
        self._base: Base | None = None
        self._manifests: dict[int, Manifest] | None = None  # after the base; None: not read yet
        self._merge_stable = NEG_INF
        self._is_swept = False
        self._oldest_files: dict[int, str] = {}  # of the keyed states, by partition: older files are removed

    def __str__(self) -> str:
        return self.files.root

    # What executors call.

    def write_part(
        self, batch: int, partition: int, attempt: int, batches: Iterable[AnyBatch],
        keyed_state: PublishedStateRef | None = None, on_message: Callable[[bytes], None] | None = None,
    ) -> SpoolPart:
        """Write the elements of an attempt as they come. They count once the part is committed.

        ``on_message`` receives the messages as well, as ``part_messages`` returns them. Raises UsageError if an element
        is a stable, LimitExceeded if a payload is too large.
        """
        summary = PartSummary()
        messages = messages_of(batches, summary)
        if on_message is not None:
            messages = _with_callback(messages, on_message)
        first = next(messages, None)
        if first is None:
            return SpoolPart(batch, partition, attempt, keyed_state=keyed_state)
        name = f"batches/{batch}/{partition}-{attempt}-{token()}.part"
        size = self.files.write_frames(name, "part", _with_first(first, messages))
        return SpoolPart(
            batch, partition, attempt, name, summary.messages, summary.elements, summary.adjusts, size,
            summary.largest_end, summary.smallest_vold, summary.ends, keyed_state,
        )

    def last_stable(self, batch: int) -> int:
        """Return the stable point published before ``batch``, -inf if there was none.

        Raises UsageError if the spool does not record it.
        """
        if batch == 0:
            return NEG_INF
        manifest = self.manifest(batch - 1)
        if manifest is not None:
            return manifest.stable_point
        base = self._read_base(batch - 1)
        if base is None:
            raise self._unrecorded(batch)
        return base.stable_point

    def skips_to(self, batch: int) -> int:
        """Return the time before which ended events are left out of ``batch``, whenever it runs; -inf: none are.

        Raises UsageError if the spool does not record it.
        """
        if batch == 0:
            return NEG_INF
        manifest = self.manifest(batch - 1)
        if manifest is not None:
            return manifest.skipped
        if self._read_base(batch - 1) is None:
            raise self._unrecorded(batch)
        return NEG_INF  # the stream begins with this batch: the two last manifests are always kept

    def skips_next(self) -> int:
        """Return the same for the batch after the newest committed one; -inf before the first."""
        numbers = _batch_numbers(self.files.names("manifests"), ".json")
        manifest = self.manifest(numbers[-1]) if numbers else None
        return NEG_INF if manifest is None else manifest.skipped

    def state_ref(self, partition: int, version: int) -> PublishedStateRef | None:
        """Return where the keyed state of a partition after batch ``version`` is, or None if nothing was published.

        Raises UsageError if the spool does not record it, or if the number of partitions has changed.
        """
        if version < 0:
            return None
        manifest = self.manifest(version)
        if manifest is None:
            base = self._read_base(version)
            if base is None or not base.begins:
                raise self._unrecorded(version + 1)
            return None
        for part in manifest.parts:
            if part.partition == partition:
                return part.keyed_state
        if any(part.keyed_state for part in manifest.parts):
            raise self._repartitioned(manifest, f"one with number {partition}")
        return None

    # What the driver calls.

    def check(self, meta: Mapping[str, str]) -> None:
        """Raise UsageError if the spool holds another stream than that of ``meta``."""
        self._check(meta, self._newest_meta())

    def begin(self, batch: int, stable: int, meta: Mapping[str, str]) -> None:
        """Begin the stream with ``batch``, of a query that has run before without this spool.

        The stream is right for events that end at ``stable`` or later. Raises UsageError if the spool is not empty.
        """
        if self._loaded() or self._base is not None:
            raise UsageError(f"the stream in the spool {self} has begun already")
        self._write_base(Base(batch - 1, stable, stable, begins=True, meta=dict(meta)), [])

    def commit(
        self, batch: int, parts: Sequence[SpoolPart], stable: int | None, meta: Mapping[str, str],
        skipped: int = NEG_INF,
    ) -> Manifest:
        """Commit ``parts`` as the elements of the batch, and ``stable`` as its end. Return the manifest.

        ``stable`` of the manifest is what to publish: None if the stable point does not advance. ``skipped``: the
        batches after this one leave out events that end before it, as announced to the servers; it never decreases.

        ``meta`` identifies the stream. Raises UsageError if the spool holds another stream, if it does not record the
        batch before, or if parts were written to another folder because executors and driver do not share this one.
        """
        manifests = self._loaded()
        self._check(meta, self._newest_meta())
        if not self._is_recorded(batch - 1):
            raise self._unrecorded(batch)
        self._check_shared(parts)
        before = manifests.get(batch - 1)
        point = before.stable_point if before else self._base.stable_point if self._base else NEG_INF
        advance = None if stable is None or stable <= point else stable
        manifest = Manifest(
            batch, self._ordered(batch, parts, before), advance, point if advance is None else advance,
            self._merge_stable, max(skipped, before.skipped if before else NEG_INF), dict(meta),
        )
        for later in sorted((number for number in manifests if number > batch), reverse=True):
            self.files.remove(_manifest_name(later))
            del manifests[later]
        self.files.write_json(_manifest_name(batch), "manifest", manifest.to_json())
        manifests[batch] = manifest
        return manifest

    def manifest(self, batch: int) -> Manifest | None:
        """Return the manifest of a batch, or None if it was not committed or is not kept any more."""
        if self._manifests is not None:
            return self._manifests.get(batch)
        return self._read_manifest(batch)

    @property
    def newest(self) -> Manifest | None:
        """The manifest of the last committed batch."""
        manifests = self._loaded()
        return manifests[max(manifests)] if manifests else None

    def part_messages(self, part: SpoolPart) -> list[bytes]:
        """Return the messages of a part, as ``frames.encode_publish`` makes them."""
        if not part.name:
            return []
        messages = self.files.read_frames(part.name, "part")
        if len(messages) != part.messages:
            raise self.files.damaged(part.name, f"it has {len(messages)} messages instead of {part.messages}")
        return messages

    def read_part(self, part: SpoolPart) -> list[AnyBatch]:
        """Return the elements of a part."""
        return read_elements(self.files, part.name, self.part_messages(part))

    def live_before(self, batch: int) -> AnyBatch | None:
        """Return the events that were live before ``batch``: inserts and one stable, as a publisher's ``seed``.

        None if nothing was published. It is right for events that end at ``complete_from(batch)`` or later. Raises
        UsageError if the spool does not record the batch before.
        """
        live, stable = self._fold(batch - 1, self.complete_from(batch))
        if not len(live) and stable == NEG_INF:
            return None
        prelude = live.prelude()
        if stable > NEG_INF:
            return prelude
        builder = BatchBuilder()
        builder.extend(prelude)
        builder.stable(NEG_INF)
        return live.own(builder.build())

    def complete_from(self, batch: int) -> int:
        """Return the time from which ``live_before(batch)`` is right.

        Raises UsageError if the spool does not record the batch before.
        """
        manifests = self._loaded()
        if not self._is_recorded(batch - 1):
            raise self._unrecorded(batch)
        before = manifests.get(batch - 1)
        return max(
            NEG_INF if self._base is None else self._base.complete_from,
            NEG_INF if before is None else before.complete_from,
        )

    def trim(self, stable_point: int) -> None:
        """Remove what is not needed once the merge is stable at ``stable_point`` (see ``retention``).

        Most calls do nothing. Now and then live events are written as a snapshot, and files are removed.
        """
        self._merge_stable = max(self._merge_stable, stable_point)
        manifests = self._loaded()
        cut = cut_of(self._base, [manifests[number] for number in sorted(manifests)], self._merge_stable)
        if cut is not None:
            self._cut(cut)
        if cut is not None or not self._is_swept:
            self._sweep()
        self._sweep_states()

    def abort(self, batch: int, parts: Iterable[SpoolPart | None]) -> None:
        """Remove the files of failed attempts, except those that a manifest names."""
        manifest = self.manifest(batch)
        counts = {name for part in manifest.parts for name in _files_of(part)} if manifest else set()
        for part in parts:
            for name in _files_of(part) if part is not None else ():
                if name not in counts:
                    self.files.remove(name)

    # Reading.

    def _loaded(self) -> dict[int, Manifest]:
        """Return the manifests after the base, by batch. They are read once."""
        if self._manifests is None:
            numbers = _batch_numbers(self.files.names("live"), ".snapshot")
            self._base = self._read_base(numbers[-1]) if numbers else None
            first = 0 if self._base is None else self._base.batch + 1
            found: dict[int, Manifest] = {}
            for number in _batch_numbers(self.files.names("manifests"), ".json"):
                if number < first:
                    continue
                manifest, expected = self._read_manifest(number), first + len(found)
                if manifest is None or number != expected:
                    lost = _manifest_name(expected) if found or self._base else _base_name(number - 1)
                    raise self.files.damaged(lost, f"it is missing, and there is a manifest of batch {number}")
                found[number] = manifest
            self._manifests = found
        return self._manifests

    def _read_manifest(self, batch: int) -> Manifest | None:
        name = _manifest_name(batch)
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

    def _read_base(self, batch: int) -> Base | None:
        """Return the head of the snapshot of ``batch``, or None if there is no such snapshot."""
        name = _base_name(batch)
        if name.rpartition("/")[2] not in self.files.names("live"):
            return None
        frames = self.files.read_frames(name, "live")
        try:
            base = Base.from_json(json.loads(frames[0]))
        except (IndexError, KeyError, TypeError, ValueError) as problem:
            raise self.files.damaged(name, f"it has no head: {problem!r}") from problem
        if base.batch != batch or base.messages != len(frames) - 1:
            raise self.files.damaged(name, f"its head is that of batch {base.batch} and {base.messages} messages")
        return base

    def _is_recorded(self, batch: int) -> bool:
        """Whether the spool records the stream up to ``batch``."""
        manifests = self._loaded()
        return batch == (-1 if self._base is None else self._base.batch) or batch in manifests

    def _fold(self, batch: int, trimmed: int) -> tuple[Live, int]:
        """Return the live events after ``batch`` and the stable point.

        Events that end before ``trimmed`` and cannot change any more are left out.
        """
        live, stable = live_events(str(self)), NEG_INF
        if self._base is not None:
            name = _base_name(self._base.batch)
            for piece in read_elements(self.files, name, self.files.read_frames(name, "live")[1:]):
                live.apply_batch(live.own(piece))
            stable = self._base.stable_point
            if stable > NEG_INF:
                live.apply_row((STABLE, stable, 0, 0, b""))
        # Trimmed at the end only: an adjust may name an event that is frozen by now but was not when it was published.
        for number, manifest in sorted(self._loaded().items()):
            if number > batch:
                break
            for part in manifest.parts:
                for piece in self.read_part(part):
                    live.apply_batch(live.own(piece))
            if manifest.stable is not None:
                stable = manifest.stable
                live.apply_row((STABLE, stable, 0, 0, b""))
        if trimmed > NEG_INF:
            live.trim(trimmed)
        return live, stable

    # Trimming.

    def _cut(self, cut: Cut) -> None:
        """Replace all batches up to the cut by one snapshot."""
        manifests = self._loaded()
        last = manifests[cut.batch]
        old = [manifest for number, manifest in manifests.items() if number <= cut.batch]
        complete_from, largest = last.skipped, max(manifest.largest_end for manifest in old)
        if self._base is not None:
            complete_from, largest = max(complete_from, self._base.complete_from), max(largest, self._base.largest_end)
        summary = PartSummary()
        messages: list[bytes] = []
        if cut.folds:
            complete_from = max(complete_from, min(self._merge_stable, last.stable_point))
            live, _ = self._fold(cut.batch, complete_from)
            events: AnyBatch = live.prelude()
            if events.count and events.kinds[-1] == STABLE:
                events = slice_batch(events, 0, events.count - 1)
            messages = list(messages_of([events], summary))
        elif largest > NEG_INF:
            complete_from = max(complete_from, largest + 1)
        self._write_base(
            Base(
                cut.batch, last.stable_point, complete_from, summary.messages, summary.elements, summary.largest_end,
                summary.ends, meta=last.meta,
            ),
            messages,
        )
        for manifest in old:
            del manifests[manifest.batch]

    def _write_base(self, base: Base, messages: Sequence[bytes]) -> None:
        head = json.dumps(base.to_json()).encode()
        self.files.write_frames(_base_name(base.batch), "live", [head, *messages])
        self._base = base

    def _sweep(self) -> None:
        """Remove the files that the snapshot replaces, and orphans of the same batches."""
        last = -1 if self._base is None else self._base.batch
        for folder in ("manifests", "live"):
            for name in self.files.names(folder):
                number = number_of(name)
                if number is not None and number <= last and f"{folder}/{name}" != _base_name(last):
                    self.files.remove(f"{folder}/{name}")
        for name in self.files.names("batches"):
            if name.isdigit() and int(name) <= last:
                self.files.remove_folder(f"batches/{name}")
        self._is_swept = True

    def _sweep_states(self) -> None:
        """Remove the files of keyed states with which no batch that can be run again begins."""
        manifests = self._loaded()
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
            for base in self.files.names(folder):
                version, name = number_of(base), f"{folder}/{base}"
                if version is not None and (version < ref.since or (version == ref.since and name != ref.whole)):
                    self.files.remove(name)
            self._oldest_files[partition] = ref.whole

    # Checks.

    def _ordered(self, batch: int, parts: Sequence[SpoolPart], before: Manifest | None) -> tuple[SpoolPart, ...]:
        """Return the parts in order of partition. Partitions without a part keep the state that they had."""
        by_partition: dict[int, SpoolPart] = {}
        for part in parts:
            if part.batch != batch:
                raise UsageError(f"cannot commit batch {batch} in {self}: a part is of batch {part.batch}")
            if part.partition in by_partition:
                raise UsageError(f"cannot commit batch {batch} in {self}: partition {part.partition} came twice")
            by_partition[part.partition] = part
        keyed = {part.partition: part for part in before.parts if part.keyed_state} if before else {}
        absent = [partition for partition in keyed if partition not in by_partition]
        if before is not None and absent and any(part.elements for part in parts):
            raise self._repartitioned(before, f"{len(parts)} without number {absent[0]}")
        for partition in absent:
            by_partition[partition] = SpoolPart(batch, partition, 0, keyed_state=keyed[partition].keyed_state)
        return tuple(by_partition[partition] for partition in sorted(by_partition))

    def _newest_meta(self) -> Mapping[str, str] | None:
        newest = self.newest
        if newest is not None:
            return newest.meta
        return None if self._base is None else self._base.meta

    def _check(self, meta: Mapping[str, str], recorded: Mapping[str, str] | None) -> None:
        if recorded is None:
            return
        for field in IDENTITY:
            if field in meta and field in recorded and meta[field] != recorded[field]:
                advice = _ADVICE.get(field, "two streams need two checkpoints")
                raise UsageError(
                    f"the spool {self} holds a stream whose {field} is {recorded[field]!r:.400}, and this one's is "
                    f"{meta[field]!r:.400}: {advice}"
                )

    def _check_shared(self, parts: Iterable[SpoolPart]) -> None:
        """Raise UsageError if an executor's file is not in this folder: executors and driver use different folders."""
        name = self.files.first_missing(name for part in parts for name in _files_of(part))
        if name is not None:
            path = self.files.path(name)
            raise UsageError(f"an executor has written {path}, and the driver does not see it: {_SHARE}")

    def _unrecorded(self, batch: int) -> UsageError:
        now = Spool(self.files)  # read afresh: the driver may have written since
        recorded = [*now._loaded(), *([] if now._base is None else [now._base.batch])]
        if recorded:
            what = f"records the stream up to each of the batches {min(recorded)} to {max(recorded)}"
        else:
            what = (
                "is empty: either the query ran before without it, or the spool was removed, and the query needs "
                f"another checkpoint; or it is not one folder for all: {_SHARE}"
            )
        return UsageError(f"cannot continue with batch {batch}: the spool {self} {what}")

    def _repartitioned(self, manifest: Manifest, now: str) -> UsageError:
        return UsageError(
            f"the spool {self} holds the keyed state of {len(manifest.parts)} partitions up to batch "
            f"{manifest.batch}, and now there is {now}: the number of partitions of a keyed stream is fixed; begin "
            "with another checkpoint to change it"
        )


def state_folder(partition: int) -> str:
    """Return the folder of the keyed state of a partition."""
    return f"said/{partition}"


def _manifest_name(batch: int) -> str:
    return f"manifests/{batch}.json"


def _base_name(batch: int) -> str:
    return f"live/{batch}.snapshot"


def _batch_numbers(names: Iterable[str], suffix: str) -> list[int]:
    """Return the numbers of the files that are named by one, in order."""
    stems = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return sorted(int(stem) for stem in stems if stem.isdigit())


def _files_of(part: SpoolPart) -> list[str]:
    """Return the files that an attempt has written."""
    names = [part.name] if part.name else []
    if part.keyed_state is not None and number_of(part.keyed_state.name.rpartition("/")[2]) == part.batch:
        names.append(part.keyed_state.name)
    return names


def _with_callback(messages: Iterable[bytes], on_message: Callable[[bytes], None]) -> Iterator[bytes]:
    for message in messages:
        on_message(message)
        yield message


def _with_first(first: bytes, rest: Iterable[bytes]) -> Iterable[bytes]:
    yield first
    yield from rest
