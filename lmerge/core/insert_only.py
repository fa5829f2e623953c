"""Algorithms R0, R1 and R2 (IV.A-C): insert-only inputs in order of Vs.

All three remember the largest Vs that was output (MaxVs) and differ only in how they tell apart elements with
that Vs. What they share stands here:

* An insert below MaxVs has been output, or was missed by the input that led: dropped (V.C: union semantics up to
  the leader's Vs).
* An insert below MaxStable is dropped too. The listings do not say so: without it, an element that the leading
  input missed, brought by another after a stable at the same Vs, would break the output's own stable.
* While an input joins (V.B), its inserts wait. Its stream may lack events that end before join_at, and in R0-R2
  an insert is progress: letting it raise MaxVs would make the merge drop what only the others have (law 1 in
  insert-only clothes). What waited is merged in order when it has joined, so nothing of it is lost.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping

from lmerge.core import violations
from lmerge.core.algorithm import Algorithm, State
from lmerge.core.batch import AnyBatch, BatchBuilder, Row
from lmerge.core.elements import INSERT, NEG_INF, STABLE, Event
from lmerge.core.inputs import Input
from lmerge.core.policy import Closing, Policy
from lmerge.core.properties import Case
from lmerge.errors import InputViolation


class InsertOnly(Algorithm):
    """What R0, R1 and R2 share. A subclass decides about one insert that is not below MaxVs."""

    def __init__(self, inputs: Mapping[str, Input], policy: Policy, closing: Closing) -> None:
        super().__init__(inputs, policy, closing)
        self.max_vs = NEG_INF

    def is_new(self, inp: Input, vs: int, ve: int, payload: bytes) -> bool:
        """Whether this insert, with ``vs >= max_vs``, must be output. Raises InputViolation with index 0."""
        raise NotImplementedError

    def delivered(self, inp: Input, event: Event, copies: int) -> int:
        """How many of ``copies`` equal output events ``inp`` has delivered; what it missed before counts as well."""
        if event.vs == inp.last_vs:
            return min(copies, inp.at_last_vs[event.payload, event.ve])
        return copies if event.vs < inp.last_vs else 0

    def apply(self, inp: Input, batch: AnyBatch, start: int, out: BatchBuilder) -> None:
        if inp.observes:
            self.observe(inp, batch, start, out)
            return
        for index, row in enumerate(batch.rows(start), start):
            kind, vs, ve, _, _ = row
            if kind == INSERT:
                if ve < vs or vs < inp.floor():
                    raise self.refuse_insert(inp, row, index)
                if inp.joined:
                    self._insert(inp, row, index, out)
                else:
                    self._wait(inp, row)
            elif kind == STABLE:
                self.stable(inp, row, index, out)
            else:
                raise self.refuse_adjust(inp, row, index) or violations.adjust_not_promised(inp.name, row, index)

    def admit(self, inp: Input, out: BatchBuilder) -> None:
        inp.joined = True
        waiting, inp.waiting = inp.waiting, []
        inp.last_vs = NEG_INF
        try:
            for row in waiting:
                self._insert(inp, row, 0, out)
        except InputViolation as violation:
            self.broken.append(violation)  # it was another input's element that let this one join
        super().admit(inp, out)

    def check(self) -> None:
        super().check()
        for inp in self.inputs.values():
            assert inp.joined or inp.role == "active"
            assert not (inp.joined and inp.waiting), "an input has joined and something of it still waits"
            if inp.counts:
                assert inp.last_vs <= self.max_vs, "an insert was not noticed"

    def state(self) -> State:
        return super().state() | {"max_vs": self.max_vs}

    def load(self, state: State) -> None:
        super().load(state)
        self.max_vs = state["max_vs"]

    def _insert(self, inp: Input, row: Row, index: int, out: BatchBuilder) -> None:
        _, vs, ve, _, payload = row
        if vs < self.max_stable:
            inp.late += 1
        if vs >= self.max_vs:
            try:
                new = self.is_new(inp, vs, ve, payload)
            except InputViolation as violation:
                violation.index = index
                raise
            # The guard on MaxStable: see the head of this module.
            if new and vs >= self.max_stable:
                out.insert(payload, vs, ve)
        if vs != inp.last_vs:
            inp.last_vs = vs
            inp.at_last_vs.clear()
        inp.at_last_vs[payload, ve] += 1

    def _wait(self, inp: Input, row: Row) -> None:
        waiting = inp.waiting
        if len(waiting) >= 1024 and len(waiting) & (len(waiting) - 1) == 0:  # now and then drop what is past
            inp.waiting = waiting = [old for old in waiting if old[1] >= self.max_stable]
        waiting.append(row)
        inp.last_vs = row[1]


class R0(InsertOnly):
    """IV.A: strictly increasing Vs. MaxVs is all that is needed. The last element is kept for a downgrade."""

    case = Case.R0
    name = "r0"

    def __init__(self, inputs: Mapping[str, Input], policy: Policy, closing: Closing) -> None:
        super().__init__(inputs, policy, closing)
        self.last: tuple[bytes, int] | None = None

    def is_new(self, inp: Input, vs: int, ve: int, payload: bytes) -> bool:
        if vs <= self.max_vs:
            return False
        self.max_vs = vs
        self.last = (payload, ve)
        return True

    def state(self) -> State:
        return super().state() | {"last": None if self.last is None else _plain(*self.last)}

    def load(self, state: State) -> None:
        super().load(state)
        self.last = None if state["last"] is None else _unplain(state["last"])


class R1(InsertOnly):
    """IV.B: equal Vs come in the same order on all inputs, so an input's position in the slot says what is new.

    The listing compares each input's counter with the largest counter of any input. Here the output has a counter
    of its own (the length of ``slot``), because an input that has left takes its counter with it, and a new
    incarnation that replays the slot would then be output again (law 4). The elements of the current slot are
    kept, not only counted: so an input that missed an element in the middle of a slot (V.C), or whose replay
    begins in the middle of it, is aligned by content, and one that breaks the promised order is found out.
    """

    case = Case.R1
    name = "r1"

    def __init__(self, inputs: Mapping[str, Input], policy: Policy, closing: Closing) -> None:
        super().__init__(inputs, policy, closing)
        self.slot: list[tuple[bytes, int]] = []

    def is_new(self, inp: Input, vs: int, ve: int, payload: bytes) -> bool:
        if vs > self.max_vs:
            self.max_vs = vs
            self.slot = []
        if inp.last_vs != vs:
            inp.tie_count = 0
            inp.passed_over.clear()
        element = (payload, ve)
        position = inp.tie_count
        if position < len(self.slot) and self.slot[position] == element:
            inp.tie_count += 1
            return False
        return self._realign(inp, vs, element)

    def _realign(self, inp: Input, vs: int, element: tuple[bytes, int]) -> bool:
        """The element is not the next of the slot: it is further on, or was passed over, or is new."""
        slot, position = self.slot, inp.tie_count
        for ahead in range(position + 1, len(slot)):
            if slot[ahead] == element:
                inp.passed_over.update(slot[position:ahead])
                inp.tie_count = ahead + 1
                return False
        if inp.passed_over[element] > 0:
            row: Row = (INSERT, vs, element[1], 0, element[0])
            raise violations.ties_differ(inp.name, row, 0)
        if position == len(slot):
            inp.tie_count += 1
        slot.append(element)
        return True

    def state(self) -> State:
        return super().state() | {"slot": [_plain(*element) for element in self.slot]}

    def load(self, state: State) -> None:
        super().load(state)
        self.slot = [_unplain(element) for element in state["slot"]]


class R2(InsertOnly):
    """IV.C: equal Vs come in any order, but (Vs, payload) is a key: a hash of the payloads at MaxVs.

    Beside each payload stands the set of inputs that have delivered it, as bits by slot, so that an input that
    breaks the key is found out.
    """

    case = Case.R2
    name = "r2"

    def __init__(self, inputs: Mapping[str, Input], policy: Policy, closing: Closing) -> None:
        super().__init__(inputs, policy, closing)
        self.hash: dict[bytes, int] = {}

    def is_new(self, inp: Input, vs: int, ve: int, payload: bytes) -> bool:
        if vs > self.max_vs:
            self.max_vs = vs
            self.hash = {}
        bit = 1 << inp.slot
        inputs = self.hash.get(payload, 0)
        if inputs & bit:
            raise violations.duplicate_key(inp.name, (INSERT, vs, ve, 0, payload), 0)
        new = payload not in self.hash
        self.hash[payload] = inputs | bit
        return new

    def forget(self, slot: int) -> None:
        for payload in self.hash:
            self.hash[payload] &= ~(1 << slot)

    def state(self) -> State:
        rows = [[b64encode(payload).decode(), inputs] for payload, inputs in sorted(self.hash.items())]
        return super().state() | {"hash": rows}

    def load(self, state: State) -> None:
        super().load(state)
        self.hash = {b64decode(payload): inputs for payload, inputs in state["hash"]}


def _plain(payload: bytes, ve: int) -> list[str | int]:
    return [b64encode(payload).decode(), ve]


def _unplain(plain: list[str | int]) -> tuple[bytes, int]:
    return b64decode(str(plain[0])), int(plain[1])
