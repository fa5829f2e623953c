"""The reference TDB, and the check of every stream of a run against it.

All replicas present one reference, so a stream that is stable at S must hold exactly the reference's events with
``complete_from <= Ve < S``, and of those that have begun before S and end later, every one, with any end from S on.
That is more than legality and C1-C3: it finds a lost, doubled or wrong event at the first stable that freezes it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy

from lmerge.core.batch import AnyBatch
from lmerge.core.elements import INF, NEG_INF, STABLE, Event
from lmerge.core.tdb import Tdb


class Contradiction(Exception):
    """A check of the simulation has failed."""


class ReferenceEvents:
    """The events that every replica presents."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = sorted(events)
        self._by_end = sorted(events, key=lambda event: event.ve)
        self._ends = [event.ve for event in self._by_end]

    def ending(self, start: int, end: int) -> list[Event]:
        """Return the events with ``start <= Ve < end``."""
        return self._by_end[bisect_left(self._ends, start) : bisect_left(self._ends, end)]

    def open_at(self, stable_point: int) -> Counter[tuple[int, bytes]]:
        """Return (Vs, payload) of the events that are half frozen at ``stable_point``."""
        later = self._by_end[bisect_left(self._ends, stable_point) :]
        return Counter((event.vs, event.payload) for event in later if event.vs < stable_point)


class Doubt:
    """The events for which the policy promises nothing.

    They begin below a stable by which something was decided while the doubt was in force. All streams of a run share
    one.

    A stable that is emitted decides. Under final-only a merge decides at a stable of an input and emits later, perhaps
    when the doubt is over:

        wrong   [1, 20) A            stable(6)  leaves
        right   [1, 20) A                               [4, 8) C   stable(30)
        output                       stable(1)                     A           C was decided at stable(6)
    """

    def __init__(self, is_in_force: Callable[[], bool] = lambda: False) -> None:
        self.ends_at = NEG_INF  # events from this Vs on are checked
        self._is_in_force = is_in_force

    def decided(self, stable_point: int) -> None:
        """Note that a stream has emitted this stable, or that a merge which emits later has followed it."""
        if self._is_in_force() and stable_point != INF:
            self.ends_at = max(self.ends_at, stable_point)


class TrackedTdb(Tdb):
    """A Tdb that keeps frozen events and returns those that are new."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._remembered: list[Event] = []

    def newly_frozen(self) -> list[Event]:
        """Return the events that were frozen since the last call."""
        frozen = self.take_frozen()
        self._remembered += frozen
        return frozen

    def events(self) -> list[Event]:
        return sorted(self._remembered + super().events())


class Checked:
    """One stream, checked at each of its stables. ``doubtful``: stretches [start, end) of Ve that are not checked.

    ``complete_from``: the stream is right for events with ``Ve >= complete_from``. ``doubt``: the events for which
    nothing is promised.
    """

    def __init__(
        self, name: str, reference: ReferenceEvents, complete_from: int = NEG_INF, doubt: Doubt | None = None
    ) -> None:
        self.name = name
        self.reference = reference
        self.complete_from = complete_from
        self.doubtful: list[tuple[int, int]] = []
        self._doubt = doubt or Doubt()
        self.tdb = TrackedTdb(name)
        self.elements = 0
        self._checked_to = complete_from

    @property
    def stable_point(self) -> int:
        return self.tdb.stable_point

    @property
    def is_complete(self) -> bool:
        """Whether everything was delivered."""
        return self.tdb.stable_point == INF

    def take(self, batch: AnyBatch) -> None:
        """Take a batch of the stream. Raises InputViolation if it is illegal, Contradiction if it is wrong."""
        has_stable = False
        for row in batch.rows():
            self.tdb.apply_row(row)
            self.elements += 1
            if row[0] == STABLE:
                has_stable = True
                self._doubt.decided(self.tdb.stable_point)
                self._check_frozen()
        if has_stable:
            self._check_open()

    def begin_from(self, complete_from: int) -> None:
        """Check from here on only events with ``Ve >= complete_from``."""
        self.complete_from = max(self.complete_from, complete_from)
        self._checked_to = max(self._checked_to, complete_from)

    def goes_on_at(self, stable_point: int) -> None:
        """Skip the check of what ended before: it was delivered before."""
        self._checked_to = max(self._checked_to, stable_point)

    def copied(self) -> Checked:
        """Return a copy, such as a reader stores."""
        return deepcopy(self, {id(self.reference): self.reference, id(self._doubt): self._doubt})

    def doubt(self, start: int, end: int) -> None:
        """Skip the check of events that end in ``[start, end)``."""
        self.doubtful.append((start, end))

    def _check_frozen(self) -> None:
        stable = self.tdb.stable_point
        found = Counter(e for e in self.tdb.newly_frozen() if self._is_certain(e))
        due = Counter(e for e in self.reference.ending(self._checked_to, stable) if self._is_certain(e))
        self._checked_to = max(self._checked_to, stable)
        if found != due:
            lost, extra = sorted((due - found).elements()), sorted((found - due).elements())
            raise Contradiction(f"{self.name} is stable at {stable}: lost {_list(lost)}; wrong {_list(extra)}")

    def _check_open(self) -> None:
        stable = self.tdb.stable_point
        if stable < max([self.complete_from, *(end for _, end in self.doubtful)]):
            return
        found = Counter((e.vs, e.payload) for e in self.tdb.live_events() if self._doubt.ends_at <= e.vs < stable)
        due = Counter({key: n for key, n in self.reference.open_at(stable).items() if key[0] >= self._doubt.ends_at})
        if found != due:
            lost, extra = sorted((due - found).elements()), sorted((found - due).elements())
            raise Contradiction(f"{self.name} is stable at {stable}: of what goes on it lacks {lost} and has {extra}")

    def _is_certain(self, event: Event) -> bool:
        return (
            event.ve >= self.complete_from
            and event.vs >= self._doubt.ends_at
            and not any(start <= event.ve < end for start, end in self.doubtful)
        )


def _list(events: Iterable[Event]) -> str:
    return ", ".join(map(str, events)) or "nothing"
