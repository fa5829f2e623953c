"""What a run does at this moment, seen from another thread: for the message of a run that does not stop.

A user's function may never return. The frames of its thread name the operator that has called it, and cost nothing
while the run goes well.
"""

from __future__ import annotations

import sys
from types import FrameType

from lmerge.replica.feeds import SourceFeed
from lmerge.temporal.operators.operator import PlanOperator


def present_step(thread: int) -> str:
    """Return ``operator 'hours'`` or ``source 'flights'`` for what a thread computes or reads; empty: neither.

    Of a sub-plan in a group it is the operator of the plan. ``thread``: its identifier.
    """
    found = ""
    frame: FrameType | None = sys._current_frames().get(thread)  # noqa: SLF001  (its documented name)
    while frame is not None:
        found = _named(frame.f_locals.get("self")) or found
        frame = frame.f_back
    return found


def _named(place: object) -> str:
    if isinstance(place, SourceFeed):
        return f"source {place.name!r}"
    return f"operator {place.name!r}" if isinstance(place, PlanOperator) else ""
