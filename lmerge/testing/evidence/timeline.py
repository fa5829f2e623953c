"""Lifetimes drawn as text: one line an event, from its start to its end, all on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from lmerge.core.elements import INF, NEG_INF, show_time

WIDTH: Final = 60
LINES_MAX: Final = 40


class DrawnEvent(NamedTuple):
    """An event to be drawn. ``mark``: a character before it, such as ``+``; ``ve`` None: it goes on."""

    mark: str
    label: str
    vs: int
    ve: int | None


def timeline(events: Sequence[DrawnEvent], stable: int | None = None) -> str:
    """Return the events as text, in their order, with the scale below. ``stable``: a time that is marked by ``!``."""
    shown = events[:LINES_MAX]
    times = {t for one in shown for t in (one.vs, one.ve) if t is not None and NEG_INF < t < INF}
    if stable is not None and NEG_INF < stable < INF:
        times.add(stable)
    if not times:
        times = {0}
    first, last = min(times), max(times)
    scale = _Scale(first, max(last, first + 1))
    width = min(28, max((len(one.label) for one in shown), default=0))
    lines = [f"{one.mark} {one.label[:width]:<{width}} {scale.bar(one)}" for one in shown]
    if len(events) > len(shown):
        lines.append(f"  ... and {len(events) - len(shown)} more")
    lines.append(f"  {'':<{width}} {scale.axis(stable)}")
    return "\n".join(lines)


class _Scale:
    """Maps times to columns; the infinities stand outside of both ends."""

    def __init__(self, first: int, last: int) -> None:
        self._first, self._last = first, last

    def column(self, t: int) -> int:
        """Return the column of a time."""
        if t == NEG_INF:
            return 0
        if t == INF:
            return WIDTH + 1
        return 1 + (t - self._first) * (WIDTH - 1) // (self._last - self._first)

    def bar(self, one: DrawnEvent) -> str:
        """Return the line of an event: ``[--)``, with ``<`` and ``>`` at the infinities, ``...`` where it goes on."""
        start, end = self.column(one.vs), self.column(INF if one.ve is None else one.ve)
        opening = "<" if one.vs == NEG_INF else "["
        closing = "..." if one.ve is None else ">" if one.ve == INF else ")"
        bar = opening + "-" * max(0, end - start - 1) + closing
        times = f"{show_time(one.vs)}, {'...' if one.ve is None else show_time(one.ve)}"
        return f"{' ' * start + bar:<{WIDTH + 4}} {times}"

    def axis(self, stable: int | None) -> str:
        """Return the scale, with the stable point if it is finite."""
        line = list(" " + "." * WIDTH)
        if stable is not None and NEG_INF < stable < INF:
            line[self.column(stable)] = "!"
        note = f" ! stable({show_time(stable)})" if stable is not None and NEG_INF < stable < INF else ""
        return f"{''.join(line)}  {self._first} to {self._last}{note}"
