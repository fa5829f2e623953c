"""When the turns of one merge begin: apart, so that each has some output, and at once where work has piled up.

Turns start ``turn_interval_s`` apart, more for each subscriber, and more where turns take long or the process is late
(``lmerge.linger``). ``hurry`` ends the pause: steps do not wait, and nor does a full turn's worth of elements.
"""

from __future__ import annotations

import asyncio

from lmerge.linger import Linger
from lmerge.service.settings import Settings


class TurnPace:
    """Of one merge, used by its task; ``hurry`` by everybody on the same loop."""

    def __init__(self, settings: Settings) -> None:
        self._linger = Linger(settings.turn_interval_s, settings.turn_interval_max_s)
        self._per_subscriber_s = settings.turn_interval_per_subscriber_s
        self._hurry = asyncio.Event()
        self._next_s = 0.0  # when the next turn may begin, on the loop's clock
        self._late_s = 0.0  # by so much the present one began later than it could have
        self._started_s = 0.0

    def hurry(self) -> None:
        """The next turn begins without a pause."""
        self._hurry.set()

    async def pause(self) -> None:
        """Wait until the next turn may begin."""
        self._late_s = 0.0
        loop = asyncio.get_running_loop()
        pause_s = self._next_s - loop.time()
        if pause_s > 0 and not self._hurry.is_set():
            timer = loop.call_later(pause_s, self._hurry.set)
            await self._hurry.wait()
            timer.cancel()
            self._late_s = max(0.0, loop.time() - self._next_s)

    def begin(self) -> None:
        """A turn begins."""
        self._hurry.clear()
        self._started_s = asyncio.get_running_loop().time()

    def end(self, subscribers: int) -> float:
        """It has ended, and its output goes to so many. Returns the seconds that it took."""
        took_s = asyncio.get_running_loop().time() - self._started_s
        self._linger.took(self._late_s + took_s)
        self._next_s = self._started_s + max(self._linger.seconds, self._per_subscriber_s * subscribers)
        return took_s
