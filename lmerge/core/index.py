"""The part that in2t (R3) and in3t (R4) share: nodes by (Vs, payload), and the times at which they are due.

One node holds the entries of every input and of the output for one (Vs, payload). The payload is stored once, however
many inputs there are (Figure 1). A node is a list: its due time, its key, the output's entry, then one entry per
input by slot. The top tier is a hash by key and a calendar by due time instead of the paper's red-black tree, because
only two look-ups are needed: the node of a key, and the nodes that are due before t.

Due times (law 2, docs/laws.md). An unfrozen node is due at its Vs: a stable above Vs makes it half frozen. A
half-frozen node is due at the smallest end in its entries that is not below MaxStable. Before a stable passes that
end, the node cannot require a change of the output. An element that lowers that end enters the node in the calendar
again. Ends below MaxStable in the entry of a lagging input are ignored.

The listings leave some cases open. They are handled here as follows:

* The freezing input lacks an event that the output already shows half frozen. The listing would remove the event, but
  no stream may adjust below its own stable point. Such an input missed the event (V.C) or contradicts the others. The
  event stays, and a *witness* decides its end: of the joined inputs that still have the event, the one with the
  largest stable point (the I_m of condition C3).
* The freezing input gives a half-frozen event an end below MaxStable. This is a contradiction as well. It is handled
  in the same way.
* An input was admitted before MaxStable reached its join_at (``Merge.admit``). The merge is right from that join_at
  on. Before it, the half-frozen events are those of the inputs that delivered. If the freezing input lacks such an
  event, or has ended it, its stream gives the latest end that the event can have (``latest_lacked``), whatever the
  other inputs have delivered so far. A witness must have an end up to that time. If the stable point passes that time
  and no input has such an end, the event ends at MaxStable, the smallest end that the output may still give it.
  Readers may not rely on that end. They may rely on the event having no later end. When the merge becomes right, all
  half-frozen events are treated in this way, also those that are not due.
* At one stable the paper visits nodes in tree order. Here the adjusts and inserts that a stable causes are sorted by
  (Vs, payload), so no hash or calendar order reaches the output (law 7).
"""

from __future__ import annotations

import heapq
from base64 import b64decode, b64encode
from collections.abc import Mapping
from itertools import count
from typing import Any, Final

from lmerge.core.algorithm import Algorithm, State
from lmerge.core.batch import BatchBuilder, Row
from lmerge.core.calendar import Calendar, Node
from lmerge.core.elements import INF
from lmerge.core.inputs import Input
from lmerge.core.policy import Closing, Leader, Policy, Show
from lmerge.core.sized import SizedTable

DUE: Final = 0
KEY: Final = 1
OUT: Final = 2
IN: Final = 3  # the entry of the input in slot 0; the others follow
# Later batches remove the entries of inputs that have left. A batch sweeps this many nodes, and one more for each of
# its elements. That is about 50 microseconds of work.
SWEPT_NODES: Final = 1024

Key = tuple[int, bytes]


