"""Computes distributions of stalls from the times of output and of faults.

The stall of a fault is the longest time without output that begins in the window from the fault to one second after it,
or to the next fault if that comes sooner. Of a gap that has begun before the fault, only the part after the fault
counts. So each stall belongs to one fault. ``CONTROL`` is a fault that breaks nothing: its stalls are those of the
machine.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from bench.harness import BenchReport, Measured, Panel

WINDOW_S = 1.0
CONTROL = "nothing (control)"
POINTS = 60  # of a plotted distribution


@dataclass(frozen=True)
class InjectedFault:
    """A fault at monotonic time ``at_s``. ``whole_s``: seconds until all had joined again."""

    kind: str
    victim: str
    at_s: float
    whole_s: float = 0.0


def stall_ms(arrivals: Sequence[float], since_s: float, until_s: float) -> float:
    """Return the longest time without an arrival that begins in the window; ``arrivals`` ascend."""
    first, last = bisect_left(arrivals, since_s), bisect_left(arrivals, until_s)
    return (
        max((after - before for before, after in pairwise([since_s, *arrivals[first : last + 1]])), default=0.0) * 1e3
    )


def stalls_of(
    arrivals: Sequence[float], faults: Sequence[InjectedFault], window_s: float = WINDOW_S
) -> dict[str, list[float]]:
    """Return the stalls in milliseconds by kind of fault, in order of time."""
    found: dict[str, list[float]] = {}
    for fault, following in zip(faults, [*faults[1:], None]):
        until_s = fault.at_s + window_s
        if following is not None:
            until_s = min(until_s, following.at_s)
        found.setdefault(fault.kind, []).append(stall_ms(arrivals, fault.at_s, until_s))
    return found


def percentile(values: Sequence[float], part: float) -> float:
    """Return the smallest value that ``part`` of all values do not exceed."""
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


def add_rows(report: BenchReport, what: str, values: list[float]) -> None:
    """Add p50, p99 and the largest of a distribution to the report."""
    report.add(f"{what} ({len(values):,}): p50", [median(values)], "ms")
    report.add(f"{what} ({len(values):,}): p99", [percentile(values, 0.99)], "ms")
    report.add(f"{what} ({len(values):,}): largest", [max(values)], "ms")


def add_distribution(panel: Panel, line: str, values: Sequence[float]) -> None:
    """Add the part of the values that exceed x, which shows the rare long ones."""
    ordered = sorted(values)
    count = len(ordered)
    steps = sorted({min(int(count * (1 - 10 ** (-3.2 * at / POINTS))), count - 1) for at in range(POINTS + 1)})
    for at in (*steps, count - 1):
        panel.add(line, max(ordered[at], 0.1), Measured(line, [(count - at) / count], ""))


def verdict(report: BenchReport, what: str, values: Sequence[float], target_ms: float) -> bool:
    """Return whether the p99 is within the target, and note it in the report."""
    reached = percentile(values, 0.99)
    report.note(
        f"target {what}: p99 <= {target_ms:g} ms: {'reached' if reached <= target_ms else 'MISSED'} "
        f"({reached:.1f} ms over {len(values):,})"
    )
    return reached <= target_ms


def cpu_seconds() -> tuple[float, float]:
    """Return the seconds of all cores since the start of the machine: (all, idle). (0, 0) if they cannot be read."""
    try:
        fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return 0.0, 0.0
    return sum(fields) / os.sysconf("SC_CLK_TCK"), (fields[3] + fields[4]) / os.sysconf("SC_CLK_TCK")
