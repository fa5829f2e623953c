"""Joins of two streams (sheets O4 to O6): by key, by predicate or both; inner, left, right and full outer; anti.

A pair of matching events is in the output where both are valid: ``[max Vs, min Ve)``. An outer join also has the parts
of its events without any match, with missing values for the other input's columns. An anti-join has those of the left
input alone, and nothing else. The columns are those of the left input, then those of the right one, whatever order the
plan joins in.

A change of one event affects only events of the other input that overlap what changes of its lifetime. So a match that
arrives inside a part without one adjusts the end of that part and inserts the rest behind it: all at or behind the
stable point, which is the lesser of the two inputs'.

A predicate is called for each pair whose lifetimes overlap what changes, as often as they do. It must give the same for
the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import LimitExceeded, LmergeError
from lmerge.temporal.changes import Change, Delta, Lifetime, differences
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.operators.join_side import JoinInput, JoinSide
from lmerge.temporal.operators.operator import Due
from lmerge.temporal.operators.skipping import SkippedEvents, SkippingOperator
from lmerge.temporal.operators.truth import is_kept
from lmerge.temporal.user_code import is_interrupt
from lmerge.temporal.values import OrderKey, Values
from lmerge.text_enum import TextEnum

# Pairs that a step compares: some seconds of work. A nested loop over more is a plan to change.
PAIRS_MAX: Final = 10_000_000


class JoinKind(TextEnum):
    """Which parts of the inputs' events are in the output beside the pairs; an anti-join has no pairs."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    ANTI = "anti"

    @property
    def reports_left(self) -> bool:
        """Whether parts of left events without a match are in the output."""
        return self in (JoinKind.LEFT, JoinKind.FULL, JoinKind.ANTI)

    @property
    def reports_right(self) -> bool:
        """Whether parts of right events without a match are in the output."""
        return self in (JoinKind.RIGHT, JoinKind.FULL)


@dataclass(frozen=True)
class JoinRules:
    """What is joined and how. ``predicate``: of the left row with the right row behind it; ``shown``: it, for messages.

    ``pairs_max``: how many pairs a step compares at most.
    """

    kind: JoinKind
    left: JoinInput
    right: JoinInput
    predicate: Callable[[Values], Any] | None = None
    shown: str = "a predicate"
    pairs_max: int = PAIRS_MAX


