"""Algorithms R0, R1 and R2 (IV.A-C): insert-only inputs in order of Vs.

All three keep the largest Vs that was output (MaxVs). They differ only in how they distinguish elements with that Vs:
R0 does not distinguish them, R1 does by position, R2 by content. The common rules:

* An insert below MaxVs was output already, or the leading input missed it. It is dropped (V.C: union semantics up to
  the leader's Vs). Law 10 (docs/laws.md): an element is in the output if any input delivers it before any input
  delivers a higher Vs, as often as the input that has it most often.
* An insert below MaxStable is dropped too. The listings lack this guard. Without it, another input could deliver an
  element that the leading input missed, after a stable at the same Vs, and break the output's own stable.
* While an input joins (V.B), its inserts wait. Its stream may lack events that end before join_at, and in R0-R2 every
  insert can raise MaxVs. Then the merge would drop events that only the other inputs have (the form of law 1 for
  insert-only inputs). When the input has joined, the waiting inserts are merged in order, so none is lost. If one of
  them breaks a promise, none is merged. Otherwise they would raise MaxVs, and events of the other inputs below it
  would be dropped because of an input that leaves in the same call.
* An element with an empty lifetime (Ve = Vs) is output and takes its place in the order like any element, because the
  paper orders elements. But it is no event (``tdb``), and keys are keys of events (IV.C: of tdb(S, i)). So it has no
  key and breaks no key promise, and it never suppresses an event with the same (Vs, payload).
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from lmerge.core import violations
from lmerge.core.algorithm import Algorithm, State
from lmerge.core.batch import AnyBatch, BatchBuilder, Row
from lmerge.core.elements import INSERT, NEG_INF, STABLE
from lmerge.core.inputs import NEVER, Input, InputRole
from lmerge.core.policy import Closing, Policy
from lmerge.core.properties import Case
from lmerge.errors import InputViolation


class InsertOnly(Algorithm):
    """The common part of R0, R1 and R2. A subclass decides about one insert that is not below MaxVs."""

    def __init__(self, inputs: Mapping[str, Input], policy: Policy, closing: Closing) -> None:
        super().__init__(inputs, policy, closing)
        self.max_vs = NEVER

    def is_new(self, inp: Input, vs: int, ve: int, payload: bytes) -> bool:
        """Return whether this insert, with ``vs >= max_vs``, must be output. Raises InputViolation with index 0."""
        raise NotImplementedError

    def kept(self) -> Any:
        """Return the state that ``go_back`` needs."""
        raise NotImplementedError

    def go_back(self, kept: Any) -> None:
        """Restore the state ``kept``. The input that has delivered since then is about to be removed."""
        raise NotImplementedError

    def merged_inputs(self) -> list[Input]:
        """Return the inputs whose elements were merged: not those that are joining or about to be removed."""
        ends = {violation.input_name for violation in self.broken}
        return [inp for inp in self.inputs.values() if inp.counts and inp.name not in ends]

    def stands(self, inp: Input) -> bool:
        """Return whether the input counts and has delivered elements at MaxVs."""
        return inp.counts and inp.last_vs == self.max_vs

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
        inp.last_vs = NEVER
        kept, waited = self.kept(), BatchBuilder()
        try:
            for row in waiting:
                self._insert(inp, row, 0, waited)
        except InputViolation as violation:
            # An element of another input let this one join. This input must not change the output (law 6): its inserts
            # and its stable point are taken back, because the merge removes it before the call ends.
            self.broken.append(violation)
            self.go_back(kept)
            inp.stable, inp.last_vs = NEG_INF, NEVER
            inp.at_last_vs.clear()
            self.newly_joined.append(inp.name)
            return
        out.rows += waited.rows
        super().admit(inp, out)

    def check(self) -> None:
        super().check()
        for inp in self.inputs.values():
            assert inp.joined or inp.role is InputRole.ACTIVE
            assert not (inp.joined and inp.waiting), "an input has joined and something of it still waits"
            if inp.counts:
                assert inp.last_vs <= self.max_vs, "an insert was not noticed"

    def state(self) -> State:
        return super().state() | {"max_vs": max(self.max_vs, NEG_INF)}

    def load(self, state: State) -> None:
        """Load what ``state`` returned. A subclass calls ``_load_max_vs`` after it has loaded the output at MaxVs."""
        super().load(state)
        self.max_vs = state["max_vs"]

    def _load_max_vs(self, *, has_output: bool) -> None:
        """Set MaxVs after a load. In a snapshot -inf also means no element. ``has_output``: there is one at MaxVs."""
        if self.max_vs == NEG_INF and not has_output:
            self.max_vs = NEVER

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
        if len(waiting) >= 1024 and len(waiting) & (len(waiting) - 1) == 0:  # at powers of two: drop past inserts
            inp.waiting = waiting = [old for old in waiting if old[1] >= self.max_stable]
        waiting.append(row)
        inp.last_vs = row[1]


class R0(InsertOnly):
    """Algorithm R0 (IV.A): Vs increases strictly, so MaxVs is enough.

    The last element is kept for a downgrade, and because an event may come after an element with an empty lifetime at
    the same Vs.
    """

    case = Case.R0
    name = "r0"

    def __init__(self, inputs: Mapping[str, Input], policy: Policy, closing: Closing) -> None:
        super().__init__(inputs, policy, closing)
        self.last: tuple[bytes, int] | None = None

    def is_new(self, inp: Input, vs: int, ve: int, payload: bytes) -> bool:
        if vs == self.max_vs and (self.last is None or not self.last[1] == vs < ve):
            return False
        self.max_vs = vs
        self.last = (payload, ve)
        return True

    def kept(self) -> Any:
        return self.max_vs, self.last

    def go_back(self, kept: Any) -> None:
        self.max_vs, self.last = kept

    def state(self) -> State:
        return super().state() | {"last": None if self.last is None else plain_element(*self.last)}

    def load(self, state: State) -> None:
        super().load(state)
        self.last = None if state["last"] is None else element_of_plain(state["last"])
        self._load_max_vs(has_output=self.last is not None)


class R1(InsertOnly):
    """Algorithm R1 (IV.B): equal Vs come in the same order on all inputs, so the position in the slot decides.

    ``slot``: the elements at MaxVs, in order of output. While every input has delivered a prefix of it, the slot is
    *in step*: an element is compared with the one at its position, and is new where the slot ends. The listing compares
    the counters of the inputs. Here the slot has its own length. Otherwise an input that leaves would take its counter
    with it, and the replay of a new incarnation would be output again (law 4).

    The slot leaves step where an element is not the next one of the slot. Then an input has missed an element (V.C), or
    leaves out the first elements of the slot in its replay, or has another order. From there to the end of the slot,
    content decides: the k-th copy is new if the output has fewer than k (law 10). So the order changes no output. It is
    a promise nevertheless. Two inputs keep it while they order the elements that both have delivered in the same way.
    For each pair, the latest such element is the mark. An element that one input delivers next, and that the other has
    delivered before its mark, is in another order:

        x: A B C D    the mark of x and y is D; y delivers B next, which x has before D: y breaks its promise
        y: A D B

    If a (payload, end) comes twice in the slot, the input may have missed either copy. Such elements set no mark and
    are no violation. The *place* of an element is the first index that it has in the slot.
    """

    case = Case.R1
    name = "r1"

    def __init__(self, inputs: Mapping[str, Input], policy: Policy, closing: Closing) -> None:
        super().__init__(inputs, policy, closing)
        self.slot: list[tuple[bytes, int]] = []
        self.in_step = self.slot  # the same list while the slot is in step; an empty one while it is not
        # While it is not in step: the place of each element in the slot, and how often it was output, by place.
        self.places: dict[tuple[bytes, int], int] = {}
        self.copies: dict[int, int] = {}

    def is_new(self, inp: Input, vs: int, ve: int, payload: bytes) -> bool:
        if vs > self.max_vs:
            self.max_vs = vs
            self._start([])
        if inp.last_vs != vs:
            inp.tie_count = 0
            if inp.tie_order:
                inp.tie_order, inp.tie_marks = {}, {}
        element = (payload, ve)
        position = inp.tie_count
        in_step = self.in_step
        if position < len(in_step):
            if in_step[position] == element:
                inp.tie_count += 1
                return False
            self._leave_step()
        elif in_step is self.slot:
            in_step.append(element)
            inp.tie_count += 1
            return True
        return self._is_new_by_content(inp, vs, element)

    def _start(self, slot: list[tuple[bytes, int]]) -> None:
        """Begin or continue with ``slot``, in step."""
        self.slot = self.in_step = slot
        if self.places:
            self.places, self.copies = {}, {}

    def _is_new_by_content(self, inp: Input, vs: int, element: tuple[bytes, int]) -> bool:
        before = inp.at_last_vs[element] if inp.last_vs == vs else 0
        place = self.places.setdefault(element, len(self.slot))
        copies = self.copies.get(place, 0)
        if not before:
            if copies == 1:
                self._check_order(inp, place, (INSERT, vs, element[1], 0, element[0]))
            inp.tie_order[place] = len(inp.tie_order)
        inp.tie_count += 1
        if before < copies:
            return False
        self.slot.append(element)
        self.copies[place] = copies + 1
        return True

    def _check_order(self, inp: Input, place: int, row: Row) -> None:
        """Check the order of an element that ``inp`` delivers for the first time and that was output once.

        Sets the marks of ``inp``. Raises InputViolation, changing nothing.
        """
        others = [other for other in self.inputs.values() if place in other.tie_order and self.stands(other)]
        for other in others:
            mark = inp.tie_marks.get(other.slot)
            after = -1 if mark is None or self.copies.get(mark) != 1 else other.tie_order.get(mark, -1)
            if after > other.tie_order[place]:
                raise violations.ties_differ(inp.name, row, 0)
        for other in others:
            inp.tie_marks[other.slot] = other.tie_marks[inp.slot] = place

    def _leave_step(self) -> None:
        """Replace the positions of the inputs in the slot by places, ranks and marks. O(slot), once for each slot."""
        self._write_places()
        standing = [inp for inp in self.inputs.values() if self.stands(inp)]
        for inp in standing:
            order = dict.fromkeys(self.places[element] for element in self.slot[: inp.tie_count])
            inp.tie_order = {place: at for at, place in enumerate(order)}
        marks: list[int | None] = [None]  # by length of a prefix of the slot: its last element that came once
        for place, element in enumerate(self.slot):
            marks.append(place if self.copies[self.places[element]] == 1 else marks[-1])
        for inp in standing:
            ends = {other.slot: min(inp.tie_count, other.tie_count) for other in standing if other is not inp}
            latest = {slot: marks[min(end, len(self.slot))] for slot, end in ends.items()}
            inp.tie_marks = {slot: mark for slot, mark in latest.items() if mark is not None}

    def _write_places(self) -> None:
        self.in_step, self.places, self.copies = [], {}, {}
        for at, element in enumerate(self.slot):
            place = self.places.setdefault(element, at)
            self.copies[place] = self.copies.get(place, 0) + 1

    def settle(self) -> None:
        """Prepare a slot that was set from outside, where only ``at_last_vs`` shows what the inputs delivered.

        Inputs that have delivered a prefix of the slot are in step. The order of the other inputs is not known.
        """
        standing = [inp for inp in self.inputs.values() if self.stands(inp)]
        for inp in standing:
            inp.tie_count = inp.at_last_vs.total()
        behind = [inp for inp in standing if Counter(self.slot[: inp.tie_count]) != inp.at_last_vs]
        if behind:
            self._leave_step()
        for inp in behind:
            inp.tie_order, inp.tie_marks = {}, {}
            for other in standing:
                other.tie_marks.pop(inp.slot, None)

    def kept(self) -> Any:
        return self.max_vs, list(self.slot), self.in_step is self.slot

    def go_back(self, kept: Any) -> None:
        was_in_step = self.in_step is self.slot
        self.max_vs, slot, in_step = kept
        self._start(slot)
        if not (in_step and was_in_step):
            self._write_places()

    def forget(self, slot: int) -> None:
        for inp in self.inputs.values():
            inp.tie_marks.pop(slot, None)

    def check(self) -> None:
        super().check()
        standing = [inp for inp in self.inputs.values() if self.stands(inp)]
        assert all(inp.tie_count == inp.at_last_vs.total() for inp in standing), "an element was not counted"
        if self.in_step is self.slot:
            assert not self.places
            assert not self.copies
            for inp in standing:
                assert Counter(self.slot[: inp.tie_count]) == inp.at_last_vs, "an input is not in step"
            return
        assert not self.in_step
        assert Counter({self.slot[place]: copies for place, copies in self.copies.items()}) == Counter(self.slot)
        for inp in standing:
            assert sorted(inp.tie_order.values()) == list(range(len(inp.tie_order)))
            delivered = {self.slot[place] for place in inp.tie_order}
            assert delivered <= {element for element, copies in inp.at_last_vs.items() if copies}

    def state(self) -> State:
        out_of_step = {} if self.in_step is self.slot else {"out_of_step": True}
        return super().state() | {"slot": [plain_element(*element) for element in self.slot]} | out_of_step

    def load(self, state: State) -> None:
        super().load(state)
        self._start([element_of_plain(element) for element in state["slot"]])
        self._load_max_vs(has_output=bool(self.slot))
        if state.get("out_of_step", False):
            self._write_places()
        else:
            self.settle()


class R2(InsertOnly):
    """Algorithm R2 (IV.C): equal Vs come in any order, so the content of an element decides whether it is new.

    While all inputs promise ``key``, the payload decides: one event of each payload is output. ``hash`` holds, by
    payload, the end in the output and the inputs that have delivered it, as bits by slot. The bits show when an input
    breaks its key.

    While one input does not promise ``key``, copies are counted: the k-th copy of an element (payload and end) from one
    input is new if the output has fewer than k. ``hash`` then holds only payloads of the inputs that promise the key,
    to check that promise. The merge does not return to keys (docs/design/0029-copies-under-r2.md).

    Elements with an empty lifetime are no events and have no key: their copies are counted in any case.
    """

    case = Case.R2
    name = "r2"

    def __init__(self, inputs: Mapping[str, Input], policy: Policy, closing: Closing) -> None:
        super().__init__(inputs, policy, closing)
        self.is_keyed = self._all_promise_a_key()
        self.hash: dict[bytes, tuple[int, int]] = {}
        self.copies: dict[tuple[bytes, int], int] = {}  # how often each counted element was output

    def is_new(self, inp: Input, vs: int, ve: int, payload: bytes) -> bool:
        if vs > self.max_vs:
            self.max_vs = vs
            self.hash = {}
            if self.copies:
                self.copies = {}
        if ve > vs and (self.is_keyed or inp.keyed):
            bit = 1 << inp.slot
            end, inputs = self.hash.get(payload, (ve, 0))
            if inputs & bit:
                raise violations.duplicate_key(inp.name, (INSERT, vs, ve, 0, payload), 0)
            new = payload not in self.hash
            self.hash[payload] = end, inputs | bit
            if self.is_keyed:
                return new
        return self._is_new_copy(inp, vs, (payload, ve))

    def _is_new_copy(self, inp: Input, vs: int, element: tuple[bytes, int]) -> bool:
        before = inp.at_last_vs[element] if inp.last_vs == vs else 0
        copies = self.copies.get(element, 0)
        if before < copies:
            return False
        self.copies[element] = copies + 1
        return True

    def demand(self, out: BatchBuilder) -> None:
        is_keyed = self._all_promise_a_key()
        if self.max_vs == NEVER:
            self.is_keyed = is_keyed
        elif self.is_keyed and not is_keyed:
            shown = [*((payload, end) for payload, (end, _) in self.hash.items()), *Counter(self.copies).elements()]
            self.is_keyed = False
            for payload, ve in self.settle(shown):
                if self.max_vs >= self.max_stable:
                    out.insert(payload, self.max_vs, ve)

    def settle(self, shown: Iterable[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
        """Take ``shown`` as the output at MaxVs, and merge again the elements that the inputs have delivered there.

        Returns the elements that were not output and must be, in order of attachment, then of the elements. O(slot).
        """
        self.hash, self.copies, more = {}, {}, []
        for payload, ve in shown:
            if self.is_keyed and ve > self.max_vs:
                self.hash[payload] = ve, 0
            else:
                self.copies[payload, ve] = self.copies.get((payload, ve), 0) + 1
        for inp in self.merged_inputs():
            delivered = inp.at_last_vs if inp.last_vs == self.max_vs else {}
            for (payload, ve), copies in sorted(delivered.items()):
                known = self.copies.get((payload, ve), 0)
                if ve > self.max_vs and (self.is_keyed or inp.keyed):
                    known = copies if self.is_keyed and payload in self.hash else known
                    end, inputs = self.hash.get(payload, (ve, 0))
                    self.hash[payload] = end, inputs | 1 << inp.slot
                if copies > known:
                    more += [(payload, ve)] * (copies - known)
                    if ve == self.max_vs or not self.is_keyed:
                        self.copies[payload, ve] = copies
        return more

    def _all_promise_a_key(self) -> bool:
        return all(inp.keyed or inp.observes for inp in self.inputs.values())

    def kept(self) -> Any:
        return self.max_vs, dict(self.hash), dict(self.copies)

    def go_back(self, kept: Any) -> None:
        self.max_vs, self.hash, self.copies = kept

    def forget(self, slot: int) -> None:
        for payload, (end, inputs) in self.hash.items():
            self.hash[payload] = end, inputs & ~(1 << slot)

    def check(self) -> None:
        super().check()
        for inp in self.merged_inputs():
            delivered = inp.at_last_vs.items() if inp.last_vs == self.max_vs else ()
            for (payload, ve), copies in delivered:
                if ve > self.max_vs and (self.is_keyed or inp.keyed):
                    assert self.hash[payload][1] >> inp.slot & 1, "the input that delivered a payload was not noted"
                if ve == self.max_vs or not self.is_keyed:
                    assert copies <= self.copies.get((payload, ve), 0), "an element was not counted"

    def state(self) -> State:
        keys, copies = sorted(self.hash.items()), sorted(self.copies.items())
        empties = [[b64encode(payload).decode(), n] for (payload, ve), n in copies if ve == self.max_vs]
        events = [[*plain_element(payload, ve), n] for (payload, ve), n in copies if ve > self.max_vs]
        return (
            super().state()
            | {"hash": [[b64encode(payload).decode(), inputs] for payload, (_, inputs) in keys]}
            | ({"ends": [end for _, (end, _) in keys]} if self.is_keyed else {"copies": events})
            | ({"empties": empties} if empties else {})
        )

    def load(self, state: State) -> None:
        super().load(state)
        self.is_keyed = "copies" not in state
        ends = state["ends"] if self.is_keyed else [0] * len(state["hash"])
        self.hash = {b64decode(row[0]): (int(end), row[1]) for row, end in zip(state["hash"], ends, strict=True)}
        self.copies = {(b64decode(payload), self.max_vs): n for payload, n in state.get("empties", [])}
        self.copies |= {(b64decode(payload), ve): n for payload, ve, n in state.get("copies", [])}
        self._load_max_vs(has_output=bool(self.hash or self.copies))


def plain_element(payload: bytes, ve: int) -> list[str | int]:
    """Return an element at a known Vs as plain data for a snapshot."""
    return [b64encode(payload).decode(), ve]


def element_of_plain(plain: list[str | int]) -> tuple[bytes, int]:
    """Return the element that ``plain_element`` wrote."""
    return b64decode(str(plain[0])), int(plain[1])
