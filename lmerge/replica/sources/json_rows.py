"""Lines of JSON as items of a source: objects that are rows, or elements that insert, adjust and are stable."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import InvalidRow
from lmerge.replica.sources.declared import SourceContext
from lmerge.replica.sources.row_changes import RowChanges, RowShape
from lmerge.replica.sources.value_forms import json_value
from lmerge.temporal.changes import Change
from lmerge.temporal.running import Item

_NO_TIMES: Final = RowShape("vs", "ve", False, None)


class JsonRows:
    """Makes inserts of objects."""

    def __init__(self, changes: RowChanges) -> None:
        self._changes = changes

    def item(self, line: str, place: str) -> tuple[Item, int | None]:
        """Return the insert of a line, and when it is released. Raises InvalidRow."""
        row = parsed_object(line, lambda problem: self._changes.error(place, problem))
        return self._changes.change(row, place), self._changes.release(row, place)


class ElementLines:
    """Makes items of elements.

    ``{"op": "insert", "row": {...}, "vs": 1, "ve": 5}``, ``{"op": "adjust", "row": {...}, "vs": 1, "vold": 5, "ve":
    9}``, ``{"op": "stable", "vc": 7}``. A time is a number, ISO 8601 or ``"inf"``.
    """

    def __init__(self, context: SourceContext, where: str) -> None:
        self._changes = RowChanges(context, where, _NO_TIMES, json_value)

    def item(self, line: str, place: str) -> tuple[Item, int | None]:
        """Return the item of a line. Raises InvalidRow."""
        found = parsed_object(line, lambda problem: self._changes.error(place, problem))
        op = found.get("op")
        if op == "stable":
            return self._time(found, "vc", place), None
        if op not in ("insert", "adjust"):
            raise self._changes.error(place, f"op is {op!r:.40}; it is insert, adjust or stable")
        row = found.get("row")
        if not isinstance(row, Mapping):
            raise self._changes.error(place, f"row is {row!r:.40}, and no object")
        vs, ve = self._time(found, "vs", place), self._time(found, "ve", place)
        old = vs if op == "insert" else self._time(found, "vold", place)
        if min(ve, old) < vs:
            raise self._changes.error(place, f"the event ends at {min(ve, old)}, before its start at {vs}")
        return Change(self._changes.values(row, place), vs, old, ve), None

    def _time(self, found: Mapping[str, Any], name: str, place: str) -> int:
        given = found.get(name)
        if given in ("inf", "-inf"):
            return INF if given == "inf" else NEG_INF
        return self._changes.time(name, given, place)


def parsed_object(line: str, error: Callable[[str], InvalidRow]) -> Mapping[str, Any]:
    """Return a line of JSON as an object. Raises what ``error`` makes of a problem."""
    try:
        found = json.loads(line)
    except ValueError as problem:
        raise error(f"it is no JSON: {problem}") from None
    except RecursionError:
        raise error("it is no JSON that can be read: it is nested too deep") from None
    if not isinstance(found, Mapping):
        raise error(f"it is {line.strip()!r:.40}, and no object")
    return found
