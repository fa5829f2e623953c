"""As-of join: each left event with the sample of its key that holds at its start (sheet O16).

In SQL::

    select l.*, s.*, l.vs, l.ve from l asof [left] join s on l.key = s.key and l.vs >= s.vs

The result lives as long as the left event. A sample holds until the next one of its key, whatever its own end, but with
``within`` at most that long. Where a sample must be valid by its own lifetime, or a result must change when the next
sample comes, edges and a join do it.

A late sample changes the results of left events that start behind it, so at or behind the stable point of the samples:
the output is stable where both inputs are. A left event is kept until it is fully frozen and its sample final. Of the
samples before both stable points only the last one of each key is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from sortedcontainers import SortedDict

from lmerge.core.calendar import Calendar
from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.errors import PlanError
from lmerge.temporal.operators.join_side import JoinInput
from lmerge.temporal.operators.lifetimes import plus
from lmerge.temporal.operators.operator import Due, row_of_state, state_of_row
from lmerge.temporal.operators.samples import Samples
from lmerge.temporal.operators.skipping import SkippedEvents, SkippingOperator
from lmerge.temporal.values import OrderKey, Values


class LeftEvents:
    """The left events of one key and start: how many of each row and end, and the sample that they have."""

    __slots__ = ("events", "sample")

    def __init__(self, sample: Values | None) -> None:
        self.sample = sample
        self.events: Counter[tuple[Values, int]] = Counter()


class AsOfKey:
    """The samples of one key, and its left events by start."""

    __slots__ = ("lefts", "samples")

    def __init__(self, key: OrderKey) -> None:
        self.samples = Samples(key)
        self.lefts: SortedDict[int, LeftEvents] = SortedDict()


class AsOfJoinOperator(SkippingOperator):
    """An as-of join. ``is_outer``: a left event without a sample is in the output, with missing values.

    Raises PlanError if ``within`` is no duration. A key with a missing value has no samples.
    """

    def __init__(
        self,
        name: str,
        output_key: OrderKey,
        left: JoinInput,
        right: JoinInput,
        *,
        is_outer: bool = False,
        within: int | None = None,
    ) -> None:
        super().__init__(name, output_key, [SkippedEvents(left.key), None])
        if within is not None and within < 0:
            raise PlanError(f"{name}: a sample holds within {within}; it takes 0 units of time or more")
        self._left, self._right, self._is_outer, self._within = left, right, is_outer, within
        self._keys: dict[Values, AsOfKey] = {}
        self._stables = [NEG_INF, NEG_INF]
        # [when left events can be dropped, key, start], by the left stable; then by the right, if their sample is not
        # final yet.
        self._by_left, self._by_right = Calendar(), Calendar()
        # [when samples can be dropped, key], by the lesser stable.
        self._by_both = Calendar()

    def _step(self, deltas: Sequence[Delta]) -> Delta:
        left, right = deltas
        changes: list[Change] = []
        for change in left.changes:
            changes += self._take_left(change)
        for change in right.changes:
            changes += self._take_sample(change)
        moved = False
        for at, delta in enumerate(deltas):
            if delta.stable is not None:
                self._stables[at], moved = max(self._stables[at], delta.stable), True
        if moved:
            self._drop()
        return self._emit_merged(changes, min(self._stables) if moved else None)

    def fast_forward(self, t: int) -> list[int]:
        """Learn that the consumer needs no event that ends before ``t``; return the same for each input.

        Any sample can be the last one of its key, unless left events start only when it does not hold any more.
        """
        needed = super().fast_forward(t)
        if self._within is not None:
            starts = (of_key.lefts.keys()[0] for of_key in self._keys.values() if of_key.lefts)
            first = min(self._stables[0], min(starts, default=INF))
            needed[1] = first if first in (NEG_INF, INF) else max(NEG_INF, first - self._within + 1)
        return needed

    def next_due(self) -> Due:
        """Return the first stable point of both inputs at which a left event or a sample can be dropped."""
        first = min(calendar.first_due() for calendar in (self._by_left, self._by_right, self._by_both))
        return Due(min(super().next_due().stable, plus(first, 1)))

    def live(self) -> int:
        """Return the number of left events and samples that are kept."""
        count = super().live()
        for of_key in self._keys.values():
            count += len(of_key.samples) + sum(entry.events.total() for entry in of_key.lefts.values())
        return count

    def state(self) -> dict[str, Any]:
        """Return what the operator has to know to go on, as plain values."""
        lefts = [
            (vs, self._left.key(row), end, [vs, state_of_row(row), end, count, state_of_row(entry.sample)])
            for of_key in self._keys.values()
            for vs, entry in of_key.lefts.items()
            for (row, end), count in entry.events.items()
        ]
        lefts.sort(key=lambda left: left[:3])
        with_samples = [(key, of_key.samples) for key, of_key in self._keys.items() if len(of_key.samples)]
        with_samples.sort(key=lambda item: item[1].order)
        samples = [[state_of_row(key), kept.state()] for key, kept in with_samples]
        return super().state() | {
            "stables": list(self._stables),
            "lefts": [left[3] for left in lefts],
            "samples": samples,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` has returned. The operator is a new one."""
        super().restore(state)
        self._stables = list(state["stables"])
        for plain, kept in state["samples"]:
            key = row_of_state(plain)
            self._of(key).samples.restore(kept)
            for t, _ in kept:
                self._by_both.add([t, key])
        for vs, plain, end, count, sample in state["lefts"]:
            row = row_of_state(plain)
            key = self._left.match_key(row)
            assert key is not None, "a row that matches none was kept"
            entry = self._of(key).lefts.setdefault(vs, LeftEvents(row_of_state(sample)))
            entry.events[row, end] = count
            self._by_left.add([end, key, vs])

    def check(self) -> None:
        """Assert that left events have the sample that holds, and that nothing is kept that is final."""
        super().check()
        for calendar in (self._by_left, self._by_right, self._by_both):
            calendar.check()
        for of_key in self._keys.values():
            assert of_key.lefts or len(of_key.samples)
            of_key.samples.check(min(self._stables))
            for vs, entry in of_key.lefts.items():
                assert vs < self._stables[1] or entry.sample == self._sample(of_key, vs)
                assert entry.events
                for _, end in entry.events:
                    assert end >= self._stables[0] or vs >= self._stables[1]

    # Changes.

    def _take_left(self, change: Change) -> Iterator[Change]:
        row, vs, old, new = change
        key = self._left.match_key(row)
        if key is None:
            yield from self._results(row, None, vs, old, new)
            return
        of_key = self._of(key)
        entry = self._entry(of_key, vs)
        yield from self._results(row, entry.sample, vs, old, new)
        if old > vs:
            entry.events[row, old] -= 1
            if not entry.events[row, old]:
                del entry.events[row, old]
        if new > vs:
            entry.events[row, new] += 1
            self._by_left.add([new, key, vs])
        self._tidy(key, of_key, vs)

    def _take_sample(self, change: Change) -> Iterator[Change]:
        """Take a new or removed sample, and match the left events anew from its time up to the next one."""
        row, t, old, new = change
        key = self._right.match_key(row)
        if key is None or (old > t and new > t):
            return
        if self._stables[0] == INF and key not in self._keys:
            return  # no left event comes any more
        of_key = self._of(key)
        if change.is_insert:
            of_key.samples.add(t, row)
            self._by_both.add([t, key])
        else:
            of_key.samples.remove(t, row)
        for vs in of_key.lefts.irange(t, of_key.samples.next_after(t), inclusive=(True, False)):
            entry = of_key.lefts[vs]
            before, entry.sample = entry.sample, self._sample(of_key, vs)
            if before != entry.sample:
                for (left, end), count in entry.events.items():
                    for _ in range(count):
                        yield from self._results(left, before, vs, end, vs)
                        yield from self._results(left, entry.sample, vs, vs, end)
        self._tidy(key, of_key, None)

    def _results(self, row: Values, sample: Values | None, vs: int, old: int, new: int) -> Iterator[Change]:
        if sample is not None:
            yield Change(row + sample, vs, old, new)
        elif self._is_outer:
            yield Change(row + (None,) * self._right.width, vs, old, new)

    def _sample(self, of_key: AsOfKey, vs: int) -> Values | None:
        """Return the sample that holds at ``vs``."""
        t = vs if of_key.samples.at(vs) else of_key.samples.last_before(vs)
        if t is None or (self._within is not None and t + self._within < vs):
            return None
        return of_key.samples.holder(t)

    def _of(self, key: Values) -> AsOfKey:
        of_key = self._keys.get(key)
        if of_key is None:
            of_key = self._keys[key] = AsOfKey(self._right.key)
        return of_key

    def _entry(self, of_key: AsOfKey, vs: int) -> LeftEvents:
        if vs not in of_key.lefts:
            of_key.lefts[vs] = LeftEvents(self._sample(of_key, vs))
        entry: LeftEvents = of_key.lefts[vs]
        return entry

    def _tidy(self, key: Values, of_key: AsOfKey, vs: int | None) -> None:
        """Drop a start without left events, and a key without anything, or with samples that no left event can get."""
        if vs is not None and not of_key.lefts[vs].events:
            del of_key.lefts[vs]
        if not of_key.lefts and (not len(of_key.samples) or self._stables[0] == INF):
            self._keys.pop(key, None)

    # Time.

    def _drop(self) -> None:
        left, right = self._stables
        both = min(left, right)
        if left == INF:
            due = [(key, vs) for key, of_key in self._keys.items() for vs in of_key.lefts]
        else:
            due = [(key, vs) for _, key, vs in self._by_left.pop_below(left)]
        due += [(key, vs) for _, key, vs in self._by_right.pop_below(right)]
        for key, vs in due:
            self._drop_left(key, vs)
        keys = list(self._keys) if left == INF else [key for _, key in self._by_both.pop_below(both)]
        for key in keys:
            of_key = self._keys.get(key)
            if of_key is None:
                continue
            # A sample of the last unit of time before both stables can still be within reach of the first left event.
            of_key.samples.drop_before(both, None if self._within is None else self._within + 1)
            first = of_key.samples.first
            if self._within is not None and first is not None and first < both:
                self._by_both.add([first + self._within, key])
            self._tidy(key, of_key, None)

    def _drop_left(self, key: Values, vs: int) -> None:
        """Drop the left events of a start that are fully frozen, or come back when their sample is final."""
        of_key = self._keys.get(key)
        entry = None if of_key is None else of_key.lefts.get(vs)
        if of_key is None or entry is None:
            return
        if vs >= self._stables[1] and self._stables[1] < INF:
            self._by_right.add([vs, key, vs])
            return
        left = self._stables[0]
        for event in [event for event in entry.events if event[1] < left or left == INF]:
            del entry.events[event]
        self._tidy(key, of_key, vs)
