"""When the turns of one merge begin: apart, so that each has some output, but at once where work has piled up.

Turns start ``turn_interval_s`` apart. The distance grows with each subscriber, and where turns take long
(``lmerge.linger``). ``hurry`` ends the pause: steps do not wait, and a full turn's worth of elements does not.
"""

from __future__ import annotations

import asyncio

from lmerge.linger import Linger
from lmerge.service.settings import Settings


class TurnPace:
    """The pace of one merge. Its task calls all methods; anything on the same loop may call ``hurry``."""

    def __init__(self, settings: Settings) -> None:
        self._linger = Linger(settings.turn_interval_s, settings.turn_interval_max_s)
        self._per_subscriber_s = settings.turn_interval_per_subscriber_s
        self._hurry = asyncio.Event()
        self._next_s = 0.0  # when the next turn may begin, on the loop's clock
        self._started_s = 0.0

    def hurry(self) -> None:
        """Let the next turn begin without a pause."""
        self._hurry.set()

    async def pause(self) -> None:
        """Wait until the next turn may begin."""
        loop = asyncio.get_running_loop()
        pause_s = self._next_s - loop.time()
        if pause_s > 0 and not self._hurry.is_set():
            timer = loop.call_later(pause_s, self._hurry.set)
            await self._hurry.wait()
            timer.cancel()

    def begin(self) -> None:
        """Note that a turn begins."""
        self._hurry.clear()
        self._started_s = asyncio.get_running_loop().time()

    def end(self, subscribers: int) -> float:
        """Note that the turn has ended; return the seconds that it took. ``subscribers``: how many get its output."""
        took_s = asyncio.get_running_loop().time() - self._started_s
        self._linger.took(took_s)
        self._next_s = self._started_s + max(self._linger.seconds, self._per_subscriber_s * subscribers)
        return took_s
