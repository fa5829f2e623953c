"""Lifetimes for the results of a window: the output timestamping policy (III.C.2, V.F.1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from lmerge.core.elements import INF
from lmerge.temporal.changes import Lifetime
from lmerge.temporal.errors import ModuleViolation
from lmerge.temporal.values import Values
from lmerge.temporal.windows.group import WindowEntry, WindowGroup
from lmerge.temporal.windows.policies import Stamp


def stamped(group: WindowGroup, entry: WindowEntry) -> list[Lifetime]:
    """Return the results of a window with their lifetimes, the group's key before each row.

    Raises ModuleViolation for a result before its window, or one that ends before it starts.
    """
    rules, found = group.rules, group.results(entry)
    if not (rules.module.stamps and rules.stamp.keeps_own):
        span = (entry.end - 1, entry.end) if rules.stamp is Stamp.POINT_AT_END else entry.span
        rows = (result.row for result in cast(list[Lifetime], found)) if rules.module.stamps else found
        return [Lifetime(group.shown_key + row, *span) for row in cast(Iterable[Values], rows)]
    results = cast(list[Lifetime], found)
    if rules.stamp is Stamp.CLIP:
        cut = (Lifetime(row, max(vs, entry.start), min(ve, entry.end)) for row, vs, ve in results)
        return [Lifetime(group.shown_key + row, vs, ve) for row, vs, ve in cut if vs < ve]
    for result in results:
        _check_own(group, entry, result)
    return [Lifetime(group.shown_key + row, vs, ve) for row, vs, ve in results]


def has_results(group: WindowGroup, entry: WindowEntry) -> bool:
    """Whether a window has results: it has events, its N points, and with points at the end an end."""
    if not (entry.events or group.rules.keeps_empty) or not group.is_complete(entry):
        return False
    return entry.end < INF or group.rules.stamp is not Stamp.POINT_AT_END


def first_result(group: WindowGroup, entry: WindowEntry) -> int | None:
    """Return the smallest start that a result of a window can have; None if it lies beyond every stable point."""
    if group.rules.stamp is not Stamp.POINT_AT_END:
        return entry.start
    return entry.end - 1 if entry.end < INF else None


def _check_own(group: WindowGroup, entry: WindowEntry, result: Lifetime) -> None:
    if result.vs < entry.start:
        raise ModuleViolation(
            f"{group.rules.module.shown} gave window {entry.span} the result {result}, which starts before the window: "
            "it could contradict output that is final"
        )
    if result.ve <= result.vs:
        raise ModuleViolation(
            f"{group.rules.module.shown} gave window {entry.span} the result {result}, whose lifetime is empty"
        )
