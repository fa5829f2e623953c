"""The view of `lmerge ps`: one run as a table. Called by the command."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lmerge_controller.local.process_table import ProcessId
from lmerge_controller.local.progress import losses_text, stream_line
from lmerge_controller.local.status_file import LocalStatus

ALARM: Final = "bold red"
EVENTS_SHOWN: Final = 5


def run_view(status: LocalStatus, supervisor: ProcessId | None, now_s: float) -> Group:
    """Return the view of one run at ``now_s``. ``supervisor``: None if it has died."""
    head = Text(f"{status.query}: ", style="bold")
    if supervisor is None:
        head.append("its supervisor has died; lmerge up goes on, lmerge down ends it", ALARM)
    elif status.is_true("Available"):
        head.append(f"{stream_line(status)}; {losses_text(status)}")
    else:
        head.append(f"no stream: {status.condition('Available')['message']}", ALARM)
    parts: list[Any] = [head]
    for condition in status.conditions:
        if condition["type"] in ("Progressing", "Degraded") and condition["status"] == "True":
            parts.append(Text(f"{condition['type'].lower()}: {condition['message']}", ALARM))
    parts.append(_table(status, now_s))
    parts += [Text(f"{_age(now_s - event.at_s)} ago: {event.text}") for event in status.events[-EVENTS_SHOWN:]]
    return Group(*parts, Text())


def _table(status: LocalStatus, now_s: float) -> Table:
    table = Table()
    for name in ("process", "version", "state", "pid", "for", "starts"):
        table.add_column(name, justify="right" if name in ("pid", "for", "starts") else "left")
    for process in status.processes:
        table.add_row(
            process["name"],
            process["version"],
            _state(process, status),
            "" if process["pid"] is None else str(process["pid"]),
            _age(now_s - process["since"]) if process["since"] else "",
            str(process["starts"]),
        )
    return table


def _state(process: Any, status: LocalStatus) -> Text:
    if process["phase"] == "waiting":
        return Text(f"waiting: {process['problem']}", ALARM)
    if process["kind"] == "replica" and process["phase"] == "running":
        return Text("joined" if process["name"] in status.joined else "running, not joined")
    return Text(process["phase"])


def _age(seconds: float) -> str:
    """Return a duration with its largest unit: ``90 s``, ``15 min``, ``3 h``, ``2 d``."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
