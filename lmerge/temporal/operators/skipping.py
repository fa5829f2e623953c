"""Feedback inside an operator (V.D): events that it leaves out, because its consumer does not need what ends so early.

After ``fast_forward(t)`` an operator need not evaluate an event whose results end before ``t``. But a revision can
extend it to ``t`` and beyond, and then it must come in as an insert. So an operator keeps what it leaves out, as a
multiset, until it is fully frozen.

**The stable point waits for them.** An event that is left out may have to be inserted later, at its start. So the
stable point does not pass the start of a live event that is left out:

    fast_forward(10)   insert(a, 1, 5): left out   stable(4): held at 1   adjust(a, 1, 5, 12): insert(a, 1, 12)

After stable(4) that insert would be illegal. To wait costs nothing: what is left out ends before ``t``, so the stable
point is free when the input's reaches ``t``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from sortedcontainers import SortedList

from lmerge.core.calendar import Calendar, Node
from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.operators.lifetimes import plus
from lmerge.temporal.operators.operator import Due, PlanOperator, row_of_state, state_of_row
from lmerge.temporal.values import OrderKey

Alter: TypeAlias = Callable[[int, int], tuple[int, int]]
"""The lifetime of a result, by that of the event; it is empty if the end is not behind the start."""


class SkippedEvents:
    """The live events that an input leaves out. ``until``: results that end before it are not needed.

    ``skipped`` counts how often an event was left out, that is, was not evaluated. ``alter``: the lifetime of the
    result of an event, by default its own. ``key``: the order of the input's rows.
    """

    def __init__(self, key: OrderKey, alter: Alter | None = None) -> None:
        self.until = NEG_INF
        self.skipped = 0
        self._key, self._alter = key, alter
        self._stable = self._passed_on = NEG_INF
        # By event: [its end, the event, how many, where it holds the stable point].
        self._nodes: dict[Lifetime, Node] = {}
        self._calendar = Calendar()
        self._holds: SortedList[int] = SortedList()

    def __len__(self) -> int:
        return sum(node[2] for node in self._nodes.values())

    def fast_forward(self, until: int) -> None:
        """Leave out events whose results end before ``until``, from now on. With ``alter``: O(what is left out)."""
        self.until = max(self.until, until)
        if self._alter is None:
            return
        for event, node in self._nodes.items():
            if node[3] is not None and not self._can_come(event):
                self._holds.remove(node[3])
                node[3] = None

    def take(self, delta: Delta) -> Delta:
        """Return a batch without what is not needed, and with the inserts of what is needed now."""
        changes = delta.changes
        if self.until > NEG_INF:
            changes = [one for change in changes if (one := self._passed(change)) is not None]
        return Delta(changes, None if delta.stable is None else self._move_stable(delta.stable), delta.mark)

    @property
    def next_due(self) -> int:
        """The first stable point at which something is forgotten, or what is left out holds the stable point."""
        due = plus(self._calendar.first_due(), 1)
        if self._free > self._passed_on:
            due = min(due, self._stable + 1)
        if self._holds and self._holds[0] >= self._stable:
            due = min(due, self._holds[0] + 1)
        return due

    def state(self) -> dict[str, Any]:
        """Return what is left out, as plain values."""
        nodes = sorted(self._nodes.items(), key=lambda item: (item[0].vs, self._key(item[0].row), item[0].ve))
        events = [[state_of_row(row), vs, ve, node[2]] for (row, vs, ve), node in nodes]
        return {"until": self.until, "stable": self._stable, "passed_on": self._passed_on, "events": events}

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` has returned."""
        self.until, self._stable, self._passed_on = state["until"], state["stable"], state["passed_on"]
        for row, vs, ve, count in state["events"]:
            self._add(Lifetime(row_of_state(row), vs, ve), count)

    def check(self) -> None:
        """Assert that what is left out can still change, and that the stable point has not passed it."""
        self._calendar.check()
        for event, node in self._nodes.items():
            assert event.vs < event.ve == node[0] >= self._stable, f"{event} cannot change any more"
            assert node[2] > 0
            assert node[3] is None or node[3] == event.vs >= self._passed_on, f"{event} cannot be inserted any more"
        assert list(self._holds) == sorted(node[3] for node in self._nodes.values() if node[3] is not None)

    def _passed(self, change: Change) -> Change | None:
        """Return a change as it looks without what is left out, or None if nothing of it is left."""
        row, vs, old, new = change
        was = vs if self._remove(Lifetime(row, vs, old)) else old
        if was == vs and new > vs and self._is_unneeded(vs, new):
            self._add(Lifetime(row, vs, new))
            self.skipped += 1
            return None
        return Change(row, vs, was, new) if was != new else None

    def _is_unneeded(self, vs: int, ve: int) -> bool:
        return (ve if self._alter is None else self._alter(vs, ve)[1]) < self.until

    def _add(self, event: Lifetime, count: int = 1) -> None:
        node = self._nodes.get(event)
        if node is not None:
            node[2] += count
            return
        node = self._nodes[event] = [event.ve, event, count, event.vs if self._can_come(event) else None]
        if event.ve < INF:
            self._calendar.add(node)
        if node[3] is not None:
            self._holds.add(event.vs)

    def _can_come(self, event: Lifetime) -> bool:
        """Whether an adjust can make the result needed, with the start that it has now."""
        if self._alter is None:
            return True
        start, _ = self._alter(event.vs, event.ve)
        last_start, last_end = self._alter(event.vs, INF)
        return start == last_start and last_end >= self.until

    def _remove(self, event: Lifetime) -> bool:
        """Remove one copy of an event; return whether it was left out."""
        node = self._nodes.get(event)
        if node is None:
            return False
        node[2] -= 1
        if not node[2]:
            self._drop(node)
        return True

    def _drop(self, node: Node) -> None:
        del self._nodes[node[1]]
        node[0] = None
        if node[3] is not None:
            self._holds.remove(node[3])

    def _move_stable(self, stable: int) -> int | None:
        """Take a stable of the input; return the stable point that can be passed on, or None if it does not move."""
        self._stable = max(self._stable, stable)
        due = list(self._nodes.values()) if stable == INF else self._calendar.pop_below(self._stable)
        for node in due:
            if node[0] is not None:
                self._drop(node)
        free = self._free
        if free <= self._passed_on:
            return None
        self._passed_on = free
        return free

    @property
    def _free(self) -> int:
        """The stable point that can be passed on."""
        return min(self._stable, self._holds[0]) if self._holds else self._stable


