"""What computes a window's results: the interface that a window has to aggregates and to users' modules.

A module is over the set of a window's events (``compute``), or incremental: it keeps a state for each window, to which
events are added and from which they are removed (IV.A). It is *time-sensitive* if it reads lifetimes or the window, or
gives its results lifetimes of their own (IV.B). Events come with lifetimes that are clipped already.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Lifetime
from lmerge.temporal.columns import RowBlock
from lmerge.temporal.values import Values
from lmerge.temporal.windows.kinds import WindowDescriptor

ModuleState: TypeAlias = Any


class WindowModule(ABC):
    """A module over the set of events of a window.

    ``reads_events``: whether a result depends on lifetimes; ``starts_only``: on their starts alone, so that a window
    does not wait for the ends of its events. ``reads_window``: whether it depends on the window's ends. ``stamps``:
    whether ``compute`` returns lifetimes; else it returns rows. ``shown``: its name, for messages. ``is_users``:
    whether a user's module is in it. ``takes_blocks``: whether ``compute_blocks`` is faster than ``compute``.
    """

    shown: str = "a module"

    reads_events: bool = False
    starts_only: bool = False
    reads_window: bool = False
    stamps: bool = False
    is_users: bool = False
    takes_blocks: bool = False

    def compute_blocks(self, blocks: Sequence[RowBlock], window: WindowDescriptor) -> Sequence[Values]:
        """Return what ``compute`` returns for all events of ``blocks``, in any order. Only with ``takes_blocks``."""
        raise NotImplementedError

    @abstractmethod
    def compute(self, events: Sequence[Lifetime], window: WindowDescriptor) -> Sequence[Values] | Sequence[Lifetime]:
        """Return the results of a window that has events.

        They come in the order of (start, end, row); to a module that reads only starts in that of (start, row), and to
        one that does not read lifetimes in that of rows.
        """


class IncrementalModule(WindowModule):
    """A module that keeps a state for each window. The state of a window without events is ``begin()``.

    A state is plain values (numbers, text, bytes, lists, dicts with text keys), or ``state_of`` and ``restore`` convert
    it to them.
    """

    @abstractmethod
    def begin(self) -> ModuleState:
        """Return the state of no events."""

    @abstractmethod
    def add(self, state: ModuleState, event: Lifetime) -> ModuleState:
        """Return the state with one more event. It may change ``state`` and return it."""

    def add_rows(self, state: ModuleState, rows: Sequence[Values]) -> ModuleState:
        """Return the state with more events, of which it reads the rows alone. It may change ``state`` as ``add``."""
        for row in rows:
            state = self.add(state, Lifetime(row, NEG_INF, INF))
        return state

    def add_block(self, state: ModuleState, block: RowBlock) -> ModuleState:
        """Do as ``add_rows`` for rows as columns."""
        return self.add_rows(state, block.rows())

    @abstractmethod
    def remove(self, state: ModuleState, event: Lifetime) -> ModuleState:
        """Return the state with one event less, as it was added. It may change ``state`` and return it."""

    @abstractmethod
    def result(self, state: ModuleState, window: WindowDescriptor) -> Sequence[Values] | Sequence[Lifetime]:
        """Return the results of a window with that state."""

    def copied(self, state: ModuleState) -> ModuleState:
        """Return a state that changes independently of ``state``: a snapshot window is split."""
        return copy.deepcopy(state)

    def state_of(self, state: ModuleState) -> Any:
        """Return a state as plain values, the same for the same events in any order."""
        return state

    def restore(self, plain: Any) -> ModuleState:
        """Return the state of plain values that ``state_of`` has returned."""
        return plain

    def compute(self, events: Sequence[Lifetime], window: WindowDescriptor) -> Sequence[Values] | Sequence[Lifetime]:
        """Return the results of a window, by adding every event."""
        state = self.begin()
        for event in events:
            state = self.add(state, event)
        return self.result(state, window)


class MergeableModule(IncrementalModule):
    """A module whose states of two sets of events make the state of both: windows can share parts (M5)."""

    @abstractmethod
    def merge(self, state: ModuleState, other: ModuleState) -> ModuleState:
        """Return the state of the events of both. It may change ``state`` and return it, and leaves ``other``."""
