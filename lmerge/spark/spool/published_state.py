"""What has been said for each key: the state from which a keyed plan finds what to say next.

One state for each partition; a partition always sees the same keys. Version N is the state after batch N, as in Spark's
own ``HDFSBackedStateStore``: an attempt at batch N loads version N-1 and writes what it has changed as a *delta*, whose
header names the file before it; now and then it writes the state *whole* instead. A manifest names the newest file of
the attempt that won. So a batch that is run again begins with version N-1, whatever its first attempt has left:

    manifest 6 -> 6-0-ab12.delta -> 5-0-77aa.delta -> 4-1-90ff.whole        version 6
    batch 7, attempt 0 (lost)    -> 7-0-c001.delta -> 6-0-ab12.delta ...    nobody names it: an orphan
    batch 7, attempt 1 (won)     -> 7-1-5d3e.delta -> 6-0-ab12.delta ...    version 7

A worker keeps the states that it has used, each known by the name of its newest file. It catches up by the deltas in
between, and reads everything again if its own file is not among those that count.

**What is forgotten.** An event with Ve < S, where S is the stable point that was said, is fully frozen: no adjust of
this stream may name it. So its key is as if nothing had been said, from the first batch that begins with S on, whether
the state still holds it or not: that depends on S alone and not on files and caches. A later row of that key is

- late, if Vs < S: it would be an insert below the stable point, and it cannot be told whether it says the same again;
- a new event, if Vs >= S: keys of things that come back, such as machines, are used again.

Where the stream skips to a time (``skipping``), so is what ends before that: no row about it is taken any more. A state
is then looked through as often as its size allows.

Files shrink when the state is written whole, which is at the latest when the deltas have twice the keys of the state:
neither files nor memory hold more than a constant factor of what can still change, and the work is a constant for each
change. Small states are looked through every few batches, so a key that nobody speaks of any more goes as well.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import msgpack

from lmerge.spark.spool.files import SpoolFiles, token
from lmerge.spark.spool.manifest import SaidRef
from lmerge.spark.spool.spool import Spool, said_folder

Entries: TypeAlias = "dict[bytes, Any]"
Kept: TypeAlias = Callable[[Any], Any]
"""Of an entry: what can still change of it, None for nothing."""

# A whole state is worth writing if the deltas after the last one hold twice as many keys, and more than so many.
_CHANGED_MIN: Final = 4096
# It is looked for keys to forget after so many batches, and at least one for so many keys: a millisecond's work.
_LOOK_BATCHES: Final = 16
_LOOK_KEYS_PER_BATCH: Final = 1000
# Keys that a worker keeps, of all partitions together: some 300 MB. The partition in use is kept whatever its size.
CACHED_KEYS_MAX: Final = 1_000_000
_FRAME_KEYS: Final = 8192


@dataclass
class _Cached:
    """A state as of file ``name``; with ``changes`` it is that of file ``next_name``, if that attempt has won."""

    name: str
    entries: Entries
    next_name: str = ""
    changes: Entries = field(default_factory=dict)


_cache: OrderedDict[tuple[str, int], _Cached] = OrderedDict()


def forget_cached() -> None:
    """As in a new worker."""
    _cache.clear()


class Said:
    """The state of a partition after batch ``version``; in ``changes`` goes what the batch after it changes, by key.

    Values are what ``msgpack`` takes, with tuples; None: the key goes. Raises what ``Spool`` raises.
    """

    def __init__(self, files: SpoolFiles, partition: int, version: int, ref: SaidRef | None) -> None:
        self.partition = partition
        self.version = version
        self.changes: Entries = {}
        self._files = files
        self._ref = ref
        self._entries: Entries | None = None

    @classmethod
    def load(cls, spool: Spool, partition: int, version: int) -> Said:
        """The state after batch ``version``; -1 before the first. Its files are read when it is first asked."""
        return cls(spool.files, partition, version, spool.said_ref(partition, version))

    @property
    def entries(self) -> Entries:
        """The state before the changes, by key. Not for changing."""
        if self._entries is None:
            self._entries = {} if self._ref is None else _entries_of(self._files, self.partition, self._ref)
        return self._entries

    def write(self, batch: int, attempt: int, kept: Kept, *, skips: bool = False) -> SaidRef | None:
        """Write the state after ``batch``, which is ``version + 1``; what a manifest must name for it to count.
        ``skips``: there is more to forget than the stable point tells.
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

    def _is_worth_writing(self, ref: SaidRef) -> bool:
        changed = ref.changed + len(self.changes)
        return changed >= _CHANGED_MIN and changed >= 2 * ref.entries

    def _with_changes(self) -> Entries:
        entries = dict(self.entries)
        _apply(entries, self.changes.items())
        return entries

    def _write_whole(self, batch: int, attempt: int, whole: Entries) -> SaidRef:
        name = self._write(batch, attempt, "whole", {"previous": None}, whole)
        _keep((self._files.root, self.partition), _Cached(name, whole))
        return SaidRef(name, name, batch, 0, 0, len(whole), batch)

    def _write_delta(self, batch: int, attempt: int, ref: SaidRef) -> SaidRef:
        changes, entries = self.changes, self.entries
        name = self._write(batch, attempt, "delta", {"previous": ref.name}, changes)
        _keep((self._files.root, self.partition), _Cached(ref.name, entries, name, changes))
        gone = sum(1 for key, value in changes.items() if value is None and key in entries)
        added = sum(1 for key, value in changes.items() if value is not None and key not in entries)
        return SaidRef(
            name, ref.whole, ref.since, ref.deltas + 1, ref.changed + len(changes), ref.entries + added - gone,
            ref.looked,
        )

    def _write(self, batch: int, attempt: int, kind: str, head: dict[str, Any], entries: Entries) -> str:
        name = f"{said_folder(self.partition)}/{batch}-{attempt}-{token()}.{kind}"
        self._files.write_frames(name, kind, _frames(head | {"version": batch}, entries))
        return name


def _entries_of(files: SpoolFiles, partition: int, ref: SaidRef) -> Entries:
    """The state that the chain from ``ref`` on is: what is cached, and the files after it."""
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
    """The file before this one, and its pairs."""
    frames = files.read_frames(name, kind)
    try:
        head = json.loads(frames[0])
        previous, count = head["previous"], head["frames"]
        pairs = [pair for frame in frames[1:] for pair in msgpack.unpackb(frame, use_list=False)]
    except (IndexError, KeyError, TypeError, ValueError, msgpack.exceptions.UnpackException) as problem:
        raise files.damaged(name, f"it is no state: {problem!r}") from problem
    if count != len(frames) - 1 or (kind == "delta") != isinstance(previous, str):
        raise files.damaged(name, f"it has {len(frames) - 1} frames instead of {count}")
    return previous or "", pairs
