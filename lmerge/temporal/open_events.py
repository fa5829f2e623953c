"""The live events of a stream: what an adjust can name, checked element by element.

Streams are checked where they enter a plan, so operators can rely on them. Fully frozen events are dropped at the
stable that freezes them, at a cost that depends on them alone.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any

from lmerge.core.calendar import Calendar, Node
from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.errors import InputViolation
from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.operators.operator import row_of_state, state_of_row
from lmerge.temporal.values import OrderKey, Values


class OpenEvents:
    """Events that are not fully frozen, a multiset. ``name``: of the stream, for messages."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stable = NEG_INF
        # By row and start: [due, row, start, ends in ascending order].
        self._nodes: dict[tuple[Values, int], Node] = {}
        self._calendar = Calendar()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Lifetime]:
        for (row, vs), node in self._nodes.items():
            for ve in node[3]:
                yield Lifetime(row, vs, ve)

    def ends(self, row: Values, vs: int) -> list[int]:
        """Return the ends of the live events with this row and start, in ascending order."""
        node = self._nodes.get((row, vs))
        return [] if node is None else list(node[3])

    def apply(self, change: Change) -> None:
        """Take a change. Raises InputViolation, and has changed nothing, if it is not legal in this stream."""
        row, vs, old, new = change
        if new < vs:
            raise self._violation("end-before-start", change, "Ve >= Vs", f"it ends at {show_time(new)}")
        if min(old, new) < self.stable:
            promised = f"no change before its own stable({show_time(self.stable)})"
            raise self._violation("below-stable", change, promised, f"it changes the table at {min(old, new)}")
        node = self._nodes.get((row, vs))
        if old > vs:
            self._remove(change, node)
        if new > vs:
            self._add(row, vs, new)

    def move_stable(self, stable: int) -> None:
        """Take a stable: events that end before it are dropped. One that does not lie ahead has no effect."""
        self.stable = max(self.stable, stable)
        for node in self._calendar.pop_below(self.stable):
            ends = node[3]
            if not ends or node[0] is None or node[0] >= self.stable:
                continue
            frozen = bisect_left(ends, self.stable)
            self._count -= frozen
            del ends[:frozen]
            self._enter(node)
        if stable == INF:
            self._nodes.clear()
            self._count = 0

    def state(self, key: OrderKey) -> dict[str, Any]:
        """Return the stable point and the events, in order of start, row (by ``key``) and end, as plain values."""
        nodes = sorted(self._nodes.items(), key=lambda item: (item[0][1], key(item[0][0])))
        return {"stable": self.stable, "events": [[state_of_row(row), vs, list(node[3])] for (row, vs), node in nodes]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take what ``state`` has returned. These are new."""
        self.stable = state["stable"]
        for plain, vs, ends in state["events"]:
            row = row_of_state(plain)
            for end in ends:
                self._add(row, vs, end)

    def check(self) -> None:
        """Assert that live events are live and counted."""
        self._calendar.check()
        assert self._count == sum(len(node[3]) for node in self._nodes.values())
        for node in self._nodes.values():
            assert node[3] == sorted(node[3])
            assert node[3][0] >= self.stable
            assert node[0] <= node[3][0]

    def _add(self, row: Values, vs: int, ve: int) -> None:
        node = self._nodes.get((row, vs))
        self._count += 1
        if node is None:
            node = self._nodes[row, vs] = [ve, row, vs, [ve]]
            self._calendar.add(node)
            return
        insort(node[3], ve)
        if ve < node[0]:
            node[0] = ve
            self._calendar.add(node)

    def _remove(self, change: Change, node: Node | None) -> None:
        ends = [] if node is None else node[3]
        index = bisect_left(ends, change.old)
        if node is None or index == len(ends) or ends[index] != change.old:
            known = ", ".join(map(show_time, ends)) or "no event"
            promised, came = "to adjust only events that it has", f"for this row and Vs it has the ends: {known}"
            raise self._violation("unknown-event", change, promised, came)
        del ends[index]
        self._count -= 1
        if not ends:
            node[0] = None
            del self._nodes[change.row, change.vs]

    def _enter(self, node: Node) -> None:
        """Enter a node into the calendar again at the first of its ends, or forget it without any."""
        if node[3]:
            node[0] = node[3][0]
            self._calendar.add(node)
        else:
            node[0] = None
            del self._nodes[node[1], node[2]]

    def _violation(self, code: str, change: Change, promised: str, came: str) -> InputViolation:
        return InputViolation(code, self.name, str(change), promised, came)
