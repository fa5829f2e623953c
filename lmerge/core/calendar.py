"""A calendar of due times: who must be looked at when the stable point moves to ``t``.

The paper's stable scans every half-frozen node (Table IV: O(c lg w + h)). Law 2 of the design asks for
O(changes), so every node stands in a calendar at the next time at which anything about it can change, and
stable(t) takes out exactly the nodes that are due before ``t``.

The calendar is a hierarchical timing wheel (Varghese and Lauck, SOSP 1987) with 256 slots a level. Let ``now``
be the last ``t``. A node due at ``d`` lies at the level of the highest byte in which ``d`` and ``now`` differ,
in the slot named by the bits of ``d`` from that byte up. When time moves to ``t``, the levels below the highest
byte in which ``now`` and ``t`` differ are all due; at that level the slots before ``t``'s are all due, and ``t``'s
own slot is dealt out again; the levels above stay as they are. So a node moves at most once a level, adding is
O(1), and nothing depends on how many nodes wait: a heap of a million pays twenty cache misses instead.

A node is a list whose element 0 is its due time, or None when it is dead. A node whose due time falls is added
again; the entry it leaves behind is recognised because its due time then says otherwise.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from lmerge.core.elements import INF, NEG_INF

Node: TypeAlias = list[Any]

_BYTES: Final = 8
# Level and shift by bit length of the difference: 0..8 -> byte 0, 9..16 -> byte 1, ...
_LEVEL: Final = tuple(max(0, bits - 1) >> 3 for bits in range(65))


class Calendar:
    """Nodes by due time. ``now`` only moves forward; nothing is due before it."""

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
        """Move ``now`` to ``t`` and take out all entries with a due time before ``t``, in no useful order.

        Entries left behind by a node that died or was entered again may be among them: the caller skips a
        node whose ``node[0]`` is None or not below ``t``. Amortised O(entries taken out).
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
        """Take the slots between ``now`` and ``t`` of a level; give back ``t``'s own slot, still to be dealt out."""
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

    def entries(self) -> list[Node]:
        """All entries, stale ones among them, for checks."""
        return [node for slots in self._levels for nodes in slots.values() for node in nodes] + self._other_sign

    def check(self) -> None:
        """Assert that every live entry can be found again: no entry of the future lies in a passed slot."""
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
