"""The WindowIndex (V.C) of one group: its windows by their start, each with its members' count and its state.

``apply`` is the second half of the paper's four phases: it updates the index with a change and notes in ``touched``
which windows are affected. Results are computed once a batch, by the operator: what was emitted for a touched window
is compared with its result now. Which windows a change affects is wider than V.D has it (departure D7): a module that
sees the ends of events is affected wherever the event belongs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sortedcontainers import SortedDict, SortedList

from lmerge.core.elements import INF
from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.columns import RowBlock
from lmerge.temporal.errors import ModuleViolation
from lmerge.temporal.event_index import EventIndex
from lmerge.temporal.values import OrderKey, Values
from lmerge.temporal.windows.kinds import WindowDescriptor, WindowKind, WindowSpan
from lmerge.temporal.windows.module import IncrementalModule, ModuleState, WindowModule
from lmerge.temporal.windows.policies import Clip, Form, Stamp

EmptyResults: TypeAlias = Callable[[WindowDescriptor], Sequence[Values] | Sequence[Lifetime]]


@dataclass(frozen=True)
class WindowRules:
    """What is common to all windows of an operator. ``key``: the order of rows. ``windows_max``: in one step.

    ``on_empty``: the results of a window without events, of a grid that is one group; None: there are none (V.D).
    ``key_columns``: how many values of a group's key the query has; others only keep groups apart. None: all of them.
    ``rechecks``: whether the module computes each result twice, to find one that is not deterministic (D14).
    """

    kind: WindowKind
    module: WindowModule
    clip: Clip
    stamp: Stamp
    form: Form
    key: OrderKey
    windows_max: int = 1_000_000
    on_empty: EmptyResults | None = None
    key_columns: int | None = None
    rechecks: bool = False

    @property
    def keeps_empty(self) -> bool:
        """Whether windows without events are there, and have results."""
        return self.on_empty is not None

    @property
    def sees_ends(self) -> bool:
        """Whether a result can depend on the ends of events that go on behind the window (III.C.1)."""
        module = self.module
        return module.reads_events and not module.starts_only and not self.clip.cuts_right

    @property
    def follows_clipping(self) -> bool:
        """Whether the module gets other lifetimes if a window's ends move."""
        return self.module.reads_events and self.clip is not Clip.NONE

    @property
    def is_settled_early(self) -> bool:
        """Whether a result depends on the window's events alone, and its lifetime is the window."""
        module = self.module
        reads_ends = module.reads_events and not module.starts_only
        return self.stamp is Stamp.ALIGN and not (reads_ends or module.reads_window)

    def clipped(self, row: Values, vs: int, ve: int, window: WindowEntry) -> Lifetime:
        """Return an event of a window as the module gets it."""
        if self.clip.cuts_left:
            vs = max(vs, window.start)
        if self.clip.cuts_right:
            ve = min(ve, window.end)
        return Lifetime(row, vs, ve)


class WindowEntry:
    """A window: its span, how many events belong to it, the module's state, and the ends of its events if needed.

    ``due_mark``, ``due_stable``: the watermark and the stable point at which the operator looks at it again.
    """

    __slots__ = ("due_mark", "due_stable", "end", "ends", "events", "start", "state")

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.events = 0
        self.state: ModuleState = None
        self.ends: SortedList[int] | None = None
        self.due_mark: int | None = None
        self.due_stable: int | None = None

    @property
    def span(self) -> WindowSpan:
        """The window's ends."""
        return WindowSpan(self.start, self.end)


