"""Algorithms R0, R1 and R2 (IV.A-C): insert-only inputs in order of Vs.

All three remember the largest Vs that was output (MaxVs) and differ only in how they distinguish elements with
that Vs: R0 not at all, R1 by their position, R2 by what they are. What they share stands here:

* An insert below MaxVs has been output, or was missed by the input that led: dropped (V.C: union semantics up to
  the leader's Vs). Law 10: an element is in the output if any input delivers it before any input delivers a higher
  Vs, as often as the input that has it most often.
* An insert below MaxStable is dropped too. The listings do not say so: without it, an element that the leading
  input missed, brought by another after a stable at the same Vs, would break the output's own stable.
* While an input joins (V.B), its inserts wait. Its stream may lack events that end before join_at, and in R0-R2
  an insert is progress: letting it raise MaxVs would make the merge drop what only the others have (law 1 in
  insert-only clothes). What waited is merged in order when it has joined, so nothing of it is lost. If it breaks a
  promise, none of it is merged: an insert of it would raise MaxVs, and the events that the others have below that
  would be dropped for an input that leaves in the same moment.
* An element whose lifetime is empty (Ve = Vs) is output and takes its place in the order, as any element: the paper's
  order is one of elements. But it is no event (``tdb``), and a key is one of events (IV.C: of tdb(S, i)). So it has no
  key, it breaks none, and it never keeps an event from the output that has the same one.
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
from lmerge.core.inputs import NEVER, Input
from lmerge.core.policy import Closing, Policy
from lmerge.core.properties import Case
from lmerge.errors import InputViolation


class InsertOnly(Algorithm):
    """What R0, R1 and R2 share. A subclass decides about one insert that is not below MaxVs."""

    def __init__(self, inputs: Mapping[str, Input], policy: Policy, closing: Closing) -> None:
        super().__init__(inputs, policy, closing)
        self.max_vs = NEVER

    def is_new(self, inp: Input, vs: int, ve: int, payload: bytes) -> bool:
        """Whether this insert, with ``vs >= max_vs``, must be output. Raises InputViolation with index 0."""
        raise NotImplementedError

    def kept(self) -> Any:
        """What ``go_back`` needs."""
        raise NotImplementedError

    def go_back(self, kept: Any) -> None:
        """Be as ``kept`` was made. The input that has delivered since then is about to be removed."""
        raise NotImplementedError

    def carried(self) -> list[Input]:
        """The inputs of which something was merged: it waits of those that join, and others are about to end."""
        ends = {violation.input_name for violation in self.broken}
        return [inp for inp in self.inputs.values() if inp.counts and inp.name not in ends]

    def stands(self, inp: Input) -> bool:
        """Whether the input has delivered elements at MaxVs; those of a joining input wait, and count when it joins."""
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
            # It was another input's element that let this one join. Nothing of it moves the output (law 6): its
            # inserts are taken back, and its stable point goes with it, since the merge removes it a little later.
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
            assert inp.joined or inp.role == "active"
            assert not (inp.joined and inp.waiting), "an input has joined and something of it still waits"
            if inp.counts:
                assert inp.last_vs <= self.max_vs, "an insert was not noticed"

    def state(self) -> State:
        return super().state() | {"max_vs": max(self.max_vs, NEG_INF)}

    def load(self, state: State) -> None:
        """The reverse of ``state``. A subclass calls ``_load_max_vs`` when it has loaded what was output there."""
        super().load(state)
        self.max_vs = state["max_vs"]

    def _load_max_vs(self, *, has_output: bool) -> None:
        """-inf stands for no element as well, in the snapshot; ``has_output``: whether there is one at MaxVs."""
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
        if len(waiting) >= 1024 and len(waiting) & (len(waiting) - 1) == 0:  # now and then drop what is past
            inp.waiting = waiting = [old for old in waiting if old[1] >= self.max_stable]
        waiting.append(row)
        inp.last_vs = row[1]


class R0(InsertOnly):
    """IV.A: strictly increasing Vs. MaxVs is all that is needed. The last element is kept for a downgrade, and because
    an event may come after an element at its Vs that is none.
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
    """IV.B: equal Vs come in the same order on all inputs, so an input's position in the slot decides what is new.

    ``slot``: the elements at MaxVs, in order of output. While every input has delivered a beginning of it, the slot is
    *in step*: an element is compared with one other, and new where the slot ends. The listing compares the counters of
    the inputs; here the slot has a length of its own, because an input that has left takes its counter with it, and a
    new incarnation that replays the slot would then be output again (law 4).

    Where an element is not the next one of the slot, an input has missed one (V.C), or leaves out the beginning of the
    slot in its replay, or has another order. From there to the end of the slot, content decides what is new: the k-th
    copy is, if the output has fewer than k (law 10). So the order changes no output. It is a promise all the same, and
    two inputs keep it as long as they order alike what both have delivered. Per pair, the latest such element is
    marked. What the one delivers next, and the other has delivered before its mark, is in another order:

        x: A B C D    the mark of x and y is D; y delivers B next, which x has before D: y breaks its promise
        y: A D B

    Of a payload and end that come twice in the slot, which copy was missed is not known: they mark nothing and accuse
    nobody. An element is known by its *place*, the first index that it has in the slot.
    """

    case = Case.R1
    name = "r1"

    def __init__(self, inputs: Mapping[str, Input], policy: Policy, closing: Closing) -> None:
        super().__init__(inputs, policy, closing)
        self.slot: list[tuple[bytes, int]] = []
        self.in_step = self.slot  # the same list while the slot is in step; an empty one while it is not
        # While it is not: the place of each element in the slot, and how often it was output, by place.
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
            self._fall_out_of_step()
        elif in_step is self.slot:
            in_step.append(element)
            inp.tie_count += 1
            return True
        return self._is_new_by_content(inp, vs, element)

    def _start(self, slot: list[tuple[bytes, int]]) -> None:
        """Go on with ``slot``, in step."""
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
        """``inp`` delivers for the first time what was output once. Raises InputViolation, changing nothing."""
        others = [other for other in self.inputs.values() if place in other.tie_order and self.stands(other)]
        for other in others:
            mark = inp.tie_marks.get(other.slot)
            after = -1 if mark is None or self.copies.get(mark) != 1 else other.tie_order.get(mark, -1)
            if after > other.tie_order[place]:
                raise violations.ties_differ(inp.name, row, 0)
        for other in others:
            inp.tie_marks[other.slot] = other.tie_marks[inp.slot] = place

    def _fall_out_of_step(self) -> None:
        """O(slot), once a slot: what the position of an input was enough for is written out."""
        self._write_places()
        standing = [inp for inp in self.inputs.values() if self.stands(inp)]
        for inp in standing:
            order = dict.fromkeys(self.places[element] for element in self.slot[: inp.tie_count])
            inp.tie_order = {place: at for at, place in enumerate(order)}
        marks: list[int | None] = [None]  # by the length of a beginning of the slot: its last element that came once
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
        """Take the slot as it was set, with inputs whose places in it are known from ``at_last_vs`` only.

        Those that have delivered a beginning of it are in step. Of the others the order is not known.
        """
        standing = [inp for inp in self.inputs.values() if self.stands(inp)]
        for inp in standing:
            inp.tie_count = inp.at_last_vs.total()
        behind = [inp for inp in standing if Counter(self.slot[: inp.tie_count]) != inp.at_last_vs]
        if behind:
            self._fall_out_of_step()
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
    """IV.C: equal Vs come in any order. What is new at MaxVs follows from what an element is.

    While all inputs promise ``key``, its payload tells: one event of each is output. ``hash`` has them. Beside each
    stand its end in the output and the set of inputs that have delivered it, as bits by slot, so that an input that
    breaks the key is found out.

    While one does not, the k-th copy of an element (payload and end) that one input delivers is new if the output has
    fewer than k. ``hash`` then has the payloads of those inputs only that do promise the key, and serves nothing else.
    The merge does not go back from there (docs/design/0029-copies-under-r2.md).

    Elements that are no events have no key: their copies are counted in any case.
    """

    case = Case.R2
    name = "r2"

    def __init__(self, inputs: Mapping[str, Input], policy: Policy, closing: Closing) -> None:
        super().__init__(inputs, policy, closing)
        self.is_keyed = self._all_promise_a_key()
        self.hash: dict[bytes, tuple[int, int]] = {}
        self.copies: dict[tuple[bytes, int], int] = {}  # how often each element was output, of those that are counted

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
        """Take ``shown`` as what was output at MaxVs, and merge once more what the inputs have delivered there.

        Returns what of that was not output and is to be: in order of attachment, then of the elements. O(slot).
        """
        self.hash, self.copies, more = {}, {}, []
        for payload, ve in shown:
            if self.is_keyed and ve > self.max_vs:
                self.hash[payload] = ve, 0
            else:
                self.copies[payload, ve] = self.copies.get((payload, ve), 0) + 1
        for inp in self.carried():
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
        for inp in self.carried():
            delivered = inp.at_last_vs.items() if inp.last_vs == self.max_vs else ()
            for (payload, ve), copies in delivered:
                if ve > self.max_vs and (self.is_keyed or inp.keyed):
                    assert self.hash[payload][1] >> inp.slot & 1, "who has delivered a payload was not noted"
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
    """An element at a known Vs, as it stands in a snapshot."""
    return [b64encode(payload).decode(), ve]


def element_of_plain(plain: list[str | int]) -> tuple[bytes, int]:
    """The reverse."""
    return b64decode(str(plain[0])), int(plain[1])
