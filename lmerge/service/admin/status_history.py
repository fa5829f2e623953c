"""The recent history of a merge for the status page, in ring buffers: output, pauses, and what each input contributed.

``status_feed`` takes a sample once a second. All columns of one merge share the numbers of its samples, so the value of
sample ``n`` stands at place ``n % capacity`` of each. A column has no value (NaN) where its input was not attached.

    capacity 4      sample      0    1    2    3    4    5
                    a.won      10   12    .    .    .    .     a died: its column goes when sample 1 is forgotten
                    b.won       .    3   15   15   14   15     kept: 2, 3, 4, 5

Memory is bounded: ``capacity`` samples, and ``COLUMNS_MAX`` inputs, of which those that ended first are forgotten.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from lmerge.core.merge import InputStatus
from lmerge.service.merge.hub import Hub

# Twice the inputs that a merge may have: those that are attached, and as many that ended during the history.
COLUMNS_MAX: Final = 128
_NO_VALUE: Final = math.nan


class InputCounters(NamedTuple):
    """The counters of one incarnation of an input at a sample."""

    incarnation: int
    won: int
    received: int


class InputColumns:
    """What one input contributed, by sample: output elements that it caused a second, and elements that it sent."""

    def __init__(self, capacity: int) -> None:
        self.won = array("f", [_NO_VALUE]) * capacity
        self.received = array("f", [_NO_VALUE]) * capacity
        self.last = 0  # the last sample with a value
        self.counted: InputCounters | None = None  # at the last sample; None while the input is not attached


class MergeHistory:
    """The history of one merge. ``count``: how many samples were taken. ``first``: the number of the oldest one kept.

    Rates are elements a second; times are seconds of the loop's clock.
    """

    def __init__(self, capacity: int) -> None:
        self.count = 0
        self.inputs: dict[str, InputColumns] = {}
        self._capacity = capacity
        self._at_s = array("d", [0.0]) * capacity
        self._emitted = array("f", [_NO_VALUE]) * capacity
        self._pause_s = array("f", [_NO_VALUE]) * capacity
        self._emitted_count: int | None = None

    @property
    def first(self) -> int:
        return max(0, self.count - self._capacity)

    def take(self, hub: Hub, now_s: float) -> None:
        """Take a sample of the merge."""
        observed = hub.state.observed
        pause_s = hub.state.output.fanout.pauses.take(now_s)
        self.add(now_s, observed.emitted.inserts + observed.emitted.adjusts, pause_s, observed.inputs)

    def add(self, now_s: float, emitted_count: int, pause_s: float | None, inputs: tuple[InputStatus, ...]) -> None:
        """Add a sample. ``emitted_count``: of output elements. ``pause_s``: the longest pause since the last sample."""
        number, place = self.count, self.count % self._capacity
        elapsed_s = now_s - self._at_s[(number - 1) % self._capacity] if number else 0.0
        self._at_s[place] = now_s
        self._emitted[place] = _rate(self._emitted_count, emitted_count, elapsed_s)
        self._emitted_count = emitted_count
        self._pause_s[place] = _NO_VALUE if pause_s is None else pause_s
        self.count += 1
        self._add_inputs(place, inputs, elapsed_s)
        self._forget()

    def _add_inputs(self, place: int, inputs: tuple[InputStatus, ...], elapsed_s: float) -> None:
        attached = {status.name: status for status in inputs}
        for name, columns in self.inputs.items():
            if name not in attached:
                columns.won[place] = columns.received[place] = _NO_VALUE
                columns.counted = None
        for name, status in attached.items():
            columns = self.inputs.get(name) or InputColumns(self._capacity)
            self.inputs[name] = columns
            now = InputCounters(status.incarnation, status.won, status.inserts + status.adjusts + status.stables)
            before = columns.counted
            if before is None or before.incarnation != now.incarnation:  # its counters began at 0 since then
                before = InputCounters(now.incarnation, 0, 0)
            columns.won[place] = _rate(before.won, now.won, elapsed_s)
            columns.received[place] = _rate(before.received, now.received, elapsed_s)
            columns.counted = now
            columns.last = self.count - 1

    def _forget(self) -> None:
        """Forget the inputs that have no value left, and of too many those that ended first."""
        for name in [name for name, columns in self.inputs.items() if columns.last < self.first]:
            del self.inputs[name]
        by_end = sorted(self.inputs, key=lambda name: self.inputs[name].last)
        for name in by_end[: max(0, len(by_end) - COLUMNS_MAX)]:
            del self.inputs[name]

    def since(self, number: int, wall_offset_s: float) -> dict[str, Any]:
        """Return the samples from ``number`` on as columns for JSON. ``wall_offset_s``: what makes times wall times."""
        numbers = range(max(number, self.first), self.count)
        return {
            "from": numbers.start,
            "kept": self._capacity,
            "at_ms": [round((self._at_s[n % self._capacity] + wall_offset_s) * 1000) for n in numbers],
            "out": list(self._shown(self._emitted, numbers, 1)),
            "pause_ms": list(self._shown(self._pause_s, numbers, 1000)),
            "inputs": {
                name: {
                    "won": list(self._shown(columns.won, numbers, 1)),
                    "in": list(self._shown(columns.received, numbers, 1)),
                }
                for name, columns in self.inputs.items()
            },
        }

    def newest(self, name: str) -> tuple[float, float] | None:
        """Return the rates of an input in the newest sample, won and received; None if it has none."""
        columns = self.inputs.get(name)
        if columns is None or columns.last != self.count - 1:
            return None
        place = columns.last % self._capacity
        return columns.won[place], columns.received[place]

    @property
    def newest_output(self) -> float | None:
        """The rate of the output in the newest sample."""
        if not self.count:
            return None
        rate = self._emitted[(self.count - 1) % self._capacity]
        return None if math.isnan(rate) else rate

    def _shown(self, column: array[float], numbers: range, factor: int) -> Iterator[float | None]:
        """Give the values of samples, rounded for people; None where there is none."""
        for number in numbers:
            value = column[number % self._capacity]
            yield None if math.isnan(value) else rounded(value * factor)


def rounded(value: float) -> float:
    """Return ``value`` with as many digits as people read: two below 10, none above 100."""
    if value >= 100:
        return round(value)
    return round(value, 1 if value >= 10 else 2)


def _rate(before: int | None, now: int, elapsed_s: float) -> float:
    if before is None or elapsed_s <= 0:
        return _NO_VALUE
    return max(0, now - before) / elapsed_s
