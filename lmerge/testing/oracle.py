"""The oracle: checks of everything that must hold after each step of a merge, for tests of lmerge and of replicas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lmerge.core.batch import Batch
from lmerge.core.compatible import InputPrefix, incompatibilities
from lmerge.core.elements import NEG_INF, Element, Event, Insert
from lmerge.core.inputs import InputRole
from lmerge.core.merge import Merge, Outcome
from lmerge.core.snapshot import restored, snapshot_of
from lmerge.core.tdb import Tdb, reconstitute


def assert_same_tdb(left: Iterable[Element], right: Iterable[Element]) -> None:
    """Assert that two streams reconstitute to the same TDB."""
    a, b = reconstitute(left), reconstitute(right)
    assert a == b, f"only left: {sorted(set(a) - set(b))[:5]}; only right: {sorted(set(b) - set(a))[:5]}"


class Follow:
    """Drives a merge and checks it after each step.

    It checks the invariants, that the output is a legal stream, that the live events which the merge reports are those
    of the output, and C1-C3.

    ``compatible=False`` leaves C1-C3 out: they do not hold for inputs that are not mutually consistent.
    """

    def __init__(self, merge: Merge, *, compatible: bool = True) -> None:
        self.merge = merge
        self.compatible = compatible
        self.output = Tdb("output")
        self.elements: list[Element] = []
        self.prefixes: list[InputPrefix] = []
        self._current: dict[str, Tdb] = {}
        self._right_from = NEG_INF
        self._held: set[str] = set()  # inputs whose stables are held (``core.lead``)

    def attach(
        self, name: str, properties: Iterable[str] = (), *, join_at: int | None = None, role: str = InputRole.ACTIVE
    ) -> Outcome:
        """Attach an input."""
        outcome = self.merge.attach(name, properties, join_at=join_at, role=role)
        self._current[name] = tdb = Tdb(name)
        if role == InputRole.ACTIVE:
            self.prefixes.append(InputPrefix(name, tdb, NEG_INF if join_at is None else join_at))
        return self._checked(outcome)

    def admit(self, name: str) -> Outcome:
        """Let a joining input count from now on; C1-C3 then leave out what ends before its join_at."""
        self._right_from = max(self._right_from, self.merge.status(name).right_from)
        return self._checked(self.merge.admit(name))

    def excuse(self, name: str) -> Outcome:
        """Do not measure the lead of other inputs by this one for now (``core.lead``)."""
        return self._checked(self.merge.excuse(name))

    def publish(self, name: str, *elements: Element) -> Outcome:
        """Publish elements of an input, as one batch."""
        outcome = self.merge.apply(name, Batch.of(elements))
        if not outcome.refused and not any(detached.input == name for detached in outcome.detached):
            for element in elements:
                self._current[name].apply(element)
        return self._checked(outcome)

    def detach(self, name: str) -> Outcome:
        """Let an input leave; its elements stay merged."""
        return self._checked(self.merge.detach(name))

    def restore(self) -> None:
        """Go on with a copy restored from a snapshot."""
        before = snapshot_of(self.merge)
        self.merge = restored(before)
        assert snapshot_of(self.merge) == before, "a restored merge is another"

    def events(self) -> list[Event]:
        """Return the output's TDB."""
        return self.output.events()

    def _checked(self, outcome: Outcome) -> Outcome:
        elements = list(outcome.batch.elements())
        self.elements += elements
        for element in elements:
            self.output.apply(element)
        self.merge.check()
        assert self.merge.stable_point == self.output.stable_point
        live = [Event(e.vs, e.payload, e.ve) for e in self.merge.live_events().elements() if isinstance(e, Insert)]
        assert live == self.output.live_events(), "the live events are not those of the output"
        # A held stable is not merged yet, while C1-C3 count every element: they do not hold until it is released.
        if any(gone.input in self._held for gone in outcome.detached):
            self.compatible = False
        self._held = {status.name for status in self.merge.inputs() if status.held}
        if self.compatible and not self._held:
            problems = incompatibilities(
                self.output, self.prefixes, multiset=self.merge.is_multiset, right_from=self._right_from
            )
            assert not problems, "; ".join(problems)
        return outcome


def chattiness(elements: Sequence[Element]) -> tuple[int, int, int]:
    """Return the numbers of inserts, adjusts and stables (law 8, docs/laws.md)."""
    counts = [0, 0, 0]
    for element in elements:
        counts[("Insert", "Adjust", "Stable").index(type(element).__name__)] += 1
    return counts[0], counts[1], counts[2]
