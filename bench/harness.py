"""Shared by all benchmarks: options, repeats, median and spread, the machine, raw JSON and plots.

A figure and those that it is compared with come from one run: ``BenchReport`` prints ratios only of its own rows.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

RESULTS = Path(__file__).parent / "results"

# One colour for a thing in all plots, by the first of these texts that stands in the name of a line as whole words.
COLORS: Final = {
    "without a merge": "#7f7f7f",
    "nothing": "#7f7f7f",
    "raw gRPC": "#7f7f7f",
    "without": "#7f7f7f",
    "output": "#1f3a93",
    "lmerge": "#1f3a93",
    "merged": "#1f3a93",
    "cleanse": "#bcbd22",  # above the algorithms: its lines name one too
    "r0": "#9467bd",
    "r1": "#8c564b",
    "r2": "#e377c2",
    "r3-": "#c7c7c7",
    "r3": "#1f77b4",
    "r4": "#ff7f0e",
    "s1": "#d62728",
    "s2": "#ff9896",
    "reader": "#17becf",
}
REPLICA_COLORS: Final = {"a": "#2ca02c", "b": "#98df8a", "c": "#637939"}  # by the whole name of a line
# For all other lines, in the order of their names; none of them is above.
OTHER_COLORS: Final = (
    "#b279a2",
    "#72b7b2",
    "#eeca3b",
    "#e45756",
    "#8ca252",
    "#9d755d",
    "#6baed6",
    "#bd9e39",
    "#ad494a",
    "#a55194",
    "#31a354",
    "#fdae6b",
)
MARKERS: Final = "osD^vP*X<>"

PERCENT: Final = "%"


def percent_less(values: list[float], than: list[float]) -> list[float]:
    """Return by how many per cent the value of each round is less than that of the same round of ``than``."""
    return [100 * (1 - value / other) for value, other in zip(values, than, strict=True)]


def percent_more(values: list[float], than: list[float]) -> list[float]:
    """Return by how many per cent it is more."""
    return [-less for less in percent_less(values, than)]


@dataclass
class Measured:
    """Repeats of one figure."""

    name: str
    values: list[float]
    unit: str

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def spread(self) -> float:
        """The range of the values: (max - min) / median."""
        return (max(self.values) - min(self.values)) / self.median if self.median else 0.0

    @property
    def shown_spread(self) -> str:
        """The spread in words. A percentage can be near 0, so that its lowest and highest values are shown."""
        if self.unit == PERCENT:
            return f"from {min(self.values):.1f} to {max(self.values):.1f}"
        return f"spread {self.spread:.0%}"


@dataclass
class BenchReport:
    """The results of one run of one benchmark."""

    question: str
    rows: list[Measured] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, values: list[float], unit: str) -> Measured:
        """Add a row and print it."""
        measured = Measured(name, values, unit)
        self.rows.append(measured)
        print(f"  {name:<56} {measured.median:>14,.6g} {unit:<12} {measured.shown_spread} of {len(values)}", flush=True)
        return measured

    def note(self, text: str) -> None:
        """Add a note, such as a ratio or a verdict against a target, and print it."""
        self.notes.append(text)
        print(f"  {text}", flush=True)

    def save(self, name: str) -> None:
        """Write the results as JSON to bench/results."""
        RESULTS.mkdir(exist_ok=True)
        document: dict[str, Any] = {
            "question": self.question,
            "command": f"python -m bench.{name}",
            "machine": machine(),
            "rows": [{"name": r.name, "unit": r.unit, "median": r.median, "values": r.values} for r in self.rows],
            "notes": self.notes,
        }
        (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


@dataclass
class Panel:
    """One diagram of a plot. A line has measured values at each x. It is drawn through the medians, with error bars."""

    title: str
    x: str
    y: str
    lines: dict[str, dict[float, Measured]] = field(default_factory=dict)
    log: str = ""  # axes with a logarithmic scale: "", "x", "y" or "xy"
    is_plain: bool = False  # lines without marks: for many points

    def add(self, line: str, x: float, measured: Measured) -> None:
        self.lines.setdefault(line, {})[x] = measured

    def add_repeats(self, line: str, measured: Measured) -> None:
        """Add each repeat as a point, one after another."""
        for at, value in enumerate(measured.values, 1):
            self.add(line, at, Measured(measured.name, [value], measured.unit))


def plot(name: str, title: str, panels: list[Panel], columns: int = 2) -> None:
    """Write a PNG to bench/results, beside the JSON of that name."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = -(-len(panels) // columns)
    size = (6.5 * columns, 4.6 * rows)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    figure.suptitle(title)
    looks = looks_of({label for panel in panels for label in panel.lines})
    for panel, axis in zip(panels, axes.flat, strict=False):
        for label, line in panel.lines.items():
            points = sorted(line.items())
            middle = [measured.median for _, measured in points]
            below = [measured.median - min(measured.values) for _, measured in points]
            above = [max(measured.values) - measured.median for _, measured in points]
            color, marker = looks[label]
            axis.errorbar(
                [x for x, _ in points],
                middle,
                [below, above],
                label=label,
                color=color,
                marker="" if panel.is_plain else marker,
                markersize=5,
                fillstyle="none",
                linewidth=1.2,
                capsize=0 if panel.is_plain else 2,
                linestyle="--" if "Python" in label else "-",
            )
        axis.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
        axis.set_xscale("log" if "x" in panel.log else "linear")
        axis.set_yscale("log" if "y" in panel.log else "linear")
        if "y" not in panel.log:
            axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    lines = {label: line for axis in axes.flat for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(lines.values(), lines, loc="outside right center", fontsize=7, frameon=False)  # beside the data
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / f"{name}.png", dpi=110)
    pyplot.close(figure)


