"""Algorithm R4 (IV.E) on in3t: no restrictions, the TDB is a multiset.

An entry of a node is the third tier: the sorted list of the ends of that input's (or the output's) events with
this (Vs, payload), None where there are none. The list holds each end as often as it occurs, which is the paper's
count. It is searched by bisection.

The invariants of IV.E, and where they are kept:

* The output has no more events for a (Vs, payload) than the input that has most: ``_note_change`` inserts only if the
  input now has more than the output.
* When a Vs becomes half frozen, the output has exactly as many events as the freezing input:
  ``_adjust_output_count``.
* When an end becomes fully frozen, the output has as many events with that end as the freezing input:
  ``_adjust_output``.

The paper leaves the choice of events to adjust open. Here, events that need not change stay as they are. The others
move to ends that the freezing input has and the output lacks, paired in ascending order. That is the smallest number
of adjusts that meets the invariants.
"""

from __future__ import annotations

import heapq
from base64 import b64decode, b64encode
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from lmerge.core import violations
from lmerge.core.algorithm import State
from lmerge.core.batch import AnyBatch, BatchBuilder, Row
from lmerge.core.calendar import Node
from lmerge.core.elements import ADJUST, INF, INSERT, NEG_INF, Event
from lmerge.core.index import IN, KEY, OUT, Indexed, Key
from lmerge.core.inputs import Input
from lmerge.core.policy import Closing, Policy, Show
from lmerge.core.properties import Case

Ends = list[int]
SCANNED_MAX: Final = 16  # for at most this many ends of one node, a scan costs less than a heap


