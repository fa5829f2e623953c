"""A watched merge: every call of the server's hub is checked against what the inputs have published.

``WatchedSettings`` makes the merges of a simulated server. The checks: the output against the reference (see
``verdict``), C1-C3 now and then, the chattiness bound, that nothing of an old incarnation is merged, and that the
reported redundancy counts no input that is joining or only observed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from lmerge.core.batch import AnyBatch
from lmerge.core.compatible import InputPrefix, incompatibilities
from lmerge.core.detaching import DetachCause
from lmerge.core.elements import NEG_INF
from lmerge.core.inputs import InputRole
from lmerge.core.merge import Counts, Merge, Outcome
from lmerge.core.policy import LAZY, Show
from lmerge.core.tdb import Tdb
from lmerge.service.merge.hub import Hub
from lmerge.service.settings import Settings
from lmerge.testing.sim.verdict import Checked, Contradiction, Doubt, ReferenceEvents

# C1-C3 compare everything that was ever published, so only some calls are followed by them.
COMPATIBLE_CHANCE = 0.02


@dataclass
class MergeWatch:
    """The settings of the checks, and the problems that were found."""

    reference: ReferenceEvents
    random: Random
    name: str = ""
    has_spurious: bool = False  # inputs publish events that they remove again
    inputs_are_complete: bool = True  # no input leaves anything out
    hub: Callable[[], Hub | None] = lambda: None
    doubt: Doubt | None = None
    problems: list[str] = field(default_factory=list)
    compatible_checks: int = 0

    def found(self, problem: str) -> None:
        """Record a check that has failed."""
        self.problems.append(f"{self.name}: {problem}")


class WatchedMerge(Merge):
    """A ``Merge`` that is checked. A problem goes to the watch; the merge itself is not disturbed."""

    watch: MergeWatch

    def begin(self, watch: MergeWatch, live: AnyBatch | None = None) -> None:
        """Watch from here on. ``live``: what the merge has emitted before a restart, as its live events."""
        self.watch = watch
        self.is_resumed = live is not None
        self.resumed_events = 0
        self.emitted_before = Counts()
        self.output = Checked(f"the output of {watch.name}", watch.reference, doubt=watch.doubt)
        self.prefixes: list[InputPrefix] = []
        self.current: dict[str, tuple[int, Tdb]] = {}
        self.counted: set[str] = set()  # inputs that may move the output
        self.join_at: dict[str, int] = {}
        self.reached = NEG_INF  # the largest stable of those inputs
        self.is_wrong = False
        self._unchecked: list[tuple[AnyBatch, Counts, Counts]] = []  # (output, received, emitted)
        if live is not None:
            self.resumed_events = live.count
            self.emitted_before = self.emitted
            self.reached = self.stable_point
            self.output.goes_on_at(self.stable_point)
            self._unchecked.append((live, self.received, self.emitted))

    def attach(self, name: str, properties: Iterable[str] = (), **options: Any) -> Outcome:
        outcome = super().attach(name, properties, **options)
        status = next(i for i in self.inputs() if i.name == name)
        join_at = options.get("join_at")
        tdb = Tdb(f"{name} {status.incarnation}")
        self.current[name] = (status.incarnation, tdb)
        self.counted.discard(name)
        self.join_at[name] = NEG_INF if join_at is None else join_at
        if options.get("role", InputRole.ACTIVE) == InputRole.ACTIVE:
            self.prefixes.append(InputPrefix(name, tdb, self.join_at[name]))
            if self.join_at[name] <= max(self.reached, self.stable_point):
                self.counted.add(name)
        self._follow(outcome)
        return outcome

    def detach(self, name: str, reason: str = "left", cause: DetachCause = DetachCause.LEFT) -> Outcome:
        outcome = super().detach(name, reason, cause)
        self._follow(outcome)
        return outcome

    def admit(self, name: str) -> Outcome:
        self.counted.add(name)
        outcome = super().admit(name)
        self._follow(outcome)
        return outcome

    def apply(self, name: str, batch: AnyBatch, incarnation: int | None = None) -> Outcome:
        attached = self.current.get(name)
        outcome = super().apply(name, batch, incarnation)
        if attached is not None and not outcome.refused:
            if incarnation is not None and incarnation != attached[0]:
                self.watch.found(f"elements of {name} {incarnation} were merged, but {attached[0]} is attached")
            broken = next((d for d in outcome.detached if d.input == name), None)
            accepted = batch.count if broken is None or broken.violation is None else broken.violation.index
            for _, row in zip(range(accepted), batch.rows()):
                attached[1].apply_row(row)
        elif outcome.batch.count:
            self.watch.found(f"refused elements of {name} changed the output")
        self._follow(outcome)
        return outcome

    def _follow(self, outcome: Outcome) -> None:
        # An input that has broken its promise counts too: its earlier elements in the same batch were merged.
        self.reached = max([self.reached, *(self.current[name][1].stable_point for name in self.counted)])
        for gone in outcome.detached:
            if self.current.get(gone.input, (gone.incarnation,))[0] == gone.incarnation:
                self.counted.discard(gone.input)
        early = []
        for name in outcome.joined:  # in order: one that joins may let the next join
            if self.join_at[name] > self.reached and name not in self.counted:
                early.append(name)
            self.counted.add(name)
            self.reached = max(self.reached, self.current[name][1].stable_point)
        self._note_decided()
        if early:
            self.watch.found(f"{early} have joined at {self.stable_point}, before their join_at")
        self.check_output()
        self._unchecked.append((outcome.batch, self.received, self.emitted))

    def _note_decided(self) -> None:
        """Note the stables by which final-only has decided: those of inputs, because it emits after it has decided."""
        if self.policy.show is Show.FINAL and self.watch.doubt is not None:
            for name in self.counted:
                self.watch.doubt.decided(self.current[name][1].stable_point)

    def check_output(self) -> None:
        """Check the output up to the last call but one.

        After the last call the hub may still declare from where on its output is right; so may a hub that goes on after
        a restart, once it has read its store.
        """
        unchecked, self._unchecked = self._unchecked, []
        if self.is_wrong:
            return
        hub = self.watch.hub()
        if hub is not None:
            self.output.begin_from(hub.state.complete_from)
        try:
            for batch, received, emitted in unchecked:
                self.output.take(batch)
                self._check(received, emitted)
        except Exception as problem:
            self.is_wrong = True
            self.watch.found(f"{type(problem).__name__}: {problem}")

    def _check(self, received: Counts, emitted: Counts) -> None:
        emitted = Counts(*(now - before for now, before in zip(emitted, self.emitted_before)))
        if self.policy == LAZY and not self._is_calm(received, emitted):
            raise Contradiction(f"law 8: {emitted} came out of {received}")
        self._check_redundancy()
        is_comparable = self.watch.inputs_are_complete and self.output.complete_from == NEG_INF and not self.is_resumed
        if is_comparable and self.watch.random.random() < COMPATIBLE_CHANCE:
            self.watch.compatible_checks += 1
            multiset = self.algorithm in ("r1", "r4")
            problems = incompatibilities(self.output.tdb, self.prefixes, multiset=multiset)
            if problems:
                raise Contradiction("; ".join(problems[:3]))

    def _check_redundancy(self) -> None:
        """Check that no input counts that is joining, skipping, leaving or only observed."""
        hub = self.watch.hub()
        if hub is None:
            return
        skipping = {
            status.name
            for status, life in hub.state.lives
            if life.leaving or (life.skipped_until is not None and status.stable_point < life.skipped_until)
        }
        counted = sorted(self.counted - skipping)
        if hub.state.survives_losses > max(0, len(counted) - 1):
            raise Contradiction(f"survives {hub.state.survives_losses} losses, but only {counted} count")

    def _is_calm(self, received: Counts, emitted: Counts) -> bool:
        """Return whether law 8 holds.

        The output can remove an event that does not exist before the input that published it does so. It can also
        remove one that an input which begins later does not have.
        """
        can_be_more = self.watch.has_spurious or self.output.complete_from > NEG_INF
        taken_back = (received.inserts if can_be_more else 0) + self.resumed_events
        return (
            emitted.inserts <= received.inserts
            and emitted.stables <= received.stables
            and emitted.inserts + emitted.adjusts <= received.inserts + received.adjusts + taken_back
        )


@dataclass(frozen=True)
class WatchedSettings(Settings):
    """Settings whose merges are watched."""

    watch: MergeWatch | None = None

    def new_merge(self) -> Merge:
        merge = WatchedMerge(self.merge_config)
        assert self.watch is not None
        merge.begin(self.watch)
        return merge

    def resumed_merge(
        self, live: AnyBatch, stable_point: int, running: str, incarnations: Mapping[str, int], right_from: int
    ) -> Merge:
        merge = super().resumed_merge(live, stable_point, running, incarnations, right_from)
        merge.__class__ = WatchedMerge  # a class without state of its own: the state is made by ``begin``
        assert isinstance(merge, WatchedMerge)
        assert self.watch is not None
        merge.begin(self.watch, live)
        return merge