def looks_of(labels: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the colour and the mark of each line of a plot. A thing of ``COLORS`` looks the same in all plots."""
    looks, others = {}, 0
    for at, label in enumerate(sorted(labels)):
        named = (color for text, color in COLORS.items() if re.search(rf"(?<!\w){re.escape(text)}(?!\w)", label))
        color = REPLICA_COLORS.get(label) or next(named, None)
        if color is None:
            color = OTHER_COLORS[others % len(OTHER_COLORS)]
            others += 1
        looks[label] = color, MARKERS[at % len(MARKERS)]
    return looks


def bench_parser(document: str | None, name: str, quick: str = "") -> argparse.ArgumentParser:
    """Return a parser for ``python -m bench.NAME``.

    Its ``--help`` prints ``document``, the module's docstring, which begins with its question, and the options.
    ``quick``: how much ``--quick`` measures, which every benchmark has; it writes nothing.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.{name}", description=document, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if quick:
        parser.add_argument("--quick", action="store_true", help=f"{quick}; nothing is written")
    return parser


def exit_on_help(document: str | None) -> None:
    """Print ``document`` and exit if the first argument asks for help: for modules that run as helper processes."""
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print((document or "").strip())
        sys.exit(0)


def begin(question: str) -> BenchReport:
    """Print the question and the machine, and return a report."""
    print(f"{question}\n  {', '.join(f'{key} {value}' for key, value in machine().items())}", flush=True)
    return BenchReport(question)


def machine() -> dict[str, str]:
    """Return the properties of the machine and the commit that the figures depend on."""
    cpu = (
        next(
            (
                line.split(":", 1)[1].strip()
                for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")
            ),
            platform.processor(),
        )
        if Path("/proc/cpuinfo").exists()
        else platform.processor()
    )
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "cpu": cpu,
        "cores": str(os.cpu_count()),
        "python": sys.version.split()[0],
        "system": platform.system(),
        "commit": commit.stdout.strip() or "none",
    }


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds that ``work`` takes, after a garbage collection."""
    gc.collect()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def cpu_timed(work: Callable[[], Any]) -> float:
    """Return the CPU seconds of one thread that ``work`` takes, which other load on the machine changes less."""
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began
