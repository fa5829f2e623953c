"""The four physical forms in SQL: which results of windows must have been emitted (V.B to V.D; departures D2 to D5).

Every window gets the columns ``is_closed`` (nothing can change it), ``is_settled`` (row and start of its results
cannot) and ``first_at`` (the smallest start that a result can have). A form is a condition over them. Times are
expressions: numbers, or columns that every row of a window has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lmerge.testing.canonical.times import INF, wide

Kind = Literal["hopping", "snapshot", "count", "session"]
Form = Literal["final", "settled", "watermark", "eager"]


@dataclass(frozen=True)
class StreamTimes:
    """Where a stream is. ``stable``: its stable point; ``mark``: the watermark; ``passed``: the output's stable point.

    ``passed`` is that before the batch.
    """

    stable: str
    mark: str
    passed: str


def closed(kind: Kind, stable: str, *, sees_ends: bool, gap: int = 0) -> str:
    """Return when nothing can change a window: the end of one on a grid may be met, that of a snapshot passed (D4).

    ``sees_ends``: results depend on the ends of events that go on behind the window, the column ``last_end``, so all
    of them must have ended before the stable point (D2, D3).
    """
    by_kind = {
        "hopping": f"window_end <= {stable}",
        "count": f"window_end <= {stable}",
        "snapshot": f"window_end < {stable}",
        "session": f"{wide('window_end')} + {gap} < {stable}",
    }[kind]
    of_members = f" AND last_end < {stable}" if sees_ends else ""
    return f"coalesce({stable} = {INF} OR ({by_kind}{of_members}), FALSE)"


def marked(results: str, is_closed: str, *, settles_behind_start: str | None, is_point_at_end: bool) -> str:
    """Return results with ``is_closed``, ``is_settled`` and ``first_at``.

    ``settles_behind_start``: the stable point, where results of a window that has begun before it keep row and start.
    """
    settled = is_closed if settles_behind_start is None else f"({is_closed} OR window_start < {settles_behind_start})"
    at_end = f"CASE WHEN window_end < {INF} THEN window_end - 1 END"
    first = at_end if is_point_at_end else "window_start"
    return f"SELECT *, {is_closed} AS is_closed, {settled} AS is_settled, {first} AS first_at FROM ({results})"


def emitted(results: str, form: Form, moment: StreamTimes, peers: Sequence[str], *, is_time_bound: bool = False) -> str:
    """Return the results that a form must have emitted. ``peers``: the columns of windows that wait for each other.

    ``is_time_bound``: a result with its own ``result_start`` cannot change when the stable point has passed it (V.F.1).
    """
    return emitted_where(results, condition(form, moment, is_time_bound=is_time_bound), peers)


def condition(form: Form, moment: StreamTimes, *, is_time_bound: bool = False) -> str:
    """Return when a form must have emitted a result, for ``emitted_where``. ``is_time_bound``: as in ``emitted``."""
    return {
        "eager": f"window_start <= {moment.mark}",
        "settled": f"is_settled OR result_start < {moment.stable}" if is_time_bound else "is_settled",
        "watermark": f"coalesce(window_end <= {moment.mark}, FALSE) OR coalesce(first_at < {moment.passed}, FALSE)",
        "final": "is_closed AND (first_open IS NULL OR window_start < first_open)",
    }[form]


def emitted_where(results: str, must: str, peers: Sequence[str]) -> str:
    """Return the results that fulfil a condition over what ``marked`` has, and ``first_open``, the first open window.

    ``peers``: as in ``emitted``.
    """
    partition = f"PARTITION BY {', '.join(peers)}" if peers else ""
    first_open = f"min(window_start) FILTER (WHERE NOT is_closed) OVER ({partition})"
    with_open = f"SELECT *, {first_open} AS first_open FROM ({results})"
    return f"SELECT * EXCLUDE (is_closed, is_settled, first_at, first_open) FROM ({with_open}) WHERE {must}"
