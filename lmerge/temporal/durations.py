"""Durations in microseconds, the unit of moments: names for them, and numbers of them as text."""

from __future__ import annotations

from typing import Final

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

_NAMES: Final = {DAY: "DAY", HOUR: "HOUR", MINUTE: "MINUTE", SECOND: "SECOND"}


def show_duration(duration: int) -> str:
    """Return a duration as a query has it: ``90 * MINUTE`` if it is of whole seconds, and a number of units if not."""
    for unit, name in _NAMES.items():
        if duration and duration % unit == 0:
            return name if duration == unit else f"{duration // unit} * {name}"
    return str(duration)
