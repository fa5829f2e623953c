"""What in2t (R3) and in3t (R4) share: nodes by (Vs, payload), and who must be looked at when.

One node holds what every input and the output say about one (Vs, payload); the payload is stored once however
many inputs there are (Figure 1). A node is a list: its due time, its key, the output's entry, then one entry per
input by slot. The top tier is a hash by key and a calendar by due time instead of the paper's red-black tree,
because only two things are ever asked of it: "this key", and "who is due before t".

Due times (law 2). An unfrozen node is due at its Vs: it becomes half frozen by a stable above it. A half-frozen
node is due at the smallest end, not below MaxStable, that any input or the output gives it: before a stable
passes that end, nothing about it can demand a change of the output. An element that lowers that end enters the
node again. Ends below MaxStable in the entry of a lagging input are old news and make nobody due.

What the listings leave open, and what is done here:

* The freezing input lacks an event that the output already shows half frozen. The listing would remove it, but no
  stream may adjust below its own stable point. Such an input missed the event (V.C) or contradicts the others;
  the event stays, and a *witness* decides its end: of the joined inputs that still have it, the one with the
  largest stable point (the I_m of condition C3).
* The freezing input gives a half-frozen event an end below MaxStable: a contradiction as well, handled alike.
* An input was let in before MaxStable reached its join_at (``Merge.admit``): the merge is right from there on, and
  before that the half-frozen events are those of whoever spoke. Of one that the freezing input lacks, or says to be
  over, the input knows how late it can have ended at most (``latest_lacked``), whatever the others have heard so far. A
  witness must say such an end; if the stable point passes it and none has, the event ends at MaxStable, the first end
  that the output may still give it. Nobody may rely on that end, but all may on there being no later one. When the
  merge becomes right, all half-frozen events are looked at so, also those that are not due.
* At one stable the paper visits nodes in tree order. Here the adjusts and inserts that a stable causes are put
  into order of (Vs, payload), so no hash or calendar order reaches the output (law 7).
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
# Entries of inputs that have left are swept away by later batches: so many nodes a batch, beside one for each of its
# elements. About 50 microseconds of work.
SWEPT_NODES: Final = 1024

Key = tuple[int, bytes]


class Indexed(Algorithm):
    """The part of R3 and R4 above the entries of a node."""

    def __init__(self, inputs: Mapping[str, Input], policy: Policy, closing: Closing) -> None:
        super().__init__(inputs, policy, closing)
        self.nodes: SizedTable[Node] = SizedTable()
        self.calendar = Calendar()
        self.slots = 0  # columns of a node; one more than inputs need, so that one that comes finds room
        self.places = 0  # columns of a snapshot
        # Columns of inputs that have left, which can have entries until they are swept; nobody reads them, and no other
        # input has them. A pass sweeps those in ``_passing`` out of the nodes that were there when it began, the rest
        # of which are in ``_unswept``: new ones have no entries there, and those that a stable visits are cleaned.
        self.retired: set[int] = set()
        self._passing: set[int] = set()
        self._unswept: list[Node] = []
        self.swept = 0
        self.visits = 0  # nodes looked at by stables: the measure of law 2
        self.final_only = policy.show is Show.FINAL
        self.by_insert = policy.show is Show.LEADING and policy.leader is Leader.INSERT
        self.by_unfrozen = policy.show is Show.LEADING and policy.leader is Leader.UNFROZEN
        self.unfrozen: list[int] = []  # most-unfrozen: how many unfrozen events each input has, by slot
        # Final-only: half-frozen events that are not shown yet, by Vs; the output's stable may not pass them.
        self.held: list[tuple[int, bytes, Node]] = []

    # What a subclass knows: the entries of a node.

    def settle(self, node: Node, t: int, inp: Input, rows: list[Row]) -> bool:
        """Append to ``rows`` what the output must say about ``node`` before stable(t) of ``inp``. True: it is done."""
        raise NotImplementedError

    def next_due(self, node: Node, t: int) -> int:
        """The smallest end in the node that is not below ``t``; INF if there is none."""
        raise NotImplementedError

    def has_live_entry(self, node: Node, slot: int, latest: int) -> bool:
        """Whether the input in ``slot`` has an event here that ends in MaxStable .. ``latest``, both included."""
        raise NotImplementedError

    def says(self, node: Node, slot: int, ve: int) -> bool:
        """Whether the input in ``slot`` has an event here that ends at ``ve``."""
        raise NotImplementedError

    def copies(self, node: Node, slot: int) -> int:
        """How many events the input in ``slot`` has here."""
        raise NotImplementedError

    def show_agreed(self, node: Node, out: BatchBuilder) -> None:
        """Quorum: show what enough inputs have of an unfrozen node and the output lacks."""
        raise NotImplementedError

    def load_nodes(self, rows: list[Any]) -> None:
        """The reverse of what ``state`` makes of the nodes; their due times follow."""
        raise NotImplementedError

    # The same for both.

    def supporters(self, vs: int, ve: int, payload: bytes) -> int:
        node = self.nodes.get((vs, payload))
        return 0 if node is None else sum(self.says(node, inp.slot, ve) for inp in self.inputs.values())

    def freeze(self, t: int, inp: Input, out: BatchBuilder) -> None:
        """IV.D line 17 and IV.E line 18: every node that a stable(t) concerns, and only those."""
        rows: list[Row] = []
        not_due = self._not_due(t, inp)
        for node in self.calendar.pop_below(t):
            if node[DUE] is None or node[DUE] >= t:
                continue  # left behind: the node is gone, or stands elsewhere in the calendar
            self._visit(node, t, inp, rows)
        for node in not_due:
            self._visit(node, t, inp, rows)
        if len(rows) > 1:
            rows.sort(key=_by_event)
        out.rows += rows

    def _not_due(self, t: int, inp: Input) -> list[Node]:
        """The nodes that a stable(t) of ``inp`` concerns beside those that are due."""
        if self.final_only and t == INF:  # final-only shows at last what never ends
            return [node for node in self.nodes.values() if node[DUE] == INF]
        if self.max_stable < self.right_from <= t:  # the merge becomes right: what it shows must be
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
        """Final-only: an event that is not shown yet keeps the output's stable point at or below its Vs."""
        held = self.held
        while held and held[0][2][DUE] is None:
            heapq.heappop(held)
        super().announce(min(t, held[0][0]) if held else t, out)

    def hold(self, node: Node) -> None:
        """Final-only: ``node`` has become half frozen and cannot be shown yet."""
        vs, payload = node[KEY]
        heapq.heappush(self.held, (vs, payload, node))

    def enter(self, node: Node, vs: int, payload: bytes) -> None:
        """Add a new node, unfrozen: due at its Vs."""
        self.nodes[vs, payload] = node
        self.calendar.add(node)

    def fall_due(self, node: Node, ve: int) -> None:
        """An element gave ``node`` the end ``ve``: enter it again if that is earlier than it stands."""
        if self.max_stable <= ve < node[DUE]:
            node[DUE] = ve
            self.calendar.add(node)

    def witness(self, node: Node, latest: int) -> Input | None:
        """The joined input with the largest stable point that has the event of a half-frozen node alive, with an end by
        ``latest``.
        """
        best = None
        for inp in self.inputs.values():
            is_further = inp.counts and (best is None or inp.stable > best.stable)
            if is_further and self.has_live_entry(node, inp.slot, latest):
                best = inp
        return best

    def leads(self, inp: Input) -> bool:
        """V.A: whether ``inp`` is the leading input; of equals the longest attached leads."""
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
        """V.A: how many inputs must have an event before it is shown."""
        return self.policy.enough(sum(inp.counts for inp in self.inputs.values()))

    def support(self, node: Node, shown: int) -> int:
        """How many joined inputs have more than ``shown`` events here."""
        return sum(self.copies(node, inp.slot) > shown for inp in self.inputs.values() if inp.counts)

    def wants(self, node: Node, inp: Input, shown: int) -> bool:
        """V.A, location 2: whether ``inp`` makes the output show one event more than ``shown`` of an unfrozen node."""
        show = self.policy.show
        if show is Show.FIRST:
            return True
        if not inp.counts:
            return False
        if show is Show.QUORUM:
            return self.support(node, shown) >= self.quorum()
        return show is Show.LEADING and self.leads(inp)

    def follows(self, inp: Input) -> bool:
        """V.A, location 1: whether a change by ``inp`` is shown at once; with a quorum, if others agree with it."""
        if not (self.policy.reflects_adjusts and inp.joined):
            return False
        return self.policy.show is not Show.LEADING or self.leads(inp)

    def reconsider(self, out: BatchBuilder) -> None:
        if self.policy.show is not Show.QUORUM:
            return
        for _, node in sorted(item for item in self.nodes.items() if item[0][0] >= self.max_stable):
            self.show_agreed(node, out)

    def furthest(self, node: Node, shown: int) -> Input:
        """Of the joined inputs that have more than ``shown`` events here, the one with the largest stable point."""
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
        self._sweep_all()  # that costs no more than another column
        return super().free_slot()

    def forget(self, slot: int) -> None:
        self.unfrozen[slot] = 0
        if self.nodes:
            self.retired.add(slot)

    def tidy(self, elements: int) -> None:
        if self.retired:
            self._sweep(SWEPT_NODES + elements)

    def _sweep(self, nodes: int) -> None:
        """Forget entries of retired columns in so many nodes."""
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
        """The output's entry and those of inputs, as a snapshot has them: by place."""
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
        """How many unfrozen events each input has, by slot."""
        unfrozen = [node for (vs, _), node in self.nodes.items() if vs >= self.max_stable]
        counts = [0] * self.slots
        for inp in self.inputs.values():
            counts[inp.slot] = sum(self.copies(node, inp.slot) for node in unfrozen)
        return counts

    def rebuild_calendar(self, dues: Mapping[Key, int] | None = None) -> None:
        """After ``load`` and switches: due times follow from the entries, but for those in ``dues``."""
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
        """A due time is stored where it does not follow from the entries: an end that went up or away again left it
        behind. A visit before anything is due can change the output where the merge is not right yet, or under
        final-only, so a restored merge must make the same (law 12).
        """
        self._sweep_all()  # a due time accounts for what is there
        early = [[key[0], b64encode(key[1]).decode(), node[DUE]]
                 for key, node in sorted(self.nodes.items()) if node[DUE] != self._due(node)]
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
        """The due time of a node as it follows from the entries."""
        if node[KEY][0] >= self.max_stable:
            return node[KEY][0]  # type: ignore[no-any-return]
        due = self.next_due(node, self.max_stable)
        if due == INF and self.final_only and not node[OUT]:
            return self.max_stable  # perhaps nobody says it any more: the next stable looks
        return due


def _by_event(row: Row) -> tuple[int, bytes]:
    return row[1], row[4]


