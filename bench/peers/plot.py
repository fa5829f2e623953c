"""Draws the result as bars on a logarithmic axis, the slowest at the bottom."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from bench.harness import Measured

OURS, STREAMS, BATCHES = "#c2410c", "#1d4ed8", "#93c5fd"


def draw(rows: list[Measured], batches: frozenset[str], title: str, subtitle: str, path: Path) -> None:
    """Draw the rows. ``batches``: names of the rows that are not streams, in a paler colour."""
    rows = sorted(rows, key=lambda row: row.median)
    figure, axes = plt.subplots(figsize=(9.5, 1.6 + 0.45 * len(rows)), layout="constrained")
    names = [row.name for row in rows]
    medians = [row.median for row in rows]
    errors = [[row.median - min(row.values) for row in rows], [max(row.values) - row.median for row in rows]]
    colours = [OURS if "lmerge" in name else BATCHES if name in batches else STREAMS for name in names]
    axes.barh(names, medians, color=colours, xerr=errors, error_kw={"elinewidth": 1, "capsize": 3, "ecolor": "#111827"})
    for at, row in enumerate(rows):
        axes.annotate(f"{row.median:,.0f}", (max(row.values), at), (6, 0), textcoords="offset points", va="center")
    axes.set_xscale("log")
    axes.set_xlim(min(min(row.values) for row in rows) / 3, max(max(row.values) for row in rows) * 4)
    axes.set_xlabel(f"{rows[0].unit.removesuffix('/s')} of the input a second (median; the line is the range)")
    axes.set_title(f"{title}\n{subtitle}", loc="left", fontsize=11)
    axes.grid(axis="x", which="both", alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    handles = [Rectangle((0, 0), 1, 1, color=colour) for colour in (OURS, STREAMS, BATCHES)]
    labels = ["lmerge", "peer, as a stream", "peer, all at once or keeping all state (not a stream)"]
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)
