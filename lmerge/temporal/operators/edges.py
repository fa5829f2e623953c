"""Edge events: each sample of a key becomes an event that lasts until the next one (E7; sheet O13).

In SQL, over the samples that hold::

    select *, vs, coalesce(lead(vs) over (partition by key order by vs), 'infinity') as ve from samples

A late sample cuts the one before it short, and a sample that is removed gives its time back. ``lasts`` limits how long
a sample holds. Without it the last sample of every key is kept, so the state grows with the number of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lmerge.core.calendar import Calendar
from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.errors import UsageError
from lmerge.temporal.changes import Change, Delta, Lifetime, differences
from lmerge.temporal.errors import PlanError
from lmerge.temporal.operators.lifetimes import plus
from lmerge.temporal.operators.operator import Due, PlanOperator, row_of_state, state_of_row
from lmerge.temporal.operators.samples import Samples
from lmerge.temporal.values import OrderKey, Values, show_values
from lmerge.text_enum import TextEnum


class SampleTies(TextEnum):
    """What two different samples of one key at one time are: the later row holds, or it is an error."""

    LAST = "last"
    ERROR = "error"


class EdgeOperator(PlanOperator):
    """Samples extended to the next one of their key. Raises PlanError if ``lasts`` is no duration.

    ``step`` raises UsageError for two samples at one time if ``ties`` does not allow them; it cannot go on then.
    """

    def __init__(
        self,
        name: str,
        key: OrderKey,
        key_of: Callable[[Values], Values],
        ties: SampleTies = SampleTies.LAST,
        lasts: int | None = None,
    ) -> None:
        super().__init__(name, key)
        if lasts is not None and lasts < 1:
            raise PlanError(f"{name}: a sample lasts {lasts}; it takes at least 1 unit of time")
        self._key_of, self._ties, self._lasts = key_of, ties, lasts
        self._samples: dict[Values, Samples] = {}
        # [when samples of a key can be dropped at the earliest, the key].
        self._due = Calendar()
        self._input_stable = NEG_INF

    def step(self, deltas: Sequence[Delta]) -> Delta:
        """Take a batch of samples. Adjusts of their ends have no effect."""
        (delta,) = deltas
        changes: list[Change] = []
        for change in delta.changes:
            if change.is_insert or change.new == change.vs:
                changes += self._take(change)
        if delta.stable is not None:
            self._move_stable(delta.stable)
        return self._emit_merged(changes, delta.stable)

    def fast_forward(self, t: int) -> list[int]:
        """Learn that the consumer needs no event that ends before ``t``; return the same for the samples.

        Any sample can be the last one of its key before ``t``, unless it lasts only so long.
        """
        super().fast_forward(t)
        if self._lasts is None or t == NEG_INF:
            return [NEG_INF]
        return [max(NEG_INF, self.fast_forwarded - self._lasts + 1)]

    def next_due(self) -> Due:
        """Return the first stable point at which a sample can be dropped."""
        return Due(plus(self._due.first_due(), 1))

    def live(self) -> int:
        """Return the number of samples that are kept."""
        return sum(map(len, self._samples.values()))

    def state(self) -> dict[str, Any]:
        """Return what the operator has to know to go on, as plain values."""
        samples = sorted(self._samples.items(), key=lambda item: item[1].order)
        kept = [[state_of_row(key), of_key.state()] for key, of_key in samples]
        return super().state() | {"input_stable": self._input_stable, "samples": kept}

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` has returned. The operator is a new one."""
        super().restore(state)
        self._input_stable = state["input_stable"]
        for key, kept in state["samples"]:
            self._samples[row_of_state(key)] = samples = Samples(self._key)
            samples.restore(kept)
            for t, _ in kept:
                self._due.add([t, row_of_state(key)])

    def check(self) -> None:
        """Assert that every key has samples, and none that the next one has ended before the stable point."""
        self._due.check()
        for samples in self._samples.values():
            assert len(samples)
            samples.check(self._input_stable)

    def _take(self, change: Change) -> list[Change]:
        """Add or remove a sample; return how it changes the output: by its own event and the one before it."""
        row, vs, _, _ = change
        key = self._key_of(row)
        samples = self._samples.get(key)
        if samples is None:
            samples = self._samples[key] = Samples(self._key)
        before = samples.last_before(vs)
        times = (vs,) if before is None else (before, vs)
        old = self._events(samples, times)
        if change.is_insert:
            if self._ties is SampleTies.ERROR and any(other != row for other in samples.at(vs)):
                rows = " and ".join(sorted(show_values(one) for one in (row, *samples.at(vs))))
                raise UsageError(f"{self.name}: there are two samples of one key at {show_time(vs)}: {rows}")
            samples.add(vs, row)
            self._due.add([vs, key])
        else:
            samples.remove(vs, row)
            if not len(samples):
                del self._samples[key]
        return differences(old, self._events(samples, times))

    def _events(self, samples: Samples, times: Sequence[int]) -> list[Lifetime]:
        found = []
        for t in times:
            row = samples.holder(t)
            if row is not None:
                end = samples.next_after(t)
                found.append(Lifetime(row, t, end if self._lasts is None else min(end, plus(t, self._lasts))))
        return [event for event in found if event.vs < event.ve]

    def _move_stable(self, stable: int) -> None:
        """Drop the samples that nothing can change any more: before the stable point those with a next one."""
        self._input_stable = max(self._input_stable, stable)
        if stable == INF:
            self._samples.clear()
            return
        for _, key in self._due.pop_below(self._input_stable):
            samples = self._samples.get(key)
            if samples is None:
                continue
            samples.drop_before(self._input_stable, self._lasts)
            if not len(samples):
                del self._samples[key]
            elif self._lasts is not None and samples.first is not None and samples.first < self._input_stable:
                self._due.add([samples.first + self._lasts - 1, key])
