"""A publisher's live events: what it publishes again after a lost connection, so that no log is needed.

An event is kept until it is fully frozen at two stable points. One is the *merge's*, as last acked: until then the
merge may need the event again. The other is the publisher's own: until then this replica may adjust the event. The
second matters to a replica that is behind the others:

    a: insert(x, 1, 5)                        the end is preliminary
    b: insert(x, 1, 30), stable(10)           the merge is at 10; a's version of x looks frozen, but its end is wrong
    a: (connects again) adjust(x, 1, 5, 30)   legal for a new incarnation only if it has inserted x again

So the table holds at least the events that the publisher's own stables have not frozen. A stream without stables keeps
all of its events. A publisher that reconnects attaches with join_at = the merge's stable point as last acked, which the
server has reached. It then inserts its live events with their present ends, repeats its own last stable, and goes on.

Events come back in the order in which they were first inserted, so a stream that promises an order keeps it. The class
also checks each element, so that an element that is illegal on every server is refused before it is sent.

``LiveEvents`` is the definition; ``native_live_events.NativeLiveEvents`` does the same on the native core.
``engine_live_events`` chooses between them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from typing import Final

from lmerge.core import violations
from lmerge.core.batch import AnyBatch, Batch, BatchBuilder, Row
from lmerge.core.calendar import Calendar, Node
from lmerge.core.elements import ADJUST, INF, INSERT, NEG_INF, STABLE, show_time
from lmerge.core.engines import selection
from lmerge.errors import InvalidBatch


class LiveEvents:
    """Events by (vs, payload), each with its end and its place in the order of insertion."""

    engine: Final = selection.PYTHON

    def __init__(self, name: str) -> None:
        self.name = name
        self.stable = NEG_INF  # the publisher's own stable point
        self.trimmed = NEG_INF  # the merge's stable point, as last acked
        self._nodes: dict[tuple[int, bytes], Node] = {}  # -> [due, vs, payload, sorted (ve, number)]
        self._calendar = Calendar()
        self._count = 0
        self._inserted = 0

    def __len__(self) -> int:
        return self._count

    @property
    def at_most(self) -> int:
        """An upper bound of the number of live events, in O(1)."""
        return self._count

    def apply_row(self, row: Row, index: int = 0) -> None:
        """Apply one element. Raises InputViolation, changing nothing, if the element is illegal here."""
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
            self._forget()

    def own(self, batch: AnyBatch) -> AnyBatch:
        """Return the batch in this engine's own form. Raises InvalidBatch for columns that could not be sent."""
        if isinstance(batch, Batch):
            check_columns(batch)
            return batch
        builder = BatchBuilder()
        builder.extend(batch)
        return builder.build()

    def apply_batch(self, batch: AnyBatch) -> None:
        """Apply a batch. On InputViolation the elements before the offender, ``index``, have been applied."""
        for index, row in enumerate(batch.rows()):
            self.apply_row(row, index)

    def trim(self, stable_point: int) -> None:
        """Note that the merge is stable at ``stable_point``."""
        if stable_point > self.trimmed:
            self.trimmed = stable_point
            self._forget()

    def prelude(self) -> Batch:
        """Return what a new connection publishes first: live events by order of insertion, then the own stable."""
        events = [(number, vs, ve, payload) for (vs, payload), node in self._nodes.items() for ve, number in node[3]]
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
        if node is None or at == len(ends) or ends[at][0] != vold:
            raise violations.unknown_event(self.name, row, index, describe_ends([end for end, _ in ends]))
        number = ends.pop(at)[1]
        self._count -= 1
        self._add(vs, payload, ve, number)
        if not ends:
            self._keep(node, vs, payload)

    def _add(self, vs: int, payload: bytes, ve: int, number: int) -> None:
        if ve == vs:
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

    def _forget(self) -> None:
        """Forget the events that neither side can change any more. O(forgotten)."""
        frozen_to = min(self.trimmed, self.stable)
        if frozen_to <= self._calendar.now:
            return
        for node in self._calendar.pop_below(frozen_to):
            due, vs, payload, ends = node
            if due is None or due >= frozen_to:
                continue
            gone = bisect_left(ends, (frozen_to, 0))
            self._count -= gone
            del ends[:gone]
            self._keep(node, vs, payload)

    def _keep(self, node: Node, vs: int, payload: bytes) -> None:
        """Enter the node again at its first end, or drop it if it has no end."""
        if node[3]:
            node[0] = node[3][0][0]
            if node[0] < INF:
                self._calendar.add(node)
        else:
            node[0] = None
            self._nodes.pop((vs, payload), None)


def describe_ends(ends: list[int] | None) -> str:
    """Return the part of an error message that lists the publisher's events in place of the one that was adjusted."""
    return f"ends {', '.join(map(show_time, ends))}" if ends else "no event"


def check_columns(batch: Batch) -> None:
    """Raise InvalidBatch for columns that could not be sent: one pass per column."""
    for name, column in (("vs", batch.vs), ("ve", batch.ve), ("vold", batch.vold)):
        try:
            array("q", column)
        except (OverflowError, TypeError) as problem:
            raise InvalidBatch(f"cannot publish a batch: column {name} is not one of 64-bit times") from problem
        _check_length(name, len(column), batch.count)
    _check_length("payloads", len(batch.payloads), batch.count)
    if not set(map(type, batch.payloads)) <= {bytes}:
        raise InvalidBatch("cannot publish a batch: column payloads is not one of bytes")
    if batch.kinds and max(batch.kinds) > STABLE:
        raise InvalidBatch(f"cannot publish a batch: column kinds has the unknown kind {max(batch.kinds)}")


def _check_length(name: str, length: int, count: int) -> None:
    if length != count:
        raise InvalidBatch(f"cannot publish a batch: column {name} has {length} elements where kinds has {count}")
