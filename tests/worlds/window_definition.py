"""Windows by brute force: what must have been emitted, from the table of the input alone. It knows no index.

Independent of the operator but for the module that computes a window's results from its events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from temporal_world import StreamTable

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Delta, Lifetime
from lmerge.temporal.values import Values
from lmerge.temporal.windows.group import WindowRules
from lmerge.temporal.windows.kinds import (
    CountedEnd,
    CountWindows,
    Hopping,
    Sessions,
    Snapshots,
    WindowDescriptor,
    WindowKind,
    WindowSpan,
)
from lmerge.temporal.windows.policies import Form, Stamp


class DefinedWindow(NamedTuple):
    """A window with the events that belong to it."""

    key: Values
    span: WindowSpan
    events: list[Lifetime]


@dataclass
class WindowDefinition:
    """What an operator of windows must have emitted, batch by batch."""

    rules: WindowRules
    key_of: Callable[[Values], Values]
    table: StreamTable = field(default_factory=StreamTable)
    mark: int = NEG_INF
    last_finite: int = NEG_INF
    output_stable: int = NEG_INF

    def take(self, delta: Delta) -> Counter[Lifetime]:
        """Take a batch; return the table that must have been emitted, and note the stable point."""
        self.table.apply(delta)
        if self.table.stable < INF:
            self.last_finite = max(self.last_finite, self.table.stable)
        self.last_finite = max([self.last_finite, *(one.vs for one in delta.changes)])
        self.mark = max([self.mark, self.table.stable, *(one.vs for one in delta.changes)])
        windows = self._windows()
        emitted: Counter[Lifetime] = Counter()
        held: list[int] = []
        for window in windows:
            must = self._must(window, windows)
            if must:
                emitted.update(self._results(window))
            first = self._first(window)
            if first is not None and not (must and self._is_settled(window)):
                held.append(first)
        if delta.stable is not None:
            self.output_stable = max(self.output_stable, self._stable(held))
        return emitted

    # Windows and their events.

    def _windows(self) -> list[DefinedWindow]:
        groups: dict[Values, list[Lifetime]] = {}
        for event in self.table.events.elements():
            groups.setdefault(self.key_of(event.row), []).append(event)
        begun = self.mark
        if self.mark == INF:
            begun = max([self.last_finite, *(event.ve for event in self.table.events if event.ve < INF)])
        if self.rules.keeps_empty:
            groups.setdefault((), [])
        return [
            DefinedWindow(key, span, members(self.rules.kind, events, span))
            for key, events in groups.items()
            for span in (self._all_spans(begun) if self.rules.keeps_empty else spans(self.rules.kind, events, begun))
        ]

    def _all_spans(self, begun: int) -> list[WindowSpan]:
        kind = self.rules.kind
        assert isinstance(kind, Hopping)
        assert kind.since is not None
        first = next(t for t in range(kind.since, kind.since + kind.hop) if (t - kind.offset) % kind.hop == 0)
        return [WindowSpan(start, start + kind.size) for start in range(first, begun + 1, kind.hop)]

    def _is_closed(self, window: DefinedWindow) -> bool:
        stable = self.table.stable
        if stable == INF:
            return True
        if isinstance(self.rules.kind, Snapshots) and window.span.end >= stable:
            return False
        if window.span.end > stable:
            return False
        if isinstance(self.rules.kind, Sessions) and window.span.end + self.rules.kind.gap >= stable:
            return False
        return not sees_ends(self.rules) or all(event.ve < stable for event in window.events)

    def _is_settled(self, window: DefinedWindow) -> bool:
        module, is_snapshot = self.rules.module, isinstance(self.rules.kind, Snapshots)
        reads_ends = module.reads_events and not module.starts_only
        if is_snapshot and not (reads_ends or module.reads_window):
            return window.span.start < self.table.stable or self._is_closed(window)
        return self._is_closed(window)

    def _must(self, window: DefinedWindow, windows: Sequence[DefinedWindow]) -> bool:
        form, first = self.rules.form, self._first(window)
        if form is Form.EAGER:
            return window.span.start <= self.mark
        if form is Form.SETTLED:
            return self._is_settled(window)
        if form is Form.WATERMARK:
            return window.span.end <= self.mark or (first is not None and first < self.output_stable)
        is_shared = isinstance(self.rules.kind, Hopping)
        peers = [other for other in windows if is_shared or other.key == window.key]
        open_starts = [other.span.start for other in peers if not self._is_closed(other)]
        return self._is_closed(window) and all(window.span.start < start for start in open_starts)

    def _first(self, window: DefinedWindow) -> int | None:
        if self.rules.stamp is not Stamp.POINT_AT_END:
            return window.span.start
        return window.span.end - 1 if window.span.end < INF else None

    def _stable(self, held: Iterable[int]) -> int:
        stable, kind = self.table.stable, self.rules.kind
        if isinstance(kind, Hopping) and NEG_INF < stable < INF:
            stable = kind.start_above(stable - kind.size)
            if self.rules.stamp is Stamp.POINT_AT_END:
                stable += kind.size - 1
        return min([stable, *held])

    # Results.

    def _results(self, window: DefinedWindow) -> list[Lifetime]:
        rules, span = self.rules, window.span
        if span.end == INF and (isinstance(rules.kind, CountWindows) or rules.stamp is Stamp.POINT_AT_END):
            return []
        left, right = rules.clip.cuts_left, rules.clip.cuts_right
        events = [
            Lifetime(row, max(vs, span.start) if left else vs, min(ve, span.end) if right else ve)
            for row, vs, ve in window.events
        ]
        events.sort(key=lambda event: rules.key(event.row))
        if rules.module.reads_events:
            events.sort(key=lambda event: (event.vs, 0 if rules.module.starts_only else event.ve))
        descriptor = WindowDescriptor(*span, window.key)
        if not events and rules.on_empty is not None:
            found = list(rules.on_empty(descriptor))
        else:
            found = list(rules.module.compute(events, descriptor))
        lifetime = WindowSpan(span.end - 1, span.end) if rules.stamp is Stamp.POINT_AT_END else span
        if not rules.module.stamps:
            return [Lifetime(window.key + row, *lifetime) for row in found]
        results = cast(list[Lifetime], found)
        if not rules.stamp.keeps_own:
            return [Lifetime(window.key + result.row, *lifetime) for result in results]
        if rules.stamp is Stamp.CLIP:
            results = [Lifetime(row, max(vs, span.start), min(ve, span.end)) for row, vs, ve in results]
        return [Lifetime(window.key + row, vs, ve) for row, vs, ve in results if vs < ve]


def spans(kind: WindowKind, events: Sequence[Lifetime], begun: int) -> list[WindowSpan]:
    """Return the windows of a group that have events; of a grid those that have begun."""
    if isinstance(kind, Hopping):
        starts: set[int] = set()
        for event in events:
            start = kind.start_above(event.vs - kind.size)
            while start < event.ve and start <= begun:
                starts.add(start)
                start += kind.hop
        return [WindowSpan(start, start + kind.size) for start in sorted(starts)]
    if isinstance(kind, Snapshots):
        edges = sorted({t for event in events for t in (event.vs, event.ve)})
        pairs = map(WindowSpan, edges, edges[1:])
        return [span for span in pairs if any(event.vs < span.end and event.ve > span.start for event in events)]
    if isinstance(kind, Sessions):
        return sessions(kind.gap, events)
    found = points(kind, events)
    ends = [*found[kind.count - 1 :], *[INF] * (kind.count - 1)]
    return [WindowSpan(start, last + 1 if last < INF else INF) for start, last in zip(found, ends)]


def sessions(gap: int, events: Sequence[Lifetime]) -> list[WindowSpan]:
    """Return the runs of events: two are in one run if a chain of events leads from one to the other."""
    runs: list[list[Lifetime]] = []
    for event in events:
        joined = [run for run in runs if any(is_near(gap, event, other) for other in run)]
        runs = [run for run in runs if run not in joined]
        runs.append([event, *(other for run in joined for other in run)])
    return sorted(WindowSpan(min(e.vs for e in run), max(e.ve for e in run)) for run in runs)


def is_near(gap: int, event: Lifetime, other: Lifetime) -> bool:
    return event.vs <= other.ve + gap and other.vs <= event.ve + gap


def points(kind: CountWindows, events: Sequence[Lifetime]) -> list[int]:
    """Return the distinct times that a count window counts."""
    counted = {event.vs if kind.by is CountedEnd.STARTS else event.ve for event in events}
    return sorted(counted - {INF})


def members(kind: WindowKind, events: Sequence[Lifetime], span: WindowSpan) -> list[Lifetime]:
    """Return the events that belong to a window."""
    if not isinstance(kind, CountWindows):
        return [event for event in events if event.vs < span.end and event.ve > span.start]
    by_ends = kind.by is CountedEnd.ENDS
    return [event for event in events if span.start <= (event.ve if by_ends else event.vs) < span.end]


def sees_ends(rules: WindowRules) -> bool:
    """Return whether a result depends on the ends of events that go on behind the window."""
    return rules.module.reads_events and not rules.module.starts_only and not rules.clip.cuts_right


def stable_of_the_table(rules: WindowRules, key_of: Callable[[Values], Values], table: StreamTable) -> int | None:
    """Return the stable point of the forms that emit at once, by a formula for each case; None: there is no formula.

    ``hf``: events that start before the input's stable point c and end at or after it.
    """
    c, kind = table.stable, rules.kind
    if c in (NEG_INF, INF):
        return c
    shown, reads = sees_ends(rules), rules.module.reads_events and not rules.module.starts_only
    groups: dict[Values, list[Lifetime]] = {}
    for event in table.events.elements():
        groups.setdefault(key_of(event.row), []).append(event)
    if isinstance(kind, Hopping):
        starts = [kind.start_above(e.vs - kind.size) for e in table.events if shown and e.vs < c <= e.ve]
        ends = {kind.start_above(e.vs - kind.size): e.ve for e in table.events if e.vs < c <= e.ve}
        begun = [start for start in starts if start < ends[start] and start <= c]
        if rules.stamp is Stamp.POINT_AT_END:
            return None if shown else kind.start_above(c - kind.size) + kind.size - 1
        return None if len(begun) < len(starts) else min([kind.start_above(c - kind.size), *starts])
    if rules.stamp is not Stamp.ALIGN:
        return None
    found = [c]
    for events in groups.values():
        hf = [event for event in events if event.vs < c <= event.ve]
        if isinstance(kind, CountWindows):
            before = [point for point in points(kind, events) if point < c]
            if before and kind.count > 1:
                found.append(before[max(0, len(before) - kind.count + 1)])
            if shown and kind.by is CountedEnd.STARTS:
                for event in hf:
                    index = before.index(event.vs)
                    found.append(before[max(0, index - kind.count + 1)])
        elif isinstance(kind, Sessions):
            found += [span.start for span in spans(kind, events, INF) if span.end + kind.gap >= c]
        elif shown:
            found += [event.vs for event in hf]
        elif reads or rules.module.reads_window:
            found += [span.start for span in spans(kind, events, INF) if span.start < c <= span.end]
    return min(found)
