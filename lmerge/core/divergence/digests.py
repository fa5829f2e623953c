"""Digests of one input's stream: counts and sums on a grid of time, for comparison with other inputs.

A digest holds, for every interval of a fixed grid of Ve, the number of events and the sum mod 2^128 of their 128-bit
hashes. An insert adds an event. An adjust removes the event with the old end and adds it with the new end. An element
with an empty lifetime is no event. The sum does not depend on order and counts repeated events, so equivalent streams
have equal digests, whatever their elements are. Once the input's stable point has reached the end of an interval, no
element can change that interval.

A second grid (``starts``) does the same for (Vs, payload) on Vs. The existence of an event is frozen at the stable
that passes its start, long before its end is frozen (half frozen, III.C).

The hash is not keyed: digests find accidents, not forgeries. Each engine has its own hash, so digests are comparable
within one merge only.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple, Protocol

from lmerge.core.batch import AnyBatch
from lmerge.core.elements import ADJUST, INF, INSERT, NEG_INF

# The interval of +inf, which contains no finite time.
INF_INTERVAL: Final = INF
# Above every interval: an input that has delivered stable(+inf) has completed all intervals.
ALL: Final = INF + 1
_MODULUS: Final = 2**128
_TIMES: Final = Struct("<qq")  # Vs and Ve as they are hashed


class Digest(NamedTuple):
    """One interval of one input. ``starts`` and ``starts_sum`` are 0 where the second grid is not kept."""

    events: int = 0
    events_sum: int = 0
    starts: int = 0
    starts_sum: int = 0

    def text(self, hash_name: str) -> str:
        """Return the digest as text: the name of the hash, then 128 bits in hexadecimal for each grid that is kept."""
        text = f"{hash_name}:{self.events_sum:032x}"
        return f"{text}:{self.starts_sum:032x}" if self.starts or self.starts_sum else text


ZERO: Final = Digest()


class AddOutcome(NamedTuple):
    """The result of ``Digests.add``.

    ``offender``: index of an element that the stream's own stable point forbids; no element from it on was added.
    ``touched``: the first and last interval that the elements change, apart from that of +inf; None if there is none.
    """

    offender: int | None
    touched: tuple[int, int] | None


class Digests(Protocol):
    """The open intervals of one input."""

    @property
    def hash_name(self) -> str: ...
    @property
    def stable_point(self) -> int:
        """The last stable point of the stream."""

    @property
    def overflowed(self) -> bool:
        """Whether there were too many open intervals at once. No element is counted from then on."""

    @property
    def open(self) -> int:
        """Number of open intervals that are not empty."""

    def add(self, batch: AnyBatch, stop: int) -> AddOutcome:
        """Add the first ``stop`` elements of a batch."""

    def take_below(self, bound: int) -> dict[int, Digest]:
        """Remove the intervals below ``bound`` and return those that are not empty."""


def interval_of(t: int, interval: int) -> int:
    """Return the index of the interval that an event with end ``t`` belongs to: floor(t / interval)."""
    return INF_INTERVAL if t == INF else t // interval


def completed_at(stable_point: int, interval: int) -> int:
    """Return the first interval that a stream with this stable point can still change; ALL if there is none."""
    return ALL if stable_point == INF else stable_point // interval


def first_from(t: int | None, interval: int) -> int:
    """Return the first interval in which every event has Ve >= ``t``. ``t`` None: from the beginning."""
    if t is None or t == NEG_INF:
        return NEG_INF
    return INF_INTERVAL if t == INF else -(-t // interval)


def bounds(index: int, interval: int) -> tuple[int, int]:
    """Return [start, end) of an interval, limited to 64 bits; that of +inf is [+inf, +inf]."""
    if index == INF_INTERVAL:
        return INF, INF
    return max(NEG_INF, index * interval), min(INF, (index + 1) * interval)


class PythonDigests:
    """``Digests`` for batches of any kind. They define what the native digests compute."""

    hash_name: Final = "blake2b"

    def __init__(self, interval: int, *, starts: bool, open_max: int) -> None:
        self.stable_point = NEG_INF
        self.overflowed = False
        self._interval = interval
        self._open_max = open_max
        self._ends: dict[int, tuple[int, int]] = {}
        self._starts: dict[int, tuple[int, int]] | None = {} if starts else None

    @property
    def open(self) -> int:
        return max(len(self._ends), len(self._starts or ()))

    def add(self, batch: AnyBatch, stop: int) -> AddOutcome:
        # The costliest loop of a merge in Python beside the merge itself (bench/divergence.py). Most neighbours belong
        # to one interval, [start, end). Its count and sum stay in local variables until another interval comes.
        low, high, offender = INF, NEG_INF, None
        stable_point, interval, counts = self.stable_point, self._interval, not self.overflowed
        is_plain, pack, from_bytes = self._starts is None, _TIMES.pack, int.from_bytes
        start, end, index, events, total = 0, 0, 0, 0, 0
        for at, (kind, vs, ve, vold, payload) in enumerate(batch.rows()):
            if at >= stop:
                break
            if kind not in (INSERT, ADJUST):
                if vs < stable_point:
                    offender = at
                    break
                stable_point = vs
                continue
            if ve < vs or (vs if kind == INSERT else min(ve, vold)) < stable_point:
                offender = at
                break
            if not counts:
                continue
            if not (is_plain and kind == INSERT and vs < ve < INF):
                times = (ve, *((vold,) if kind == ADJUST else ()), *(() if is_plain else (vs,)))
                for t in times:
                    if t < INF:
                        low, high = min(low, t), max(high, t)
                self._count(kind, vs, ve, vold, payload)
                continue
            if not start <= ve < end:
                _add(self._ends, index, events, total)
                index, events, total = ve // interval, 0, 0
                start, end = index * interval, (index + 1) * interval
            if ve < low:
                low = ve
            if ve > high:
                high = ve
            events += 1
            total += from_bytes(blake2b(pack(vs, ve) + payload, digest_size=16).digest(), "little")
        _add(self._ends, index, events, total)
        self.stable_point = stable_point
        if self.open > self._open_max:
            self.overflowed = True
            self._ends.clear()
            (self._starts or {}).clear()
        if low > high:
            return AddOutcome(offender, None)
        return AddOutcome(offender, (interval_of(low, interval), interval_of(high, interval)))

    def take_below(self, bound: int) -> dict[int, Digest]:
        taken = {index: Digest(*self._ends.pop(index)) for index in sorted(self._ends) if index < bound}
        starts = self._starts or {}
        for index in [index for index in sorted(starts) if index < bound]:
            count, total = starts.pop(index)
            taken[index] = taken.get(index, ZERO)._replace(starts=count, starts_sum=total)
        return dict(sorted(taken.items()))

    def _count(self, kind: int, vs: int, ve: int, vold: int, payload: bytes) -> None:
        was, now = kind == ADJUST and vold > vs, ve > vs
        if was and now and vold == ve:
            return
        if now:
            _add(self._ends, interval_of(ve, self._interval), 1, _hash(vs, ve, payload))
        if was:
            _add(self._ends, interval_of(vold, self._interval), -1, -_hash(vs, vold, payload))
        if self._starts is not None and was != now:
            times = 1 if now else -1
            _add(self._starts, interval_of(vs, self._interval), times, times * _hash(vs, vs, payload))


def _hash(vs: int, ve: int, payload: bytes) -> int:
    return int.from_bytes(blake2b(_TIMES.pack(vs, ve) + payload, digest_size=16).digest(), "little")


def _add(sums: dict[int, tuple[int, int]], index: int, events: int, value: int) -> None:
    """Add ``events`` events, whose hashes sum up to ``value``, to an interval."""
    count, total = sums.get(index, (0, 0))
    now = (count + events, (total + value) % _MODULUS)
    if now == (0, 0):
        sums.pop(index, None)
    else:
        sums[index] = now
