"""When a merge stands still for ever: active inputs, none of them joined, and nobody who could move it to their times.

So it is when all joined inputs are gone and those that came, or stayed, know nothing of the time in between. A merge
that has said no stable point yet can go on at once. Another one waits ``after_s`` for somebody who knows more, and
then accepts a gap: it *begins anew*, as after a restart without a store. All streams end with ``OutputGap``, a fresh
merge takes the place, right from the earliest join_at on, and the first input that attaches again begins it with its
live events; if it knows only later times, the merge begins there.

Nothing less is right. The old merge has half frozen events that the inputs left do not know, as they ended in the gap:
its output would hold them open for ever, or would have to invent an end. A fresh merge has said nothing that it would
have to stand by, and its stable point goes back to the beginning as that of a restarted server does, which publishers
and subscribers know how to live with. The fence of incarnations stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lmerge.core.elements import show_time
from lmerge.errors import OutputGap


def gap_error(merge: str, stable_point: int, join_at: int) -> OutputGap:
    """Why a merge that was at ``stable_point`` begins anew. ``join_at``: the earliest of its joining inputs."""
    return OutputGap(
        f"merge {merge!r} begins anew: what ended between {show_time(stable_point)} and {show_time(join_at)} may "
        "be missing, as no input that is left could tell it; attach or subscribe again"
    )


class WaitTimer:
    """Waits ``after_s`` of the loop's time for one thing, then calls ``end`` once."""

    def __init__(self, after_s: float, end: Callable[[], None]) -> None:
        self._after_s = after_s
        self._end = end
        self._awaited: object | None = None
        self._timer: asyncio.TimerHandle | None = None

    def look(self, awaited: object | None) -> None:
        """This is waited for from now on, if it was not before; None: nothing is."""
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
    """Waits ``after_s`` of the loop's time, then calls ``end`` once."""

    def __init__(self, after_s: float, end: Callable[[], None]) -> None:
        self._wait_timer = WaitTimer(after_s, end)

    def look(self, stands_still: bool) -> None:
        """The merge stands still, or it does not, from now on."""
        self._wait_timer.look("somebody who knows more" if stands_still else None)

    def close(self) -> None:
        """Wait no more."""
        self._wait_timer.look(None)
