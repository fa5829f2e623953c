"""States of users' incremental modules: what a window keeps of one, and how it is brought up to date.

The paper has ``AddEventToState`` and ``RemoveEventFromState`` called with the events since the last result (IV.A.2). So
events wait until a result is computed. An event that comes and goes in between never reaches the module, and the others
reach it in canonical order, so that a state does not depend on the order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.errors import PlanError
from lmerge.temporal.modules.accumulators import Accumulator
from lmerge.temporal.modules.calls import ModuleCalls
from lmerge.temporal.modules.edge import guarded
from lmerge.temporal.modules.kinds import Incremental, Mergeable, UserModule
from lmerge.temporal.windows.kinds import WindowDescriptor

# Events that wait: enough for a call to be cheap, and few beside the rows of a window.
PENDING_MAX: Final = 1024


class ModuleCell:
    """The state of a module in one window, of ``rows`` rows. ``pending``: how often events came, less removals."""

    __slots__ = ("pending", "rows", "state")

    def __init__(self, state: Any, rows: int = 0) -> None:
        self.state = state
        self.rows = rows
        self.pending: dict[Lifetime, int] = {}


class ModuleAccumulator(Accumulator):
    """Keeps the states of a module. Raises ModuleViolation for whatever the module raises."""

    def __init__(self, module: UserModule, calls: ModuleCalls) -> None:
        super().__init__((id(module), calls.arguments))
        assert isinstance(module, Incremental)
        self.is_mergeable = isinstance(module, Mergeable)
        self.reads_events, self.starts_only = calls.reads_events, calls.starts_only
        self.reads_window = calls.reads_window
        self._module: Any = module
        self._calls = calls

    def begin(self) -> ModuleCell:
        """Return the state of no events."""
        return ModuleCell(guarded(self._module.shown, "", (), self._module.begin))

    def add(self, state: ModuleCell, event: Lifetime) -> ModuleCell:
        """Let an event wait to be added."""
        return self._wait(state, event, 1)

    def remove(self, state: ModuleCell, event: Lifetime) -> ModuleCell:
        """Let an event wait to be removed."""
        return self._wait(state, event, -1)

    def _wait(self, cell: ModuleCell, event: Lifetime, sign: int) -> ModuleCell:
        given = self._calls.maker.given(event)
        if given is None:
            return cell
        count = cell.pending.get(given, 0) + sign
        if count:
            cell.pending[given] = count
        else:
            del cell.pending[given]
        return self.settled(cell) if len(cell.pending) > PENDING_MAX else cell

    def settled(self, cell: ModuleCell, where: str = "") -> ModuleCell:
        """Bring a state up to date. ``where``: in which window, for messages."""
        if not cell.pending:
            return cell
        pending, cell.pending = cell.pending, {}
        come = [one for one, count in pending.items() for _ in range(count)]
        gone = [one for one, count in pending.items() for _ in range(-count)]
        for given, change, sign in ((come, self._module.add, 1), (gone, self._module.remove, -1)):
            if given:
                cell.state = self._changed(cell, change, given, where)
                cell.rows += sign * len(given)
        return cell

    def _changed(self, cell: ModuleCell, change: Any, given: list[Lifetime], where: str) -> Any:
        rows = self._calls.maker.rows(given)
        return guarded(self._module.shown, where, given, lambda: change(cell.state, rows))

    def computed(self, cell: ModuleCell, window: WindowDescriptor, finish: Callable[[Any], Any]) -> Any:
        """Return ``finish`` of what the module computes from a state, brought up to date; None if no row is in it."""
        events = list(cell.pending)
        self.settled(cell, f" in window {window}")
        is_given = cell.rows or self._calls.takes_empty
        return self._calls.computed(cell.state, window, events, finish) if is_given else None

    def merge(self, state: ModuleCell, other: ModuleCell) -> ModuleCell:
        """Merge the states, and let wait what waits in either."""
        module = self._module
        state.state = guarded(module.shown, "", (), lambda: module.merge(state.state, other.state))
        state.rows += other.rows
        for event, count in other.pending.items():
            left = state.pending.get(event, 0) + count
            state.pending[event] = left
            if not left:
                del state.pending[event]
        return state

    def copied(self, state: ModuleCell) -> ModuleCell:
        """Return a state that changes independently."""
        cell = ModuleCell(guarded(self._module.shown, "", (), lambda: self._module.copied(state.state)), state.rows)
        cell.pending = dict(state.pending)
        return cell

    def state_of(self, state: ModuleCell) -> list[Any]:
        """Return the module's version, the number of rows and the state, brought up to date."""
        cell = self.settled(state)
        plain = guarded(self._module.shown, "", (), lambda: self._module.state_of(cell.state))
        return [self._module.version, cell.rows, plain]

    def restore(self, plain: list[Any]) -> ModuleCell:
        """Return the state."""
        version, rows, state = plain
        if version != self._module.version:
            raise PlanError(f"{self._module.shown} cannot go on with a state of version {version}")
        return ModuleCell(guarded(self._module.shown, "", (), lambda: self._module.restore(state)), rows)