class WindowGroup(ABC):
    """The windows and live events of one group. ``key``: the group's key, as values; ``shown_key``: what results have.

    ``keeps_members``: whether all events of the windows are kept, or only what the module's states lack.
    """

    keeps_members = True

    def __init__(self, key: Values, rules: WindowRules) -> None:
        self.key = key
        self.shown_key = key if rules.key_columns is None else key[: rules.key_columns]
        self.rules = rules
        self.windows: SortedDict[int, WindowEntry] = SortedDict()
        self.events = EventIndex(rules.key)
        self.touched: set[int] = set()
        # Results that were emitted and can still change, by the start of their window.
        self.emitted: dict[int, list[Lifetime]] = {}
        # Where windows hold the output's stable point, by their start.
        self.held: dict[int, int] = {}
        # When the operator looks at the group again to drop events.
        self.due: int | None = None

    @abstractmethod
    def apply(self, change: Change, begun: int) -> None:
        """Take a change into the index. Windows that start after ``begun`` have not begun."""

    def advance(self, before: int, begun: int) -> None:  # noqa: B027  (only a grid has windows that begin by themselves)
        """Let windows begin that start after ``before`` and not after ``begun``."""

    def goes_on(self, begun: int) -> bool:
        """Whether windows that start after ``begun`` will begin in live events."""
        return False

    @property
    def last_finite_end(self) -> int | None:
        """The last end of a live event that has one."""
        return self.events.last_finite_end

    @property
    def first_end(self) -> int | None:
        """The smallest end of an event that is kept until it has ended, and longer than its windows."""
        return None

    @property
    def live(self) -> int:
        """The number of events that are kept."""
        return len(self.events)

    @abstractmethod
    def members(self, entry: WindowEntry) -> Iterable[Lifetime]:
        """Yield the events of a window with their own lifetimes, in any order."""

    def blocks(self, entry: WindowEntry) -> Sequence[RowBlock] | None:
        """Return the events of a window as columns, or None if they are not."""
        return None

    def state(self, entry: WindowEntry) -> ModuleState:
        """Return the state of an incremental module in a window that has events."""
        return entry.state

    def is_complete(self, entry: WindowEntry) -> bool:
        """Whether a window has its end. Only count windows wait for it."""
        return True

    @abstractmethod
    def closes_at(self, entry: WindowEntry) -> int:
        """Return the smallest stable point at which nothing can change a window; ``INF``: that of a stream's end."""

    def settles_at(self, entry: WindowEntry) -> int:
        """Return the smallest stable point at which row and start of a window's results cannot change."""
        return self.closes_at(entry)

    @abstractmethod
    def prune(self, stable: int) -> None:
        """Drop the events that no window needs, at a stable point behind which closed windows have been dropped."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of the group."""
        return not (self.windows or self.live or self.emitted)

    def results(self, entry: WindowEntry) -> list[Values] | list[Lifetime]:
        """Return what the module computes for a window. Raises ModuleViolation for one that is found to be random."""
        found = self._computed(entry)
        if self.rules.rechecks:
            again = self._computed(entry)
            if repr(again) != repr(found):
                raise ModuleViolation(
                    f"{self.rules.module.shown} is not deterministic: in window {entry.span} it returned {found}, and "
                    f"for the same events {again}"
                )
        return found

    def _computed(self, entry: WindowEntry) -> list[Values] | list[Lifetime]:
        rules = self.rules
        window = WindowDescriptor(entry.start, entry.end, self.shown_key)
        if not entry.events and rules.on_empty is not None:
            return list(rules.on_empty(window))
        if isinstance(rules.module, IncrementalModule):
            return list(rules.module.result(self.state(entry), window))
        blocks = self.blocks(entry) if rules.module.takes_blocks else None
        if blocks is not None:
            return list(rules.module.compute_blocks(blocks, window))
        events = list(self.members(entry))
        if rules.follows_clipping:
            events = [rules.clipped(*event, entry) for event in events]
        key = rules.key
        if rules.module.starts_only:
            events.sort(key=lambda event: (event.vs, key(event.row)))
        elif rules.module.reads_events:
            events.sort(key=lambda event: (event.vs, event.ve, key(event.row)))
        else:  # the order of a set would reveal the lifetimes
            events.sort(key=lambda event: key(event.row))
        return list(rules.module.compute(events, window))

    # What a checkpoint keeps (``window_state``).

    def state_of_window(self, entry: WindowEntry) -> Any:
        """Return the state of a window as plain values; None without one."""
        module = self.rules.module
        return module.state_of(entry.state) if isinstance(module, IncrementalModule) and entry.events else None

    def restore_window(self, entry: WindowEntry, state: Any) -> None:
        """Give a window the state that ``state_of_window`` has returned."""
        module = self.rules.module
        if isinstance(module, IncrementalModule) and entry.events:
            entry.state = module.restore(state)

    def kept_parts(self) -> dict[str, Any]:
        """Return what only some groups keep beside their windows, as plain values by name."""
        return {}

    def keep_parts(self, state: Mapping[str, Any]) -> None:  # noqa: B027  (most groups have nothing else)
        """Take what ``kept_parts`` has returned, from all that is kept of the group."""

    def check(self) -> None:  # noqa: B027  (most groups have nothing else)
        """Assert the invariants of what only some groups keep."""

    def kept(self) -> Iterable[Lifetime]:
        """Yield the events that are kept, in any order."""
        return self.events

    def keep(self, event: Lifetime) -> None:
        """Take an event that ``kept`` has yielded into a new group; its windows follow."""
        self.events.apply(Change(event.row, event.vs, event.vs, event.ve))

    def kept_edges(self, stable: int) -> list[list[int]]:
        """Return the edges of snapshot windows from the input's stable point on, each with how many events have it."""
        return []

    def keep_edges(self, edges: Iterable[Iterable[int]]) -> None:  # noqa: B027  (only snapshot windows have edges)
        """Take the edges that ``kept_edges`` has returned."""

    # Membership of one event in one window.

    def _enter(self, entry: WindowEntry, row: Values, vs: int, ve: int) -> None:
        module = self.rules.module
        if isinstance(module, IncrementalModule):
            state = module.begin() if entry.events == 0 else entry.state
            entry.state = module.add(state, self.rules.clipped(row, vs, ve, entry))
        if self.rules.sees_ends:
            entry.ends = SortedList() if entry.ends is None else entry.ends
            entry.ends.add(ve)
        entry.events += 1
        self.touched.add(entry.start)

    def _enter_all(self, entry: WindowEntry, rows: Sequence[Values]) -> None:
        """Let events enter a window, if the state of its module reads no lifetimes."""
        module = self.rules.module
        if isinstance(module, IncrementalModule):
            entry.state = module.add_rows(module.begin() if entry.events == 0 else entry.state, rows)
        entry.events += len(rows)
        self.touched.add(entry.start)

    def _enter_block(self, entry: WindowEntry, block: RowBlock) -> None:
        """Let events that came as columns enter a window, if the state of its module reads no lifetimes."""
        module = self.rules.module
        if isinstance(module, IncrementalModule):
            entry.state = module.add_block(module.begin() if entry.events == 0 else entry.state, block)
        entry.events += len(block)
        self.touched.add(entry.start)

    def _leave(self, entry: WindowEntry, row: Values, vs: int, ve: int) -> None:
        module = self.rules.module
        entry.events -= 1
        if isinstance(module, IncrementalModule):
            left = module.remove(entry.state, self.rules.clipped(row, vs, ve, entry))
            entry.state = left if entry.events else None
        if entry.ends is not None:
            entry.ends.remove(ve)
        self.touched.add(entry.start)

    def _replace(self, entry: WindowEntry, row: Values, vs: int, old: int, new: int) -> None:
        """Give an event that stays in a window another end, if the module gets to see it."""
        if self.rules.module.starts_only or not self.rules.module.reads_events:
            return
        if self.rules.clipped(row, vs, old, entry) == self.rules.clipped(row, vs, new, entry):
            return
        self._enter(entry, row, vs, new)
        self._leave(entry, row, vs, old)

    def _rebuild(self, entry: WindowEntry) -> None:
        """Compute the state of a window from its members."""
        members = list(self.members(entry))
        entry.events, entry.state, entry.ends = 0, None, None
        for row, vs, ve in members:
            self._enter(entry, row, vs, ve)
        self.touched.add(entry.start)

    def _after_members(self, entry: WindowEntry, due: int) -> int:
        """Return the later of ``due`` and the first time at which no event of the window can get another end."""
        if not entry.ends:
            return due
        last: int = entry.ends[-1]
        return max(due, last if last == INF else last + 1)