class SkippingOperator(PlanOperator):
    """An operator that leaves out events of its inputs after feedback. ``skips``: one for each input, None for none."""

    def __init__(self, name: str, key: OrderKey, skips: Sequence[SkippedEvents | None]) -> None:
        super().__init__(name, key)
        self.inputs = len(skips)
        self._skips = tuple(skips)

    @property
    def skipped(self) -> int:
        """How often an event was left out and not evaluated."""
        return sum(skip.skipped for skip in self._skips if skip is not None)

    def step(self, deltas: Sequence[Delta]) -> Delta:
        """Take a batch of each input, less what is not needed, and return the batch of the output."""
        return self._step([d if skip is None else skip.take(d) for skip, d in zip(self._skips, deltas, strict=True)])

    @abstractmethod
    def _step(self, deltas: Sequence[Delta]) -> Delta:
        """Take what is needed of a batch of each input, and return the batch of the output."""

    def fast_forward(self, t: int) -> list[int]:
        """Learn that the consumer needs no event that ends before ``t``; return the same for each input."""
        super().fast_forward(t)
        for skip in self._skips:
            if skip is not None:
                skip.fast_forward(self.skip_until)
        return [NEG_INF if skip is None else self.skip_until for skip in self._skips]

    @property
    def skip_until(self) -> int:
        """The time before which the events that are left out end."""
        return self.fast_forwarded

    def next_due(self) -> Due:
        """Return the first stable point that makes a difference to what is left out."""
        return Due(min((skip.next_due for skip in self._skips if skip is not None), default=INF))

    def live(self) -> int:
        """Return the number of events that are left out and can still come."""
        return sum(len(skip) for skip in self._skips if skip is not None)

    def state(self) -> dict[str, Any]:
        """Return what the operator has to know to go on, as plain values."""
        return super().state() | {"skips": [None if skip is None else skip.state() for skip in self._skips]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` has returned. The operator is a new one."""
        super().restore(state)
        for skip, kept in zip(self._skips, state["skips"], strict=True):
            if skip is not None:
                skip.restore(kept)

    def check(self) -> None:
        """Assert the invariants of the state."""
        for skip in self._skips:
            if skip is not None:
                skip.check()