class Indexed(Algorithm):
    """The part of R3 and R4 above the entries of a node."""

    def __init__(self, inputs: Mapping[str, Input], policy: Policy, closing: Closing) -> None:
        super().__init__(inputs, policy, closing)
        self.nodes: SizedTable[Node] = SizedTable()
        self.calendar = Calendar()
        self.slots = 0  # columns of a node; one more than inputs need, so that the next input has a column
        self.places = 0  # columns of a snapshot
        # Columns of inputs that have left. They can have entries until they are swept. No code reads these entries, and
        # no other input uses the columns. One pass sweeps the columns in ``_passing`` from the nodes that existed when
        # it began; ``_unswept`` are those still to be swept. Newer nodes have no entries in these columns, and a stable
        # clears the nodes that it visits.
        self.retired: set[int] = set()
        self._passing: set[int] = set()
        self._unswept: list[Node] = []
        self.swept = 0
        self.visits = 0  # number of nodes visited by stables: the measure of law 2
        self.final_only = policy.show is Show.FINAL
        self.by_insert = policy.show is Show.LEADING and policy.leader is Leader.INSERT
        self.by_unfrozen = policy.show is Show.LEADING and policy.leader is Leader.UNFROZEN
        self.unfrozen: list[int] = []  # most-unfrozen: how many unfrozen events each input has, by slot
        # Final-only: half-frozen events that are not shown yet, by Vs. The output's stable may not pass them.
        self.held: list[tuple[int, bytes, Node]] = []

    # Methods of a subclass: it defines the entries of a node.

    def settle(self, node: Node, t: int, inp: Input, rows: list[Row]) -> bool:
        """Append to ``rows`` what the output must emit for ``node`` before stable(t) of ``inp``.

        Returns True if the node is fully frozen or removed, and leaves the index.
        """
        raise NotImplementedError

    def next_due(self, node: Node, t: int) -> int:
        """Return the smallest end in the node that is not below ``t``; INF if there is none."""
        raise NotImplementedError

    def has_live_entry(self, node: Node, slot: int, latest: int) -> bool:
        """Return whether the input in ``slot`` has an event here that ends in MaxStable .. ``latest``, inclusive."""
        raise NotImplementedError

    def has_end(self, node: Node, slot: int, ve: int) -> bool:
        """Return whether the input in ``slot`` has an event here that ends at ``ve``."""
        raise NotImplementedError

    def copies(self, node: Node, slot: int) -> int:
        """Return how many events the input in ``slot`` has here."""
        raise NotImplementedError

    def show_agreed(self, node: Node, out: BatchBuilder) -> None:
        """Quorum: show the events of an unfrozen node that enough inputs have and the output lacks."""
        raise NotImplementedError

    def load_nodes(self, rows: list[Any]) -> None:
        """Load the nodes from ``rows``, as ``state`` wrote them. Their due times are set later."""
        raise NotImplementedError

    # Common to both.

    def supporters(self, vs: int, ve: int, payload: bytes) -> int:
        node = self.nodes.get((vs, payload))
        return 0 if node is None else sum(self.has_end(node, inp.slot, ve) for inp in self.inputs.values())

    def freeze(self, t: int, inp: Input, out: BatchBuilder) -> None:
        """Settle every node that a stable(t) concerns, and only those (IV.D line 17, IV.E line 18)."""
        rows: list[Row] = []
        not_due = self._not_due(t, inp)
        for node in self.calendar.pop_below(t):
            if node[DUE] is None or node[DUE] >= t:
                continue  # a stale entry: the node was removed, or entered again with another due time
            self._visit(node, t, inp, rows)
        for node in not_due:
            self._visit(node, t, inp, rows)
        if len(rows) > 1:
            rows.sort(key=_by_event)
        out.rows += rows

    def _not_due(self, t: int, inp: Input) -> list[Node]:
        """Return the nodes that a stable(t) of ``inp`` concerns beside those that are due."""
        if self.final_only and t == INF:  # final-only shows events without an end at stable(+inf)
            return [node for node in self.nodes.values() if node[DUE] == INF]
        if self.max_stable < self.right_from <= t:  # the merge becomes right: its half-frozen events must be right
            return [node for (vs, _), node in self.nodes.items() if vs < self.max_stable and node[DUE] >= t]
        return []

    def _visit(self, node: Node, t: int, inp: Input, rows: list[Row]) -> None:
        self.visits += 1
        if self.by_unfrozen and node[KEY][0] >= self.max_stable:
            for other in self.inputs.values():
                self.unfrozen[other.slot] -= self.copies(node, other.slot)
        for slot in self.retired:
            node[IN + slot] = None
        if self.settle(node, t, inp, rows):
            node[DUE] = None
            del self.nodes[node[KEY]]
            return
        before, node[DUE] = node[DUE], self.next_due(node, t)
        if before != node[DUE] < INF:
            self.calendar.add(node)

    def announce(self, t: int, out: BatchBuilder) -> None:
        """Emit stable(t). Final-only: an event not shown yet keeps the output's stable point at or below its Vs."""
        held = self.held
        while held and held[0][2][DUE] is None:
            heapq.heappop(held)
        super().announce(min(t, held[0][0]) if held else t, out)

    def hold(self, node: Node) -> None:
        """Final-only: hold ``node``, which has become half frozen and cannot be shown yet."""
        vs, payload = node[KEY]
        heapq.heappush(self.held, (vs, payload, node))

    def enter(self, node: Node, vs: int, payload: bytes) -> None:
        """Add a new node, unfrozen: due at its Vs."""
        self.nodes[vs, payload] = node
        self.calendar.add(node)

    def fall_due(self, node: Node, ve: int) -> None:
        """Enter ``node`` in the calendar again if ``ve``, an end from an element, is before its due time."""
        if self.max_stable <= ve < node[DUE]:
            node[DUE] = ve
            self.calendar.add(node)

    def witness(self, node: Node, latest: int) -> Input | None:
        """Return the joined input with the largest stable point that has a live event in a half-frozen node.

        The event must end by ``latest``. None if there is no such input.
        """
        best = None
        for inp in self.inputs.values():
            is_further = inp.counts and (best is None or inp.stable > best.stable)
            if is_further and self.has_live_entry(node, inp.slot, latest):
                best = inp
        return best

    def leads(self, inp: Input) -> bool:
        """V.A: return whether ``inp`` is the leading input; of equals the longest attached leads."""
        best = None
        for other in self.inputs.values():
            if other.counts and (best is None or self._rank(other) > self._rank(best)):
                best = other
        return best is inp

    def _rank(self, inp: Input) -> int:
        if self.by_insert:
            return inp.last_vs
        return self.unfrozen[inp.slot] if self.by_unfrozen else inp.stable

    def quorum(self) -> int:
        """V.A: return how many inputs must have an event before it is shown."""
        return self.policy.enough(sum(inp.counts for inp in self.inputs.values()))

    def support(self, node: Node, shown: int) -> int:
        """Return how many joined inputs have more than ``shown`` events here."""
        return sum(self.copies(node, inp.slot) > shown for inp in self.inputs.values() if inp.counts)

    def should_show(self, node: Node, inp: Input, shown: int) -> bool:
        """V.A, location 2: return whether the output shows one event more than ``shown`` of an unfrozen node.

        ``inp``: the input that has just delivered the event.
        """
        show = self.policy.show
        if show is Show.FIRST:
            return True
        if not inp.counts:
            return False
        if show is Show.QUORUM:
            return self.support(node, shown) >= self.quorum()
        return show is Show.LEADING and self.leads(inp)

    def follows(self, inp: Input) -> bool:
        """V.A, location 1: return whether a change by ``inp`` is shown at once; with a quorum, others must agree."""
        if not (self.policy.reflects_adjusts and inp.joined):
            return False
        return self.policy.show is not Show.LEADING or self.leads(inp)

    def reconsider(self, out: BatchBuilder) -> None:
        if self.policy.show is not Show.QUORUM:
            return
        for _, node in sorted(item for item in self.nodes.items() if item[0][0] >= self.max_stable):
            self.show_agreed(node, out)

    def furthest(self, node: Node, shown: int) -> Input:
        """Return, of the joined inputs with more than ``shown`` events here, the one with the largest stable point."""
        having = (inp for inp in self.inputs.values() if inp.counts and self.copies(node, inp.slot) > shown)
        return max(having, key=lambda inp: inp.stable)

    def widen(self, slots: int) -> None:
        self.places = max(self.places, slots)
        needed = 1 + max((inp.slot for inp in self.inputs.values()), default=-1)
        if needed > self.slots or not self.nodes:
            self._widen_nodes(max(needed + 1, self.slots))

    def _widen_nodes(self, slots: int) -> None:
        more = [None] * (slots - self.slots)
        for node in self.nodes.values():
            node += more
        self.slots = slots
        self.unfrozen += [0] * (slots - len(self.unfrozen))

    def free_slot(self) -> int:
        used = {inp.slot for inp in self.inputs.values()}
        slot = next(slot for slot in count() if slot not in used and slot not in self.retired)
        if slot < self.slots or not self.retired:
            return slot
        self._sweep_all()  # this costs no more than another column
        return super().free_slot()

    def forget(self, slot: int) -> None:
        self.unfrozen[slot] = 0
        if self.nodes:
            self.retired.add(slot)

    def tidy(self, elements: int) -> None:
        if self.retired:
            self._sweep(SWEPT_NODES + elements)

    def _sweep(self, nodes: int) -> None:
        """Remove the entries of retired columns from this many nodes."""
        if not self._passing:
            self._passing = set(self.retired)
            self._unswept = list(self.nodes.values())
        unswept = self._unswept
        rest = max(0, len(unswept) - nodes)
        columns = [IN + slot for slot in self._passing]
        for node in unswept[rest:]:
            for column in columns:
                node[column] = None
        self.swept += len(unswept) - rest
        del unswept[rest:]
        if not unswept:
            self.retired -= self._passing
            self._passing = set()

    def _sweep_all(self) -> None:
        while self.retired:
            self._sweep(len(self.nodes) + len(self._unswept))

    def entries(self, node: Node) -> list[Any]:
        """Return the output's entry and those of the inputs by place, as a snapshot has them."""
        slots = {inp.place: inp.slot for inp in self.inputs.values()}
        return [node[OUT], *(node[IN + slots[at]] if at in slots else None for at in range(self.places))]

    def node_count(self) -> int:
        return len(self.nodes)

    def payload_bytes(self) -> int:
        return self.nodes.payload_bytes

    def check(self) -> None:
        super().check()
        self.calendar.check()
        entered: dict[int, int] = {}
        for node in self.calendar.entries():
            entered[id(node)] = entered.get(id(node), 0) + 1
        assert not self.by_unfrozen or self.unfrozen == self.count_unfrozen(), "unfrozen events were counted wrongly"
        used = {inp.slot for inp in self.inputs.values()}
        assert not used & self.retired, "an input among entries of another"
        used |= self.retired
        assert self.nodes.payload_bytes == sum(len(payload) for _, payload in self.nodes), "payload bytes"
        for key, node in self.nodes.items():
            assert node[KEY] == key, "a node under another key"
            assert len(node) == IN + self.slots, "a node of another width"
            assert node[DUE] is not None, "a dead node in the index"
            assert entered.get(id(node)) or node[DUE] == INF, "a node that no stable will visit"
            half_frozen = key[0] < self.max_stable
            assert half_frozen or node[DUE] == key[0], "an unfrozen node is due at its Vs"
            if half_frozen:
                assert self.next_due(node, self.max_stable) >= node[DUE] >= self.max_stable, "due too late"
            for slot in range(self.slots):
                assert slot in used or node[IN + slot] is None, "an entry of an input that has left"

    def count_unfrozen(self) -> list[int]:
        """Return how many unfrozen events each input has, by slot."""
        unfrozen = [node for (vs, _), node in self.nodes.items() if vs >= self.max_stable]
        counts = [0] * self.slots
        for inp in self.inputs.values():
            counts[inp.slot] = sum(self.copies(node, inp.slot) for node in unfrozen)
        return counts

    def rebuild_calendar(self, dues: Mapping[Key, int] | None = None) -> None:
        """Build the calendar after ``load`` or a switch. ``dues``: due times that do not follow from the entries."""
        self.unfrozen = self.count_unfrozen() if self.by_unfrozen else [0] * self.slots
        self.calendar = Calendar(self.max_stable)
        self.held = []
        for key, node in self.nodes.items():
            node[DUE] = dues[key] if dues and key in dues else self._due(node)
            if self.final_only and not node[OUT] and key[0] < self.max_stable:
                self.hold(node)
            if node[DUE] < INF:
                self.calendar.add(node)

    def state(self) -> State:
        """Return the state. It contains a due time where that does not follow from the entries.

        Such a due time comes from an end that was raised or removed later. A visit at that time can change the output
        where the merge is not right yet, or under final-only. So a restored merge must make the same visit (law 12).
        """
        self._sweep_all()  # due times follow only from entries of attached inputs
        early = [
            [key[0], b64encode(key[1]).decode(), node[DUE]]
            for key, node in sorted(self.nodes.items())
            if node[DUE] != self._due(node)
        ]
        return super().state() | {"slots": self.places, **({"due": early} if early else {})}

    def load(self, state: State) -> None:
        super().load(state)
        self.slots = self.places = state["slots"]
        self.load_nodes(state["nodes"])
        self._widen_nodes(self.slots + 1)
        dues = {(vs, b64decode(payload)): due for vs, payload, due in state.get("due", ())}
        if not all(key in self.nodes and isinstance(due, int) and due >= self.max_stable for key, due in dues.items()):
            raise ValueError("a due time that cannot be")
        self.rebuild_calendar(dues)

    def _due(self, node: Node) -> int:
        """Return the due time of a node as it follows from the entries."""
        if node[KEY][0] >= self.max_stable:
            return node[KEY][0]  # type: ignore[no-any-return]
        due = self.next_due(node, self.max_stable)
        if due == INF and self.final_only and not node[OUT]:
            return self.max_stable  # perhaps no input has the event any more: the next stable visits the node
        return due


def _by_event(row: Row) -> tuple[int, bytes]:
    return row[1], row[4]
