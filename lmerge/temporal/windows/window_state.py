"""The windows of a group as plain values, and back: for checkpoints of plans.

What follows from the events is not kept: how many belong to a window, their ends, which windows are closed. The state
of a module is kept in the module's own form (``IncrementalModule.state_of``).
"""

from __future__ import annotations

from typing import Any

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.operators.operator import row_of_state, state_of_row
from lmerge.temporal.windows.group import WindowEntry, WindowGroup
from lmerge.temporal.windows.module import IncrementalModule


def order_of_group(group: WindowGroup) -> Any:
    """Return the place of a group among others: that of its first event, by start, row and end."""
    key = group.rules.key
    return min((event.vs, key(event.row), event.ve) for event in group.kept())


def state_of_group(group: WindowGroup) -> dict[str, Any]:
    """Return a group as plain values, its events in the order of start, row and end."""
    module, key = group.rules.module, group.rules.key
    events = sorted(group.kept(), key=lambda event: (event.vs, key(event.row), event.ve))
    windows = []
    for start, entry in group.windows.items():
        state = module.state_of(entry.state) if isinstance(module, IncrementalModule) and entry.events else None
        windows.append([start, entry.end, state, entry.due_mark, entry.due_stable])
    return {
        "key": state_of_row(group.key),
        "events": [_plain(event) for event in events],
        "edges": group.kept_edges(),
        "windows": windows,
        "emitted": [[start, [*map(_plain, results)]] for start, results in sorted(group.emitted.items())],
        "held": [list(item) for item in sorted(group.held.items())],
        "due": group.due,
    }


def restore_group(group: WindowGroup, state: dict[str, Any]) -> None:
    """Give a new group what ``state_of_group`` has returned."""
    module = group.rules.module
    for event in state["events"]:
        group.keep(_lifetime(event))
    group.keep_edges(state["edges"])
    for start, end, kept, due_mark, due_stable in state["windows"]:
        group.windows[start] = entry = WindowEntry(start, end)
        entry.due_mark, entry.due_stable = due_mark, due_stable
        group.count_members(entry)
        if isinstance(module, IncrementalModule) and entry.events:
            entry.state = module.restore(kept)
    group.emitted = {start: [*map(_lifetime, results)] for start, results in state["emitted"]}
    group.held = dict(state["held"])
    group.due = state["due"]


def check_group(group: WindowGroup) -> None:
    """Assert that windows have the events that belong to them, and that nothing is kept of others."""
    assert not group.touched
    assert not group.is_empty, f"the group {group.key} is kept without anything in it"
    assert set(group.emitted) | set(group.held) <= set(group.windows)
    for start, entry in group.windows.items():
        assert start == entry.start < entry.end
        ends = sorted(event.ve for event in group.members(entry))
        assert entry.events == len(ends) > 0, f"{entry.span} counts {entry.events} events of {len(ends)}"
        assert entry.ends is None or list(entry.ends) == ends


def _plain(event: Lifetime) -> list[Any]:
    return [state_of_row(event.row), event.vs, event.ve]


def _lifetime(plain: list[Any]) -> Lifetime:
    row, vs, ve = plain
    return Lifetime(row_of_state(row), vs, ve)
