"""Durations in microseconds, the unit of moments: names for them, and numbers of them as text, in both directions."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from lmerge.core.elements import INF
from lmerge.temporal.errors import PlanError

Duration: TypeAlias = "int | str"
"""A number of units of time, or text in microseconds: ``1h``, ``30m``, ``500ms``, ``1d12h``, ``-5s``."""

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

UNITS: Final = {"d": DAY, "h": HOUR, "m": MINUTE, "s": SECOND, "ms": 1_000, "us": 1}
"""The units of durations as text."""

_TEXT: Final = re.compile(r"-?(?:[0-9]+(?:ms|us|[dhms]))+")
_PART: Final = re.compile(r"([0-9]+)(ms|us|[dhms])")
_NAMES: Final = {DAY: "DAY", HOUR: "HOUR", MINUTE: "MINUTE", SECOND: "SECOND"}


def show_duration(duration: int) -> str:
    """Return a duration as a query has it: ``90 * MINUTE`` if it is of whole seconds, and a number of units if not."""
    for unit, name in _NAMES.items():
        if duration and duration % unit == 0:
            return name if duration == unit else f"{duration // unit} * {name}"
    return str(duration)


def duration_of(given: object, operator: str, what: str) -> int:
    """Return a duration as a number of units of time. Raises PlanError, which names the operator and ``what``.

    >>> duration_of("1h30m", "shift", "an amount") == 90 * MINUTE
    True
    """
    if not isinstance(given, str):
        return whole_duration(given, operator, what)
    if _TEXT.fullmatch(given) is None:
        advice = f"write '1h', '30m', '500ms' or '1d12h', with the units {', '.join(UNITS)}"
        raise PlanError(f"{operator}: {what} of {given!r:.64} is no duration: {advice}")
    total = sum(int(number) * UNITS[unit] for number, unit in _PART.findall(given))
    if total > INF:
        raise PlanError(f"{operator}: {what} of {given!r:.64} is out of the 64-bit range")
    return -total if given.startswith("-") else total


def whole_duration(given: object, operator: str, what: str) -> int:
    """Return a duration that is a number of units of time. Raises PlanError as ``duration_of``."""
    if isinstance(given, bool) or not isinstance(given, int):
        advice = "it is a whole number of units of time, or text such as '1h'"
        raise PlanError(f"{operator}: {what} of {given!r:.64} is no duration: {advice}")
    if not -INF <= given <= INF:
        raise PlanError(f"{operator}: {what} of {given!r:.64} is out of the 64-bit range")
    return given
