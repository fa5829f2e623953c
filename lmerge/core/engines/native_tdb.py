"""The TDB of one stream on the native core: ``tdb.Tdb`` without frozen events, for fast streams.

Importing this module imports the compiled core. ``engines.selection.live_tdb`` imports it where the core is built.
"""

from __future__ import annotations

from lmerge._native import Tdb
from lmerge.core import violations
from lmerge.core.batch import AnyBatch
from lmerge.core.elements import NEG_INF, Event
from lmerge.core.engines.native_engine import columns_of, violation_of


class NativeTdb:
    """``Tdb(name, keep_frozen=False)`` with the same checks and the same messages."""

    def __init__(self, name: str = "stream", *, stable_point: int = NEG_INF) -> None:
        self.name = name
        self.stable_point = stable_point  # a copy: another thread may read it while the core works
        self._tdb = Tdb(stable_point)
        self._applied = 0

    @property
    def live_count(self) -> int:
        """Number of events that are not fully frozen."""
        return len(self._tdb)

    def apply_batch(self, batch: AnyBatch) -> None:
        """Apply a batch; on InputViolation the elements before the offender have been applied."""
        columns = columns_of(self.name, batch)
        broken = self._tdb.apply(columns)
        self.stable_point = self._tdb.stable_point
        if broken is not None:
            violation = violation_of(self.name, broken, violations.known_live_ends)
            self._applied += broken.index
            violation.index = self._applied
            raise violation
        self._applied += columns.count

    def enter(self, vs: int, payload: bytes, ve: int) -> None:
        """Add a live event without checks, below the stable point too."""
        self._tdb.enter(vs, payload, ve)

    def live_events(self) -> list[Event]:
        """Return the events that are not fully frozen, ordered by (vs, payload, ve)."""
        return [Event(vs, payload, ve) for _, vs, ve, _, payload in self._tdb.live_events().rows()]

    def live_ends(self, vs: int, payload: bytes) -> tuple[int, ...]:
        """Return the ends of the live events with this start and payload, ascending."""
        return tuple(self._tdb.live_ends(vs, payload))

    def check(self) -> None:
        """Assert the invariants."""
        self._tdb.check()
