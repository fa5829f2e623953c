"""Names one life of a process: its id and when it started, so that a later process of the same id is not touched.

Called by the targets, which signal processes, and by ``undo``, which does so long after.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Final

# ``ps`` answers within milliseconds; a machine out of memory may take longer.
_PS_S_MAX: Final = 10.0


def mark_of(pid: int) -> str:
    """Return a text that is the same as long as this process lives. Empty: there is no such process."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        fields = stat.read_text().rpartition(") ")[2].split()
    except OSError:
        return "" if Path("/proc/self/stat").exists() else _from_ps(pid)
    return "" if fields[0] == "Z" else fields[19]  # the time after boot at which it started


def is_alive(pid: int, mark: str) -> bool:
    """Return whether the process with this mark still runs."""
    return bool(mark) and mark_of(pid) == mark


def send_signal(pid: int, mark: str, number: signal.Signals) -> bool:
    """Send a signal to this life of a process. Return False if it has ended."""
    if not is_alive(pid, mark):
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _from_ps(pid: int) -> str:
    found = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=_PS_S_MAX, check=False
    )
    return found.stdout.strip()
