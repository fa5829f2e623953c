"""Keeps the recent batches of all inputs, so that a mismatch can be named down to the events that differ.

A digest shows *that* two inputs differ in an interval; the batches show *which events* differ. Batches are kept as
references, not copies, up to a number of bytes; the oldest are dropped first. A batch is dropped once no interval that
it touches can be compared any more. The events read for an interval are digested again. The findings are complete only
if that gives the digest that was compared.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from lmerge.core.batch import AnyBatch, BatchBuilder
from lmerge.core.divergence.digests import ALL, INF_INTERVAL, ZERO, Digest, interval_of
from lmerge.core.divergence.engine_digests import digests_of
from lmerge.core.elements import ADJUST, STABLE, Event

DIFFERENCES_MAX: Final = 16
# About 0.3 s of reading. An interval with more elements should be compared at a shorter length.
READ_ELEMENTS_MAX: Final = 250_000
# Bytes of an element in the columns, without its payload.
_ELEMENT_BYTES: Final = 29


class Difference(NamedTuple):
    """An event that not all inputs have equally often.

    ``present``: how often each input has it, by name. ``absent``: the names of the inputs without it.
    """

    event: Event
    present: dict[str, int]
    absent: tuple[str, ...]


class Findings(NamedTuple):
    """The first differences, in order of (vs, payload, ve).

    ``missing``: why there may be more differences; empty if these are all.
    """

    differences: tuple[Difference, ...] = ()
    missing: str = ""


class _KeptBatch(NamedTuple):
    """A batch of the input ``name``, of which the first ``stop`` elements were delivered."""

    name: str
    life: int
    batch: AnyBatch
    stop: int
    size: int
    first: int
    last: int  # the last interval touched, apart from that of +inf


class Evidence:
    """The kept batches of one merge. ``bytes_max`` 0: none are kept."""

    def __init__(self, engine: str, interval: int, *, starts: bool, bytes_max: int) -> None:
        self.bytes = 0
        self._engine = engine
        self._interval = interval
        self._starts = starts
        self._bytes_max = bytes_max
        self._kept: deque[_KeptBatch] = deque()

    def keep(self, name: str, life: int, batch: AnyBatch, stop: int, touched: tuple[int, int] | None) -> None:
        """Keep the first ``stop`` elements of a batch that touches these intervals.

        ``life``: the life of the input, which delivers its live events again in each life.
        """
        if not self._bytes_max or touched is None:
            return
        kept = _KeptBatch(name, life, batch, stop, _size(batch), *touched)
        self._kept.append(kept)
        self.bytes += kept.size
        while self.bytes > self._bytes_max:
            self.bytes -= self._kept.popleft().size

    def forget_below(self, bound: int) -> None:
        """Drop the batches that touch only intervals below ``bound``: those intervals are not read again."""
        self._kept = deque(kept for kept in self._kept if kept.last >= bound)
        self.bytes = sum(kept.size for kept in self._kept)

    def forget(self, name: str) -> None:
        """Drop the batches of this input."""
        self._kept = deque(kept for kept in self._kept if kept.name != name)
        self.bytes = sum(kept.size for kept in self._kept)

    def read(self, index: int, digests: Mapping[str, Digest], lives: Mapping[str, int]) -> Findings:
        """Return what differs in an interval between inputs.

        ``digests``: their digests of the interval, by name. ``lives``: the lives in which they delivered it.
        """
        if not self._bytes_max:
            return Findings(missing="no elements are kept")
        batches = [kept for kept in self._kept if lives.get(kept.name) == kept.life and kept.first <= index]
        batches = [kept for kept in batches if index <= kept.last or index == INF_INTERVAL]
        elements = sum(kept.stop for kept in batches)
        if elements > READ_ELEMENTS_MAX:
            return Findings(missing=f"the interval is in {elements} elements; at most {READ_ELEMENTS_MAX} are read")
        ends: dict[str, Counter[Event]] = {name: Counter() for name in digests}
        starts: dict[str, Counter[Event]] = {name: Counter() for name in digests}
        for kept in batches:
            self._read(kept, index, ends[kept.name], starts[kept.name])
        incomplete = sorted(
            name for name, digest in digests.items() if not self._is_all(index, digest, ends[name], starts[name])
        )
        if incomplete:
            return Findings(missing=f"the elements of {', '.join(incomplete)} are no longer kept")
        found = _differing(ends)
        if self._starts:
            found += [d for d in _differing_starts(starts) if d.event not in {known.event for known in found}]
        found.sort(key=lambda difference: difference.event)
        more = len(found) - DIFFERENCES_MAX
        return Findings(tuple(found[:DIFFERENCES_MAX]), f"{more} more events differ" if more > 0 else "")

    def _read(self, kept: _KeptBatch, index: int, ends: Counter[Event], starts: Counter[Event]) -> None:
        """Count the events that a batch adds to the interval or removes from it: by their ends, and by their starts."""
        interval = self._interval
        for at, (kind, vs, ve, vold, payload) in enumerate(kept.batch.rows()):
            if at >= kept.stop:
                break
            if kind == STABLE:
                continue
            begins = self._starts and interval_of(vs, interval) == index
            for end, times in ((ve, 1), (vold, -1)) if kind == ADJUST else ((ve, 1),):
                if end == vs:
                    continue
                if interval_of(end, interval) == index:
                    ends[Event(vs, payload, end)] += times
                if begins:
                    starts[Event(vs, payload, end)] += times

    def _is_all(self, index: int, digest: Digest, ends: Counter[Event], starts: Counter[Event]) -> bool:
        """Return whether these events are those from which the digest was computed."""
        read = digests_of(self._engine, self._interval, starts=self._starts, open_max=2**31)
        again = BatchBuilder()
        for event, times in _events(ends, starts).items():
            for _ in range(abs(times)):
                if times > 0:
                    again.insert(event.payload, event.vs, event.ve)
                else:
                    again.adjust(event.payload, event.vs, event.ve, event.vs)
        batch = again.build()
        read.add(batch, batch.count)
        found = read.take_below(ALL).get(index, ZERO)
        ends_equal = found[:2] == digest[:2]
        return ends_equal and (not self._starts or _starts_of(found) == _starts_of(digest))


def _starts_of(digest: Digest) -> tuple[int, int]:
    return digest.starts, digest.starts_sum


def _events(ends: Counter[Event], starts: Counter[Event]) -> Counter[Event]:
    """Merge both counters: each event once, whether it was counted by its end, its start, or both."""
    both = Counter(starts)
    both.update({event: times for event, times in ends.items() if event not in starts})
    return both


def _differing(found: Mapping[str, Counter[Event]]) -> list[Difference]:
    events = {event for counts in found.values() for event, times in counts.items() if times}
    differences = []
    for event in sorted(events):
        times = {name: counts[event] for name, counts in found.items()}
        if len(set(times.values())) > 1:
            differences.append(_difference(event, times))
    return differences


def _differing_starts(found: Mapping[str, Counter[Event]]) -> list[Difference]:
    """Return the events that do not exist equally often in all inputs. Their ends, not frozen yet, may differ."""
    by_key: dict[tuple[int, bytes], dict[str, int]] = {}
    ends: dict[tuple[int, bytes], int] = {}
    for name, counts in found.items():
        for event, times in counts.items():
            key = (event.vs, event.payload)
            here = by_key.setdefault(key, dict.fromkeys(found, 0))
            here[name] += times
            if times > 0:
                ends[key] = min(event.ve, ends.get(key, event.ve))
    return [
        _difference(Event(key[0], key[1], ends.get(key, key[0])), times)
        for key, times in sorted(by_key.items())
        if len(set(times.values())) > 1
    ]


def _difference(event: Event, times: Mapping[str, int]) -> Difference:
    present = {name: count for name, count in times.items() if count}
    return Difference(event, present, tuple(name for name, count in times.items() if not count))


def _size(batch: AnyBatch) -> int:
    return batch.payload_sizes[0] + _ELEMENT_BYTES * batch.count
