"""Group-and-apply in SQL: a sub-plan over the events of all groups at once, each of them apart (sheet O8).

``keyed`` gives each event the key of its group. A sub-plan is a sequence of the queries of the other modules over it:
the names of the key are among the keys of windows, samples and parts of streams, among the columns of rows that are
projected or become one, and a join has the condition ``same_group``. Times are those of the whole stream, because
stable point and watermark are (II.C; V.B). A group inside a group is keyed again.
"""

from __future__ import annotations

from collections.abc import Sequence


def keyed(events: str, keys: Sequence[tuple[str, str]]) -> str:
    """Return the query of events with their group's key. ``keys``: pairs of a name and an expression over the event."""
    chosen = ", ".join(f"{expression} AS {name}" for name, expression in keys)
    return f"SELECT *, {chosen} FROM {events}"


def same_group(names: Sequence[str]) -> str:
    """Return the condition of a join of events ``l`` and ``r`` of one group: keys are equal where both are NULL too."""
    return " AND ".join(f"l.{name} IS NOT DISTINCT FROM r.{name}" for name in names)


def without_keys(results: str, names: Sequence[str]) -> str:
    """Return the query of a sub-plan's results without the keys: equal results of several groups stay several."""
    return f"SELECT * EXCLUDE ({', '.join(names)}) FROM {results}"
