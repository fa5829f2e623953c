"""The heads of the runbook pages. People write what follows; the head is made from the alert, so it is never old."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from monitoring.alerting.alert import Alert, Pace

FOLDER: Final = "docs/runbooks"
SECTIONS: Final = ("What it means", "What to look at", "What to do", "How to provoke it")
_NORMAL: Final = Pace()


def runbook_path(alert: Alert) -> str:
    """Return the path of an alert's page from the repository's root."""
    return f"{FOLDER}/{alert.runbook}.md"


def runbook(alert: Alert, root: Path) -> str:
    """Return the page of an alert: its head as it is now, and the sections that people have written below ``root``."""
    path = root / runbook_path(alert)
    written = path.read_text(encoding="utf-8") if path.is_file() else ""
    _, begin, rest = written.partition("\n## ")
    sections = begin.lstrip("\n") + rest if begin else "\n\n".join(f"## {section}" for section in SECTIONS) + "\n"
    return f"{_head(alert)}\n{sections}"


def _head(alert: Alert) -> str:
    held = "at once" if not alert.for_s else f"after {_NORMAL.held(alert)}"
    condition = _NORMAL.condition(alert).replace(" and ", "\n  and ").replace(" unless ", "\n  unless ")
    return f"# {alert.name}\n\nSeverity: {alert.severity.value}. It fires {held}.\n\n```promql\n{condition}\n```\n"