class JoinOperator(SkippingOperator):
    """A join. Raises PlanError if only one input has a key.

    ``step`` raises LimitExceeded, or ModuleViolation for its predicate. The operator cannot go on then.
    """

    def __init__(self, name: str, output_key: OrderKey, rules: JoinRules) -> None:
        left, right, kind = rules.left, rules.right, rules.kind
        if (left.key_of is None) != (right.key_of is None):
            raise PlanError(f"{name}: only one input of the join has a key")
        if left.key_of is None and rules.predicate is None:
            raise PlanError(f"{name}: a join takes a key of both inputs, a predicate, or both")
        # What ends early can be left out unless parts of the other input's events begin where it ends.
        super().__init__(
            name,
            output_key,
            [
                None if kind.reports_right else SkippedEvents(left.key),
                None if kind.reports_left else SkippedEvents(right.key),
            ],
        )
        self._rules = rules
        self._sides = JoinSide(left, kind.reports_left), JoinSide(right, kind.reports_right)
        self._compared = 0
        # By side: events whose parts without a match may change in this step, with their key and the parts before it.
        self._before: tuple[dict[tuple[Values, int], tuple[Values, list[Lifetime]]], ...] = ({}, {})

    def _step(self, deltas: Sequence[Delta]) -> Delta:
        changes: list[Change] = []
        self._compared = 0
        for at, delta in enumerate(deltas):
            for change in delta.changes:
                self._take(at, change, changes)
        for at, before in enumerate(self._before):
            for (row, vs), (key, parts) in before.items():
                changes += differences(parts, self._unmatched(at, key, row, vs))
            before.clear()
        return self._emit_merged(changes, self._move_stables([delta.stable for delta in deltas]))

    def fast_forward(self, t: int) -> list[int]:
        """Learn that the consumer needs no event that ends before ``t``; return the same for each input.

        An input whose events cover others is needed wherever the other input has, or can still get, an event.
        What ends before the first such event has no part in the output, unless it is reported itself.
        """
        needed = super().fast_forward(t)
        for at, skip in enumerate(self._skips):
            if skip is None:
                other = self._sides[1 - at]
                unmatched = _behind(min(other.stable, other.first_start))
                needed[at] = min(unmatched, self.fast_forwarded) if self._sides[at].reports else unmatched
        return needed

    def next_due(self) -> Due:
        """Return the first stable point of both inputs at which an event can be dropped."""
        return Due(min(super().next_due().stable, *(side.next_due for side in self._sides)))

    def live(self) -> int:
        """Return the number of events that are kept."""
        return super().live() + sum(map(len, self._sides))

    def state(self) -> dict[str, Any]:
        """Return what the operator has to know to go on, as plain values."""
        return super().state() | {"sides": [side.state() for side in self._sides]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` has returned. The operator is a new one."""
        super().restore(state)
        for side, kept in zip(self._sides, state["sides"], strict=True):
            side.restore(kept)

    def check(self) -> None:
        """Assert the invariants of both sides."""
        super().check()
        for at, side in enumerate(self._sides):
            side.check()
            if side.stable < INF:
                assert self.stable <= side.stable
            assert not self._before[at]

    # One change.

    def _take(self, at: int, change: Change, changes: list[Change]) -> None:
        """Append the changes of pairs, note the events whose unmatched parts may change, and keep the event."""
        row, vs, old, new = change
        side, other = self._sides[at], self._sides[1 - at]
        key = side.given.match_key(row)
        if key is None:
            if side.reports:
                changes.append(Change(self._padded(at, row), vs, old, new))
            return
        if side.reports:
            self._note(at, key, row, vs)
        for match in self._matches(at, key, row, min(old, new), max(old, new)):
            if other.reports:
                self._note(1 - at, key, match.row, match.vs)
            if self._rules.kind is not JoinKind.ANTI:
                start = max(vs, match.vs)
                before, after = max(start, min(old, match.ve)), max(start, min(new, match.ve))
                if before != after:
                    changes.append(Change(self._paired(at, row, match.row), start, before, after))
        side.apply(key, change)

    def _matches(self, at: int, key: Values, row: Values, start: int, end: int) -> list[Lifetime]:
        """Return the events of the other side that match a row and overlap ``[start, end)``, by their end."""
        found = []
        for event in self._sides[1 - at].overlapping(key, start, end):
            self._compared += 1
            if self._compared > self._rules.pairs_max:
                raise LimitExceeded(f"{self.name}: a step compares more than {self._rules.pairs_max} pairs (pairs_max)")
            if self._rules.predicate is None or self._is_match(self._paired(at, row, event.row)):
                found.append(event)
        return found

    def _is_match(self, pair: Values) -> bool:
        assert self._rules.predicate is not None
        try:
            value = self._rules.predicate(pair)
        except BaseException as error:
            if isinstance(error, LmergeError) or is_interrupt(error):
                raise
            raise ModuleViolation(f"{self.name}: {self._rules.shown} raised {error!r} for the row {pair}") from error
        return is_kept(value, self.name, self._rules.shown, pair)

    def _paired(self, at: int, row: Values, other: Values) -> Values:
        return row + other if at == 0 else other + row

    # Parts without a match.

    def _padded(self, at: int, row: Values) -> Values:
        if self._rules.kind is JoinKind.ANTI:
            return row
        return self._paired(at, row, (None,) * self._sides[1 - at].given.width)

    def _note(self, at: int, key: Values, row: Values, vs: int) -> None:
        """Note the unmatched parts of an event before anything of this step changes them."""
        if (row, vs) not in self._before[at]:
            self._before[at][row, vs] = key, self._unmatched(at, key, row, vs)

    def _unmatched(self, at: int, key: Values, row: Values, vs: int) -> list[Lifetime]:
        """Return the parts of the events of a row and start that no event matches, but for what is final."""
        parts = self._sides[at].unmatched.get((row, vs))
        if parts is None:
            return []
        gaps, reach = [], parts.covered
        matches = self._matches(at, key, row, reach, max(parts.ends))
        for match in sorted(matches, key=lambda event: event.vs):
            if match.vs > reach:
                gaps.append((reach, match.vs))
            reach = max(reach, match.ve)
        gaps.append((reach, INF))
        padded = self._padded(at, row)
        return [
            Lifetime(padded, start, min(stop, end))
            for end in parts.ends
            for start, stop in gaps
            if start < min(stop, end)
        ]

    # Time.

    def _move_stables(self, stables: Iterable[int | None]) -> int | None:
        """Take the inputs' stables and drop what they free; return the output's, or None if neither has moved."""
        moved = False
        for side, stable in zip(self._sides, stables, strict=True):
            if stable is not None:
                side.stable, moved = max(side.stable, stable), True
        if not moved:
            return None
        for at, side in enumerate(self._sides):
            other = self._sides[1 - at]
            # RE <= the other's stable, so nothing that comes there overlaps it; RE < its own, so it cannot change.
            final = INF if side.stable == INF else max(NEG_INF, side.stable - 1)
            for key, event in side.drop_until(min(other.stable, final)):
                if other.reports:
                    self._cover(at, key, event)
        return min(side.stable for side in self._sides)

    def _cover(self, at: int, key: Values, dropped: Lifetime) -> None:
        """Leave the end of a dropped event with the events of the other side that it matches."""
        for row, vs, _ in self._matches(at, key, dropped.row, dropped.vs, dropped.ve):
            parts = self._sides[1 - at].unmatched[row, vs]
            parts.covered = max(parts.covered, dropped.ve)


def _behind(t: int) -> int:
    """Return the time before which an event must end so that it does not reach behind ``t``."""
    return t if t in (NEG_INF, INF) else t + 1
