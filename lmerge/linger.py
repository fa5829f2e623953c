"""The wait for more elements before a message is made: longer where messages take long.

A message costs the same CPU time however few elements it holds, so a sender waits a little for more of them. On a
machine that is short of CPU every message takes long, and a fixed wait makes it worse: each late message takes time
from the next one, and latency grows without a bound although fewer, larger messages would do. So a sender waits as
long as its last messages took, up to a bound: making them takes at most half of its time. A longer wait makes all of
them later, on a busy machine too.
"""

from __future__ import annotations

from typing import Final

# The time is averaged over about this many messages: one that was held up once is no reason to wait.
MESSAGES_AVERAGED: Final = 8


class Linger:
    """The wait of one sender, in seconds: at least ``least_s``, and at most ``most_s`` where messages take long."""

    def __init__(self, least_s: float, most_s: float) -> None:
        self._least_s = least_s
        self._most_s = most_s
        self._taken_s = 0.0

    @property
    def seconds(self) -> float:
        """The wait before the next message."""
        return max(self._least_s, self._taken_s)

    def took(self, seconds: float) -> None:
        """Record that a message took ``seconds``."""
        self._taken_s += (min(seconds, self._most_s) - self._taken_s) / MESSAGES_AVERAGED
