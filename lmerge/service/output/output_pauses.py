"""The pauses of one merge's output: the time between two messages to subscribers.

``Fanout`` notes each message when it is released. The status page takes the longest pause of each of its samples.
"""

from __future__ import annotations


class OutputPauses:
    """The pauses of one output. Times are seconds of the loop's clock."""

    def __init__(self) -> None:
        self.last_at_s: float | None = None  # None: there was no output yet
        self._longest_s = 0.0  # of the pauses that have ended since the last ``take``

    def note(self, now_s: float) -> None:
        """Note output of now."""
        if self.last_at_s is not None and now_s - self.last_at_s > self._longest_s:
            self._longest_s = now_s - self.last_at_s
        self.last_at_s = now_s

    def take(self, now_s: float) -> float | None:
        """Return the longest pause, in seconds, since the last call. The one that goes on counts, from its beginning.

        None: there was no output yet.
        """
        if self.last_at_s is None:
            return None
        longest_s, self._longest_s = max(self._longest_s, now_s - self.last_at_s), 0.0
        return longest_s
