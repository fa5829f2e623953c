"""Session windows of one group: runs of events in which the next start is within the gap of the greatest end so far.

A session goes from its first start to its greatest end. An event that is at most the gap away from a session extends
it; one between two sessions joins them, and one that becomes shorter or goes can split its session. So a session can
change until the stable point is more than the gap behind its end. A start below the stable point is final.
"""

from __future__ import annotations

from collections.abc import Iterable

from lmerge.core.elements import INF
from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.values import Values
from lmerge.temporal.windows.group import WindowEntry, WindowGroup, WindowRules
from lmerge.temporal.windows.kinds import Sessions, WindowSpan


class SessionGroup(WindowGroup):
    """The sessions that can still change."""

    def __init__(self, key: Values, rules: WindowRules) -> None:
        super().__init__(key, rules)
        assert isinstance(rules.kind, Sessions)
        self._gap = rules.kind.gap

    def apply(self, change: Change, begun: int) -> None:
        """Extend, join, shorten or split the sessions at most the gap away from the event, as it was and as it is.

        An event that grows costs O(log n), one that joins or shrinks costs what the sessions hold.
        """
        row, vs, old, new = change
        near = self._near(vs, max(old, new))
        self.events.apply(change)
        if new > old and not near:
            self.windows[vs] = entry = WindowEntry(vs, new)
            self._enter(entry, row, vs, new)
        elif new > old and len(near) == 1:
            self._change_within(near[0], change, WindowSpan(min(vs, near[0].start), max(new, near[0].end)))
        else:
            self._divide(near, change)

    def members(self, entry: WindowEntry) -> Iterable[Lifetime]:
        """Yield the events of a session."""
        return self.events.overlapping(entry.start, entry.end)

    def closes_at(self, entry: WindowEntry) -> int:
        """Return the first time that is more than the gap behind a session's end."""
        return self._after_members(entry, min(INF, entry.end + self._gap + 1))

    def prune(self, stable: int) -> None:
        """Drop the events of sessions that cannot change: sessions close in order."""
        until = stable - 1
        if self.windows:
            until = min(until, self.windows.keys()[0])
        self.events.drop_ended(until)

    def _near(self, vs: int, ve: int) -> list[WindowEntry]:
        """Return the sessions that are at most the gap away from a lifetime, in order."""
        found: list[WindowEntry] = []
        for start in self.windows.irange(maximum=ve + self._gap, reverse=True):
            entry = self.windows[start]
            if entry.end < vs - self._gap:
                break
            found.append(entry)
        return found[::-1]

    def _divide(self, near: list[WindowEntry], change: Change) -> None:
        """Put the events of some sessions into sessions anew."""
        low, high = near[0].start, max(near[-1].end, change.new)
        spans = session_spans(self.events.overlapping(min(low, change.vs), high), self._gap)
        if len(near) == len(spans) == 1 and spans[0].start == near[0].start:
            self._change_within(near[0], change, spans[0])
            return
        for entry in near:
            del self.windows[entry.start]
            self.touched.add(entry.start)
        for span in spans:
            self.windows[span.start] = entry = WindowEntry(*span)
            self._rebuild(entry)

    def _change_within(self, entry: WindowEntry, change: Change, span: WindowSpan) -> None:
        """Change one event of a session, and the session's ends to ``span``."""
        row, vs, old, new = change
        if span.start != entry.start:
            del self.windows[entry.start]
            self.touched.add(entry.start)
            self.windows[span.start] = entry
            entry.due_mark = entry.due_stable = None
        entry.start, entry.end = span.start, max(span.end, entry.end)
        if change.is_insert:
            self._enter(entry, row, vs, new)
        elif new == vs:
            self._leave(entry, row, vs, old)
        else:
            self._replace(entry, row, vs, old, new)
        entry.end = span.end
        self.touched.add(entry.start)


def session_spans(events: Iterable[Lifetime], gap: int) -> list[WindowSpan]:
    """Return the sessions of events."""
    spans: list[WindowSpan] = []
    for _, vs, ve in sorted(events, key=lambda event: event.vs):
        if spans and vs <= spans[-1].end + gap:
            spans[-1] = WindowSpan(spans[-1].start, max(spans[-1].end, ve))
        else:
            spans.append(WindowSpan(vs, ve))
    return spans
