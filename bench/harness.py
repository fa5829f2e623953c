"""What every benchmark shares: repeats, median and spread, the machine, raw JSON beside the table.

A figure and what it is compared with come from one run: ``Report`` prints ratios only between its own rows.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parent / "results"


@dataclass
class Measured:
    """Repeats of one figure. ``unit`` comes last in its name."""

    name: str
    values: list[float]
    unit: str

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def spread(self) -> float:
        """(max - min) / median."""
        return (max(self.values) - min(self.values)) / self.median if self.median else 0.0


@dataclass
class Report:
    """One run of one benchmark."""

    question: str
    rows: list[Measured] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, values: list[float], unit: str) -> Measured:
        measured = Measured(name, values, unit)
        self.rows.append(measured)
        spread = f"spread {measured.spread:.0%} of {len(values)}"
        print(f"  {name:<56} {measured.median:>14,.6g} {unit:<12} {spread}", flush=True)
        return measured

    def note(self, text: str) -> None:
        """A ratio or a verdict against a target."""
        self.notes.append(text)
        print(f"  {text}", flush=True)

    def save(self, name: str) -> None:
        """Raw JSON to bench/results."""
        RESULTS.mkdir(exist_ok=True)
        document: dict[str, Any] = {
            "question": self.question, "command": f"python -m bench.{name}", "machine": machine(),
            "rows": [{"name": r.name, "unit": r.unit, "median": r.median, "values": r.values} for r in self.rows],
            "notes": self.notes,
        }
        (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


def begin(question: str) -> Report:
    """Print the question and the machine."""
    print(f"{question}\n  {', '.join(f'{key} {value}' for key, value in machine().items())}", flush=True)
    return Report(question)


def machine() -> dict[str, str]:
    """What the figures depend on."""
    cpu = next(
        (line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")), platform.processor(),
    ) if Path("/proc/cpuinfo").exists() else platform.processor()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "cpu": cpu, "cores": str(os.cpu_count()), "python": sys.version.split()[0], "system": platform.system(),
        "commit": commit.stdout.strip() or "none",
    }


def timed(work: Callable[[], Any]) -> float:
    """Seconds that ``work`` takes, garbage collected before."""
    gc.collect()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
