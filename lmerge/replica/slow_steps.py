"""Reports a step that does not end: a user's function may never return, and nothing else of the run would show it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

SLOW_STEP_S: Final = 10.0
_log: Final = logging.getLogger(__name__)


class StepWatch:
    """Logs what a run does when a step has taken 10 s, then 20 s, 40 s, and so on; in a thread of its own.

    ``doing``: what the run does at this moment; empty: it waits, which is not logged. ``slow_s``: seconds of the first
    report.
    """

    def __init__(self, doing: Callable[[], str], slow_s: float = SLOW_STEP_S) -> None:
        self._doing, self._slow_s = doing, slow_s
        self._began_s = time.monotonic()
        self._is_running = False
        self._ended = threading.Event()

    def __enter__(self) -> StepWatch:
        self.mark()
        self._is_running = True
        self._ended.clear()
        threading.Thread(target=self._watch, name="slow steps", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_running = False
        self._ended.set()

    def mark(self) -> None:
        """Begin the next step, or the next wait for one."""
        self._began_s = time.monotonic()

    def seconds(self) -> float:
        """Return how long the present step has taken so far; 0 if the run is not running. Any thread may call it."""
        return time.monotonic() - self._began_s if self._is_running else 0.0

    def _watch(self) -> None:
        reported_at_s = self._slow_s
        while not self._ended.wait(self._slow_s / 2):
            took_s = self.seconds()
            if took_s < self._slow_s:
                reported_at_s = self._slow_s
            elif took_s >= reported_at_s and (doing := self._doing()):
                _log.warning("for %.0f s %s", took_s, doing)
                reported_at_s *= 2
