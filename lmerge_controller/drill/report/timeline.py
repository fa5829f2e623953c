"""The picture of one drill: the pauses of the output over time, with the faults behind them, as inline SVG.

Each point of the curve is the length of the silence in which it lies. So a pause is as wide as it lasted, and as high
on a logarithmic scale: 10 ms and 1 s can both be read. Colours come from the page's variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from math import log10
from typing import Final

from lmerge.wire.shown import escaped_line
from lmerge_controller.drill.judging.verdict import FaultWindow
from lmerge_controller.drill.report.result import DrillResult

WIDTH: Final = 960
HEIGHT: Final = 250
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 40, 30
COLUMNS: Final = WIDTH - LEFT - RIGHT
LEAST_MS: Final = 1.0
STEPS_S: Final = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_800, 3_600)
TICKS_MAX: Final = 12
# Of a label: the width of a character, and the most that are shown. What finds no room is in the table alone.
LABEL_PX: Final = 6.3
LABEL_CHARACTERS_MAX: Final = 26


def silences_ms(arrivals_s: Sequence[float], began_s: float, ended_s: float, columns: int) -> list[float]:
    """Return the longest silence that touches each of ``columns`` equal parts of the time, in milliseconds."""
    points = [began_s, *(at_s for at_s in arrivals_s if began_s < at_s < ended_s), ended_s]
    width_s = max(ended_s - began_s, 1e-9) / columns
    longest = [0.0] * columns
    for before_s, after_s in pairwise(points):
        first = min(int((before_s - began_s) / width_s), columns - 1)
        last = min(int((after_s - began_s) / width_s), columns - 1)
        for column in range(first, last + 1):
            longest[column] = max(longest[column], (after_s - before_s) * 1e3)
    return longest


def timeline_svg(result: DrillResult) -> str:
    """Return the picture of a drill that has a verdict."""
    assert result.verdict is not None
    findings, windows = result.verdict.findings, result.verdict.windows
    # Before the first and after the last element there is no stream that could pause.
    began_s, ended_s = (*findings.arrivals_s[:1], *findings.arrivals_s[-1:]) or (result.began_s, result.ended_s)
    ended_s = min(ended_s, result.stream_ended_s)
    last_s = max([ended_s, *(window.fault.until_s for window in windows)])
    scale = _TimeScale(began_s, max(last_s, began_s + 1.0))
    silences = silences_ms(findings.arrivals_s, scale.began_s, scale.ended_s, COLUMNS)
    limit = result.scenario.limits.pause_ms
    top_ms = max([100.0, *silences, limit or 0.0]) * 1.25
    heights = _PauseScale(top_ms)
    parts = [
        _grid(heights),
        *_faults(windows, scale),
        _curve(silences, heights),
        *([] if limit is None else [_limit(limit, heights)]),
        _axis(scale),
        *_labels(windows, scale),
    ]
    name = _text(result.scenario.name)
    described = _text(
        "; ".join(f"{window.fault.what} {window.fault.victim}: {window.pause_ms:,.0f} ms" for window in windows)
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Pauses of the output during {name}. {described}">'
        f"{''.join(parts)}</svg>"
    )


class _TimeScale:
    """Seconds of the drill to the x axis."""

    def __init__(self, began_s: float, ended_s: float) -> None:
        self.began_s, self.ended_s = began_s, ended_s

    def x(self, at_s: float) -> float:
        part = (at_s - self.began_s) / (self.ended_s - self.began_s)
        return LEFT + COLUMNS * min(max(part, 0.0), 1.0)

    def ticks(self) -> list[float]:
        """Return seconds since the beginning: at most 12 round ones."""
        length_s = self.ended_s - self.began_s
        step = next((step for step in STEPS_S if length_s / step <= TICKS_MAX), STEPS_S[-1])
        return [tick * step for tick in range(int(length_s // step) + 1)]


class _PauseScale:
    """Milliseconds to the y axis, logarithmic."""

    def __init__(self, top_ms: float) -> None:
        self._span = log10(top_ms / LEAST_MS)
        self.top_ms = top_ms

    def y(self, pause_ms: float) -> float:
        part = log10(max(pause_ms, LEAST_MS) / LEAST_MS) / self._span
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * min(part, 1.0)


def _grid(heights: _PauseScale) -> str:
    lines = []
    for power in range(7):
        value = 10.0**power
        if value > heights.top_ms:
            break
        label = f"{value:g} ms" if value < 1000 else f"{value / 1000:g} s"
        y = heights.y(value)
        lines.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        )
    return "".join(lines)


def _faults(windows: Iterable[FaultWindow], scale: _TimeScale) -> Iterable[str]:
    for window in windows:
        fault = window.fault
        left, right = scale.x(fault.at_s), scale.x(fault.until_s)
        title = _text(f"{fault.what} {fault.victim}, {fault.until_s - fault.at_s:.1f} s")
        yield _band("fault", left, max(right - left, 1.5), title)
        if fault.recovered_s is not None and fault.recovered_s > fault.until_s:
            yield _band("recovery", right, scale.x(fault.recovered_s) - right, "until the redundancy was whole again")


def _band(kind: str, x: float, width: float, title: str) -> str:
    height = HEIGHT - BOTTOM - TOP
    place = f'x="{x:.1f}" y="{TOP}" width="{width:.1f}" height="{height}"'
    return f'<rect class="{kind}" {place}><title>{title}</title></rect>'


def _curve(silences: Sequence[float], heights: _PauseScale) -> str:
    """Return the area under the pauses, as steps of one column, without points on a level line."""
    base = HEIGHT - BOTTOM
    path, level = [f"M{LEFT} {base}"], float(base)
    for column, silence in enumerate(silences):
        y = round(heights.y(silence), 1)
        if y != level:
            path.append(f"H{LEFT + column}V{y:g}")
            level = y
    path.append(f"H{LEFT + len(silences)}V{base}Z")
    return f'<path class="pauses" d="{"".join(path)}"/>'


def _limit(limit_ms: float, heights: _PauseScale) -> str:
    y = heights.y(limit_ms)
    right = WIDTH - RIGHT
    return (
        f'<line class="limit" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="limit-text" x="{right}" y="{y - 5:.1f}" text-anchor="end">limit {limit_ms:,.0f} ms</text>'
    )


def _axis(scale: _TimeScale) -> str:
    base = HEIGHT - BOTTOM
    marks = [f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>']
    for tick in scale.ticks():
        x = scale.x(scale.began_s + tick)
        marks.append(f'<text class="tick" x="{x:.1f}" y="{base + 18}" text-anchor="middle">{tick:g} s</text>')
    return "".join(marks)


def _labels(windows: Sequence[FaultWindow], scale: _TimeScale) -> Iterable[str]:
    """Return the names of the faults above the chart, in two lines, as far as there is room."""
    ends = [float(LEFT - 10), float(LEFT - 10)]
    for window in windows:
        x = scale.x(window.fault.at_s)
        text = f"{window.fault.what} {window.fault.victim}"
        text = text.replace("replica replica", "replica")
        shown = (
            text if len(text) <= LABEL_CHARACTERS_MAX else f"{text[: LABEL_CHARACTERS_MAX - 1]}\N{HORIZONTAL ELLIPSIS}"
        )
        width = LABEL_PX * len(shown) + 8
        line = 0 if ends[0] <= x else 1
        if ends[line] > x or x + width > WIDTH:
            continue
        ends[line] = x + width
        yield f'<text class="label" x="{x:.1f}" y="{TOP - 22 + 15 * line}">{_text(shown)}</text>'


def _text(text: str) -> str:
    """Return text from outside for HTML: control characters shown, markup escaped."""
    return escape(escaped_line(text), quote=True)
