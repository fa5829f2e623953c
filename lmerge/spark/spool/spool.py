"""The spool: what a query has said, in files that driver and executors share, so that a restart says nothing twice.

A Spark replica is one input of a merge. Executors write what a batch says (``write_part``), the driver's sink makes it
count (``commit``), and a restarted driver asks what was live before the batch that it runs again (``live_before``).
One folder for each query, beside its checkpoint::

    batches/<batch>/<partition>-<attempt>-<token>.part        element messages of one attempt
    said/<partition>/<batch>-<attempt>-<token>.delta|.whole   the keyed state: see ``said``
    manifests/<batch>.json                                    the parts that won, the stable, whose stream it is
    live/<batch>.snapshot                                     what all batches up to this one have left

**The law.** The state after batch N is a function of the snapshot and the manifests up to N; all other files are
orphans until a manifest names them. Every operation is made of steps that each change one file as a whole, in an order
in which whoever opens the spool after any of them finds the state before the operation or after it:

    commit       parts and states are there; write the manifest
    again        (batch N is run again, and there may be later ones) remove later manifests, the last first; write N's
    trim         write the snapshot; then remove what it stands for, in any order: it is not looked at any more

Orphans go with their batch's folder when it is trimmed. An attempt's files have names of their own, so a task that was
given up and still writes can harm none that count.

One driver writes manifests; Spark's checkpoint sees to that. Parts may be written by many at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from lmerge.client.publish.live_events import LiveEvents, live_events
from lmerge.core.batch import AnyBatch, BatchBuilder
from lmerge.core.elements import NEG_INF, STABLE
from lmerge.errors import UsageError
from lmerge.spark.spool.files import SpoolFiles, number_of, token
from lmerge.spark.spool.manifest import Base, Manifest, Part, SaidRef
from lmerge.spark.spool.part_files import Facts, messages_of, read_elements
from lmerge.spark.spool.retention import KEPT_BATCHES, Cut, cut_of
from lmerge.wire.codec import slice_batch

if TYPE_CHECKING:
    from lmerge.client.publish.native_live_events import NativeLiveEvents

Live: TypeAlias = "LiveEvents | NativeLiveEvents"

__all__ = ["Base", "Manifest", "Part", "SaidRef", "Spool"]

# What the manifests of one stream agree on.
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
    """The spool at ``place``: a path or URI. Opening it does nothing yet.

    Every method raises StoreDamaged, naming the file, where one that counts is missing or damaged, StoreFull where one
    cannot be written, and UsageError where a newer lmerge has written it. Methods of the driver are for one thread.
    """

    def __init__(self, place: str | SpoolFiles) -> None:
        self.files = SpoolFiles.at(place) if isinstance(place, str) else place
        self._base: Base | None = None
        self._manifests: dict[int, Manifest] | None = None  # those after the base; None: not read yet
        self._heard = NEG_INF
        self._is_swept = False
        self._said_kept: dict[int, str] = {}  # by partition: the file of a keyed state before which nothing is left

    def __str__(self) -> str:
        return self.files.root

    # What executors call.

    def write_part(
        self, batch: int, partition: int, attempt: int, batches: Iterable[AnyBatch], said: SaidRef | None = None,
        also: Callable[[bytes], None] | None = None,
    ) -> Part:
        """Write what an attempt says, as it comes. It counts once it is committed. ``also`` gets the messages as well,
        as ``part_messages`` gives them. Raises UsageError if there is a stable in it, LimitExceeded if a payload is too
        large.
        """
        facts = Facts()
        messages = messages_of(batches, facts)
        if also is not None:
            messages = _passing(messages, also)
        first = next(messages, None)
        if first is None:
            return Part(batch, partition, attempt, said=said)
        name = f"batches/{batch}/{partition}-{attempt}-{token()}.part"
        size = self.files.write_frames(name, "part", _with_first(first, messages))
        return Part(
            batch, partition, attempt, name, facts.messages, facts.elements, facts.adjusts, size, facts.largest_end,
            facts.smallest_vold, facts.ends, said,
        )

    def last_stable(self, batch: int) -> int:
        """The stable point that was said before ``batch``; -inf if none was. Raises UsageError if it is not known."""
        if batch == 0:
            return NEG_INF
        manifest = self.manifest(batch - 1)
        if manifest is not None:
            return manifest.stable_point
        base = self._read_base(batch - 1)
        if base is None:
            raise self._unknown(batch)
        return base.stable_point

    def skips_to(self, batch: int) -> int:
        """Events that end before are left out of ``batch``, whenever it runs; -inf: none. Raises UsageError if that is
        not known.
        """
        if batch == 0:
            return NEG_INF
        manifest = self.manifest(batch - 1)
        if manifest is not None:
            return manifest.skipped
        if self._read_base(batch - 1) is None:
            raise self._unknown(batch)
        return NEG_INF  # the stream begins with this batch: the two last manifests are always kept

    def skips_next(self) -> int:
        """The same of the batch after the newest that was committed; -inf before the first."""
        numbers = _numbers(self.files.names("manifests"), ".json")
        manifest = self.manifest(numbers[-1]) if numbers else None
        return NEG_INF if manifest is None else manifest.skipped

    def said_ref(self, partition: int, version: int) -> SaidRef | None:
        """Where the keyed state of a partition after batch ``version`` is; None: nothing was said. Raises UsageError
        if it is not known, or if the number of partitions has changed.
        """
        if version < 0:
            return None
        manifest = self.manifest(version)
        if manifest is None:
            base = self._read_base(version)
            if base is None or not base.begins:
                raise self._unknown(version + 1)
            return None
        for part in manifest.parts:
            if part.partition == partition:
                return part.said
        if any(part.said for part in manifest.parts):
            raise self._repartitioned(manifest, f"one with number {partition}")
        return None

    # What the driver calls.

    def check(self, meta: Mapping[str, str]) -> None:
        """Raises UsageError if the spool holds another stream than that of ``meta``."""
        self._check(meta, self._newest_meta())

    def begin(self, batch: int, stable: int, meta: Mapping[str, str]) -> None:
        """The stream begins with ``batch``, of a query that has run before without this spool; it is right for events
        that end at ``stable`` or later. Raises UsageError if there is something in the spool.
        """
        if self._loaded() or self._base is not None:
            raise UsageError(f"the stream in the spool {self} has begun already")
        self._write_base(Base(batch - 1, stable, stable, begins=True, meta=dict(meta)), [])

    def commit(
        self, batch: int, parts: Sequence[Part], stable: int | None, meta: Mapping[str, str], skipped: int = NEG_INF
    ) -> Manifest:
        """Make ``parts`` what the batch says, and ``stable`` its last word. What the manifest then says of ``stable``
        is what to say: None if it is no news. ``skipped``: the batches after it leave out events that end before, and
        servers have been told; it never goes back.

        ``meta`` says whose stream it is. Raises UsageError if that is another one, if the batch before is not known, or
        if parts were written elsewhere, as executors do that do not share this folder with the driver.
        """
        manifests = self._loaded()
        self._check(meta, self._newest_meta())
        if not self._is_known(batch - 1):
            raise self._unknown(batch)
        self._check_shared(parts)
        before = manifests.get(batch - 1)
        point = before.stable_point if before else self._base.stable_point if self._base else NEG_INF
        said = None if stable is None or stable <= point else stable
        manifest = Manifest(
            batch, self._ordered(batch, parts, before), said, point if said is None else said, self._heard,
            max(skipped, before.skipped if before else NEG_INF), dict(meta),
        )
        for later in sorted((number for number in manifests if number > batch), reverse=True):
            self.files.remove(_manifest_name(later))
            del manifests[later]
        self.files.write_json(_manifest_name(batch), "manifest", manifest.to_json())
        manifests[batch] = manifest
        return manifest

    def manifest(self, batch: int) -> Manifest | None:
        """The manifest of a batch; None if it was not committed, or is not kept any more."""
        if self._manifests is not None:
            return self._manifests.get(batch)
        return self._read_manifest(batch)

    @property
    def newest(self) -> Manifest | None:
        """That of the last batch that was committed."""
        manifests = self._loaded()
        return manifests[max(manifests)] if manifests else None

    def part_messages(self, part: Part) -> list[bytes]:
        """The messages of a part, as ``frames.encode_publish`` gives them."""
        if not part.name:
            return []
        messages = self.files.read_frames(part.name, "part")
        if len(messages) != part.messages:
            raise self.files.damaged(part.name, f"it has {len(messages)} messages instead of {part.messages}")
        return messages

    def read_part(self, part: Part) -> list[AnyBatch]:
        """The elements of a part."""
        return read_elements(self.files, part.name, self.part_messages(part))

    def live_before(self, batch: int) -> AnyBatch | None:
        """What was live before ``batch``: inserts and one stable, as a publisher's ``seed``; None if nothing was said.

        It is right for events that end at ``complete_from(batch)`` or later. Raises UsageError if it is not known.
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
        """From where ``live_before(batch)`` is right. Raises UsageError if it is not known."""
        manifests = self._loaded()
        if not self._is_known(batch - 1):
            raise self._unknown(batch)
        before = manifests.get(batch - 1)
        return max(
            NEG_INF if self._base is None else self._base.complete_from,
            NEG_INF if before is None else before.complete_from,
        )

    def trim(self, stable_point: int) -> None:
        """The merge is stable at ``stable_point``: let go of what nobody needs any more (see ``retention``).

        Mostly there is nothing to do; now and then live events are written anew and files are removed.
        """
        self._heard = max(self._heard, stable_point)
        manifests = self._loaded()
        cut = cut_of(self._base, [manifests[number] for number in sorted(manifests)], self._heard)
        if cut is not None:
            self._cut(cut)
        if cut is not None or not self._is_swept:
            self._sweep()
        self._sweep_said()

    def abort(self, batch: int, parts: Iterable[Part | None]) -> None:
        """Remove what attempts have written, but what a manifest names."""
        manifest = self.manifest(batch)
        counts = {name for part in manifest.parts for name in _names(part)} if manifest else set()
        for part in parts:
            for name in _names(part) if part is not None else ():
                if name not in counts:
                    self.files.remove(name)

    # Reading.

    def _loaded(self) -> dict[int, Manifest]:
        """The manifests after the base, read once."""
        if self._manifests is None:
            numbers = _numbers(self.files.names("live"), ".snapshot")
            self._base = self._read_base(numbers[-1]) if numbers else None
            first = 0 if self._base is None else self._base.batch + 1
            found: dict[int, Manifest] = {}
            for number in _numbers(self.files.names("manifests"), ".json"):
                if number < first:
                    continue
                manifest, wanted = self._read_manifest(number), first + len(found)
                if manifest is None or number != wanted:
                    lost = _manifest_name(wanted) if found or self._base else _base_name(number - 1)
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
            raise self.files.damaged(name, f"it is no manifest: {problem!r}") from problem
        if manifest.batch != batch:
            raise self.files.damaged(name, f"it is that of batch {manifest.batch}")
        return manifest

    def _read_base(self, batch: int) -> Base | None:
        """The head of a snapshot; None if there is none of this batch."""
        name = _base_name(batch)
        if name.rpartition("/")[2] not in self.files.names("live"):
            return None
        frames = self.files.read_frames(name, "live")
        try:
            base = Base.from_json(json.loads(frames[0]))
        except (IndexError, KeyError, TypeError, ValueError) as problem:
            raise self.files.damaged(name, f"it has no head: {problem!r}") from problem
        if base.batch != batch or base.messages != len(frames) - 1:
            raise self.files.damaged(name, f"its head speaks of batch {base.batch} and {base.messages} messages")
        return base

    def _is_known(self, batch: int) -> bool:
        """Whether it can be told what was said up to ``batch``."""
        manifests = self._loaded()
        return batch == (-1 if self._base is None else self._base.batch) or batch in manifests

    def _fold(self, batch: int, trimmed: int) -> tuple[Live, int]:
        """The live events after ``batch``, without those that end before ``trimmed`` and can change no more, and the
        stable point.
        """
        live, stable = live_events(str(self)), NEG_INF
        if self._base is not None:
            name = _base_name(self._base.batch)
            for piece in read_elements(self.files, name, self.files.read_frames(name, "live")[1:]):
                live.apply_batch(live.own(piece))
            stable = self._base.stable_point
            if stable > NEG_INF:
                live.apply_row((STABLE, stable, 0, 0, b""))
        # Trimmed at the end only: an adjust finds an event that is frozen by now, but was not when it was said.
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

    # Letting go.

    def _cut(self, cut: Cut) -> None:
        """All batches up to the cut become one snapshot."""
        manifests = self._loaded()
        last = manifests[cut.batch]
        old = [manifest for number, manifest in manifests.items() if number <= cut.batch]
        complete_from, largest = last.skipped, max(manifest.largest_end for manifest in old)
        if self._base is not None:
            complete_from, largest = max(complete_from, self._base.complete_from), max(largest, self._base.largest_end)
        facts = Facts()
        messages: list[bytes] = []
        if cut.folds:
            complete_from = max(complete_from, min(self._heard, last.stable_point))
            live, _ = self._fold(cut.batch, complete_from)
            events: AnyBatch = live.prelude()
            if events.count and events.kinds[-1] == STABLE:
                events = slice_batch(events, 0, events.count - 1)
            messages = list(messages_of([events], facts))
        elif largest > NEG_INF:
            complete_from = max(complete_from, largest + 1)
        self._write_base(
            Base(
                cut.batch, last.stable_point, complete_from, facts.messages, facts.elements, facts.largest_end,
                facts.ends, meta=last.meta,
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
        """Remove what the snapshot stands for, and what others have left of the same batches."""
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

    def _sweep_said(self) -> None:
        """Remove the files of keyed states that no batch which can be run again begins with."""
        manifests = self._loaded()
        first: dict[int, SaidRef] = {}
        for number in sorted(manifests)[-KEPT_BATCHES:]:
            for part in manifests[number].parts:
                if part.said is not None and part.said.since <= first.get(part.partition, part.said).since:
                    first[part.partition] = part.said
        for partition, ref in first.items():
            if self._said_kept.get(partition) == ref.whole:
                continue
            folder = said_folder(partition)
            for base in self.files.names(folder):
                version, name = number_of(base), f"{folder}/{base}"
                if version is not None and (version < ref.since or (version == ref.since and name != ref.whole)):
                    self.files.remove(name)
            self._said_kept[partition] = ref.whole

    # Refusing.

    def _ordered(self, batch: int, parts: Sequence[Part], before: Manifest | None) -> tuple[Part, ...]:
        """The parts in order of partition, and what partitions that have nothing to say have said before."""
        by_partition: dict[int, Part] = {}
        for part in parts:
            if part.batch != batch:
                raise UsageError(f"cannot commit batch {batch} in {self}: a part is of batch {part.batch}")
            if part.partition in by_partition:
                raise UsageError(f"cannot commit batch {batch} in {self}: partition {part.partition} came twice")
            by_partition[part.partition] = part
        keyed = {part.partition: part for part in before.parts if part.said} if before else {}
        absent = [partition for partition in keyed if partition not in by_partition]
        if before is not None and absent and any(part.elements for part in parts):
            raise self._repartitioned(before, f"{len(parts)} without number {absent[0]}")
        for partition in absent:
            by_partition[partition] = Part(batch, partition, 0, said=keyed[partition].said)
        return tuple(by_partition[partition] for partition in sorted(by_partition))

    def _newest_meta(self) -> Mapping[str, str] | None:
        newest = self.newest
        if newest is not None:
            return newest.meta
        return None if self._base is None else self._base.meta

    def _check(self, meta: Mapping[str, str], known: Mapping[str, str] | None) -> None:
        if known is None:
            return
        for word in IDENTITY:
            if word in meta and word in known and meta[word] != known[word]:
                advice = _ADVICE.get(word, "two streams need two checkpoints")
                raise UsageError(
                    f"the spool {self} holds a stream whose {word} is {known[word]!r:.400}, and this one's is "
                    f"{meta[word]!r:.400}: {advice}"
                )

    def _check_shared(self, parts: Iterable[Part]) -> None:
        """Raises UsageError if what executors have written is not here: they, or this process, see another folder."""
        name = self.files.first_missing(name for part in parts for name in _names(part))
        if name is not None:
            path = self.files.path(name)
            raise UsageError(f"an executor has written {path}, and the driver does not see it: {_SHARE}")

    def _unknown(self, batch: int) -> UsageError:
        now = Spool(self.files)  # an executor reads each time what the driver has written meanwhile
        known = [*now._loaded(), *([] if now._base is None else [now._base.batch])]
        if known:
            what = f"knows what was said up to each of the batches {min(known)} to {max(known)}"
        else:
            what = (
                "is empty: the query has run before without it, or it was removed, and needs another checkpoint; or it "
                f"is not one folder for all: {_SHARE}"
            )
        return UsageError(f"cannot go on with batch {batch}: the spool {self} {what}")

    def _repartitioned(self, manifest: Manifest, now: str) -> UsageError:
        return UsageError(
            f"the spool {self} holds what {len(manifest.parts)} partitions have said of their keys up to batch "
            f"{manifest.batch}, and now there is {now}: the number of partitions of a keyed stream is fixed; begin "
            "with another checkpoint to change it"
        )


def said_folder(partition: int) -> str:
    """Where the keyed state of a partition is."""
    return f"said/{partition}"


def _manifest_name(batch: int) -> str:
    return f"manifests/{batch}.json"


def _base_name(batch: int) -> str:
    return f"live/{batch}.snapshot"


def _numbers(names: Iterable[str], suffix: str) -> list[int]:
    """Of files that are called by a number, in order."""
    stems = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return sorted(int(stem) for stem in stems if stem.isdigit())


def _names(part: Part) -> list[str]:
    """The files that an attempt has written."""
    names = [part.name] if part.name else []
    if part.said is not None and number_of(part.said.name.rpartition("/")[2]) == part.batch:
        names.append(part.said.name)
    return names


def _passing(messages: Iterable[bytes], also: Callable[[bytes], None]) -> Iterator[bytes]:
    for message in messages:
        also(message)
        yield message


def _with_first(first: bytes, rest: Iterable[bytes]) -> Iterable[bytes]:
    yield first
    yield from rest
