"""Algorithm R3 (IV.D) on in2t: elements of any kind in any order, (Vs, payload) is a key.

An entry of a node is the event's current end on that input or in the output. It is None where there is no such event:
it was never inserted, or it was removed again. See ``index`` for the tiers above.

The listing, line by line (lazy policy):

==========  =========================================================================================
lines 5-10  ``_first_insert``: the node does not exist; below MaxStable it existed and was removed
line 11     ``node[slot] = ve``
lines 12-14 the adjust branch: only the entry changes, the output waits for a stable
lines 15-16 ``Algorithm.advance``
lines 17-30 ``Indexed.freeze`` and ``settle``
==========  =========================================================================================
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

from lmerge.core import violations
from lmerge.core.algorithm import State
from lmerge.core.batch import AnyBatch, BatchBuilder, Row
from lmerge.core.calendar import Node
from lmerge.core.elements import ADJUST, INF, INSERT, Event
from lmerge.core.index import IN, KEY, OUT, Indexed
from lmerge.core.inputs import Input
from lmerge.core.policy import Show
from lmerge.core.properties import Case


class R3(Indexed):
    """Algorithm R3 (IV.D) with in2t."""

    case = Case.R3
    name = "r3"

    def apply(self, inp: Input, batch: AnyBatch, start: int, out: BatchBuilder) -> None:
        if inp.observes:
            self.observe(inp, batch, start, out)
            return
        lookup = self.nodes.get
        slot = IN + inp.slot
        lazy = self.policy.show is Show.FIRST and not self.policy.reflects_adjusts
        by_insert = self.by_insert
        ordered, strict, floor, max_stable = inp.ordered, inp.strict, inp.floor(), self.max_stable
        for index, row in enumerate(batch.rows(start), start):
            kind, vs, ve, vold, payload = row
            if kind == INSERT:
                if vs < floor or ve < vs:
                    raise self.refuse_insert(inp, row, index)
                if ordered:
                    inp.last_vs = vs
                    floor = vs + strict
                elif by_insert and vs > inp.last_vs:
                    inp.last_vs = vs
                node = lookup((vs, payload))
                if node is None:
                    if vs < max_stable:  # IV.D line 6
                        inp.late += 1
                    elif ve > vs:
                        self._first_insert(inp, slot, vs, ve, payload, lazy, out)
                    continue
                if node[slot] is not None:
                    raise violations.duplicate_key(inp.name, row, index)
                if ve == vs:
                    continue
            elif kind == ADJUST:
                refusal = self.refuse_adjust(inp, row, index)
                if refusal is not None:
                    raise refusal
                node = lookup((vs, payload))
                if node is None and vs < max_stable:  # line 13
                    inp.late += 1
                    continue
                if node is None or node[slot] != vold:
                    known = violations.known_end(None if node is None else node[slot])
                    raise violations.unknown_event(inp.name, row, index, known)
            else:
                self.stable(inp, row, index, out)
                floor, max_stable = inp.floor(), self.max_stable
                continue
            # Line 11, line 14. Where the ends are equal, the output's integer object is stored: inputs share it.
            shown, before = node[OUT], node[slot]
            node[slot] = shown if ve == shown else ve if ve > vs else None
            if max_stable <= ve < node[0]:
                self.fall_due(node, ve)
            if not lazy:
                self._follow(node, inp, slot, before, out)

    def settle(self, node: Node, t: int, inp: Input, rows: list[Row]) -> bool:
        vs, payload = node[KEY]
        input_end, shown = node[IN + inp.slot], node[OUT]
        half_frozen = vs < self.max_stable
        if half_frozen and (input_end is None or input_end < self.max_stable):
            latest = self.latest_lacked(inp)
            other = self.witness(node, latest)
            input_end = None if other is None else node[IN + other.slot]
            if input_end is None and shown is not None and shown > latest and t > latest:
                input_end = self.max_stable
        if self.final_only:
            return self._settle_final(node, t, input_end, half_frozen, rows)
        if half_frozen and input_end is None:
            return bool(shown < t)  # no input has another end: the output keeps its own
        if input_end is None:
            if shown is not None:  # lines 20-25: InVe = Vs, the event is removed
                rows.append((ADJUST, vs, vs, shown, payload))
            return True
        if shown is None:
            rows.append((INSERT, vs, input_end, 0, payload))
            node[OUT] = input_end
        elif input_end != shown and (input_end < t or shown < t):  # lines 22-25
            rows.append((ADJUST, vs, input_end, shown, payload))
            node[OUT] = input_end
        return bool(input_end < t)  # line 26

    def _settle_final(self, node: Node, t: int, input_end: int | None, half_frozen: bool, rows: list[Row]) -> bool:
        """Final-only: show an event when its end cannot change any more. At stable(+inf) no end can change."""
        vs, payload = node[KEY]
        if input_end is None:
            return True
        if input_end < t or t == INF:
            rows.append((INSERT, vs, input_end, 0, payload))
            return True
        if not half_frozen:
            self.hold(node)
        return False

    def next_due(self, node: Node, t: int) -> int:
        due = INF
        for ve in node[OUT:]:
            if ve is not None and t <= ve < due:
                due = ve
        return due

    def has_live_entry(self, node: Node, slot: int, latest: int) -> bool:
        ve = node[IN + slot]
        return ve is not None and self.max_stable <= ve <= latest

    def has_end(self, node: Node, slot: int, ve: int) -> bool:
        return bool(node[IN + slot] == ve)

    def copies(self, node: Node, slot: int) -> int:
        return node[IN + slot] is not None

    def shown(self) -> Iterator[Event] | None:
        if self.final_only:
            return None  # an event leaves the index when it is shown
        return (Event(vs, payload, node[OUT]) for (vs, payload), node in self.nodes.items() if node[OUT] is not None)

    def check(self) -> None:
        super().check()
        for (vs, _), node in self.nodes.items():
            assert all(ve is None or ve > vs for ve in node[OUT:]), "an entry with an empty lifetime"
            if vs < self.max_stable and not self.final_only:
                assert node[OUT] is not None, "a half-frozen event is not in the output"
                assert node[OUT] >= self.max_stable, "a fully frozen event is still in the index"
            if self.final_only:
                assert node[OUT] is None, "final-only has shown an event that can still change"

    def state(self) -> State:
        rows = [[key[0], b64encode(key[1]).decode(), *self.entries(node)] for key, node in sorted(self.nodes.items())]
        return super().state() | {"nodes": rows}

    def load_nodes(self, rows: list[Any]) -> None:
        for vs, payload, *ends in rows:
            key = (vs, b64decode(payload))
            self.nodes[key] = [vs, key, *ends]

    def adopt(self, event: Event, copies: int) -> None:
        """Enter an output event on a switch from another algorithm."""
        assert copies == 1, "two events of one key"
        key = (event.vs, event.payload)
        self.nodes[key] = [event.vs, key, event.ve, *([None] * self.slots)]

    def adopt_delivered(self, slot: int, vs: int, payload: bytes, ve: int, out: BatchBuilder) -> None:
        """Enter an event that an input delivered before a switch, and emit it if the output has not shown it."""
        key = (vs, payload)
        node = self.nodes.get(key)
        if node is None:
            if vs < self.max_stable:
                return
            self.adopt(Event(vs, payload, ve), 1)
            node = self.nodes[key]
            out.insert(payload, vs, ve)
        node[IN + slot] = ve

    def _first_insert(
        self, inp: Input, slot: int, vs: int, ve: int, payload: bytes, lazy: bool, out: BatchBuilder
    ) -> None:
        """Add the node of a new event (lines 5-10)."""
        key = (vs, payload)
        node: Node = [vs, key, None, *([None] * self.slots)]
        node[slot] = ve
        self.nodes[key] = node
        self.calendar.add(node)
        if lazy:
            node[OUT] = ve
            out.rows.append((INSERT, vs, ve, 0, payload))
        else:
            self._follow(node, inp, slot, None, out)

    def show_agreed(self, node: Node, out: BatchBuilder) -> None:
        if node[OUT] is None and self.support(node, 0) >= self.quorum():
            vs, payload = node[KEY]
            ve: int = node[IN + self.furthest(node, 0).slot]
            node[OUT] = ve
            out.insert(payload, vs, ve)

    def _follow(self, node: Node, inp: Input, slot: int, before: int | None, out: BatchBuilder) -> None:
        """Let the output follow an entry that an input has changed, if the policy shows the change at once (V.A)."""
        vs, payload = node[KEY]
        input_end, shown = node[slot], node[OUT]
        unfrozen = vs >= self.max_stable
        if self.by_unfrozen and unfrozen:
            self.unfrozen[inp.slot] += (input_end is not None) - (before is not None)
        if shown is None:
            if input_end is not None and unfrozen and self.should_show(node, inp, 0):
                node[OUT] = input_end
                out.insert(payload, vs, input_end)
        elif input_end != shown and self.follows(inp) and self._agreed(node, input_end):
            if input_end is None:
                if unfrozen:
                    node[OUT] = None
                    out.adjust(payload, vs, shown, vs)
            elif unfrozen or input_end >= self.max_stable:
                node[OUT] = input_end
                out.adjust(payload, vs, shown, input_end)

    def _agreed(self, node: Node, input_end: int | None) -> bool:
        """Quorum: return whether enough inputs have the end ``input_end``; None: whether too few have the event."""
        if self.policy.show is not Show.QUORUM:
            return True
        if input_end is None:
            return self.support(node, 0) < self.quorum()
        agreed: int = sum(node[IN + inp.slot] == input_end for inp in self.inputs.values() if inp.counts)
        return agreed >= self.quorum()
