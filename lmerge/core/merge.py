"""The merge: inputs come, speak and go; one output stream comes out. The core's face to the world.

Pure and deterministic: no clock, no I/O, the same calls in the same order give the same output. Every call gives
an ``Outcome``: the output elements it caused, and what happened to inputs. The caller (the service's hub, the
replay command, a test) owns the clock and the network.

What this class does itself: names and incarnations (law 3), the choice of the algorithm (IV.G) and its change at
run time, the end of an input that breaks a promise (law 6), counting. What the output must say is the business of
the running algorithm, which an *engine* runs: see ``engine``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from lmerge.core import properties as props
from lmerge.core.batch import EMPTY, AnyBatch, payload_bytes
from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.core.engines import selection
from lmerge.core.engines.python_engine import ALGORITHMS
from lmerge.core.inputs import ACTIVE, INCARNATION_MAX, OBSERVE, ROLES, Input
from lmerge.core.lead import mark_held
from lmerge.core.policy import LAZY, Closing, Policy, parse_closing, parse_policy
from lmerge.core.properties import NEEDS, Case, Choice
from lmerge.core.resume import Said, resumed
from lmerge.errors import InputTaken, InputViolation, PropertiesTooWeak, StaleIncarnation, UnknownInput, UsageError

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

    batch: AnyBatch = EMPTY
    detached: tuple[InputDetached, ...] = ()
    joined: tuple[str, ...] = ()
    switched: tuple[AlgorithmSwitched, ...] = ()
    refused: int = 0


class InputStatus(NamedTuple):
    """One attached input, for people and dashboards. ``held``, ``excused``: see ``lead``."""

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
    held: bool = False
    excused: bool = False

    @property
    def right_from(self) -> int:
        """From where on the output is right if this input is admitted now."""
        return self.join_at if self.state == "joining" and self.join_at is not None else NEG_INF


def earliest_joining(inputs: Iterable[InputStatus]) -> InputStatus | None:
    """The input to begin with if none is joined; None if one is, or if there is none at all."""
    active = [i for i in inputs if i.role == ACTIVE]
    if not active or any(i.state == "joined" for i in active):
        return None
    return min(active, key=lambda i: (i.join_at is not None, i.join_at))


class Merge:
    """A merge of any number of inputs.

    ``algorithm``: ``auto`` (the case follows from what the inputs promise, and may become more general when an input
    that promises less attaches), or fixed: ``r0`` .. ``r4``. ``policy`` and ``closing``: see ``policy``.
    ``allow_downgrade``: an input that breaks only a *property* is believed, and the algorithm changes, instead of
    being detached (law 6); needs ``auto``. ``track_live``: keep the output's live events also under R0-R2, which do
    without: needed for ``live_events()`` and for switching. ``engine``: ``python``, ``native``, or ``auto``, the native
    one where it is built; both say the same. ``shards``: threads that share the work out; native engine, R3 and R4
    only. The output then means the same, but elements between two stables come in another order, and of the stables
    that one batch causes only the last is said.
    """

    def __init__(
        self, algorithm: str = AUTO, policy: Policy | str = LAZY, closing: Closing | str = "all", *,
        allow_downgrade: bool = False, track_live: bool = True, engine: str = selection.AUTO, shards: int = 1,
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
        self.shards = shards
        engine = selection.resolve(engine)
        self._check_shards(engine)
        self.refused = 0
        self.received = Counts()  # of all inputs, those that have left among them
        self.late = 0
        self.emitted = Counts()
        self._inputs: dict[str, Input] = {}
        self._incarnations: dict[str, int] = {}  # the newest ever seen, by name: the fence
        self._started = False  # whether any element has been merged
        self._index_is_for = ""  # why R0-R2 will not do, beside the policy and shards
        self._said = Said()  # after ``resumed``: what the algorithm may want to say once more
        first, self.algorithm_reason = self._first_algorithm()
        self._engine = selection.make_engine(
            engine, first, self._inputs, self.policy, self.closing, track_live=track_live,
            keeps_delivered=allow_downgrade, shards=shards,
        )

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
        if join_at is not None and not NEG_INF <= join_at <= INF:
            raise UsageError(f"input {name!r} cannot attach: join_at {show_time(join_at)} is out of the 64-bit range")
        incarnation = self._fence(name, incarnation)
        wanted = self._wanted(name, promised, role)
        detached: tuple[InputDetached, ...] = ()
        if name in self._inputs:
            detached = (self._remove(self._inputs[name], f"replaced by incarnation {incarnation}"),)
        self._incarnations[name] = incarnation
        inp = Input(
            name, incarnation, self._engine.free_slot(), promised, promised | self._fixed_needs(), join_at, role,
            joined=role == OBSERVE or join_at is None or join_at <= self._engine.max_stable, place=self._free_place(),
        )
        switched = self._switch_to(wanted)
        self._inputs[name] = inp
        self._engine.attach(inp)
        if detached or self.policy.lead_max is not None:  # with a bound, whoever attaches can hold another's stable
            self._engine.after_detach()
        return self._outcome(detached, switched)

    def detach(self, name: str, reason: str = "left") -> Outcome:
        """Detach an input; the rest goes on. Raises UnknownInput if it is not attached."""
        inp = self._inputs.get(name)
        if inp is None:
            raise UnknownInput(f"input {name!r} cannot be detached: it is not attached")
        detached = self._remove(inp, reason)
        self._engine.after_detach()
        return self._outcome((detached,), ())

    def admit(self, name: str) -> Outcome:
        """Let a joining input count from now on, though MaxStable has not reached its join_at (V.B).

        For a caller that knows that nothing will come before: no joined input is left, or the gap is accepted. The
        output is then right for events with ``Ve >= join_at``; others may be missing, or have another end below it.
        Raises UnknownInput if it is not attached; does nothing if it has joined.
        """
        inp = self._inputs.get(name)
        if inp is None:
            raise UnknownInput(f"input {name!r} cannot be admitted: it is not attached")
        if not inp.joined:
            self._engine.admit(inp)
        return self._outcome((), ())

    def excuse(self, name: str) -> Outcome:
        """Measure nobody's lead by this input until it has a new stable point (``Policy.lead_max``, ``lead``).

        For a caller with a clock, or an administrator: what was held for this input's sake goes on. Does nothing
        without a bound of the lead. Raises UnknownInput if it is not attached.
        """
        inp = self._inputs.get(name)
        if inp is None:
            raise UnknownInput(f"input {name!r} cannot be excused: it is not attached")
        if self.policy.lead_max is not None and not inp.excused:
            inp.excused = True
            self._engine.excuse(inp)
        return self._outcome((), ())

    def apply(self, name: str, batch: AnyBatch, incarnation: int | None = None) -> Outcome:
        """Merge a batch of one input.

        If the input breaks a promise, the elements before the offender are merged, the input is detached
        (``Outcome.detached`` says why), and the rest of the batch is dropped. Elements of an input that has gone, or
        of an old incarnation, are refused and counted. Raises UnknownInput if the name was never attached, and
        InvalidBatch, changing nothing, if the engine cannot hold the batch: times are of 64 bits.
        """
        inp = self._inputs.get(name)
        if inp is None or (incarnation is not None and incarnation != inp.incarnation):
            if name not in self._incarnations:
                raise UnknownInput(f"input {name!r} cannot speak: it was never attached")
            self.refused += batch.count
            return Outcome(refused=batch.count)
        batch = self._engine.batch_of(inp, batch)
        self._started = self._started or batch.count > 0
        if not inp.joined and self._case() < Case.R3:
            inp.waiting_bytes += payload_bytes(batch)
        detached: list[InputDetached] = []
        switched: list[AlgorithmSwitched] = []
        start, end, late = 0, batch.count, inp.late
        while start < end:
            violation = self._engine.apply(inp, batch, start)
            if violation is None:
                break
            start = violation.index
            change = self._weaken(inp, violation)
            if change is None:
                detached.append(self._remove(inp, str(violation), violation))
                end = start
            switched += change or ()
        self._count(inp, Counts(*batch.counts(end)))
        self.late += inp.late - late
        inp.won += self._engine.changes
        if detached:
            self._engine.after_detach()
        return self._outcome(tuple(detached), tuple(switched))

    def require_index(self, lacks: str) -> None:
        """Choose R3 or R4 only, from the next input on. ``lacks``: what the others do without, in words.

        Raises UsageError if the algorithm is fixed to one of them.
        """
        if self.fixed and ALGORITHMS[self.fixed].case < Case.R3:
            raise UsageError(f"r3 or r4 is needed: {self.fixed} {lacks}")
        self._index_is_for = lacks

    # What can be asked.

    @property
    def engine(self) -> str:
        """``python`` or ``native``."""
        return self._engine.name

    @property
    def algorithm(self) -> str:
        """``r0`` .. ``r4``: what runs now; ``algorithm_reason`` says why."""
        return self._engine.algorithm

    @property
    def is_multiset(self) -> bool:
        """Whether one (Vs, payload) can be in the output more than once: no key is relied on. Under R2 O(slot)."""
        if self.algorithm == Case.R2.word:
            return "copies" in self._engine.state()
        return self._case() in (Case.R1, Case.R4)

    @property
    def stable_point(self) -> int:
        """The last stable in the output."""
        return self._engine.announced

    @property
    def live_count(self) -> int:
        """Number of (Vs, payload) pairs in the index; under R0-R2, of live output events, if they are tracked."""
        return self._engine.live_count + self._said.events.total()

    @property
    def live_bytes(self) -> int:
        """Payload bytes that the merge holds: of live events, and of what waits for an input to join. O(inputs)."""
        total = self._engine.live_bytes
        for inp in self._inputs.values():  # asked for after each batch, and a generator costs more than the sum
            if not inp.joined:
                total += inp.waiting_bytes
        return total

    @property
    def visits(self) -> int:
        """Nodes that stables have looked at so far: the measure of law 2 (0 under R0-R2)."""
        return self._engine.visits

    def is_attached(self, name: str) -> bool:
        return name in self._inputs

    def inputs(self) -> list[InputStatus]:
        """The attached inputs, in order of attachment."""
        mark_held(self._inputs.values(), self._engine.max_stable, self.policy)
        return [_status(inp) for inp in self._inputs.values()]

    def status(self, name: str) -> InputStatus:
        """One attached input. Raises UnknownInput if it is not attached."""
        inp = self._inputs.get(name)
        if inp is None:
            raise UnknownInput(f"input {name!r} has no status: it is not attached")
        mark_held(self._inputs.values(), self._engine.max_stable, self.policy)
        return _status(inp)

    def live_events(self) -> AnyBatch:
        """The live output TDB, what a new subscriber starts from: inserts of all output events that are not fully
        frozen at the output's stable point, ordered by (vs, payload, ve), then that stable point if there is one.
        """
        events = self._engine.live_events()
        if events is None:
            raise UsageError("the output's live events are not known: the merge was made with track_live=False")
        return self._said.among(events) if self._said else events

    def supporters(self, batch: AnyBatch) -> list[int]:
        """For each insert of an output batch: how many inputs have that event now, with that end.

        0: not known. So it is under R0-R2, which keep no entries by input, under final-only, which shows what has left
        the index, and for what was fully frozen by the same batch.
        """
        return self._engine.supporters(batch)

    def check(self) -> None:
        """Assert every invariant (law 9). O(everything)."""
        self._engine.check()
        assert self._engine.inputs is self._inputs
        slots = [inp.slot for inp in self._inputs.values()]
        assert len(set(slots)) == len(slots), "two inputs in one slot"
        places = [inp.place for inp in self._inputs.values()]
        assert len(set(places)) == len(places), "two inputs in one place"
        for inp in self._inputs.values():
            assert inp.incarnation <= self._incarnations[inp.name]
            assert props.closure(inp.promised) <= props.closure(inp.demanded)

    def snapshot(self) -> bytes:
        """Everything, as bytes; equal merges give equal bytes. See ``snapshot``."""
        from lmerge.core.snapshot import dump

        return dump(self)

    @classmethod
    def restore(cls, data: bytes, engine: str = selection.AUTO, shards: int = 1) -> Merge:
        """The merge that ``snapshot`` wrote, on whichever engine; it goes on exactly as the other would have.

        Raises UsageError.
        """
        from lmerge.core.snapshot import load

        return load(data, engine, shards)

    @classmethod
    def resumed(
        cls, live: AnyBatch, stable_point: int, running: str, *, algorithm: str = AUTO, policy: Policy | str = LAZY,
        closing: Closing | str = "all", allow_downgrade: bool = False, track_live: bool = True,
        engine: str = selection.AUTO, shards: int = 1, incarnations: Mapping[str, int] | None = None,
        right_from: int = NEG_INF,
    ) -> Merge:
        """A merge that has said exactly this output, and has no inputs: what goes on after a restart. See ``resume``.

        ``live``: its live events at ``stable_point``, as ``resume.said_events`` or ``resume.Replay`` give them.
        ``running``: the algorithm that ran; ``incarnations``: the fence; ``right_from``: the largest join_at of an
        input that was admitted before it. The rest is as for a new merge. Raises
        UsageError if such a merge cannot have said this, or if the settings do not allow it to go on.
        """
        settings = {
            "algorithm": algorithm, "policy": policy, "closing": closing, "allow_downgrade": allow_downgrade,
            "track_live": track_live,
        }
        return resumed(live, stable_point, running, settings, incarnations or {}, engine, shards, right_from)

    # Names, slots, incarnations.

    def _fence(self, name: str, incarnation: int | None) -> int:
        newest = self._incarnations.get(name)
        current = self._inputs.get(name)
        if incarnation is None:
            if current is not None:
                raise InputTaken(f"input {name!r} cannot attach: incarnation {current.incarnation} of it is attached")
            if newest is not None and newest >= INCARNATION_MAX:
                raise UsageError(
                    f"input {name!r} cannot attach: no incarnation is newer than {newest}, which was seen; an "
                    "administrator can let the name begin again: lmerge detach --forget"
                )
            return 1 if newest is None else newest + 1
        if not 0 < incarnation <= INCARNATION_MAX:
            raise UsageError(
                f"input {name!r} cannot attach: incarnation {incarnation} is not between 1 and {INCARNATION_MAX}"
            )
        if current is not None and incarnation == current.incarnation:
            raise InputTaken(f"input {name!r} cannot attach: incarnation {incarnation} of it is attached")
        if newest is not None and incarnation <= newest:
            raise StaleIncarnation(
                f"input {name!r} cannot attach: incarnation {incarnation} is not newer than {newest}, which was seen"
            )
        return incarnation

    def forget_fence(self, name: str) -> None:
        """Let any incarnation of ``name`` attach, as if none had been seen. Raises UsageError while it is attached."""
        if name in self._inputs:
            raise UsageError(f"input {name!r} cannot be forgotten: it is attached")
        self._incarnations.pop(name, None)

    def keep_fence(self, before: Merge) -> None:
        """Go on with the fence of a merge whose place this one takes: what it has refused is refused here too."""
        self._incarnations |= {
            name: max(newest, self._incarnations.get(name, newest)) for name, newest in before._incarnations.items()
        }

    def _free_place(self) -> int:
        used = {inp.place for inp in self._inputs.values()}
        return next(place for place in range(len(used) + 1) if place not in used)

    def _remove(self, inp: Input, reason: str, violation: InputViolation | None = None) -> InputDetached:
        del self._inputs[inp.name]
        self._engine.remove(inp)
        return InputDetached(inp.name, inp.incarnation, reason, violation)

    # The choice of the algorithm.

    def _fixed_needs(self) -> props.Properties:
        return NEEDS[ALGORITHMS[self.fixed].case] if self.fixed else props.NOTHING

    def _check_shards(self, engine: str) -> None:
        if self.shards == 1:
            return
        if not 1 <= self.shards <= selection.SHARDS_MAX:
            raise UsageError(f"a merge has 1 to {selection.SHARDS_MAX} shards, not {self.shards}")
        if engine != selection.NATIVE:
            why = selection.native_problem() or "the python engine was asked for"
            raise UsageError(f"{self.shards} shards need the native engine: {why}")
        if self.fixed not in (None, "r3", "r4"):
            raise UsageError(f"{self.shards} shards need r3 or r4: {self.fixed} keeps no index that they could share")
        if self.allow_downgrade:
            raise UsageError(f"a merge of {self.shards} shards cannot be downgraded")
        if self.policy.counts_elements:
            raise UsageError(f"policy {self.policy} needs one shard: of {self.shards} none sees all that inputs insert")

    def _first_algorithm(self) -> tuple[str, str]:
        """Its name and the reason for it."""
        choice = self._choose({})
        name = self.fixed or choice.case.word
        if self.policy.needs_index and ALGORITHMS[name].case < Case.R3:
            raise UsageError(f"policy {self.policy} needs r3 or r4: {name} keeps no events to look at again")
        if self.policy != LAZY and name == "r3-":
            raise UsageError("r3- is kept for comparison and knows only the lazy policy")
        return name, choice.reason

    def _choose(self, promises: dict[str, props.Properties]) -> Choice:
        if self.fixed:
            return Choice(ALGORITHMS[self.fixed].case, "fixed by the user")
        needs_index = "keeps no events for the output policy to look at again" if self.policy.needs_index else ""
        needs_index = needs_index or self._index_is_for
        if not needs_index and self.shards > 1:
            needs_index = "keeps no index that shards could share"
        return props.choose(promises, needs_index=needs_index, runs=self._case() if self._started else None)

    def _case(self) -> Case:
        return ALGORITHMS[self.algorithm].case

    def _promises(self) -> dict[str, props.Properties]:
        return {name: inp.promised for name, inp in self._inputs.items() if not inp.observes}

    def _wanted(self, name: str, promised: props.Properties, role: str) -> Choice:
        """What the merge must run once ``name`` is attached with these promises."""
        if role == OBSERVE:
            return Choice(self._case(), self.algorithm_reason)
        if self.fixed and promised:
            missing = sorted(self._fixed_needs() - props.closure(promised))
            if missing:
                raise PropertiesTooWeak(
                    f"input {name!r} cannot attach: the algorithm is fixed to {self.fixed}, which needs {missing[0]}, "
                    f"and it promises only {', '.join(sorted(promised))}"
                )
        choice = self._choose(self._promises() | {name: promised})
        if self._started and choice.case > self._case() and not self.track_live:
            raise PropertiesTooWeak(
                f"input {name!r} cannot attach: it needs {choice.case.word} ({choice.reason}), and the merge runs "
                f"{self.algorithm} without keeping its live events"
            )
        return choice

    def _switch_to(self, choice: Choice) -> tuple[AlgorithmSwitched, ...]:
        """Run what ``choice`` says: anything before the first element, afterwards only something more general."""
        before, case = self.algorithm, self._case()
        if choice.case == case:
            self.algorithm_reason = choice.reason
            return ()
        if self._started and choice.case < case:
            return ()
        if self._started and case < Case.R3 and choice.case == Case.R3 and self._engine.repeats_a_key():
            # R1 checks no key, and R3 can hold only one event of each.
            choice = Choice(Case.R4, f"{choice.reason}, and r3 cannot hold two live events with one (Vs, payload)")
        self._engine.switch(choice.case.word, self._started)
        if choice.case >= Case.R3:  # with an index nothing waits
            for inp in self._inputs.values():
                inp.waiting_bytes = 0
        self.algorithm_reason = choice.reason
        return (AlgorithmSwitched(before, self.algorithm, choice.reason),) if self._started else ()

    def _weaken(self, inp: Input, violation: InputViolation) -> tuple[AlgorithmSwitched, ...] | None:
        """Law 6: where only a property is broken and the user allows it, believe the stream instead. None: detach."""
        word = violation.property_name
        if word is None or not self.allow_downgrade or violation.input_name != inp.name or inp.observes:
            return None
        if word not in props.closure(inp.promised):
            return None  # believing it once more would change nothing
        was_keyed = inp.keyed
        inp.promised = inp.demanded = _without(inp.promised, word)
        self._engine.relax(inp)
        choice = self._choose(self._promises())
        switched = self._switch_to(Choice(choice.case, f"{choice.reason} ({violation})"))
        if not switched and was_keyed and not inp.keyed and self._case() == Case.R2:  # it counts copies from here on
            return (AlgorithmSwitched(self.algorithm, self.algorithm, self.algorithm_reason),)
        return switched

    # Output.

    def _outcome(self, detached: tuple[InputDetached, ...], switched: tuple[AlgorithmSwitched, ...]) -> Outcome:
        while broken := self._engine.broken():
            for violation in broken:
                inp = self._inputs.get(violation.input_name)
                if inp is not None:
                    detached += (self._remove(inp, str(violation), violation),)
                    self._engine.after_detach()
        batch, joined = self._engine.take()
        if self._said:
            batch = self._said.held_back(batch)
        if batch.count:
            self.emitted = self.emitted.plus(Counts(*batch.counts(batch.count)))
        return Outcome(batch, detached, joined, switched)

    def _count(self, inp: Input, counts: Counts) -> None:
        inp.inserts += counts.inserts
        inp.adjusts += counts.adjusts
        inp.stables += counts.stables
        self.received = self.received.plus(counts)


def _status(inp: Input) -> InputStatus:
    promised = tuple(word for word in props.PROPERTY_WORDS if word in inp.promised)
    return InputStatus(
        inp.name, inp.incarnation, promised, inp.role, "joined" if inp.joined else "joining", inp.join_at, inp.stable,
        inp.inserts, inp.adjusts, inp.stables, inp.late, inp.won, inp.held, inp.excused,
    )


def _without(promised: props.Properties, word: str) -> props.Properties:
    """What an input still promises after it broke ``word``: a broken order breaks the strict order too."""
    gone = {word, props.STRICTLY_ORDERED} if word in (props.ORDERED, props.KEY, props.DETERMINISTIC_TIES) else {word}
    return promised - gone
