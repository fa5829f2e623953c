"""The merge: inputs attach, deliver elements and detach; the merge emits one output stream. The interface of the core.

Pure and deterministic: no clock, no I/O. The same calls in the same order give the same output. Every call returns an
``Outcome``: the output elements that it caused, and what happened to inputs. The caller (the service's hub, the replay
command, a test) owns the clock and the network.

``Merge`` itself handles names and incarnations (law 3, docs/laws.md), the choice of the algorithm (IV.G) and its change
at run time, the end of an input that breaks a promise (law 6), and counters. The running algorithm decides what the
output contains. An *engine* runs the algorithm: see ``engines.python_engine``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from lmerge.core import properties as props
from lmerge.core.batch import EMPTY, AnyBatch
from lmerge.core.detaching import DetachCause, InputDetached, broken_promise
from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.core.emitted import EmittedOutput
from lmerge.core.engines import selection
from lmerge.core.engines.python_engine import ALGORITHMS
from lmerge.core.fence import IncarnationFence
from lmerge.core.inputs import Input, InputRole, JoinState
from lmerge.core.lead import mark_held
from lmerge.core.merge_config import DEFAULTS, MergeConfig
from lmerge.core.properties import NEEDS, Case, Choice
from lmerge.errors import InputViolation, PropertiesTooWeak, UnknownInput, UsageError


class Counts(NamedTuple):
    """Counts of elements by kind."""

    inserts: int = 0
    adjusts: int = 0
    stables: int = 0

    def plus(self, other: Counts) -> Counts:
        """Return the sum, kind by kind."""
        return Counts(self.inserts + other.inserts, self.adjusts + other.adjusts, self.stables + other.stables)


class AlgorithmSwitched(NamedTuple):
    """A change of the algorithm. The merge runs ``after`` from here on."""

    before: str
    after: str
    reason: str


class Outcome(NamedTuple):
    """The result of one call. ``batch``: output elements, in order. ``refused``: number of refused elements."""

    batch: AnyBatch = EMPTY
    detached: tuple[InputDetached, ...] = ()
    joined: tuple[str, ...] = ()
    switched: tuple[AlgorithmSwitched, ...] = ()
    refused: int = 0


class InputStatus(NamedTuple):
    """The status of one attached input, for people and dashboards. ``held``, ``excused``: see ``lead``."""

    name: str
    incarnation: int
    properties: tuple[str, ...]
    role: InputRole
    state: JoinState
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
        """The time from which the output is right if this input is admitted now."""
        return self.join_at if self.state is JoinState.JOINING and self.join_at is not None else NEG_INF


def earliest_joining(inputs: Iterable[InputStatus]) -> InputStatus | None:
    """Return the joining input to admit first if no input has joined; None if one has, or if there is no input."""
    active = [i for i in inputs if i.role is InputRole.ACTIVE]
    if not active or any(i.state is JoinState.JOINED for i in active):
        return None
    return min(active, key=lambda i: (i.join_at is not None, i.join_at))


class Merge:
    """A merge of any number of inputs. Raises UsageError if the configuration is impossible."""

    def __init__(self, config: MergeConfig = DEFAULTS) -> None:
        config.check()
        self.policy: Final = config.parsed_policy
        self.closing: Final = config.parsed_closing
        self.fixed: Final = config.fixed
        self.allow_downgrade: Final = config.allow_downgrade
        self.track_live: Final = config.track_live
        self.shards: Final = config.shards
        self.refused = 0
        self.received = Counts()  # of all inputs, including those that have left
        self.late = 0
        self.emitted = Counts()
        self._inputs: dict[str, Input] = {}
        self._fence = IncarnationFence()
        self._started = False  # whether any element has been merged
        self._index_is_for = ""  # why R0-R2 cannot be used, beside the policy and shards
        self._emitted_before = EmittedOutput()  # after ``resumed``: events that the algorithm may emit once more
        choice = self._choose({})
        self.algorithm_reason = choice.reason
        self._engine = selection.make_engine(
            config.resolved_engine,
            config.fixed or choice.case.algorithm,
            self._inputs,
            self.policy,
            self.closing,
            track_live=config.track_live,
            keeps_delivered=config.allow_downgrade,
            shards=config.shards,
        )

    # Inputs attach, deliver and detach.

    def attach(
        self,
        name: str,
        properties: Iterable[str] = (),
        *,
        join_at: int | None = None,
        role: str = InputRole.ACTIVE,
        incarnation: int | None = None,
    ) -> Outcome:
        """Attach an input (V.B). ``join_at``: its stream is right for every event with ``Ve >= join_at``.

        ``incarnation`` None: the next one. A newer incarnation of an attached input takes its place. Raises
        InputTaken, StaleIncarnation, PropertiesTooWeak or UsageError, changing nothing.
        """
        promised = props.parse_properties(properties)
        if role not in tuple(InputRole):
            raise UsageError(f"input {name!r} cannot attach: unknown role {role!r}; it is {' or '.join(InputRole)}")
        role = InputRole(role)
        if join_at is not None and not NEG_INF <= join_at <= INF:
            raise UsageError(f"input {name!r} cannot attach: join_at {show_time(join_at)} is out of the 64-bit range")
        before = self._inputs.get(name)
        incarnation = self._fence.next(name, incarnation, None if before is None else before.incarnation)
        choice = self._choice_with(name, promised, role)
        detached: tuple[InputDetached, ...] = ()
        if before is not None:
            detached = (self._replaced(before, incarnation),)
        self._fence.raise_to(name, incarnation)
        inp = Input(
            name,
            incarnation,
            self._engine.free_slot(),
            promised,
            promised | self._fixed_needs(),
            join_at,
            role,
            joined=role is InputRole.OBSERVE or join_at is None or join_at <= self._engine.max_stable,
            place=self._free_place(),
        )
        switched = self._switch_to(choice)
        self._inputs[name] = inp
        self._engine.attach(inp)
        if detached or self.policy.lead_max is not None:  # with a bound, a new input can hold the stable of another
            self._engine.after_detach()
        return self._outcome(detached, switched)

    def detach(self, name: str, reason: str = "left", cause: DetachCause = DetachCause.LEFT) -> Outcome:
        """Detach an input; the others continue. ``reason``: the cause as a sentence for people.

        Raises UnknownInput if it is not attached.
        """
        inp = self._inputs.get(name)
        if inp is None:
            raise UnknownInput(f"input {name!r} cannot be detached: it is not attached")
        self._remove(inp)
        self._engine.after_detach()
        return self._outcome((InputDetached(name, inp.incarnation, cause, reason),), ())

    def admit(self, name: str) -> Outcome:
        """Let a joining input count from now on, although MaxStable has not reached its join_at (V.B).

        For use when no input can deliver the time before: no joined input is left, or the gap is accepted. The output
        is then right for events with ``Ve >= join_at``. Other events may be missing, or have another end below join_at.
        Raises UnknownInput if the input is not attached. Does nothing if it has joined.
        """
        inp = self._inputs.get(name)
        if inp is None:
            raise UnknownInput(f"input {name!r} cannot be admitted: it is not attached")
        if not inp.joined:
            self._engine.admit(inp)
        return self._outcome((), ())

    def excuse(self, name: str) -> Outcome:
        """Do not measure the lead of others by this input until it has a new stable point (see ``lead``).

        For a caller with a clock, or an administrator: stables that were held because of this input are released. Does
        nothing without a bound of the lead. Raises UnknownInput if the input is not attached.
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
        (``Outcome.detached`` gives the reason), and the rest of the batch is dropped. Elements of an input that has
        left, or of an old incarnation, are refused and counted. Raises UnknownInput if the name was never attached.
        Raises InvalidBatch, changing nothing, if the engine cannot hold the batch: times have 64 bits.
        """
        inp = self._inputs.get(name)
        if inp is None or (incarnation is not None and incarnation != inp.incarnation):
            if name not in self._fence:
                raise UnknownInput(f"input {name!r} cannot deliver elements: it was never attached")
            self.refused += batch.count
            return Outcome(refused=batch.count)
        batch = self._engine.batch_of(inp, batch)
        self._started = self._started or batch.count > 0
        if not inp.joined and self._case() < Case.R3:
            inp.waiting_bytes += batch.payload_sizes[0]
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
                self._remove(inp)
                detached.append(broken_promise(name, inp.incarnation, violation))
            elif change:  # elements that waited are checked by the new case, and what they broke was broken earlier
                switched += change
                detached += self._end_broken()
            if inp is not self._inputs.get(name):
                end = start
        self._count(inp, Counts(*batch.counts(end)))
        self.late += inp.late - late
        inp.won += self._engine.changes
        if detached:
            self._engine.after_detach()
        return self._outcome(tuple(detached), tuple(switched))

    def require_index(self, lacks: str) -> None:
        """Choose only R3 or R4 from the next input on. ``lacks``: the reason, as a clause about the other algorithms.

        Raises UsageError if the algorithm is fixed to one of them.
        """
        if self.fixed and ALGORITHMS[self.fixed].case < Case.R3:
            raise UsageError(f"r3 or r4 is needed: {self.fixed} {lacks}")
        self._index_is_for = lacks

    # Queries.

    @property
    def engine(self) -> str:
        """``python`` or ``native``."""
        return self._engine.name

    @property
    def algorithm(self) -> str:
        """The running algorithm, ``r0`` .. ``r4``; ``algorithm_reason`` gives the reason."""
        return self._engine.algorithm

    @property
    def is_multiset(self) -> bool:
        """Whether one (Vs, payload) can be in the output more than once: no key is promised. O(slot) under R2."""
        if self.algorithm == Case.R2.algorithm:
            return "copies" in self._engine.state()
        return self._case() in (Case.R1, Case.R4)

    @property
    def stable_point(self) -> int:
        """The last stable in the output."""
        return self._engine.announced

    @property
    def live_count(self) -> int:
        """Number of (Vs, payload) pairs in the index; under R0-R2, number of live output events if they are tracked."""
        return self._engine.live_count + self._emitted_before.events.total()

    @property
    def live_bytes(self) -> int:
        """Payload bytes that the merge holds: of live events, and of elements that wait for a join. O(inputs)."""
        total = self._engine.live_bytes
        for inp in self._inputs.values():  # called after each batch; a generator costs more than the sum
            if not inp.joined:
                total += inp.waiting_bytes
        return total

    @property
    def visits(self) -> int:
        """Number of nodes that stables have visited so far: the measure of law 2 (0 under R0-R2)."""
        return self._engine.visits

    def is_attached(self, name: str) -> bool:
        return name in self._inputs

    def inputs(self) -> list[InputStatus]:
        """Return the status of the attached inputs, in order of attachment."""
        mark_held(self._inputs.values(), self._engine.max_stable, self.policy)
        return [_status(inp) for inp in self._inputs.values()]

    def status(self, name: str) -> InputStatus:
        """Return the status of one attached input. Raises UnknownInput if it is not attached."""
        inp = self._inputs.get(name)
        if inp is None:
            raise UnknownInput(f"input {name!r} has no status: it is not attached")
        mark_held(self._inputs.values(), self._engine.max_stable, self.policy)
        return _status(inp)

    def live_events(self) -> AnyBatch:
        """Return the live output TDB, with which a new subscription begins.

        It has inserts of all output events that are not fully frozen at the output's stable point, ordered by
        (vs, payload, ve), then that stable point if there is one. Raises UsageError without ``track_live``.
        """
        events = self._engine.live_events()
        if events is None:
            raise UsageError("the output's live events are not kept: the merge was made with track_live=False")
        return self._emitted_before.with_live(events) if self._emitted_before else events

    def supporters(self, batch: AnyBatch) -> list[int]:
        """Return, for each insert of an output batch, how many inputs have that event now, with that end.

        0 means that the number is not known. That is so under R0-R2, which keep no entries by input; under final-only,
        which shows an event when it leaves the index; and for events that the same batch has fully frozen.
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
            assert inp.incarnation <= self._fence.newest[inp.name]
            assert props.closure(inp.promised) <= props.closure(inp.demanded)

    # Names, slots, incarnations.

    def forget_fence(self, name: str) -> None:
        """Let any incarnation of ``name`` attach, as if none had been seen. Raises UsageError if it is attached."""
        if name in self._inputs:
            raise UsageError(f"input {name!r} cannot be forgotten: it is attached")
        self._fence.forget(name)

    def keep_fence(self, before: Merge) -> None:
        """Take over the fence of the merge that this one replaces: what ``before`` refuses is refused here too."""
        self._fence.take_over(before._fence)

    def _free_place(self) -> int:
        used = {inp.place for inp in self._inputs.values()}
        return next(place for place in range(len(used) + 1) if place not in used)

    def _replaced(self, inp: Input, incarnation: int) -> InputDetached:
        self._remove(inp)
        return InputDetached(inp.name, inp.incarnation, DetachCause.REPLACED, f"replaced by incarnation {incarnation}")

    def _remove(self, inp: Input) -> None:
        del self._inputs[inp.name]
        self._engine.remove(inp)

    # The choice of the algorithm.

    def _fixed_needs(self) -> props.Properties:
        return NEEDS[ALGORITHMS[self.fixed].case] if self.fixed else props.NOTHING

    def _choose(self, promises: dict[str, props.Properties]) -> Choice:
        if self.fixed:
            return Choice(ALGORITHMS[self.fixed].case, "fixed by the user")
        needs_index = "keeps no events for the output policy" if self.policy.needs_index else ""
        needs_index = needs_index or self._index_is_for
        if not needs_index and self.shards > 1:
            needs_index = "keeps no index that shards could share"
        return props.choose(promises, needs_index=needs_index, runs=self._case() if self._started else None)

    def _case(self) -> Case:
        return ALGORITHMS[self.algorithm].case

    def _promises(self) -> dict[str, props.Properties]:
        return {name: inp.promised for name, inp in self._inputs.items() if not inp.observes}

    def _choice_with(self, name: str, promised: props.Properties, role: InputRole) -> Choice:
        """Return the choice of the algorithm for the time when ``name`` is attached with these promises."""
        if role is InputRole.OBSERVE:
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
                f"input {name!r} cannot attach: it needs {choice.case.algorithm} ({choice.reason}), and the merge runs "
                f"{self.algorithm} without keeping its live events"
            )
        return choice

    def _switch_to(self, choice: Choice) -> tuple[AlgorithmSwitched, ...]:
        """Switch to ``choice``: to any case before the first element, afterwards only to a more general one."""
        before, case = self.algorithm, self._case()
        if choice.case == case:
            self.algorithm_reason = choice.reason
            return ()
        if self._started and choice.case < case:
            return ()
        if self._started and case < Case.R3 and choice.case == Case.R3 and self._engine.repeats_a_key():
            # R1 checks no key, and R3 can hold only one event of each key.
            choice = Choice(Case.R4, f"{choice.reason}, and r3 cannot hold two live events with one (Vs, payload)")
        self._engine.switch(choice.case.algorithm, self._started)
        if choice.case >= Case.R3:  # with an index no element waits
            for inp in self._inputs.values():
                inp.waiting_bytes = 0
        self.algorithm_reason = choice.reason
        return (AlgorithmSwitched(before, self.algorithm, choice.reason),) if self._started else ()

    def _weaken(self, inp: Input, violation: InputViolation) -> tuple[AlgorithmSwitched, ...] | None:
        """Drop the broken promise of ``inp`` if it is only a property and the user allows it (law 6). None: detach."""
        name = violation.property_name
        if name is None or not self.allow_downgrade or violation.input_name != inp.name or inp.observes:
            return None
        if name not in props.closure(inp.promised):
            return None  # the promise was dropped before, so dropping it changes nothing
        was_keyed = inp.keyed
        inp.promised = inp.demanded = props.without(inp.promised, name)
        self._engine.relax(inp)
        choice = self._choose(self._promises())
        switched = self._switch_to(Choice(choice.case, f"{choice.reason} ({violation})"))
        if not switched and was_keyed and not inp.keyed and self._case() == Case.R2:  # it counts copies from here on
            return (AlgorithmSwitched(self.algorithm, self.algorithm, self.algorithm_reason),)
        return switched

    # Output.

    def _outcome(self, detached: tuple[InputDetached, ...], switched: tuple[AlgorithmSwitched, ...]) -> Outcome:
        detached += self._end_broken()
        batch, joined = self._engine.take()
        if self._emitted_before:
            batch = self._emitted_before.without_repeats(batch)
        if batch.count:
            self.emitted = self.emitted.plus(Counts(*batch.counts(batch.count)))
        return Outcome(batch, detached, joined, switched)

    def _end_broken(self) -> tuple[InputDetached, ...]:
        """Remove inputs that were found to have broken a promise while elements of any input were merged."""
        ended: list[InputDetached] = []
        while broken := self._engine.broken():
            for violation in broken:
                inp = self._inputs.get(violation.input_name)
                if inp is not None:
                    self._remove(inp)
                    ended.append(broken_promise(inp.name, inp.incarnation, violation))
                    self._engine.after_detach()
        return tuple(ended)

    def _count(self, inp: Input, counts: Counts) -> None:
        inp.inserts += counts.inserts
        inp.adjusts += counts.adjusts
        inp.stables += counts.stables
        self.received = self.received.plus(counts)


def _status(inp: Input) -> InputStatus:
    promised = tuple(name for name in props.PROPERTY_NAMES if name in inp.promised)
    return InputStatus(
        inp.name,
        inp.incarnation,
        promised,
        inp.role,
        inp.join_state,
        inp.join_at,
        inp.stable,
        inp.inserts,
        inp.adjusts,
        inp.stables,
        inp.late,
        inp.won,
        inp.held,
        inp.excused,
    )
