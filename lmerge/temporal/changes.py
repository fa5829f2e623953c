"""What flows between operators: changes of events in batches, and how two tables differ.

A ``Change`` moves the end of one event: an insert moves it up from the start, a removal moves it down to the start, and
an adjust moves it between two ends. So insert and adjust are one case for an operator. Elements have the three kinds of
the merge (``lmerge.core.elements``) only where a stream enters or leaves a plan.

A ``Delta`` is one batch of changes and at most one stable behind them. An operator's output for a batch is the
difference between what it has emitted and what it must have emitted now (``differences``), in an order of its own:
adjusts and removals first, then inserts, each in order of start and row. So the output depends neither on the order in
which changes came within a batch, nor on the order of a hash table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.temporal.values import OrderKey, Values, show_values


class Change(NamedTuple):
    """An event (row, vs) whose end moves from ``old`` to ``new``; an end at ``vs`` is no event."""

    row: Values
    vs: int
    old: int
    new: int

    @property
    def is_insert(self) -> bool:
        """Whether the event is new."""
        return self.old == self.vs

    @property
    def sync_time(self) -> int:
        """The earliest time at which the table changes (seed 000, II.A)."""
        return min(self.old, self.new)

    def __str__(self) -> str:
        row, times = show_values(self.row), show_time(self.vs)
        if self.is_insert:
            return f"insert({row}, {times}, {show_time(self.new)})"
        return f"adjust({row}, {times}, {show_time(self.old)}, {show_time(self.new)})"


class Lifetime(NamedTuple):
    """An event of a table: a row with the lifetime ``[vs, ve)``."""

    row: Values
    vs: int
    ve: int

    def __str__(self) -> str:
        return f"{show_values(self.row)} [{show_time(self.vs)}, {show_time(self.ve)})"


class Delta(NamedTuple):
    """A batch of changes, and the stable point and the watermark behind them; None where they do not move.

    The watermark is the latest start that the stream's sources have had. It goes through a plan with the batches,
    because changes that cancel each other within a batch reach no operator: without it, how a stream is cut into
    batches would decide which windows have begun.
    """

    changes: list[Change]
    stable: int | None = None
    mark: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not self.changes and self.stable is None and self.mark is None


NOTHING_CHANGES: Final = Delta([], None)


def differences(before: Iterable[Lifetime], after: Iterable[Lifetime]) -> list[Change]:
    """Return the smallest changes that make one multiset of events another, in no useful order.

    Where a row of one start is in both, its end is adjusted. It is removed or inserted only where it is in one of them
    (departure D8: a full retraction of an event that goes on can lie below the stable point).
    """
    ends: defaultdict[tuple[Values, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for row, vs, ve in before:
        ends[row, vs][0].append(ve)
    for row, vs, ve in after:
        ends[row, vs][1].append(ve)
    changes: list[Change] = []
    for (row, vs), (old, new) in ends.items():
        if old != new:
            _match_ends(row, vs, old, new, changes)
    return changes


def _match_ends(row: Values, vs: int, old: list[int], new: list[int], changes: list[Change]) -> None:
    """Append the changes of the ends of one row and start: in both lists the smallest goes with the smallest."""
    left, added = _without(old, new), _without(new, old)
    for index in range(max(len(left), len(added))):
        before = left[index] if index < len(left) else vs
        after = added[index] if index < len(added) else vs
        changes.append(Change(row, vs, before, after))


def _without(ends: list[int], others: list[int]) -> list[int]:
    """Return ``ends`` in ascending order, less those that ``others`` have as often."""
    if not others:
        return sorted(ends)
    left, spare = [], sorted(others, reverse=True)
    for end in sorted(ends):
        while spare and spare[-1] < end:
            spare.pop()
        if spare and spare[-1] == end:
            spare.pop()
        else:
            left.append(end)
    return left


def ordered(changes: Iterable[Change], key: OrderKey) -> list[Change]:
    """Return changes in the order of an operator's output: adjusts and removals, then inserts, by start and row."""
    changes = list(changes)
    if _are_inserts_in_order(changes):
        return changes
    return sorted(changes, key=lambda one: (one.is_insert, one.vs, key(one.row), one.old, one.new))


def _are_inserts_in_order(changes: Iterable[Change]) -> bool:
    """Return whether all are inserts, each with a later start than the one before."""
    latest = NEG_INF - 1
    for _, vs, old, new in changes:
        if not latest < vs == old < new:
            return False
        latest = vs
    return True


def merged(changes: Sequence[Change]) -> list[Change]:
    """Return the changes with the same effect in which no event changes twice, in no useful order.

    An event that comes and goes within a batch is not in them.
    """
    if all(old == vs < new for _, vs, old, new in changes):
        return list(changes)  # inserts alone: none of them meets another one
    before: list[Lifetime] = []
    after: list[Lifetime] = []
    for row, vs, old, new in changes:
        if old > vs:
            before.append(Lifetime(row, vs, old))
        if new > vs:
            after.append(Lifetime(row, vs, new))
    return differences(before, after)


def is_time(value: int) -> bool:
    """Whether a number is a time: a 64-bit integer."""
    return NEG_INF <= value <= INF


def by_key(changes: Sequence[Change], key_of: Callable[[Values], Values]) -> dict[Values, list[Change]]:
    """Return changes by the key of their group, in the order in which groups come."""
    found: dict[Values, list[Change]] = {}
    for change in changes:
        key = key_of(change.row)
        if key in found:
            found[key].append(change)
        else:
            found[key] = [change]
    return found
