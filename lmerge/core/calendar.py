"""A calendar of due times: it gives the nodes to visit when the stable point moves to ``t``.

The paper's stable scans every half-frozen node (Table IV: O(c lg w + h)). Law 2 (docs/laws.md) requires O(changes). So
the calendar has every node at the next time at which the node can change, and stable(t) removes exactly the nodes that
are due before ``t``.

The calendar is a hierarchical timing wheel (Varghese and Lauck, SOSP 1987) with 256 slots on each level. Let ``now`` be
the last ``t``. A node due at ``d`` is on the level of the highest byte in which ``d`` and ``now`` differ, in the slot
given by the bits of ``d`` from that byte up. Let time move to ``t``. All levels below the highest byte in which ``now``
and ``t`` differ are due. On that level all slots before that of ``t`` are due, and the slot of ``t`` is distributed
again. The levels above stay as they are. So a node moves at most once per level, adding is O(1), and the cost does not
depend on the number of nodes. A heap of a million nodes costs twenty cache misses instead.

A node is a list whose element 0 is its due time, or None when it is dead. A node whose due time becomes smaller is
added again. Its old entry stays, and is recognised because the node then has another due time.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from lmerge.core.elements import INF, NEG_INF

Node: TypeAlias = list[Any]

_BYTES: Final = 8
# Level and shift by bit length of the difference: 0..8 -> byte 0, 9..16 -> byte 1, ...
_LEVEL: Final = tuple(max(0, bits - 1) >> 3 for bits in range(65))


class Calendar:
    """Nodes by due time. ``now`` only moves forward; no node is due before it."""

    __slots__ = ("_levels", "_other_sign", "now")

    def __init__(self, now: int = NEG_INF) -> None:
        self.now = now
        self._levels: list[dict[int, list[Node]]] = [{} for _ in range(_BYTES)]
        # Due times of the other sign than now: they differ from it in the sign bit, above all bytes.
        self._other_sign: list[Node] = []

    def add(self, node: Node) -> None:
        """Enter ``node`` at ``node[0]``, which must not be before ``now``. O(1)."""
        due: int = node[0]
        difference = due ^ self.now
        if difference < 0:
            self._other_sign.append(node)
            return
        level = _LEVEL[difference.bit_length()]
        slots = self._levels[level]
        slot = due >> (level << 3)
        nodes = slots.get(slot)
        if nodes is None:
            slots[slot] = [node]
        else:
            nodes.append(node)

    def pop_below(self, t: int) -> list[Node]:
        """Move ``now`` to ``t``, and remove and return all entries with a due time before ``t``, in no useful order.

        Stale entries of nodes that are dead or were added again may be among them. The caller skips a node whose
        ``node[0]`` is None or not below ``t``. Amortised O(entries removed).
        """
        now = self.now
        if t <= now:
            return []
        self.now = t
        difference = t ^ now
        popped: list[Node] = []
        if difference < 0:
            for slots in self._levels:
                _take_all(slots, popped)
            again, self._other_sign = self._other_sign, []
        else:
            top = _LEVEL[difference.bit_length()]
            for level in range(top):
                _take_all(self._levels[level], popped)
            again = self._take_passed(top, now, t, popped)
        for node in again:
            due = node[0]
            if due is None:
                continue
            if due < t:
                popped.append(node)
            else:
                self.add(node)
        return popped

    def _take_passed(self, level: int, now: int, t: int, popped: list[Node]) -> list[Node]:
        """Remove the slots from ``now`` to ``t`` of a level. Return the slot of ``t``, to be distributed again."""
        slots = self._levels[level]
        if not slots:
            return []
        shift = level << 3
        last = t >> shift
        for slot in range((now >> shift), last):
            nodes = slots.pop(slot, None)
            if nodes is not None:
                popped += nodes
        return slots.pop(last, [])

    def first_due(self) -> int:
        """Return a time that no entry is due before; +inf without entries.

        It is the first slot's with entries, stale ones included; it grows as ``pop_below`` divides that slot. O(256).
        """
        for level, slots in enumerate(self._levels):
            if slots:
                return max(self.now, min(slots) << (level << 3))
        return max(self.now, 0) if self._other_sign else INF

    def entries(self) -> list[Node]:
        """Return all entries, including stale ones, for checks."""
        return [node for slots in self._levels for nodes in slots.values() for node in nodes] + self._other_sign

    def check(self) -> None:
        """Assert that every live entry can be found: no entry of the future is in a passed slot."""
        assert NEG_INF <= self.now <= INF
        for level, slots in enumerate(self._levels):
            shift = level << 3
            for slot in slots:
                assert slot >= self.now >> shift, f"slot {slot} of level {level} lies before now={self.now}"
                assert slot >> 8 == self.now >> shift >> 8, f"slot {slot} of level {level} is not of now's turn"


def _take_all(slots: dict[int, list[Node]], popped: list[Node]) -> None:
    for nodes in slots.values():
        popped += nodes
    slots.clear()
