"""Persists what was published for each key, so that a keyed plan can derive what to publish next.

There is one state for each partition; a partition always has the same keys. Version N is the state after batch N, as in
Spark's own ``HDFSBackedStateStore``. An attempt at batch N loads version N-1 and writes what it changed as a *delta*,
whose header names the file before it. Now and then it writes the *whole* state instead. A manifest names the newest
file of the attempt that won. So a batch that is run again begins with version N-1, whatever its first attempt left:

    manifest 6 -> 6-0-ab12.delta -> 5-0-77aa.delta -> 4-1-90ff.whole        version 6
    batch 7, attempt 0 (lost)    -> 7-0-c001.delta -> 6-0-ab12.delta ...    in no manifest: an orphan
    batch 7, attempt 1 (won)     -> 7-1-5d3e.delta -> 6-0-ab12.delta ...    version 7

A worker caches the states that it has used, each under the name of its newest file. It applies the deltas written
since, and reads everything again if its own file is not in the chain that the manifest names.

**What is forgotten.** Let S be the stable point that was published. An event with Ve < S is fully frozen: no adjust of
this stream may name it. So from the first batch that begins with S on, its key counts as never published, whether or
not the state still holds it. This depends on S alone, not on files and caches. A later row of that key is

- late, if Vs < S: it would be an insert below the stable point, and nothing shows whether it repeats the old event;
- a new event, if Vs >= S: keys of things that come back, such as machines, are used again.

Where the stream skips to a time (``skipping``), events that end before that time are forgotten as well: no row about
them is accepted any more. Such a state is scanned as often as its size allows.

Files shrink when the whole state is written, at the latest when the deltas hold twice the keys of the state. So
neither files nor memory hold more than a constant factor of what can still change, and the work is a constant for each
change. Small states are scanned every few batches, so that a key without further rows is removed as well.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import msgpack

from lmerge.spark.spool.files import SpoolFiles
from lmerge.spark.spool.layout import state_name
from lmerge.spark.spool.manifest import PublishedStateRef
from lmerge.spark.spool.spool import Spool

Entries: TypeAlias = "dict[bytes, Any]"
Kept: TypeAlias = Callable[[Any], Any]
"""Maps the value of an entry to the part of it that can still change, or to None."""

# The whole state is written when the deltas since the last one hold twice its keys, and at least this many.
_CHANGED_MIN: Final = 4096
# The state is scanned for keys to forget after this many batches, and at least one batch for this many keys: about a
# millisecond's work.
_LOOK_BATCHES: Final = 16
_LOOK_KEYS_PER_BATCH: Final = 1000
# Keys that a worker caches, of all partitions together: some 300 MB. The partition in use stays, whatever its size.
CACHED_KEYS_MAX: Final = 1_000_000
_FRAME_KEYS: Final = 8192


@dataclass
class _Cached:
    """The state as of file ``name``. With ``changes`` it is the state of file ``next_name``, if that attempt won."""

    name: str
    entries: Entries
    next_name: str = ""
    changes: Entries = field(default_factory=dict)


_cache: OrderedDict[tuple[str, int], _Cached] = OrderedDict()


class PublishedState:
    """The keyed state of one partition after batch ``version``, and the changes that the next batch makes.

    ``changes``: by key, values that ``msgpack`` accepts, with tuples; None removes the key. Methods raise what
    ``Spool`` raises.
    """

    def __init__(self, files: SpoolFiles, partition: int, version: int, ref: PublishedStateRef | None) -> None:
        self.partition = partition
        self.version = version
        self.changes: Entries = {}
        self._files = files
        self._ref = ref
        self._entries: Entries | None = None

    @classmethod
    def load(cls, spool: Spool, partition: int, version: int) -> PublishedState:
        """Return the state after batch ``version``; -1: before the first. Its files are read on first use."""
        return cls(spool.files, partition, version, spool.state_ref(partition, version))

    @property
    def entries(self) -> Entries:
        """The state before the changes, by key. Do not change it."""
        if self._entries is None:
            self._entries = {} if self._ref is None else _entries_of(self._files, self.partition, self._ref)
        return self._entries

    def write(self, batch: int, attempt: int, kept: Kept, *, skips: bool = False) -> PublishedStateRef | None:
        """Write the state after ``batch``, which is ``version + 1``. Return the reference for the manifest.

        ``kept`` maps a value to what can still change of it. ``skips``: the stream skips, so more can be forgotten
        than by the stable point alone.
        """
        assert batch == self.version + 1
        ref = self._ref
        looks = self._is_worth_a_look(batch, 1 if skips else _LOOK_BATCHES)
        if not self.changes and (ref is None or not looks):
            return ref
        if ref is None or looks or self._is_worth_writing(ref):
            whole = dict(_alive(self._with_changes(), kept))
            if self.changes or ref is None or ref.deltas or len(whole) < ref.entries:
                return self._write_whole(batch, attempt, whole)
            return replace(ref, looked=batch)
        return self._write_delta(batch, attempt, ref)

    def _is_worth_a_look(self, batch: int, age_min: int) -> bool:
        if self._ref is None:
            return False
        age = batch - max(self._ref.since, self._ref.looked)
        return age >= age_min and age * _LOOK_KEYS_PER_BATCH >= self._ref.entries

    def _is_worth_writing(self, ref: PublishedStateRef) -> bool:
        changed = ref.changed + len(self.changes)
        return changed >= _CHANGED_MIN and changed >= 2 * ref.entries

    def _with_changes(self) -> Entries:
        entries = dict(self.entries)
        _apply(entries, self.changes.items())
        return entries

    def _write_whole(self, batch: int, attempt: int, whole: Entries) -> PublishedStateRef:
        name = self._write(batch, attempt, "whole", {"previous": None}, whole)
        _keep((self._files.root, self.partition), _Cached(name, whole))
        return PublishedStateRef(name, name, batch, 0, 0, len(whole), batch)

    def _write_delta(self, batch: int, attempt: int, ref: PublishedStateRef) -> PublishedStateRef:
        changes, entries = self.changes, self.entries
        name = self._write(batch, attempt, "delta", {"previous": ref.name}, changes)
        _keep((self._files.root, self.partition), _Cached(ref.name, entries, name, changes))
        gone = sum(1 for key, value in changes.items() if value is None and key in entries)
        added = sum(1 for key, value in changes.items() if value is not None and key not in entries)
        return PublishedStateRef(
            name,
            ref.whole,
            ref.since,
            ref.deltas + 1,
            ref.changed + len(changes),
            ref.entries + added - gone,
            ref.looked,
        )

    def _write(self, batch: int, attempt: int, kind: str, head: dict[str, Any], entries: Entries) -> str:
        name = state_name(self.partition, batch, attempt, kind)
        self._files.write_frames(name, kind, _frames(head | {"version": batch}, entries))
        return name


def _entries_of(files: SpoolFiles, partition: int, ref: PublishedStateRef) -> Entries:
    """Return the state at the end of the chain ``ref``: the cached one, with the files after it applied."""
    place = (files.root, partition)
    cached = _cache.get(place)
    newer: list[list[tuple[bytes, Any]]] = []
    name = ref.name
    while cached is None or name not in (cached.name, cached.next_name):
        is_whole = name.endswith(".whole")
        previous, pairs = _read(files, name, "whole" if is_whole else "delta")
        newer.append(pairs)
        if is_whole:
            cached = _Cached(name, {})
            break
        name = previous
    if cached.next_name == name:
        _apply(cached.entries, cached.changes.items())
    for pairs in reversed(newer):
        _apply(cached.entries, pairs)
    _keep(place, _Cached(ref.name, cached.entries))
    return cached.entries


def _keep(place: tuple[str, int], cached: _Cached) -> None:
    _cache[place] = cached
    _cache.move_to_end(place)
    keys = sum(len(other.entries) for other in _cache.values())
    while keys > CACHED_KEYS_MAX and len(_cache) > 1:
        keys -= len(_cache.popitem(last=False)[1].entries)


def _apply(entries: Entries, pairs: Iterable[tuple[bytes, Any]]) -> None:
    for key, value in pairs:
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value


def _alive(entries: Entries, kept: Kept) -> Iterator[tuple[bytes, Any]]:
    for key, value in entries.items():
        rest = kept(value)
        if rest is not None:
            yield key, rest


def _frames(head: dict[str, Any], entries: Entries) -> Iterator[bytes]:
    pairs = list(entries.items())
    yield json.dumps(head | {"frames": -(-len(pairs) // _FRAME_KEYS)}).encode()
    for start in range(0, len(pairs), _FRAME_KEYS):
        yield msgpack.packb(pairs[start : start + _FRAME_KEYS], use_bin_type=True)


def _read(files: SpoolFiles, name: str, kind: str) -> tuple[str, list[tuple[bytes, Any]]]:
    """Return the name of the file before this one, and the pairs of this one."""
    frames = files.read_frames(name, kind)
    try:
        head = json.loads(frames[0])
        previous, count = head["previous"], head["frames"]
        pairs = [pair for frame in frames[1:] for pair in msgpack.unpackb(frame, use_list=False)]
    except (IndexError, KeyError, TypeError, ValueError, msgpack.exceptions.UnpackException) as problem:
        raise files.damaged(name, f"it is not a state: {problem!r}") from problem
    if count != len(frames) - 1 or (kind == "delta") != isinstance(previous, str):
        raise files.damaged(name, f"it has {len(frames) - 1} frames instead of {count}")
    return previous or "", pairs
