"""States of users' incremental modules: what a window keeps of one, and how it is brought up to date.

The paper has ``AddEventToState`` and ``RemoveEventFromState`` called with the events since the last result (IV.A.2). So
events wait until a result is computed. An event that comes and goes in between never reaches the module, and the others
reach it in canonical order, so that a state does not depend on the order of arrival.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.columns import RowBlock
from lmerge.temporal.errors import PlanError
from lmerge.temporal.modules.accumulators import Accumulator
from lmerge.temporal.modules.calls import ModuleCalls
from lmerge.temporal.modules.edge import BlockRows, Given, RowMaker, guarded
from lmerge.temporal.modules.kinds import Incremental, Mergeable, UserModule
from lmerge.temporal.values import Values
from lmerge.temporal.windows.kinds import WindowDescriptor

# Events that wait: enough for a call to be cheap, and few beside the rows of a window.
PENDING_MAX: Final = 1024


class ModuleCell:
    """The state of a module in one window, of ``rows`` rows. ``come``, ``gone``: what waits to be added and removed.

    ``blocks``: what waits to be added as well, and is there as columns.
    """

    __slots__ = ("blocks", "come", "gone", "rows", "state")

    def __init__(self, state: Any, rows: int = 0) -> None:
        self.state = state
        self.rows = rows
        self.come: list[Given] = []
        self.gone: list[Given] = []
        self.blocks: list[RowBlock] = []

    def taken(self, maker: RowMaker) -> tuple[Sequence[Given], Sequence[Given]]:
        """Return what waits, less what has come and gone, and let nothing wait."""
        come, gone, blocks = self.come, self.gone, BlockRows(maker, self.blocks)
        self.come, self.gone, self.blocks = [], [], []
        if not (come or gone):
            return blocks, ()
        come += blocks.listed()
        if come and gone:
            came, went = Counter(come), Counter(gone)
            come, gone = list((came - went).elements()), list((went - came).elements())
        return come, gone


class ModuleAccumulator(Accumulator):
    """Keeps the states of a module. Raises ModuleViolation for whatever the module raises."""

    is_users = True

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
        given = self._calls.maker.given(event)
        if given is not None:
            state.come.append(given)
        return self._bounded(state)

    def add_rows(self, state: ModuleCell, rows: Sequence[Values]) -> ModuleCell:
        """Let rows wait to be added."""
        state.come += self._calls.maker.given_of_rows(rows)
        return self._bounded(state)

    def add_block(self, state: ModuleCell, block: RowBlock) -> ModuleCell:
        """Let rows wait to be added that came as columns."""
        if self._calls.maker.block_columns is None:
            return self.add_rows(state, block.rows())
        state.blocks.append(block)
        return self._bounded(state)

    def remove(self, state: ModuleCell, event: Lifetime) -> ModuleCell:
        """Let an event wait to be removed."""
        given = self._calls.maker.given(event)
        if given is not None:
            state.gone.append(given)
        return self._bounded(state)

    def _bounded(self, cell: ModuleCell) -> ModuleCell:
        waiting = len(cell.come) + len(cell.gone) + sum(map(len, cell.blocks))
        return self.settled(cell) if waiting > PENDING_MAX else cell

    def settled(self, cell: ModuleCell, where: str = "") -> ModuleCell:
        """Bring a state up to date. ``where``: in which window, for messages."""
        self._settle(cell, *cell.taken(self._calls.maker), where)
        return cell

    def _settle(self, cell: ModuleCell, come: Sequence[Given], gone: Sequence[Given], where: str) -> None:
        if come:
            cell.state = self._changed(cell, self._module.add, come, where)
            cell.rows += len(come)
        if gone:
            cell.state = self._changed(cell, self._module.remove, gone, where)
            cell.rows -= len(gone)

    def _changed(self, cell: ModuleCell, change: Any, given: Sequence[Given], where: str) -> Any:
        rows = self._calls.maker.rows(given)
        return guarded(self._module.shown, where, given, lambda: change(cell.state, rows))

    def computed(self, cell: ModuleCell, window: WindowDescriptor, finish: Callable[[Any], Any]) -> Any:
        """Return ``finish`` of what the module computes from a state, brought up to date; None if no row is in it."""
        come, gone = cell.taken(self._calls.maker)
        if come or gone:
            self._settle(cell, come, gone, f" in window {window}")
        is_given = cell.rows or self._calls.takes_empty
        events = come if not gone else [*come, *gone]
        return self._calls.computed(cell.state, window, events, finish) if is_given else None

    def merge(self, state: ModuleCell, other: ModuleCell) -> ModuleCell:
        """Merge the states; ``other`` is brought up to date, so that it is only once, however often it is merged."""
        module, other = self._module, self.settled(other)
        state.state = guarded(module.shown, "", (), lambda: module.merge(state.state, other.state))
        state.rows += other.rows
        return state

    def copied(self, state: ModuleCell) -> ModuleCell:
        """Return a state that changes independently."""
        cell = ModuleCell(guarded(self._module.shown, "", (), lambda: self._module.copied(state.state)), state.rows)
        cell.come, cell.gone, cell.blocks = [*state.come], [*state.gone], [*state.blocks]
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