class R4(Indexed):
    """Algorithm R4 (IV.E) with in3t."""

    case = Case.R4
    name = "r4"

    def __init__(self, inputs: Mapping[str, Input], policy: Policy, closing: Closing) -> None:
        super().__init__(inputs, policy, closing)
        # Used where adjusts are shown at once. By node and place of an input: a heap that contains every end that the
        # output has more often than that input. It may contain other ends too. It is built on first use and dropped
        # when a stable visits the node.
        self.lacked: dict[Key, dict[int, Ends]] = {}

    def apply(self, inp: Input, batch: AnyBatch, start: int, out: BatchBuilder) -> None:
        if inp.observes:
            self.observe(inp, batch, start, out)
            return
        lookup = self.nodes.get
        slot = IN + inp.slot
        ordered, keyed, floor = inp.ordered, inp.keyed, inp.floor()
        for index, row in enumerate(batch.rows(start), start):
            kind, vs, ve, vold, payload = row
            if kind == INSERT:
                if vs < floor or ve < vs:
                    raise self.refuse_insert(inp, row, index)
                if ordered:
                    inp.last_vs = vs
                    floor = inp.floor()
                elif self.by_insert and vs > inp.last_vs:
                    inp.last_vs = vs
                node = lookup((vs, payload))
                if node is None:
                    if vs < self.max_stable:  # line 6
                        inp.late += 1
                        continue
                    if ve == vs:
                        continue
                    node = [vs, (vs, payload), None, *([None] * self.slots)]
                    self.enter(node, vs, payload)
                elif keyed and node[slot]:
                    raise violations.duplicate_key(inp.name, row, index)
                if ve > vs:
                    self._note_change(node, inp, slot, ve, None, out)
            elif kind == ADJUST:
                refusal = self.refuse_adjust(inp, row, index)
                if refusal is not None:
                    raise refusal
                node = lookup((vs, payload))
                if node is None and vs < self.max_stable:  # line 14
                    inp.late += 1
                    continue
                if node is None or not _remove(node[slot], vold):
                    known = violations.known_ends(None if node is None else node[slot])
                    raise violations.unknown_event(inp.name, row, index, known)
                if self.lacked:
                    self._note_lacked(node, (slot,), vold)
                self._note_change(node, inp, slot, ve if ve > vs else None, vold, out)
            else:
                self.stable(inp, row, index, out)
                floor = inp.floor()

    def settle(self, node: Node, t: int, inp: Input, rows: list[Row]) -> bool:
        vs, payload = node[KEY]
        if self.lacked:
            self.lacked.pop(node[KEY], None)
        half_frozen = vs < self.max_stable
        low = self.max_stable if half_frozen else NEG_INF
        input_ends = _from(node[IN + inp.slot], low)
        shown = _from(node[OUT], low)
        latest = self.latest_lacked(inp) if half_frozen else INF
        if half_frozen and not input_ends:
            other = self.witness(node, latest)
            input_ends = [] if other is None else _by(_from(node[IN + other.slot], low), latest)
            if not (input_ends or self.final_only or t > latest):  # the output keeps its own
                node[OUT] = _from(shown, t)
                return not node[OUT]
        if self.final_only:
            return self._settle_final(node, t, input_ends, half_frozen, rows)
        if latest < INF:
            input_ends = _without_doubtful(input_ends, shown, self.right_from)
        if not half_frozen:
            _adjust_output_count(vs, payload, input_ends, shown, rows)
        _adjust_output(vs, payload, t, input_ends, shown, rows)
        if t > latest:
            _end_lacked(vs, payload, latest, low, input_ends, shown, rows)
        # Fully frozen ends are removed from the output's entry and from that of the input that froze them.
        node[OUT] = _from(shown, t)
        node[IN + inp.slot] = _from(node[IN + inp.slot], t) or None
        return not node[OUT]  # line 27: with equal counts, the same as GetMaxVe(s) < t

    def _settle_final(self, node: Node, t: int, input_ends: Ends, half_frozen: bool, rows: list[Row]) -> bool:
        vs, payload = node[KEY]
        live = [] if t == INF else _from(input_ends, t)
        rows += [(INSERT, vs, ve, 0, payload) for ve in input_ends[: len(input_ends) - len(live)]]
        if not live:
            return True
        if not half_frozen:
            self.hold(node)
        return False

    def next_due(self, node: Node, t: int) -> int:
        due = INF
        for ends in node[OUT:]:
            if ends:
                at = bisect_left(ends, t)
                if at < len(ends) and ends[at] < due:
                    due = ends[at]
        return due

    def has_live_entry(self, node: Node, slot: int, latest: int) -> bool:
        return bool(_by(_from(node[IN + slot], self.max_stable), latest))

    def has_end(self, node: Node, slot: int, ve: int) -> bool:
        return ve in (node[IN + slot] or ())

    def copies(self, node: Node, slot: int) -> int:
        return len(node[IN + slot] or ())

    def show_agreed(self, node: Node, out: BatchBuilder) -> None:
        vs, payload = node[KEY]
        while self.support(node, len(node[OUT] or ())) >= self.quorum():
            furthest = self.furthest(node, len(node[OUT] or ()))
            ve = _minus(node[IN + furthest.slot], node[OUT] or [])[0]
            self._show(node, ve)
            out.insert(payload, vs, ve)

    def shown(self) -> Iterator[Event] | None:
        if self.final_only:
            return None
        return (Event(vs, payload, ve) for (vs, payload), node in self.nodes.items() for ve in node[OUT] or ())

    def forget(self, slot: int) -> None:
        super().forget(slot)
        self.lacked.clear()

    def check(self) -> None:
        super().check()
        for key, heaps in self.lacked.items():
            shown = _from(self.nodes[key][OUT], self.max_stable if key[0] < self.max_stable else NEG_INF)
            for place, heap in heaps.items():
                assert set(_minus(shown, self.nodes[key][place] or [])) <= set(heap), "a lacked end is not in its heap"
        for (vs, _), node in self.nodes.items():
            for ends in node[OUT:]:
                assert ends is None or (ends == sorted(ends) and all(ve > vs for ve in ends)), "ends out of order"
            shown = node[OUT] or []
            if self.final_only:
                assert not shown, "final-only has shown an event that can still change"
            elif vs < self.max_stable:
                assert shown, "a half-frozen node without output"
                assert shown[0] >= self.max_stable, "a fully frozen end is still in the index"

    def state(self) -> State:
        rows = [
            [key[0], b64encode(key[1]).decode(), *(e or None for e in self.entries(node))]
            for key, node in sorted(self.nodes.items())
        ]
        return super().state() | {"nodes": rows}

    def load_nodes(self, rows: list[Any]) -> None:
        for vs, payload, *entries in rows:
            key = (vs, b64decode(payload))
            self.nodes[key] = [vs, key, *(None if ends is None else list(ends) for ends in entries)]

    def adopt(self, event: Event, copies: int) -> None:
        """Enter equal output events on a switch from another algorithm."""
        node = self.node((event.vs, event.payload))
        node[OUT] = sorted((node[OUT] or []) + [event.ve] * copies)

    def adopt_delivered(self, slot: int, vs: int, payload: bytes, ve: int, out: BatchBuilder) -> None:
        """Enter an event that an input delivered before a switch, and emit it if the output has shown fewer events."""
        if vs < self.max_stable and (vs, payload) not in self.nodes:
            return
        node = self.node((vs, payload))
        _add(node, IN + slot, ve)
        if vs >= self.max_stable and len(node[IN + slot]) > len(node[OUT] or ()):
            _add(node, OUT, ve)
            out.insert(payload, vs, ve)

    def adopt_entry(self, key: tuple[int, bytes], slot: int, ve: int) -> None:
        """Enter the end of an event on an input, on a switch from R3."""
        self.node(key)[IN + slot] = [ve]

    def node(self, key: tuple[int, bytes]) -> Node:
        """Return the node of a key. Used on a switch, which makes the node if it does not exist."""
        node = self.nodes.get(key)
        if node is None:
            node = self.nodes[key] = [key[0], key, None, *([None] * self.slots)]
        return node

    def _note_change(
        self, node: Node, inp: Input, slot: int, ve: int | None, vold: int | None, out: BatchBuilder
    ) -> None:
        """Enter that ``inp`` has one more event with the end ``ve`` (None: one event less); the output may follow.

        Lines 8 and 15. ``vold``: the former end of the event where it was adjusted.
        """
        if ve is not None:
            if node[slot] is None:
                node[slot] = [ve]
            else:
                insort(node[slot], ve)
            self.fall_due(node, ve)
        vs, payload = node[KEY]
        unfrozen = vs >= self.max_stable
        if self.by_unfrozen and unfrozen:
            self.unfrozen[inp.slot] += (ve is not None) - (vold is not None)
        if vold is None and ve is not None and unfrozen and self._should_show_another(node, inp, slot):  # lines 9-11
            self._show(node, ve)
            out.insert(payload, vs, ve)
        elif self.follows(inp):
            self._reflect(node, inp, ve, vold, unfrozen, out)

    def _should_show_another(self, node: Node, inp: Input, slot: int) -> bool:
        """V.A: return whether the output shows one more event now. It never has more events than any single input."""
        shown = len(node[OUT] or ())
        input_ends: Ends = node[slot] or []
        return len(input_ends) > shown and self.should_show(node, inp, shown)

    def _agreed(self, node: Node, ve: int | None) -> bool:
        """Quorum: return whether enough inputs have one more event with the end ``ve`` than the output.

        ``ve`` None: whether too few inputs have as many events as the output.
        """
        if self.policy.show is not Show.QUORUM:
            return True
        shown = node[OUT] or []
        if ve is None:
            return self.support(node, len(shown) - 1) < self.quorum()
        agreed = sum(_exceeds(node[IN + inp.slot], shown, ve) for inp in self.inputs.values() if inp.counts)
        return agreed >= self.quorum()

    def _reflect(
        self, node: Node, inp: Input, ve: int | None, vold: int | None, unfrozen: bool, out: BatchBuilder
    ) -> None:
        """Eager: adjust one output event that the input does not have to the end that the input has just delivered."""
        slot = IN + inp.slot
        vs, payload = node[KEY]
        low = NEG_INF if unfrozen else self.max_stable
        if ve is None:
            if vold is not None and unfrozen and _exceeds(node[OUT], node[slot], vold) and self._agreed(node, None):
                _remove(node[OUT], vold)
                out.adjust(payload, vs, vold, vs)
            return
        old = None
        if ve >= low and _exceeds(node[slot], node[OUT], ve):
            old = self._lacked_by(node, slot, low, vold)
        if old is not None:
            if self._agreed(node, ve):
                _remove(node[OUT], old)
                self._show(node, ve)
                out.adjust(payload, vs, old, ve)
        elif vold is not None and unfrozen and self._should_show_another(node, inp, slot):  # the output removed it
            self._show(node, ve)
            out.insert(payload, vs, ve)

    def _lacked_by(self, node: Node, slot: int, low: int, vold: int | None) -> int | None:
        """Return an end from ``low`` on that the output has more often than the input: ``vold`` if it is, or the first.

        Amortised O(log n) of n ends: a heap is built again after as many changes as it has ends.
        """
        input_ends, shown = node[slot], node[OUT]
        if vold is not None and vold >= low and _exceeds(shown, input_ends, vold):
            return vold
        if len(shown or ()) <= SCANNED_MAX:
            return next(iter(_minus(_from(shown, low), input_ends or [])), None)
        heaps = self.lacked.setdefault(node[KEY], {})
        heap = heaps.get(slot)
        if heap is None:
            heap = heaps[slot] = _minus(_from(shown, low), input_ends or [])
        while heap and (heap[0] < low or not _exceeds(shown, input_ends, heap[0])):
            heapq.heappop(heap)
        return heap[0] if heap else None

    def _show(self, node: Node, ve: int) -> None:
        """Add an end to the output's entry."""
        _add(node, OUT, ve)
        if self.lacked:
            self._note_lacked(node, tuple(self.lacked.get(node[KEY], ())), ve)

    def _note_lacked(self, node: Node, slots: Iterable[int], ve: int) -> None:
        """Push ``ve`` on the heaps of these inputs: they may have it less often than the output from now on."""
        heaps = self.lacked.get(node[KEY], {})
        for slot in slots:
            heap = heaps.get(slot)
            if heap is not None:
                heapq.heappush(heap, ve)
                if len(heap) > 2 * len(node[OUT] or ()) + SCANNED_MAX:
                    del heaps[slot]


