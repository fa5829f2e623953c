"""Kinds of windows and their policies in the JSON of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmerge.temporal.errors import PlanError
from lmerge.temporal.windows.kinds import CountedEnd, CountWindows, Hopping, Sessions, Snapshots, WindowKind


def fields_of_window(window: WindowKind) -> dict[str, Any]:
    """Return a kind of window as JSON values."""
    if isinstance(window, Hopping):
        fields: dict[str, Any] = {"kind": "hopping", "size": window.size, "hop": window.hop, "offset": window.offset}
        return fields | ({} if window.since is None else {"since": window.since})
    if isinstance(window, CountWindows):
        return {"kind": "count", "count": window.count, "by": window.by.value}
    if isinstance(window, Sessions):
        return {"kind": "sessions", "gap": window.gap}
    return {"kind": "snapshot"}


def window_of_fields(fields: Mapping[str, Any]) -> WindowKind:
    """Return the kind of window of ``fields_of_window``. Raises PlanError, or UsageError for what no window has."""
    kind = fields.get("kind")
    made: WindowKind
    if kind == "hopping":
        since = whole(fields, "since") if "since" in fields else None
        made = Hopping(whole(fields, "size"), whole(fields, "hop"), whole(fields, "offset"), since)
    elif kind == "count":
        made = CountWindows(whole(fields, "count"), CountedEnd(fields["by"]))
    elif kind == "sessions":
        made = Sessions(whole(fields, "gap"))
    elif kind == "snapshot":
        made = Snapshots()
    else:
        raise PlanError(f"there is no window of kind {kind!r:.64}")
    unknown = fields.keys() - fields_of_window(made).keys()
    if unknown:
        raise PlanError(f"a window of kind {kind!r} has no field {min(unknown)!r:.64}")
    return made


def whole(fields: Mapping[str, Any], name: str) -> int:
    """Return a field that is a whole number. Raises PlanError for anything else."""
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise PlanError(f"{name} is {value!r:.64}, which is no whole number")
    return value
