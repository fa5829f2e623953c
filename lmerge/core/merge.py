"""The merge: inputs come, speak and go; one output stream comes out. The core's face to the world.

Pure and deterministic: no clock, no I/O, the same calls in the same order give the same output. Every call gives
an ``Outcome``: the output elements it caused, and what happened to inputs. The caller (the service's hub, the
replay command, a test) owns the clock and the network.

What this class does itself: names and incarnations (law 3), the choice of the algorithm (IV.G) and its change at
run time, the end of an input that breaks a promise (law 6), counting. What the output must say is the running
algorithm's business.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from lmerge.core import properties as props
from lmerge.core.algorithm import Algorithm
from lmerge.core.batch import EMPTY, Batch, BatchBuilder
from lmerge.core.elements import ADJUST, INSERT, NEG_INF, STABLE, Event
from lmerge.core.inputs import ACTIVE, OBSERVE, ROLES, Input
from lmerge.core.insert_only import R0, R1, R2
from lmerge.core.policy import LAZY, Closing, Policy, parse_closing, parse_policy
from lmerge.core.properties import NEEDS, Case, Choice
from lmerge.core.r3 import R3
from lmerge.core.r3minus import R3Minus
from lmerge.core.r4 import R4
from lmerge.core.switch import switch
from lmerge.core.tdb import Tdb
from lmerge.errors import InputTaken, InputViolation, PropertiesTooWeak, StaleIncarnation, UnknownInput, UsageError

ALGORITHMS: Final[dict[str, type[Algorithm]]] = {a.name: a for a in (R0, R1, R2, R3, R4, R3Minus)}
AUTO: Final = "auto"


class Counts(NamedTuple):
    """Elements by kind."""

    inserts: int = 0
    adjusts: int = 0
    stables: int = 0

    def plus(self, other: Counts) -> Counts:
        """The sum, kind by kind."""
        return Counts(self.inserts + other.inserts, self.adjusts + other.adjusts, self.stables + other.stables)


class InputDetached(NamedTuple):
    """An input has ended. ``violation`` is the broken promise, None if it left or was replaced."""

    input: str
    incarnation: int
    reason: str
    violation: InputViolation | None = None


class AlgorithmSwitched(NamedTuple):
    """The merge runs another algorithm from here on."""

    before: str
    after: str
    reason: str


class Outcome(NamedTuple):
    """What one call caused. ``batch``: output elements, in order."""

    batch: Batch = EMPTY
    detached: tuple[InputDetached, ...] = ()
    joined: tuple[str, ...] = ()
    switched: tuple[AlgorithmSwitched, ...] = ()
    refused: int = 0


class InputStatus(NamedTuple):
    """One attached input, for people and dashboards."""

    name: str
    incarnation: int
    properties: tuple[str, ...]
    role: str
    state: str
    join_at: int | None
    stable_point: int
    inserts: int
    adjusts: int
    stables: int
    late: int
    won: int


class Merge:
    """A merge of any number of inputs.

    ``algorithm``: ``auto`` (the case follows from what the inputs promise, and may become more general when an input
    that promises less attaches), or fixed: ``r0`` .. ``r4``. ``policy`` and ``closing``: see ``policy``.
    ``allow_downgrade``: an input that breaks only a *property* is believed, and the algorithm changes, instead of
    being detached (law 6); needs ``auto``. ``track_live``: keep the output's live events also under R0-R2, which do
    without: needed for ``live_events()`` and for switching.
    """

    def __init__(
        self, algorithm: str = AUTO, policy: Policy | str = LAZY, closing: Closing | str = "all", *,
        allow_downgrade: bool = False, track_live: bool = True,
    ) -> None:
        if algorithm != AUTO and algorithm not in ALGORITHMS:
            raise UsageError(f"unknown algorithm {algorithm!r}; it is auto, {', '.join(a.word for a in Case)}")
        self.policy = parse_policy(policy) if isinstance(policy, str) else policy
        self.closing = parse_closing(closing) if isinstance(closing, str) else closing
        self.fixed = None if algorithm == AUTO else algorithm
        if allow_downgrade and self.fixed:
            raise UsageError(f"the algorithm cannot be fixed to {algorithm} and downgraded as well")
        if allow_downgrade and not track_live:
            raise UsageError("a downgrade needs the output's live events: allow_downgrade needs track_live")
        self.allow_downgrade = allow_downgrade
        self.track_live = track_live
        self.refused = 0
        self.received = Counts()  # of all inputs, those that have left among them
        self.late = 0
        self.emitted = Counts()
        self._inputs: dict[str, Input] = {}
        self._incarnations: dict[str, int] = {}  # the newest ever seen, by name: the fence
        self._noted = 0  # rows of the current call's output that the live output TDB has seen
        self._started = False  # whether any element has been merged
        self._algorithm, self.algorithm_reason = self._first_algorithm()
        self._live = self._new_live()

    # Inputs come and go.

    def attach(
        self, name: str, properties: Iterable[str] = (), *, join_at: int | None = None, role: str = ACTIVE,
        incarnation: int | None = None,
    ) -> Outcome:
        """Attach an input (V.B). ``join_at``: its stream is right for every event with ``Ve >= join_at``.

        ``incarnation`` None: the next one. A newer incarnation of an attached input takes its place. Raises
        InputTaken, StaleIncarnation, PropertiesTooWeak or UsageError, changing nothing.
        """
        promised = props.parse_properties(properties)
        if role not in ROLES:
            raise UsageError(f"input {name!r} cannot attach: unknown role {role!r}; it is {' or '.join(ROLES)}")
        incarnation = self._fence(name, incarnation)
        wanted = self._wanted(name, promised, role)
        out = BatchBuilder()
        detached: tuple[InputDetached, ...] = ()
        if name in self._inputs:
            detached = (self._remove(self._inputs[name], f"replaced by incarnation {incarnation}"),)
        self._incarnations[name] = incarnation
        inp = Input(
            name, incarnation, self._free_slot(), promised, promised | self._fixed_needs(), join_at, role,
            joined=role == OBSERVE or join_at is None or join_at <= self._algorithm.max_stable,
        )
        switched = self._switch_to(wanted)
        self._inputs[name] = inp
        self._algorithm.widen(1 + max(i.slot for i in self._inputs.values()))
        if detached:
            self._algorithm.after_detach(out)
        return self._outcome(out, detached, switched)

    def detach(self, name: str, reason: str = "left") -> Outcome:
        """Detach an input; the rest goes on. Raises UnknownInput if it is not attached."""
        inp = self._inputs.get(name)
        if inp is None:
            raise UnknownInput(f"input {name!r} cannot be detached: it is not attached")
        out = BatchBuilder()
        detached = self._remove(inp, reason)
        self._algorithm.after_detach(out)
        return self._outcome(out, (detached,), ())

    def admit(self, name: str) -> Outcome:
        """Let a joining input count from now on, though MaxStable has not reached its join_at (V.B).

        For a caller that knows that nothing will come before: no joined input is left, or the gap is accepted. Raises
        UnknownInput if it is not attached; does nothing if it has joined.
        """
        inp = self._inputs.get(name)
        if inp is None:
            raise UnknownInput(f"input {name!r} cannot be admitted: it is not attached")
        out = BatchBuilder()
        if not inp.joined:
            self._algorithm.admit(inp, out)
        return self._outcome(out, (), ())

    def apply(self, name: str, batch: Batch, incarnation: int | None = None) -> Outcome:
        """Merge a batch of one input.

        If the input breaks a promise, the elements before the offender are merged, the input is detached
        (``Outcome.detached`` says why), and the rest of the batch is dropped. Elements of an input that has gone, or
        of an old incarnation, are refused and counted. Raises UnknownInput if the name was never attached.
        """
        inp = self._inputs.get(name)
        if inp is None or (incarnation is not None and incarnation != inp.incarnation):
            if name not in self._incarnations:
                raise UnknownInput(f"input {name!r} cannot speak: it was never attached")
            self.refused += batch.count
            return Outcome(refused=batch.count)
        self._started = self._started or batch.count > 0
        out = BatchBuilder()
        detached: list[InputDetached] = []
        switched: list[AlgorithmSwitched] = []
        start, end, late = 0, batch.count, inp.late
        while start < end:
            try:
                self._algorithm.apply(inp, batch, start, out)
                start = end
            except InputViolation as violation:
                start = violation.index
                change = self._weaken(inp, violation, out)
                if change is None:
                    detached.append(self._remove(inp, str(violation), violation))
                    end = start
                switched += change or ()
        self._count(inp, batch.kinds if end == batch.count else batch.kinds[:end])
        self.late += inp.late - late
        inp.won += sum(row[0] != STABLE for row in out.rows)
        if detached:
            self._algorithm.after_detach(out)
        return self._outcome(out, tuple(detached), tuple(switched))

    # What can be asked.

    @property
    def algorithm(self) -> str:
        """``r0`` .. ``r4``: what runs now; ``algorithm_reason`` says why."""
        return self._algorithm.name

    @property
    def stable_point(self) -> int:
        """The last stable in the output."""
        return self._algorithm.announced

    @property
    def survives_losses(self) -> int:
        """The output goes on after the loss of this many inputs: joined, active ones beyond the last."""
        return max(0, sum(inp.counts for inp in self._inputs.values()) - 1)

    @property
    def live_count(self) -> int:
        """Number of (Vs, payload) pairs in the index; under R0-R2, of live output events, if they are tracked."""
        return self._live.live_count if self._live is not None else self._algorithm.node_count()

    @property
    def visits(self) -> int:
        """Nodes that stables have looked at so far: the measure of law 2 (0 under R0-R2)."""
        return int(getattr(self._algorithm, "visits", 0))

    def is_attached(self, name: str) -> bool:
        return name in self._inputs

    def inputs(self) -> list[InputStatus]:
        """The attached inputs, in order of attachment."""
        return [
            InputStatus(
                i.name, i.incarnation, tuple(w for w in props.PROPERTY_WORDS if w in i.promised), i.role,
                "joined" if i.joined else "joining", i.join_at, i.stable,
                i.inserts, i.adjusts, i.stables, i.late, i.won,
            )
            for i in self._inputs.values()
        ]

    def live_events(self) -> Batch:
        """The live output TDB, what a new subscriber starts from: inserts of all output events that are not fully
        frozen at the output's stable point, ordered by (vs, payload, ve), then that stable point if there is one.
        """
        out = BatchBuilder()
        for vs, payload, ve in sorted(self._live_events()):
            out.insert(payload, vs, ve)
        if self.stable_point > NEG_INF:
            out.stable(self.stable_point)
        return out.build()

    def check(self) -> None:
        """Assert every invariant (law 9). O(everything)."""
        self._algorithm.check()
        assert self._algorithm.inputs is self._inputs
        slots = [inp.slot for inp in self._inputs.values()]
        assert len(set(slots)) == len(slots), "two inputs in one slot"
        for inp in self._inputs.values():
            assert inp.incarnation <= self._incarnations[inp.name]
            assert props.closure(inp.promised) <= props.closure(inp.demanded)
        if self._live is not None:
            self._live.check()
            assert self._live.stable_point == self.stable_point

    def snapshot(self) -> bytes:
        """Everything, as bytes; equal merges give equal bytes. See ``snapshot``."""
        from lmerge.core.snapshot import dump

        return dump(self)

    @classmethod
    def restore(cls, data: bytes) -> Merge:
        """The merge that ``snapshot`` wrote; it goes on exactly as the other would have. Raises UsageError."""
        from lmerge.core.snapshot import load

        return load(data)

    # Names, slots, incarnations.

    def _fence(self, name: str, incarnation: int | None) -> int:
        newest = self._incarnations.get(name)
        current = self._inputs.get(name)
        if incarnation is None:
            if current is not None:
                raise InputTaken(f"input {name!r} cannot attach: incarnation {current.incarnation} of it is attached")
            return 1 if newest is None else newest + 1
        if current is not None and incarnation == current.incarnation:
            raise InputTaken(f"input {name!r} cannot attach: incarnation {incarnation} of it is attached")
        if newest is not None and incarnation <= newest:
            raise StaleIncarnation(
                f"input {name!r} cannot attach: incarnation {incarnation} is not newer than {newest}, which was seen"
            )
        return incarnation

    def _free_slot(self) -> int:
        used = {inp.slot for inp in self._inputs.values()}
        return next(slot for slot in range(len(used) + 1) if slot not in used)

    def _remove(self, inp: Input, reason: str, violation: InputViolation | None = None) -> InputDetached:
        del self._inputs[inp.name]
        self._algorithm.forget(inp.slot)
        return InputDetached(inp.name, inp.incarnation, reason, violation)

    # The choice of the algorithm.

    def _fixed_needs(self) -> props.Properties:
        return NEEDS[ALGORITHMS[self.fixed].case] if self.fixed else props.NOTHING

    def _first_algorithm(self) -> tuple[Algorithm, str]:
        choice = self._choose({})
        kind = ALGORITHMS[self.fixed or choice.case.word]
        if self.policy.needs_index and kind.case < Case.R3:
            raise UsageError(f"policy {self.policy} needs r3 or r4: {kind.name} keeps no events to look at again")
        if self.policy != LAZY and kind is R3Minus:
            raise UsageError("r3- is kept for comparison and knows only the lazy policy")
        return kind(self._inputs, self.policy, self.closing), choice.reason

    def _choose(self, promises: dict[str, props.Properties]) -> Choice:
        if self.fixed:
            return Choice(ALGORITHMS[self.fixed].case, "fixed by the user")
        return props.choose(promises, needs_index=self.policy.needs_index)

    def _promises(self) -> dict[str, props.Properties]:
        return {name: inp.promised for name, inp in self._inputs.items() if not inp.observes}

    def _wanted(self, name: str, promised: props.Properties, role: str) -> Choice:
        """What the merge must run once ``name`` is attached with these promises."""
        if role == OBSERVE:
            return Choice(self._algorithm.case, self.algorithm_reason)
        if self.fixed and promised:
            missing = sorted(self._fixed_needs() - props.closure(promised))
            if missing:
                raise PropertiesTooWeak(
                    f"input {name!r} cannot attach: the algorithm is fixed to {self.fixed}, which needs {missing[0]}, "
                    f"and it promises only {', '.join(sorted(promised))}"
                )
        choice = self._choose(self._promises() | {name: promised})
        if self._started and choice.case > self._algorithm.case and not self.track_live:
            raise PropertiesTooWeak(
                f"input {name!r} cannot attach: it needs {choice.case.word} ({choice.reason}), and the merge runs "
                f"{self.algorithm} without keeping its live events"
            )
        return choice

    def _switch_to(self, choice: Choice) -> tuple[AlgorithmSwitched, ...]:
        """Run what ``choice`` says: anything before the first element, afterwards only something more general."""
        old = self._algorithm
        if choice.case == old.case:
            self.algorithm_reason = choice.reason
            return ()
        if self._started and choice.case < old.case:
            return ()
        new = ALGORITHMS[choice.case.word](self._inputs, self.policy, self.closing)
        if self._started:
            switch(old, new, self._live_events())
        else:
            new.widen(1 + max((inp.slot for inp in self._inputs.values()), default=-1))
        self._algorithm, self.algorithm_reason = new, choice.reason
        self._live = self._new_live() if new.shown() is not None else self._live or self._new_live()
        return (AlgorithmSwitched(old.name, new.name, choice.reason),) if self._started else ()

    def _weaken(self, inp: Input, violation: InputViolation, out: BatchBuilder) -> tuple[AlgorithmSwitched, ...] | None:
        """Law 6: where only a property is broken and the user allows it, believe the stream instead. None: detach."""
        word = violation.property_word
        if word is None or not self.allow_downgrade or violation.input_name != inp.name or inp.observes:
            return None
        self._note_live(out)
        inp.promised = inp.demanded = _without(inp.promised, word)
        choice = self._choose(self._promises())
        return self._switch_to(Choice(choice.case, f"{choice.reason} ({violation})"))

    # Output.

    def _new_live(self) -> Tdb | None:
        if not self.track_live or self._algorithm.shown() is not None:
            return None
        return Tdb("output", keep_frozen=False, stable_point=self._algorithm.announced)

    def _live_events(self) -> list[Event]:
        if self._live is not None:
            return self._live.live_events()
        shown = self._algorithm.shown()
        if shown is None:
            raise UsageError("the output's live events are not known: the merge was made with track_live=False")
        stable_point = self.stable_point
        return [event for event in shown if event.ve >= stable_point]

    def _outcome(
        self, out: BatchBuilder, detached: tuple[InputDetached, ...], switched: tuple[AlgorithmSwitched, ...]
    ) -> Outcome:
        while self._algorithm.broken:
            violation = self._algorithm.broken.pop(0)
            inp = self._inputs.get(violation.input_name)
            if inp is not None:
                detached += (self._remove(inp, str(violation), violation),)
                self._algorithm.after_detach(out)
        joined = tuple(self._algorithm.newly_joined)
        self._algorithm.newly_joined.clear()
        self._note_live(out)
        self._noted = 0
        batch = out.build()
        if batch.count:
            self.emitted = self.emitted.plus(_counts(batch.kinds))
        return Outcome(batch, detached, joined, switched)

    def _count(self, inp: Input, kinds: bytes) -> None:
        counts = _counts(kinds)
        inp.inserts += counts.inserts
        inp.adjusts += counts.adjusts
        inp.stables += counts.stables
        self.received = self.received.plus(counts)

    def _note_live(self, out: BatchBuilder) -> None:
        """Bring the live output TDB up to what ``out`` holds; a call can do so more than once."""
        if self._live is not None:
            for row in out.rows[self._noted :]:
                self._live.apply_row(row)
        self._noted = len(out.rows)


def _without(promised: props.Properties, word: str) -> props.Properties:
    """What an input still promises after it broke ``word``: a broken order breaks the strict order too."""
    gone = {word, props.STRICTLY_ORDERED} if word in (props.ORDERED, props.KEY, props.DETERMINISTIC_TIES) else {word}
    return promised - gone


def _counts(kinds: bytes) -> Counts:
    return Counts(kinds.count(INSERT), kinds.count(ADJUST), kinds.count(STABLE))
