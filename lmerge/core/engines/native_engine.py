"""The native engine: passes every call to the compiled core, one batch a call, with the GIL released.

The core (``lmerge._native``, built from ``native/``) identifies inputs by slot and violations by number. This module
adds the names and the error texts, so both engines give the same messages. Importing this module imports the compiled
core. ``engines.selection`` imports it when the native engine is chosen; other modules must not, unless they import the
compiled core themselves.

Times have 64 bits here. A time that does not fit makes a batch invalid before any of it is merged.

After each call the counters of the inputs concerned are copied into their ``Input``. ``at_last_vs``, ``tie_order``,
``tie_marks``, ``waiting`` and ``delivered`` stay in the core and leave it only in snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from lmerge._native import Columns, Core, DecodeError, Violation
from lmerge.core import properties as props
from lmerge.core import violations
from lmerge.core.batch import EMPTY, AnyBatch, Batch
from lmerge.core.inputs import NEVER, Input
from lmerge.core.policy import Closing, Policy
from lmerge.errors import InputViolation, InvalidBatch

_DEMAND_BITS: Final = {
    props.INSERT_ONLY: 1,
    props.ORDERED: 2,
    props.STRICTLY_ORDERED: 4,
    props.DETERMINISTIC_TIES: 8,
    props.KEY: 16,
}
_COUNTERS: Final = ("joined", "stable", "last_vs", "tie_count", "late")


class NativeEngine:
    """An ``Engine`` on the compiled core. ``shards``: number of threads, each with a part of the R3 or R4 index."""

    name: Final = "native"

    def __init__(
        self,
        algorithm: str,
        inputs: Mapping[str, Input],
        policy: Policy,
        closing: Closing,
        *,
        track_live: bool,
        keeps_delivered: bool = False,
        shards: int = 1,
    ) -> None:
        self.inputs = inputs
        self._policy = policy
        self._closing = closing
        self._track_live = track_live
        self._keeps_delivered = keeps_delivered
        self._shards = shards
        self._core = self._fresh(algorithm)
        # Taken from the core by ``broken``, and not yet taken by the merge.
        self._pieces: list[Columns] = []
        self._changed = 0  # in these pieces: the core counts only since it was last read
        self._joined: list[str] = []

    @property
    def algorithm(self) -> str:
        return self._core.algorithm

    @property
    def max_stable(self) -> int:
        return self._core.max_stable

    @property
    def announced(self) -> int:
        return self._core.announced

    @property
    def live_count(self) -> int:
        tracked = self._core.live_count
        return self._core.node_count if tracked is None else tracked

    @property
    def live_bytes(self) -> int:
        return self._core.memory[1]

    @property
    def visits(self) -> int:
        return self._core.visits

    @property
    def swept(self) -> int:
        return self._core.swept

    @property
    def changes(self) -> int:
        return self._changed + self._core.changes

    def attach(self, inp: Input) -> None:
        self._core.attach(inp.slot, inp.place, _demands(inp), inp.join_at, inp.observes, inp.joined)

    def free_slot(self) -> int:
        return self._core.free_slot()

    def remove(self, inp: Input) -> None:
        self._core.remove(inp.slot)

    def after_detach(self) -> None:
        self._core.after_detach()

    def admit(self, inp: Input) -> None:
        self._core.admit(inp.slot)

    def relax(self, inp: Input) -> None:
        self._core.demand(inp.slot, _demands(inp))

    def excuse(self, inp: Input) -> None:
        self._core.excuse(inp.slot)

    def batch_of(self, inp: Input, batch: AnyBatch) -> AnyBatch:
        return columns_of(inp.name, batch)

    def apply(self, inp: Input, batch: AnyBatch, start: int) -> InputViolation | None:
        assert isinstance(batch, Columns), "a batch that batch_of has not seen"
        violation = self._core.apply(inp.slot, batch, start)
        self._refresh(inp)
        return None if violation is None else self._error_of(inp, violation)

    def switch(self, algorithm: str, started: bool) -> None:
        self._core.switch(algorithm, started)
        for inp in self.inputs.values():
            self._refresh(inp)

    def repeats_a_key(self) -> bool:
        return self._core.repeats_a_key()

    def broken(self) -> list[InputViolation]:
        self._changed += self._core.changes
        columns, joined, broken = self._core.take()
        if columns.count:
            self._pieces.append(columns)
        for slot in joined:
            inp = self._at(slot)
            self._refresh(inp)
            self._joined.append(inp.name)
        attached = {inp.slot: inp for inp in self.inputs.values()}  # an input with two broken promises is removed once
        return [
            self._error_of(attached[violation.slot], violation) for violation in broken if violation.slot in attached
        ]

    def take(self) -> tuple[AnyBatch, tuple[str, ...]]:
        pieces, self._pieces, self._changed = self._pieces, [], 0
        joined, self._joined = tuple(self._joined), []
        if not pieces:
            return EMPTY, joined
        return pieces[0] if len(pieces) == 1 else Columns.concat(pieces), joined

    def live_events(self) -> AnyBatch | None:
        return self._core.live_events()

    def supporters(self, batch: AnyBatch) -> list[int]:
        return self._core.supporters(columns_of("output", batch))

    def check(self) -> None:
        self._core.check()
        for inp in self.inputs.values():
            known = [getattr(inp, name) for name in _COUNTERS]
            self._refresh(inp)
            assert known == [getattr(inp, name) for name in _COUNTERS], "counters differ"

    def state(self, *, with_nodes: bool = True) -> dict[str, bytes]:
        return self._core.state(with_nodes)

    def node_block(self) -> bytes | None:
        return self._core.node_block()

    def live_state(self) -> bytes:
        text = self._core.live_state()
        return b"null" if text is None else text

    def input_state(self, inp: Input) -> dict[str, bytes]:
        return self._core.input_state(inp.slot)

    def load(
        self, algorithm: str, state: dict[str, Any], live: list[Any] | None, inputs: Mapping[str, dict[str, Any]]
    ) -> None:
        self._core = self._fresh(algorithm)
        for inp in self.inputs.values():
            self.attach(inp)
            fields = {"tie_order": [], "tie_marks": []} | inputs[inp.name]
            fields |= {name: getattr(inp, name) for name in _COUNTERS}
            fields["last_vs"] = None if inp.last_vs == NEVER else inp.last_vs
            self._core.load_input(inp.slot, fields, inp.excused)
        self._core.load(state, live)
        for inp in self.inputs.values():
            self._refresh(inp)  # an earlier version may have counted differently

    def _fresh(self, algorithm: str) -> Core:
        policy = self._policy
        core = Core(
            algorithm,
            policy.show.value,
            policy.reflects_adjusts,
            policy.quorum,
            policy.quorum_percent,
            policy.leader.value,
            policy.lag,
            self._closing.needed or 0,
            self._track_live,
            self._shards,
            policy.lead_max,
        )
        if self._keeps_delivered:
            core.keep_delivered()
        return core

    def _at(self, slot: int) -> Input:
        return next(inp for inp in self.inputs.values() if inp.slot == slot)

    def _refresh(self, inp: Input) -> None:
        before = inp.stable
        inp.joined, inp.stable, last_vs, inp.tie_count, inp.late = self._core.input(inp.slot)
        inp.last_vs = NEVER if last_vs is None else last_vs
        inp.excused = inp.excused and inp.stable == before

    def _error_of(self, inp: Input, broken: Violation) -> InputViolation:
        return violation_of(inp.name, broken, self._known_text)

    def _known_text(self, ends: list[int] | None) -> str:
        """Return the text for the events that the input has. Each algorithm keeps different details of them."""
        if self.algorithm == props.R3_MINUS:
            return violations.KNOWN_TO_R3_MINUS
        if self.algorithm == props.Case.R3.algorithm:
            return violations.known_end(ends[0] if ends else None)
        return violations.known_ends(ends)


def violation_of(name: str, broken: Violation, known: Callable[[list[int] | None], str]) -> InputViolation:
    """Return the error for a promise that the input ``name`` broke.

    ``known``: gives the text for the ends that the input has instead of the event that it adjusted.
    """
    row, index, detail = broken.row, broken.index, broken.detail
    if broken.code == "end-before-start":
        return violations.end_before_start(name, row, index)
    if broken.code == "insert-below-stable":
        return violations.insert_below_stable(name, row, index, detail)
    if broken.code == "adjust-below-stable":
        return violations.adjust_below_stable(name, row, index, detail)
    if broken.code == "unknown-event":
        return violations.unknown_event(name, row, index, known(broken.ends))
    if broken.code == "duplicate-key":
        return violations.duplicate_key(name, row, index)
    if broken.code == "out-of-order":
        return violations.out_of_order(name, row, index, detail, strictly=broken.strictly)
    if broken.code == "adjust-not-promised":
        return violations.adjust_not_promised(name, row, index)
    if broken.code == "ties-differ":
        return violations.ties_differ(name, row, index)
    assert broken.code == "stable-backwards", f"a violation without a message: {broken.code}"
    return violations.stable_backwards(name, row, index, detail)


def columns_of(name: str, batch: AnyBatch) -> Columns:
    """Return the batch as columns of the native core. Raises InvalidBatch if a value does not fit its column."""
    if isinstance(batch, Columns):
        return batch
    assert isinstance(batch, Batch), f"a batch of another kind: {type(batch)}"
    try:
        return Columns.of(batch)
    except (OverflowError, TypeError, ValueError) as problem:
        raise InvalidBatch(f"input {name!r} cannot deliver this batch: {problem}") from problem


def wire_columns(kinds: bytes, vs: bytes, ve: bytes, vold: bytes, payload_ends: bytes, payloads: bytes) -> Columns:
    """Return the batch with these columns of the wire, without an object for each element. Raises InvalidBatch."""
    try:
        return Columns.decode(kinds, vs, ve, vold, payload_ends, payloads, len(kinds), len(payloads))
    except DecodeError as problem:
        raise InvalidBatch(f"these columns are no batch: {problem}") from problem


def _demands(inp: Input) -> int:
    return sum(_DEMAND_BITS[name] for name in inp.demanded)
