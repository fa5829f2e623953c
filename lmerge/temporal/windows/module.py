"""What computes a window's results: the interface that a window has to aggregates and to users' modules.

A module is over the set of a window's events (``compute``), or incremental: it keeps a state for each window, to which
events are added and from which they are removed (IV.A). It is *time-sensitive* if it reads lifetimes or the window, or
gives its results lifetimes of their own (IV.B). Events come with lifetimes that are clipped already.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.values import Values
from lmerge.temporal.windows.kinds import WindowSpan

ModuleState: TypeAlias = Any


class WindowModule(ABC):
    """A module over the set of events of a window.

    ``reads_events``: whether a result depends on lifetimes. ``reads_window``: whether it depends on the window's ends.
    ``stamps``: whether ``compute`` returns lifetimes; else it returns rows. ``shown``: its name, for messages.
    """

    shown: str = "a module"

    reads_events = False
    reads_window = False
    stamps = False

    @abstractmethod
    def compute(self, events: Sequence[Lifetime], window: WindowSpan) -> Sequence[Values] | Sequence[Lifetime]:
        """Return the results of a window that has events.

        They come in the order of (start, end, row), to a module that does not read lifetimes in that of rows.
        """


class IncrementalModule(WindowModule):
    """A module that keeps a state for each window. The state of a window without events is ``begin()``."""

    @abstractmethod
    def begin(self) -> ModuleState:
        """Return the state of no events."""

    @abstractmethod
    def add(self, state: ModuleState, event: Lifetime) -> ModuleState:
        """Return the state with one more event. It may change ``state`` and return it."""

    @abstractmethod
    def remove(self, state: ModuleState, event: Lifetime) -> ModuleState:
        """Return the state with one event less, as it was added. It may change ``state`` and return it."""

    @abstractmethod
    def result(self, state: ModuleState, window: WindowSpan) -> Sequence[Values] | Sequence[Lifetime]:
        """Return the results of a window with that state."""

    def compute(self, events: Sequence[Lifetime], window: WindowSpan) -> Sequence[Values] | Sequence[Lifetime]:
        """Return the results of a window, by adding every event."""
        state = self.begin()
        for event in events:
            state = self.add(state, event)
        return self.result(state, window)
