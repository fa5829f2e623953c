"""The windows of a group as plain values, and back: for checkpoints of plans.

A window is kept with how many events belong to it, and with their ends if its results depend on them: not every group
keeps the events themselves. When time moves a window follows from its ends, and is not kept. The state of a module is
kept in the module's own form (``IncrementalModule.state_of``).
"""

from __future__ import annotations

from typing import Any

from sortedcontainers import SortedList

from lmerge.temporal.operators.operator import event_of_state, state_of_event, state_of_row
from lmerge.temporal.windows.group import WindowEntry, WindowGroup


def state_of_group(group: WindowGroup, stable: int) -> dict[str, Any]:
    """Return a group as plain values, its events in the order of start, row and end. ``stable``: of the input."""
    key = group.rules.key
    events = sorted(group.kept(), key=lambda event: (event.vs, key(event.row), event.ve))
    windows = []
    for start, entry in group.windows.items():
        ends = None if entry.ends is None else list(entry.ends)
        windows.append([start, entry.end, entry.events, ends, group.state_of_window(entry)])
    return group.kept_parts() | {
        "key": state_of_row(group.key),
        "events": [state_of_event(event) for event in events],
        "edges": group.kept_edges(stable),
        "windows": windows,
        "emitted": [[start, [*map(state_of_event, results)]] for start, results in sorted(group.emitted.items())],
        "due": group.due,
    }


def restore_group(group: WindowGroup, state: dict[str, Any]) -> None:
    """Give a new group what ``state_of_group`` has returned."""
    for event in state["events"]:
        group.keep(event_of_state(event))
    group.keep_edges(state["edges"])
    for start, end, events, ends, kept in state["windows"]:
        group.windows[start] = entry = WindowEntry(start, end)
        entry.events, entry.ends = events, None if ends is None else SortedList(ends)
        group.restore_window(entry, kept)
    group.keep_parts(state)
    group.emitted = {start: [*map(event_of_state, results)] for start, results in state["emitted"]}
    group.due = state["due"]


def check_group(group: WindowGroup) -> None:
    """Assert that windows have the events that belong to them, and that nothing is kept of others."""
    assert not group.touched
    assert not group.is_empty, f"the group {group.key} is kept without anything in it"
    assert set(group.emitted) | set(group.held) <= set(group.windows)
    for start, entry in group.windows.items():
        assert start == entry.start < entry.end
        assert entry.events > 0 or group.rules.keeps_empty, f"{entry.span} is kept without events"
        assert entry.ends is None or len(entry.ends) == entry.events
        if group.keeps_members:
            ends = sorted(event.ve for event in group.members(entry))
            assert entry.events == len(ends), f"{entry.span} counts {entry.events} events of {len(ends)}"
            assert entry.ends is None or list(entry.ends) == ends
    group.check()
