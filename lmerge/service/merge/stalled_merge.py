"""Ends the standstill of a merge: it has active inputs, none has joined, and no input can move it to their times.

A merge stalls when all joined inputs have ended, and the inputs that are left, or came since, have nothing of the time
in between. A merge that has emitted no stable point can continue at once. Any other one waits ``after_s`` for an input
that has the missing time. Then it accepts a gap and *begins anew*, as after a restart without a store:

1. All streams end with ``OutputGap``.
2. A fresh merge takes the place. Its output is right from the earliest join_at on.
3. The first input that attaches again starts the fresh merge with its live events. If that input has only later times,
   the merge begins at those.

A smaller step would be wrong. The old merge has half frozen events that ended in the gap, so the inputs that are left
do not have them. Its output would hold these events open for ever, or would have to invent an end. A fresh merge has
emitted nothing that it must not contradict. Its stable point goes back to the beginning, like that of a restarted
server, which publishers and subscribers can handle. The fence of incarnations stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lmerge.core.elements import show_time
from lmerge.errors import OutputGap


def gap_error(merge: str, stable_point: int, join_at: int) -> OutputGap:
    """Return the error with which a merge that was at ``stable_point`` begins anew.

    ``join_at``: the earliest one of its joining inputs.
    """
    return OutputGap(
        f"merge {merge!r} begins anew: what ended between {show_time(stable_point)} and {show_time(join_at)} may "
        "be missing, as no input that is left could deliver it; attach or subscribe again"
    )


class WaitTimer:
    """Waits ``after_s`` of the loop's time for one thing, then calls ``end`` once."""

    def __init__(self, after_s: float, end: Callable[[], None]) -> None:
        self._after_s = after_s
        self._end = end
        self._awaited: object | None = None
        self._timer: asyncio.TimerHandle | None = None

    def look(self, awaited: object | None) -> None:
        """Wait for ``awaited`` from now on, unless that wait has begun already. None: wait for nothing."""
        if awaited == self._awaited:
            return
        self._awaited = awaited
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if awaited is not None:
            self._timer = asyncio.get_running_loop().call_later(self._after_s, self._over)

    def _over(self) -> None:
        self._timer, self._awaited = None, None
        self._end()


class StandstillTimer:
    """Calls ``end`` once when the merge has been stalled for ``after_s`` of the loop's time."""

    def __init__(self, after_s: float, end: Callable[[], None]) -> None:
        self._wait_timer = WaitTimer(after_s, end)

    def look(self, stands_still: bool) -> None:
        """Note whether the merge is stalled from now on."""
        self._wait_timer.look("an input that has the missing time" if stands_still else None)

    def close(self) -> None:
        """Stop waiting."""
        self._wait_timer.look(None)
