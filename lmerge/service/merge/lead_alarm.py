"""Watches inputs whose stable is held by the bound of the lead: reports them, logs an alarm, and bounds the wait.

The core decides by stable points alone (``core.lead``). It has no clock, so it cannot bound the wait for inputs that
have delivered nothing yet. This module does: before the output's first stable these inputs are awaited for
``lead_wait_s``, and then excused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from lmerge.core.elements import NEG_INF, show_time
from lmerge.core.inputs import InputRole, JoinState
from lmerge.core.merge import InputStatus
from lmerge.service import log
from lmerge.service.merge.stalled_merge import WaitTimer


class LeadAlarm:
    """The watch over the merge ``merge``. ``end_wait`` is called to excuse the inputs that have no stable yet."""

    def __init__(self, merge: str, wait_s: float, end_wait: Callable[[], None]) -> None:
        self.held: dict[str, int] = {}  # the held stable points, by input
        self.alarms = 0
        self._merge = merge
        self._wait_timer = WaitTimer(wait_s, end_wait)

    def look(self, inputs: Iterable[InputStatus]) -> None:
        """Once a turn: log an alarm for newly held stables; begin or end the wait for inputs without a stable."""
        inputs = list(inputs)
        now = {status.name: status.stable_point for status in inputs if status.held}
        for name in now.keys() - self.held.keys():
            self.alarms += 1
            log.event(
                logging.ERROR,
                "stable held",
                merge=self._merge,
                input=name,
                stable_point=show_time(now[name]),
                reason="it is further ahead of the other inputs than lead_max allows",
            )
        for name in self.held.keys() - now.keys():
            log.event(logging.WARNING, "stable no longer held", merge=self._merge, input=name)
        self.held = now
        self._wait_timer.look("without a stable" if now and without_stable(inputs) else None)

    def close(self) -> None:
        """Stop waiting."""
        self._wait_timer.look(None)


def without_stable(inputs: Iterable[InputStatus]) -> list[str]:
    """Return the inputs for which others wait though they have delivered no stable."""
    return [i.name for i in inputs if _takes_part(i) and i.stable_point == NEG_INF]


def behind(inputs: Iterable[InputStatus], name: str) -> list[str]:
    """Return the inputs by which the lead of ``name`` is measured, or could be."""
    inputs = list(inputs)
    point = next(i.stable_point for i in inputs if i.name == name)
    return [i.name for i in inputs if _takes_part(i) and i.name != name and i.stable_point < point]


def _takes_part(status: InputStatus) -> bool:
    return status.role is InputRole.ACTIVE and status.state is JoinState.JOINED and not status.excused
