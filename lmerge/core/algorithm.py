"""The part that algorithms R0-R4 share: they check an input's promises, and move the output's stable point.

This is the common part of the paper's listings: ``if t > MaxStable``. The laws (docs/laws.md) add to it: the stable
of a joining input waits (law 1, V.B), closing requires agreement (law 5), and the policy may keep the output behind by
a lag (V.A). Each algorithm's own ``freeze`` prepares the output before the merge emits stable(t).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from lmerge.core import violations
from lmerge.core.batch import AnyBatch, BatchBuilder, Row
from lmerge.core.elements import ADJUST, INF, INSERT, NEG_INF, STABLE, Event
from lmerge.core.inputs import Input
from lmerge.core.lead import by_lead, decider, mark_held
from lmerge.core.policy import Closing, Policy
from lmerge.core.properties import Case
from lmerge.errors import InputViolation

State = dict[str, Any]


class Algorithm:
    """One running algorithm. ``inputs`` is the merge's own table, in order of attachment. It is not copied."""

    case: ClassVar[Case]
    name: ClassVar[str]

    def __init__(self, inputs: Mapping[str, Input], policy: Policy, closing: Closing) -> None:
        self.inputs = inputs
        self.policy = policy
        self.closing = closing
        self.max_stable = NEG_INF  # the paper's MaxStable: everything below is decided
        self.announced = NEG_INF  # the last stable in the output; below max_stable only under final-only
        self.right_from = NEG_INF  # the largest join_at of an input admitted before it: right for Ve >= this
        self.newly_joined: list[str] = []
        self.broken: list[InputViolation] = []  # promises found broken while another input's elements were merged

    # Methods that a subclass implements.

    def apply(self, inp: Input, batch: AnyBatch, start: int, out: BatchBuilder) -> None:
        """Merge the elements of ``batch`` from index ``start`` on.

        Raises InputViolation with the index of the offender; the elements before it have been merged.
        """
        raise NotImplementedError

    def freeze(self, t: int, inp: Input, out: BatchBuilder) -> None:
        """Make the output ready for stable(t), which ``inp`` has reached."""

    def widen(self, slots: int) -> None:
        """Give inputs ``slots`` places in a snapshot from now on."""

    def free_slot(self) -> int:
        """Return the first column that no input uses and that has no entries of an input that has left."""
        used = {inp.slot for inp in self.inputs.values()}
        return next(slot for slot in range(len(used) + 1) if slot not in used)

    def demand(self, out: BatchBuilder) -> None:
        """Adapt to new demands on the inputs: an input has attached, or a promise is not demanded any more."""

    def forget(self, slot: int) -> None:
        """Drop the input in column ``slot``, which has left: its entries do not count any more (law 3)."""

    def tidy(self, elements: int) -> None:
        """Continue deferred work after a batch of ``elements`` elements has been merged."""

    def reconsider(self, out: BatchBuilder) -> None:
        """Show events whose showing depends on the number of inputs (V.A): an input has joined or left."""

    def shown(self) -> Iterable[Event] | None:
        """Return the output events that are not fully frozen, in any order; None if the algorithm keeps no events."""
        return None

    def supporters(self, vs: int, ve: int, payload: bytes) -> int:
        """Return how many inputs have this event now; 0 where inputs have no entries of their own."""
        return 0

    def node_count(self) -> int:
        """Return the size of the index: the number of (Vs, payload) pairs."""
        return 0

    def payload_bytes(self) -> int:
        """Return the bytes of the payloads in the index."""
        return 0

    def check(self) -> None:
        """Assert every invariant."""
        assert self.announced <= self.max_stable
        for inp in self.inputs.values():
            if inp.counts and inp.stable < INF:
                assert self.policy.held_back(inp.stable) <= self.max_stable, "a joined input's stable was not used"
            if not inp.joined:
                assert inp.join_at is not None
                assert inp.join_at > self.max_stable, "an input should have joined"

    def state(self) -> State:
        """Return everything that ``load`` needs, as plain data."""
        later = {"right_from": self.right_from} if self.right_from > self.max_stable else {}
        return {"max_stable": self.max_stable, "announced": self.announced, **later}

    def load(self, state: State) -> None:
        """Load what ``state`` returned. The inputs are in the table already."""
        self.max_stable = state["max_stable"]
        self.announced = state["announced"]
        self.right_from = state.get("right_from", NEG_INF)
        if not isinstance(self.right_from, int):
            raise ValueError(f"right_from is {self.right_from!r}")

    # The output's stable point.

    def advance(self, inp: Input, out: BatchBuilder) -> None:
        """Let the output follow ``inp``, which has a new stable point or has just begun to count."""
        if self.policy.lead_max is None:
            self._move_to(inp, out)
        else:
            self.follow_unheld(out)

    def follow_unheld(self, out: BatchBuilder) -> None:
        """With a bound of the lead: follow the inputs that are not held. One input can release another's stable."""
        before = None
        while before != self.max_stable:
            before = self.max_stable
            if mark_held(self.inputs.values(), before, self.policy):
                self.reconsider(out)
            for inp in by_lead(self.inputs.values()):
                self._move_to(inp, out)
                if self.max_stable > before:
                    break

    def _move_to(self, inp: Input, out: BatchBuilder) -> None:
        """Move the output's stable point to that of ``inp`` if the input counts and is ahead."""
        if not inp.counts:
            return  # law 1: it is joining; or its stable is held
        t = self.policy.held_back(inp.stable)
        if t <= self.max_stable or (t == INF and not self.may_close()):
            return
        self.freeze(t, decider(inp, self.inputs.values(), self.max_stable, self.policy), out)
        self.max_stable = t
        self.announce(t, out)
        self._admit_joining(out)

    def announce(self, t: int, out: BatchBuilder) -> None:
        """Emit stable(t) if it is larger than the last one."""
        if t > self.announced:
            self.announced = t
            out.stable(t)

    def may_close(self) -> bool:
        """Return whether enough inputs have delivered stable(+inf) (law 5)."""
        counting = [inp for inp in self.inputs.values() if inp.counts]
        return self.closing.agreed(sum(inp.stable == INF for inp in counting), len(counting))

    def after_detach(self, out: BatchBuilder) -> None:
        """Let the output follow the inputs that remain.

        They may agree now on an event or on closing, or an input may lead by less than before.
        """
        self._recount(out)
        if self.policy.lead_max is not None:
            self.follow_unheld(out)
            return
        for inp in list(self.inputs.values()):
            if inp.stable == INF:
                self.advance(inp, out)

    def _recount(self, out: BatchBuilder) -> None:
        """Determine again which inputs count, and show what the policy shows for their number."""
        mark_held(self.inputs.values(), self.max_stable, self.policy)
        self.reconsider(out)

    def latest_lacked(self, inp: Input) -> int:
        """Return the latest end of a half-frozen event that ``inp`` lacks or has with an end below MaxStable.

        Where the merge is right, any end is possible (INF): ``inp`` missed the event (V.C), or contradicts the others.
        Before that, such events are expected: the inputs that moved the stable point may lack events that end before
        their join_at. ``inp`` itself has all events that end at its own join_at or later.
        """
        if self.max_stable >= self.right_from:
            return INF
        return max(self.max_stable, NEG_INF if inp.join_at is None else inp.join_at - 1)

    def admit(self, inp: Input, out: BatchBuilder) -> None:
        """Join ``inp`` (V.B). What it delivered before counts from now on."""
        inp.joined = True
        if inp.join_at is not None and inp.join_at > self.max_stable:
            self.right_from = max(self.right_from, inp.join_at)
        self.newly_joined.append(inp.name)
        self._recount(out)
        self.advance(inp, out)

    def _admit_joining(self, out: BatchBuilder) -> None:
        for inp in list(self.inputs.values()):
            if not inp.joined and inp.join_at is not None and inp.join_at <= self.max_stable:
                self.admit(inp, out)

    # Checks of every algorithm.

    def stable(self, inp: Input, row: Row, index: int, out: BatchBuilder) -> None:
        """Merge a stable element of ``inp``."""
        vc = row[1]
        if vc < inp.stable:
            raise violations.stable_backwards(inp.name, row, index, inp.stable)
        inp.excused = inp.excused and vc == inp.stable
        inp.stable = vc
        self.advance(inp, out)

    def refuse_insert(self, inp: Input, row: Row, index: int) -> InputViolation:
        """Return the violation of an insert that is below the input's floor or ends before it starts."""
        if row[2] < row[1]:
            return violations.end_before_start(inp.name, row, index)
        if row[1] < inp.stable:
            return violations.insert_below_stable(inp.name, row, index, inp.stable)
        # An equal Vs breaks only the strict promise: the input is still ordered.
        strictly = inp.strict and row[1] == inp.last_vs
        names_strict_order = strictly or (inp.strict and "ordered" not in inp.demanded)
        return violations.out_of_order(inp.name, row, index, inp.last_vs, strictly=names_strict_order)

    def refuse_adjust(self, inp: Input, row: Row, index: int) -> InputViolation | None:
        """Return the violation of an adjust that needs no look at the index, or None."""
        _, vs, ve, vold, _ = row
        if ve < vs:
            return violations.end_before_start(inp.name, row, index)
        if ve < inp.stable or vold < inp.stable:
            return violations.adjust_below_stable(inp.name, row, index, inp.stable)
        if inp.insert_only:
            return violations.adjust_not_promised(inp.name, row, index)
        return None

    def observe(self, inp: Input, batch: AnyBatch, start: int, out: BatchBuilder) -> None:
        """Check the elements of an input in role ``observe`` as far as possible without the index. Merge none."""
        for index, row in enumerate(batch.rows(start), start):
            kind, vs, ve, _, _ = row
            if kind == STABLE:
                self.stable(inp, row, index, out)
            elif kind == INSERT:
                if vs < inp.floor() or ve < vs:
                    raise self.refuse_insert(inp, row, index)
                inp.last_vs = vs
            elif kind == ADJUST:
                refusal = self.refuse_adjust(inp, row, index)
                if refusal is not None:
                    raise refusal