def _adjust_output_count(vs: int, payload: bytes, input_ends: Ends, shown: Ends, rows: list[Row]) -> None:
    """Give the output as many events as the freezing input has (AdjustOutputCount). Changes ``shown``."""
    if len(shown) == len(input_ends):
        return
    surplus, missing = _minus(shown, input_ends), _minus(input_ends, shown)
    while len(shown) > len(input_ends):
        old = surplus.pop()
        _remove(shown, old)
        rows.append((ADJUST, vs, vs, old, payload))
    for ve in missing[: len(input_ends) - len(shown)]:
        insort(shown, ve)
        rows.append((INSERT, vs, ve, 0, payload))


def _adjust_output(vs: int, payload: bytes, t: int, input_ends: Ends, shown: Ends, rows: list[Row]) -> None:
    """Give the output as many events as the freezing input for every end below ``t`` (AdjustOutput). Changes ``shown``.

    With equal counts, every missing end is matched with an event to adjust, and every surplus event with an end. If the
    inputs contradict each other, the counts can differ. Then the output events without a match stay as they are.
    """
    at_input, at_shown = bisect_left(input_ends, t), bisect_left(shown, t)
    if input_ends[:at_input] == shown[:at_shown]:
        return
    missing = _minus(input_ends[:at_input], shown[:at_shown])
    surplus = _minus(shown[:at_shown], input_ends[:at_input])
    if len(missing) > len(surplus):  # case (1): events with a larger end come down
        surplus += _minus(shown[at_shown:], input_ends[at_input:])
    elif len(missing) < len(surplus):  # case (2): an end that the input has above t
        missing += _minus(input_ends[at_input:], shown[at_shown:])
    for old, ve in zip(surplus, missing):
        _remove(shown, old)
        insort(shown, ve)
        rows.append((ADJUST, vs, ve, old, payload))


