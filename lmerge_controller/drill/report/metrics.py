"""The results of drills as metrics, for node_exporter's textfile collector or a Pushgateway.

A textfile is written again by every run. So the counts and the last success of earlier runs are read from the file that
is there, and go on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lmerge_controller.drill.report.result import DrillResult, DrillStatus

LAST_SUCCESS: Final = "lmerge_drill_last_success_timestamp_seconds"
LAST_RUN: Final = "lmerge_drill_last_run_timestamp_seconds"
FAILED: Final = "lmerge_drill_failed_total"
REFUSED: Final = "lmerge_drill_refused_total"
PAUSE: Final = "lmerge_drill_pause_seconds"
_HELP: Final = {
    LAST_SUCCESS: ("gauge", "When the drill last passed, in seconds since the epoch."),
    LAST_RUN: ("gauge", "When the drill last ended, in seconds since the epoch."),
    FAILED: ("counter", "Runs of the drill that failed."),
    REFUSED: ("counter", "Runs of the drill that were refused, because the loss would not have been survived."),
    PAUSE: ("gauge", "The longest pause of the output around a fault of the last run."),
}
_LINE: Final = re.compile(r'(\w+)\{drill="([a-z0-9-]+)"\} ([0-9.e+-]+)')


@dataclass
class DrillMetrics:
    """Values by metric and drill."""

    values: dict[str, dict[str, float]] = field(default_factory=lambda: {name: {} for name in _HELP})

    def add(self, result: DrillResult) -> None:
        """Take the result of one run."""
        drill = result.scenario.name
        ended_at = result.began_at + result.seconds
        self.values[LAST_RUN][drill] = ended_at
        for name, status in ((FAILED, DrillStatus.FAILED), (REFUSED, DrillStatus.REFUSED)):
            self.values[name][drill] = self.values[name].get(drill, 0.0) + (result.status is status)
        if result.status is DrillStatus.PASSED:
            self.values[LAST_SUCCESS][drill] = ended_at
        if result.verdict is not None:
            self.values[PAUSE][drill] = result.verdict.pauses.largest_ms / 1e3


def report_metrics(results: Sequence[DrillResult], before: str = "") -> str:
    """Return the text of the metrics. ``before``: the text of the file that is there."""
    metrics = DrillMetrics()
    for name, drill, value in _LINE.findall(before):
        if name in metrics.values:
            metrics.values[name][drill] = float(value)
    for result in results:
        metrics.add(result)
    return "".join(_family(name, metrics.values[name]) for name in _HELP)


def _family(name: str, values: Mapping[str, float]) -> str:
    kind, text = _HELP[name]
    lines = [f"# HELP {name} {text}\n", f"# TYPE {name} {kind}\n"]
    return "".join(lines + [f'{name}{{drill="{drill}"}} {value!r}\n' for drill, value in sorted(values.items())])
