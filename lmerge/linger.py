"""The wait for more elements before a message is made: longer where the process is late.

A message costs the same CPU time however few elements it holds, so a sender waits a little for more of them. On a
machine that is short of CPU every message is late, and a fixed wait makes it worse: each late message takes time from
the next one, and latency grows without a bound although fewer, larger messages would do. So the wait grows with the
measured delay of the last messages, up to a bound, and shrinks with it.
"""

from __future__ import annotations

from typing import Final

# A process waits this many times as long as a message takes: making messages then takes at most a fifth of its time.
WAITS_PER_MESSAGE: Final = 4
# The delay is averaged over about this many messages: one that was held up once is no reason to wait.
MESSAGES_AVERAGED: Final = 8


class Linger:
    """The wait of one sender, in seconds: at least ``least_s``, and at most ``most_s`` because of delays."""

    def __init__(self, least_s: float, most_s: float) -> None:
        self._least_s = least_s
        self._most_s = most_s
        self._delay_s = 0.0

    @property
    def seconds(self) -> float:
        """The wait before the next message."""
        return max(self._least_s, min(self._most_s, WAITS_PER_MESSAGE * self._delay_s))

    def took(self, seconds: float) -> None:
        """Record that a message was complete ``seconds`` after its wait was due to end."""
        self._delay_s += (min(seconds, self._most_s) - self._delay_s) / MESSAGES_AVERAGED