def _without_doubtful(input_ends: Ends, shown: Ends, right_from: int) -> Ends:
    """Return ``input_ends`` without its doubtful excess over ``shown``.

    It removes ends below ``right_from``, at most as many as ``input_ends`` has more than ``shown``, and first those
    that ``shown`` does not have. Before the merge is right, an input may have events there that do not exist, or the
    output may have frozen such an event with another end. An output event that moved to such an end would be missing
    above ``right_from``, where the output must be right.
    """
    excess = len(input_ends) - len(shown)
    if excess <= 0:
        return input_ends
    surplus = _minus(input_ends, shown)
    doubtful = [ve for ve in surplus + _minus(input_ends, surplus) if ve < right_from]
    return _minus(input_ends, sorted(doubtful[:excess]))


def _end_lacked(vs: int, payload: bytes, latest: int, low: int, input_ends: Ends, shown: Ends, rows: list[Row]) -> None:
    """Adjust output events that end after ``latest`` and that the freezing input lacks: they end at ``low``."""
    lacked = [ve for ve in _minus(shown, input_ends) if ve > latest]
    for old in lacked[: max(0, len(shown) - len(input_ends))]:
        _remove(shown, old)
        insort(shown, low)
        rows.append((ADJUST, vs, low, old, payload))


def _minus(left: Ends, right: Ends) -> Ends:
    """Return the multiset difference of two sorted lists, ascending."""
    difference = []
    at = 0
    for ve in left:
        while at < len(right) and right[at] < ve:
            at += 1
        if at < len(right) and right[at] == ve:
            at += 1
        else:
            difference.append(ve)
    return difference


def _exceeds(left: Ends | None, right: Ends | None, ve: int) -> bool:
    """Return whether ``ve`` is more often in ``left`` than in ``right``. O(log n)."""
    return _count(left, ve) > _count(right, ve)


def _count(ends: Ends | None, ve: int) -> int:
    return bisect_right(ends, ve) - bisect_left(ends, ve) if ends else 0


def _from(ends: Ends | None, low: int) -> Ends:
    """Return the ends that are not below ``low``, as a new list."""
    return ends[bisect_left(ends, low) :] if ends else []


def _by(ends: Ends, latest: int) -> Ends:
    """Return the ends that are not above ``latest``."""
    return ends[: bisect_right(ends, latest)]


def _add(node: Node, at: int, ve: int) -> None:
    if node[at] is None:
        node[at] = [ve]
    else:
        insort(node[at], ve)


def _remove(ends: Ends | None, ve: int | None) -> bool:
    """Remove one ``ve`` from ``ends``; False if there is none."""
    if not ends or ve is None:
        return False
    at = bisect_left(ends, ve)
    if at == len(ends) or ends[at] != ve:
        return False
    del ends[at]
    return True
