"""Draw a dashboard as Grafana lays it out, from its JSON and the results of its queries, without Grafana.

The picture shows what a reader of the dashboard sees: where each panel stands, its lines, its unit, its thresholds, the
marks. It is for people who check a dashboard, and for the documentation. Called by the tests of the dashboards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final, NamedTuple

import matplotlib
import matplotlib.dates

matplotlib.use("agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

COLUMNS: Final = 24
_DATES: Final[Any] = matplotlib.dates
_CELL_INCHES: Final = (0.55, 0.34)
_COLOURS: Final = {"green": "#56a64b", "yellow": "#e0b400", "red": "#e02f44", "light-blue": "#8ab8ff"}


class Drawn(NamedTuple):
    """A series: its name, and its samples as pairs of a time in seconds and a value."""

    name: str
    samples: Sequence[tuple[float, float]]


def draw(
    dashboard: Any, results: Mapping[int, Sequence[Drawn]], marks: Mapping[str, Sequence[Drawn]], to: Path
) -> None:
    """Draw a dashboard into a PNG file. ``results``: by the number of the panel; ``marks``: by name."""
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"])
    figure = pyplot.figure(figsize=(COLUMNS * _CELL_INCHES[0], rows * _CELL_INCHES[1]), dpi=72)
    colours = {mark["name"]: mark["iconColor"] for mark in dashboard["annotations"]["list"]}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        margins = (0.9, 0.7) if panel["type"] in ("timeseries", "state-timeline") else (0.1, 0.1)
        axes = figure.add_axes(
            (
                (place["x"] + margins[0]) / COLUMNS,
                1 - (place["y"] + place["h"] - 1.8 * margins[1]) / rows,
                (place["w"] - 1.2 * margins[0]) / COLUMNS,
                (place["h"] - 1.3 * margins[1] - 1.0 * (panel["type"] != "row")) / rows,
            )
        )
        _DRAW[panel["type"]](axes, panel, results.get(panel["id"], ()))
        if panel["type"] in ("timeseries", "state-timeline"):
            _marks(axes, {colours[name]: series for name, series in marks.items()})
    figure.savefig(to)
    pyplot.close(figure)


def _row(axes: Axes, panel: Any, _: Sequence[Drawn]) -> None:
    axes.set_axis_off()
    axes.text(0, 0.2, panel["title"], fontsize=13, weight="bold")


def _stat(axes: Axes, panel: Any, series: Sequence[Drawn]) -> None:
    value = series[0].samples[-1][1] if series else None
    axes.set_axis_off()
    axes.add_patch(Rectangle((0, 0), 1, 1, color=_colour_at(panel, value), transform=axes.transAxes))
    axes.set_title(panel["title"], fontsize=9, loc="left")
    text = "no data" if value is None else _with_unit(value, panel)
    axes.text(0.5, 0.5, text, fontsize=20, color="white", ha="center", va="center", transform=axes.transAxes)


def _lines(axes: Axes, panel: Any, series: Sequence[Drawn]) -> None:
    axes.set_title(panel["title"], fontsize=9, loc="left")
    is_stacked = "stacking" in panel["fieldConfig"]["defaults"].get("custom", {})
    if is_stacked and series:
        times = sorted({at for one in series for at, _ in one.samples})
        values = [[dict(one.samples).get(at, 0.0) for at in times] for one in series]
        axes.stackplot([_when(at) for at in times], values, labels=[one.name for one in series], alpha=0.7)
    else:
        for one in series:
            axes.plot([_when(at) for at, _ in one.samples], [value for _, value in one.samples], label=one.name)
    for step in _steps(panel)[1:]:
        axes.axhline(step["value"], color=_COLOURS.get(step["color"], step["color"]), linestyle="--", linewidth=1)
    highest = max((value for one in series for _, value in one.samples), default=0.0)
    limit = max([highest] + ([1.0] if is_stacked else []))
    axes.set_ylim(0, limit * 1.15 or 1.0)  # as Grafana: thresholds above the data do not stretch the axis
    axes.yaxis.set_major_formatter(lambda value, _: _with_unit(value, panel))
    _plain(axes, series)


def _states(axes: Axes, panel: Any, series: Sequence[Drawn]) -> None:
    axes.set_title(panel["title"], fontsize=9, loc="left")
    options = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
    for height, one in enumerate(series):
        for (begin, value), (end, _) in zip(one.samples, one.samples[1:]):
            colour = options[f"{value:.0f}"]["color"]
            axes.barh(
                height, _when(end) - _when(begin), left=_when(begin), height=0.7, color=_COLOURS.get(colour, colour)
            )
        last = options[f"{one.samples[-1][1]:.0f}"]["text"]
        axes.text(_when(one.samples[-1][0]), height, f" {last}", fontsize=7, va="center")
        axes.text(_when(one.samples[0][0]), height, f" {one.name}", fontsize=7, va="center", color="white")
    axes.set_yticks([])
    _plain(axes, ())


def _plain(axes: Axes, series: Sequence[Drawn]) -> None:
    axes.tick_params(labelsize=7)
    if not axes.has_data():
        axes.set_xticks([])
        axes.text(0.5, 0.5, "no data", fontsize=9, ha="center", va="center", transform=axes.transAxes)
        return
    axes.xaxis.set_major_formatter(_DATES.DateFormatter("%H:%M:%S"))
    axes.xaxis.set_major_locator(_DATES.AutoDateLocator(maxticks=6))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    if series:
        axes.legend(fontsize=6, loc="upper left", ncols=3, frameon=False)


def _marks(axes: Axes, marks: Mapping[str, Sequence[Drawn]]) -> None:
    for colour, series in marks.items():
        for at in sorted({one.samples[0][0] for one in series}):
            axes.axvline(_when(at), color=_COLOURS.get(colour, colour), linestyle=":", linewidth=1.2)


def _when(at_s: float) -> Any:
    return _DATES.date2num(datetime.fromtimestamp(at_s, timezone.utc))


def _steps(panel: Any) -> list[Any]:
    return list(panel["fieldConfig"]["defaults"]["thresholds"]["steps"])


def _colour_at(panel: Any, value: float | None) -> str:
    """Return the colour of a value: that of the last threshold that it reaches."""
    if value is None:
        return "#888888"
    reached = [step for step in _steps(panel) if step["value"] is None or value >= step["value"]]
    return _COLOURS.get(reached[-1]["color"], str(reached[-1]["color"]))


def _with_unit(value: float, panel: Any) -> str:
    """Return a value in the unit of its panel, as short as Grafana shows it."""
    unit = panel["fieldConfig"]["defaults"]["unit"]
    if unit == "percentunit":
        return f"{value * 100:.0f} %"
    if unit == "s":
        return f"{value * 1000:.3g} ms" if abs(value) < 1 and value else f"{value:.3g} s"
    size, names = (1024, ("", "Ki", "Mi", "Gi")) if unit in ("bytes", "binBps") else (1000, ("", " K", " M", " G"))
    scale = 0
    while abs(value) >= size and scale < len(names) - 1:
        value, scale = value / size, scale + 1
    suffix = {"bytes": "B", "binBps": "B/s", "cps": "/s"}.get(unit, "")
    return re.sub(r"\.0+$", "", f"{value:.3g}") + names[scale] + suffix


_DRAW: Final = {"row": _row, "stat": _stat, "timeseries": _lines, "state-timeline": _states}
