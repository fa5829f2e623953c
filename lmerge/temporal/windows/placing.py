"""Which group a kind of window has, and new events by group and window: how a batch of inserts enters at once.

A batch in which every change is a new event is placed before anything is applied. Where an event must be applied by
itself, because a window would be refused or a key has no value, nothing is placed: the error then names that event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import LmergeError
from lmerge.temporal.changes import Change, by_key
from lmerge.temporal.columns import ColumnDelta, RowBlock
from lmerge.temporal.values import Values
from lmerge.temporal.windows.count_group import CountGroup
from lmerge.temporal.windows.grid_group import GridGroup
from lmerge.temporal.windows.group import WindowGroup, WindowRules
from lmerge.temporal.windows.kinds import CountWindows, Hopping, Sessions, Snapshots, WindowKind
from lmerge.temporal.windows.module import IncrementalModule
from lmerge.temporal.windows.pane_group import PaneGroup, pane_grid
from lmerge.temporal.windows.session_group import SessionGroup
from lmerge.temporal.windows.snapshot_group import SnapshotGroup

KeyOf: TypeAlias = "Callable[[Values], Values] | None"
"""The key of a row; None: all rows are one group."""


def grid_group(key: Values, rules: WindowRules) -> GridGroup:
    """Return a new group of a grid."""
    return PaneGroup(key, rules) if PaneGroup.suits(rules) else GridGroup(key, rules)


GROUPS: Final[Mapping[type[WindowKind], Callable[[Values, WindowRules], WindowGroup]]] = {
    Hopping: grid_group,
    Snapshots: SnapshotGroup,
    CountWindows: CountGroup,
    Sessions: SessionGroup,
}


def placed_inserts(
    rules: WindowRules, changes: Sequence[Change], key_of: KeyOf, groups: Mapping[Values, WindowGroup], begun: int
) -> list[tuple[GridGroup, Sequence[Change], Mapping[int, Any]]] | None:
    """Return new events with their group and what ``insert`` takes, or None if each must be applied by itself."""
    if not all(old == vs < new for _, vs, old, new in changes):
        return None
    try:
        inserts = {(): changes} if key_of is None else by_key(changes, key_of)
    except LmergeError:  # of a key: what is wrong with a row before it comes first
        return None
    found = []
    for key, some in inserts.items():
        group = groups.get(key) or grid_group(key, rules)
        assert isinstance(group, GridGroup)
        windows = group.placed(some, begun)
        if windows is None:
            return None
        found.append((group, some, windows))
    return found


def placed_blocks(
    rules: WindowRules, batch: ColumnDelta, key_columns: Sequence[int] | None, key_of: KeyOf, begun: int
) -> Mapping[Values, tuple[Mapping[int, RowBlock], RowBlock]] | None:
    """Return what ``insert_blocks`` takes, by group, or None if each event must be applied by itself."""
    kind = rules.kind
    assert isinstance(kind, Hopping)
    reach = NEG_INF if not isinstance(rules.module, IncrementalModule) else kind.start_above(begun)
    if reach > INF:
        return None
    grid, windows_max = kind, rules.windows_max
    if PaneGroup.suits(rules):
        grid, windows_max = pane_grid(kind), windows_max - kind.size // kind.hop
    times = grid.size, grid.hop, grid.offset, grid.since
    try:
        found = batch.blocks_by_window(times, begun, reach, windows_max, key_columns, key_of)
    except LmergeError:  # as in ``placed_inserts``
        return None
    starts = (start for windows, _ in (found or {}).values() for start in windows)
    if grid is not kind and any(kind.first_over(start) <= NEG_INF for start in starts):
        return None
    if grid is not kind and any(len(kept.split(reach)[1]) for _, kept in (found or {}).values()):
        return None  # an event begins behind its stream's time: ``PaneGroup.apply`` finds its pane
    return found
