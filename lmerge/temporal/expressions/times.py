"""Rules of functions of moments and days, in UTC. They round down, also before 1970."""

from __future__ import annotations

from typing import Final

from lmerge.temporal.expressions.arithmetic import OVERFLOW
from lmerge.temporal.expressions.conversions import DAY_MICROSECONDS
from lmerge.temporal.expressions.rules import Request, operation
from lmerge.temporal.expressions.typed import TypedNode
from lmerge.temporal.expressions.typing_rules import DATE, INT, TIMESTAMP

UNITS: Final = {"second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": DAY_MICROSECONDS}


@operation("truncate", parameters=("unit",))
def _truncate(request: Request) -> TypedNode:
    request.require(0, ("timestamp",))
    unit = request.text("unit")
    if unit not in UNITS:
        raise request.refusal(f"{unit!r:.64} is no unit; the units are {', '.join(UNITS)}")
    return request.strict(
        TIMESTAMP,
        "{0} - {0} % {unit}",
        bindings=(("unit", UNITS[unit]), *OVERFLOW),
        after="if {t} < -9223372036854775808: {overflow}({site})",
    )


@operation("hour_of_day")
def _hour_of_day(request: Request) -> TypedNode:
    request.require(0, ("timestamp",))
    return request.strict(INT, "{0} % 86400000000 // 3600000000")


@operation("day_of_week")
def _day_of_week(request: Request) -> TypedNode:
    """Give the number of the day: 1 for Monday, 7 for Sunday. 1970-01-01 was a Thursday."""
    column = request.require(0, ("timestamp", "date")).column
    day = "{0}" if column.type == "date" else "{0} // 86400000000"
    return request.strict(INT, f"({day} + 3) % 7 + 1")


@operation("date_of")
def _date_of(request: Request) -> TypedNode:
    request.require(0, ("timestamp",))
    return request.strict(DATE, "{0} // 86400000000")
