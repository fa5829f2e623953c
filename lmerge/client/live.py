"""A publisher's live events: what it must say again when it connects again, so that no log is needed.

An event is kept until it is fully frozen at the *merge's* stable point as last heard in an ack, not at the publisher's
own: what the merge has frozen it will never ask for again. A publisher that reconnects attaches with join_at = that
stable point, which the server's can only be at or beyond, inserts its live events with their present ends, says its own
last stable, and goes on.

Events come back in the order in which they were first inserted, so a stream that promises an order keeps it. The class
also checks what would be wrong on any server: it is the publisher's first reader.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from lmerge.core import violations
from lmerge.core.batch import Batch, BatchBuilder, Row
from lmerge.core.calendar import Calendar, Node
from lmerge.core.elements import ADJUST, INF, INSERT, NEG_INF, show_time


class LiveEvents:
    """Events by (vs, payload), each with its end and its place in the order of insertion."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stable = NEG_INF  # the publisher's own stable point
        self.trimmed = NEG_INF  # the merge's stable point, as last heard
        self._nodes: dict[tuple[int, bytes], Node] = {}  # -> [due, vs, payload, sorted (ve, number)]
        self._calendar = Calendar()
        self._count = 0
        self._inserted = 0

    def __len__(self) -> int:
        return self._count

    def say(self, row: Row, index: int = 0) -> None:
        """Notice one element. Raises InputViolation, changing nothing, if no stream may say it here."""
        kind, vs, ve, _, payload = row
        if kind == INSERT:
            if ve < vs:
                raise violations.end_before_start(self.name, row, index)
            if vs < self.stable:
                raise violations.insert_below_stable(self.name, row, index, self.stable)
            self._inserted += 1
            self._add(vs, payload, ve, self._inserted)
        elif kind == ADJUST:
            self._adjust(row, index)
        else:
            if vs < self.stable:
                raise violations.stable_backwards(self.name, row, index, self.stable)
            self.stable = vs

    def trim(self, stable_point: int) -> None:
        """The merge is stable at ``stable_point``: forget what ended before. O(forgotten)."""
        if stable_point <= self.trimmed:
            return
        self.trimmed = stable_point
        for node in self._calendar.pop_below(stable_point):
            due, vs, payload, ends = node
            if due is None or due >= stable_point:
                continue
            gone = bisect_left(ends, (stable_point, 0))
            self._count -= gone
            del ends[:gone]
            self._keep(node, vs, payload)

    def prelude(self) -> Batch:
        """What a new connection says first: the live events in order of insertion, then the own stable point."""
        events = [
            (number, vs, ve, payload)
            for (vs, payload), node in self._nodes.items() for ve, number in node[3]
        ]
        builder = BatchBuilder()
        for _, vs, ve, payload in sorted(events):
            builder.insert(payload, vs, ve)
        if self.stable > NEG_INF:
            builder.stable(self.stable)
        return builder.build()

    def _adjust(self, row: Row, index: int) -> None:
        _, vs, ve, vold, payload = row
        if ve < vs:
            raise violations.end_before_start(self.name, row, index)
        if ve < self.stable or vold < self.stable:
            raise violations.adjust_below_stable(self.name, row, index, self.stable)
        node = self._nodes.get((vs, payload))
        ends: list[tuple[int, int]] = node[3] if node is not None else []
        at = bisect_left(ends, (vold, 0))
        if at < len(ends) and ends[at][0] == vold:
            number = ends.pop(at)[1]
            self._count -= 1
        elif vold >= self.trimmed:
            known = f"ends {', '.join(show_time(end) for end, _ in ends)}" if ends else "no event"
            raise violations.unknown_event(self.name, row, index, known)
        else:  # the merge is further on than this replica, and the event was forgotten
            self._inserted += 1
            number = self._inserted
        self._add(vs, payload, ve, number)
        if node is not None and not node[3]:
            self._keep(node, vs, payload)

    def _add(self, vs: int, payload: bytes, ve: int, number: int) -> None:
        if ve == vs or ve < self.trimmed:
            return
        self._count += 1
        node = self._nodes.get((vs, payload))
        if node is None:
            self._nodes[vs, payload] = node = [ve, vs, payload, [(ve, number)]]
            if ve < INF:  # INF is never due; an entry there would outlive its node
                self._calendar.add(node)
            return
        insort(node[3], (ve, number))
        if ve < node[0]:
            node[0] = ve
            self._calendar.add(node)

    def _keep(self, node: Node, vs: int, payload: bytes) -> None:
        """Enter the node again at its first end, or drop it if it has none."""
        if node[3]:
            node[0] = node[3][0][0]
            if node[0] < INF:
                self._calendar.add(node)
        else:
            node[0] = None
            self._nodes.pop((vs, payload), None)
