"""Writes the reports of drills to files, and to a Pushgateway. A reader finds the whole old report or the new one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lmerge import files
from lmerge.errors import UsageError
from lmerge_controller.drill.report.junit import report_junit
from lmerge_controller.drill.report.metrics import report_metrics
from lmerge_controller.drill.report.page import report_page
from lmerge_controller.drill.report.push import check_gateway, push
from lmerge_controller.drill.report.result import DrillResult


@dataclass(frozen=True)
class ReportFiles:
    """Where the reports go: files, and the URL of a Pushgateway. None: this form is not written."""

    html: Path | None = None
    junit: Path | None = None
    textfile: Path | None = None
    pushgateway: str | None = None

    def check(self) -> None:
        """Raise UsageError, before anything is broken, if a file could not be written at the end."""
        for path in (self.html, self.junit, self.textfile):
            if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
                raise UsageError(f"the report cannot be written to {str(path)!r}: its folder must be there")
        if self.pushgateway is not None:
            check_gateway(self.pushgateway)

    def write(self, results: Sequence[DrillResult]) -> None:
        """Write all forms. Raises OSError, and Unavailable at the end if the gateway has not taken a result."""
        if self.html is not None:
            _write(self.html, report_page(results))
        if self.junit is not None:
            _write(self.junit, report_junit(results))
        if self.textfile is not None:
            before = self.textfile.read_text() if self.textfile.exists() else ""
            _write(self.textfile, report_metrics(results, before))
        if self.pushgateway is not None:
            for result in results:
                push(self.pushgateway, result)


def _write(path: Path, text: str) -> None:
    # Another user's process reads it: a browser, CI, the collector of metrics.
    files.replace(path, text.encode(), sync=False, mode=files.PUBLIC_FILE)
