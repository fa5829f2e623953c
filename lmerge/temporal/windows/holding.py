"""Which window holds the output's stable point, and for which event it waits: the reason why a stream stands still.

A result that depends on the ends of events waits until they are final (V.F.1, case 2): an event without end holds the
output for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from lmerge.core.elements import show_time
from lmerge.temporal.changes import Lifetime
from lmerge.temporal.values import Values, show_values
from lmerge.temporal.windows.group import WindowEntry, WindowGroup
from lmerge.temporal.windows.kinds import WindowSpan


class Holding(NamedTuple):
    """A window that holds the output's stable point at ``at``, and the group's key.

    ``ends_at``: the last end of its events, if it waits for one. ``event``: that event, if the operator keeps it.
    """

    at: int
    key: Values
    window: WindowSpan
    ends_at: int | None = None
    event: Lifetime | None = None

    def __str__(self) -> str:
        group = f" of group {show_values(self.key)}" if self.key else ""
        text = f"window {self.window}{group} holds the stable point at {show_time(self.at)}"
        if self.ends_at is None:
            return text
        event = "an event" if self.event is None else str(self.event)
        return f"{text}: it waits for {event}, which ends at {show_time(self.ends_at)}"


def first_holding(groups: Iterable[WindowGroup], at: int, input_stable: int) -> Holding | None:
    """Return the window that holds the output's stable point at ``at``; the first one by group, then by start.

    Costs O(groups). ``input_stable``: an event that ended before it holds nothing.
    """
    for group in sorted(groups, key=lambda group: repr(group.key)):
        for start in sorted(start for start, held in group.held.items() if held == at):
            return _holding(group, group.windows[start], at, input_stable)
    return None


def _holding(group: WindowGroup, entry: WindowEntry, at: int, input_stable: int) -> Holding:
    found = Holding(at, group.shown_key, entry.span)
    if not entry.ends or entry.ends[-1] < input_stable:
        return found
    last: int = entry.ends[-1]
    members = group.members(entry) if group.keeps_members else ()
    return found._replace(ends_at=last, event=next((event for event in members if event.ve == last), None))
