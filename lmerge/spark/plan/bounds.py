"""Lower bounds of times, and how expressions change them.

A bound is how far below the watermark a value can still be in rows that come out later. ``lateness`` finds the bounds
of a plan's columns, operator by operator. This module derives those of the expressions of a projection. A value without
a certain bound is Unknown, with the reason, because the error of a stable point that is too early would show only weeks
later, in a merge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from lmerge.spark.plan.tree import Expr

# Longer intervals are counted in days of the session's time zone, which differ in length.
FIXED_INTERVAL_US_MAX: Final = 86_400_000_000
SESSION_WINDOW: Final = -1


@dataclass(frozen=True)
class Bound:
    """``t > W(N) - lag_us`` for every row after batch N (``>=`` where not ``strict``), or t is null. W: the watermark.

    Of a window it is the bound of its END, as Spark uses it, and ``window_us`` is its length (SESSION_WINDOW: not
    fixed). ``exact``: one of Spark's operators drops, or refuses, rows below it. ``reason``: why it holds.
    """

    lag_us: int
    strict: bool
    exact: bool
    reason: str
    window_us: int | None = None


@dataclass(frozen=True)
class Unknown:
    """There is no bound. ``why``: the reason."""

    why: str


BoundOrUnknown: TypeAlias = Bound | Unknown
# The bound of a null literal, which is no time at all.
NEVER: Final = Bound(-(2**62), True, True, "null")


class OperatorBounds(NamedTuple):
    """The bounds of an operator's output by attribute, and the watermark behind the operator.

    ``watermark_lag_us``: how far that watermark is behind W; None where there is no watermark. ``either``: sets of
    attributes that are never null, of which at least one keeps the bound.
    """

    bounds: Mapping[int, BoundOrUnknown]
    watermark_lag_us: int | Unknown | None
    either: tuple[tuple[frozenset[int], Bound], ...] = ()


def bound_of(e: Expr, flow: OperatorBounds) -> BoundOrUnknown:
    """Return a lower bound of the value of ``e``, in microseconds of event time."""
    if e.kind == "AttributeReference":
        assert e.expr_id is not None
        return flow.bounds.get(e.expr_id, Unknown(f"{e.name} is not an event time that a watermark follows"))
    if e.kind == "Literal":
        return NEVER if e.value is None else Unknown(f"{e.sql} is a constant")
    if _is_same(e) or (e.kind == "Cast" and e.children[0].type == "void"):
        return bound_of(e.children[0], flow)
    rule = _FUNCTIONS.get(e.kind)
    return rule(e, flow) if rule is not None else Unknown(f"{e.sql:.200} has no derivable earliest value")


def weakest(parts: Iterable[BoundOrUnknown]) -> BoundOrUnknown:
    """Return the bound of a value that is one of ``parts``."""
    bounds: list[Bound] = []
    for part in parts:
        if isinstance(part, Unknown):
            return part
        if part is not NEVER:
            bounds.append(part)
    if not bounds:
        return NEVER
    furthest = max(bounds, key=lambda b: (b.lag_us, not b.strict))
    return replace(furthest, exact=all(b.exact for b in bounds))


def later_by(bound: BoundOrUnknown, shift_us: int, reason: str) -> BoundOrUnknown:
    """Return the bound of a time that is ``shift_us`` later (earlier, if negative)."""
    if isinstance(bound, Unknown) or bound is NEVER:
        return bound
    return replace(bound, lag_us=bound.lag_us - shift_us, reason=f"{bound.reason}; {reason}", window_us=None)


def interval_us(e: Expr) -> int | None:
    """Return a constant interval in microseconds; None for months, days (of no fixed length), or no constant."""
    if e.kind == "UnaryMinus":
        inner = interval_us(e.children[0])
        return None if inner is None else -inner
    if e.kind != "Literal" or not e.type.startswith("interval") or not isinstance(e.value, int):
        return None
    return e.value if abs(e.value) < FIXED_INTERVAL_US_MAX and "month" not in e.type else None


def shifted(e: Expr) -> tuple[Expr, int] | None:
    """Return (inner, microseconds) where ``e`` is a time plus a constant, otherwise None."""
    if e.kind in ("TimeAdd", "TimestampAddInterval"):
        shift_us = interval_us(e.children[1])
        return None if shift_us is None else (e.children[0], shift_us)
    if e.kind in ("Add", "Subtract") and e.type == "bigint" and isinstance(e.children[1].value, int):
        value = e.children[1].value
        return e.children[0], value if e.kind == "Add" else -value
    return (e.children[0], 0) if _is_same(e) else None


def window_us(e: Expr) -> int | None:
    """Return the length of the window that ``e`` builds as Spark's analyzer does; None if it is built otherwise."""
    e = _bare(e)
    if e.kind != "CreateNamedStruct" or len(e.children) != 4:
        return None
    start, end = _bare(e.children[1]), _bare(e.children[3])
    if end.kind != "Add" or end.children[0].sql != start.sql or not isinstance(end.children[1].value, int):
        return None
    return end.children[1].value


def duration(us: int) -> str:
    """Return a length of time as text."""
    for unit_us, unit in ((3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1_000, "ms")):
        if us and us % unit_us == 0:
            return f"{us // unit_us} {unit}"
    return f"{us} us"


def _is_same(e: Expr) -> bool:
    """Whether ``e`` is the value of its child. A cast of a timestamp to one without a zone would move it."""
    return e.kind in _SAME or (e.kind == "Cast" and e.type == e.children[0].type)


def _bare(e: Expr) -> Expr:
    while _is_same(e):
        e = e.children[0]
    return e


def _field(e: Expr, flow: OperatorBounds) -> BoundOrUnknown:
    window = bound_of(e.children[0], flow)
    if isinstance(window, Unknown) or window.window_us is None:
        return window if isinstance(window, Unknown) else Unknown(f"{e.sql} is not a part of a window")
    if e.name == "end":
        return replace(window, window_us=None)
    if e.name != "start":
        return Unknown(f"{e.sql} is neither start nor end of a window")
    if window.window_us == SESSION_WINDOW:
        return Unknown(
            f"{e.sql} is the start of a session, which can be of any length: the gap limits how long a session is "
            "silent, not how long it lasts; its end has a bound"
        )
    reason = f"{e.sql} is {duration(window.window_us)} before its end"
    return later_by(window, -window.window_us, reason)


def _shift(e: Expr, flow: OperatorBounds) -> BoundOrUnknown:
    parts = shifted(e)
    if parts is None:
        return Unknown(f"{e.sql:.200} adds something that is not a constant of fixed length")
    inner, shift_us = parts
    return later_by(bound_of(inner, flow), shift_us, f"{e.sql:.200} moves it by {duration(shift_us)}")


def _truncated(e: Expr, flow: OperatorBounds) -> BoundOrUnknown:
    unit_us = {"SECOND": 1_000_000, "MINUTE": 60_000_000}.get(str(e.children[0].value).upper())
    if unit_us is None:
        return Unknown(f"{e.sql} cuts off a part whose length differs between time zones; use a window")
    return later_by(bound_of(e.children[1], flow), -unit_us, f"{e.sql} cuts off less than {duration(unit_us)}")


def _one_of(e: Expr, flow: OperatorBounds) -> BoundOrUnknown:
    return weakest(bound_of(child, flow) for child in e.children)


def _case(e: Expr, flow: OperatorBounds) -> BoundOrUnknown:
    # Condition, value, condition, value, ..., and perhaps the else value.
    values = [child for i, child in enumerate(e.children) if i % 2 or i == len(e.children) - 1]
    return weakest(bound_of(value, flow) for value in values)


def _if(e: Expr, flow: OperatorBounds) -> BoundOrUnknown:
    return weakest(bound_of(value, flow) for value in e.children[1:])


def _greatest(e: Expr, flow: OperatorBounds) -> BoundOrUnknown:
    ids = {child.expr_id for child in e.children if child.kind == "AttributeReference"}
    for attributes, bound in flow.either:
        if attributes <= ids:
            return bound
    # greatest() skips nulls, so the value can be any one of them.
    return _one_of(e, flow)


# The same value, or its conversion between a timestamp and its microseconds.
_SAME: Final = frozenset(
    {
        "Alias",
        "PreciseTimestampConversion",
        "KnownNullable",
        "KnownNotNull",
        "KnownNonNullable",
        "UnixMicros",
        "MicrosToTimestamp",
        "DatetimeSub",
    }
)
_FUNCTIONS: Final[dict[str, Callable[[Expr, OperatorBounds], BoundOrUnknown]]] = {
    "GetStructField": _field,
    "TimeAdd": _shift,
    "TimestampAddInterval": _shift,
    "Add": _shift,
    "Subtract": _shift,
    "TruncTimestamp": _truncated,
    "Least": _one_of,
    "Coalesce": _one_of,
    "Greatest": _greatest,
    "CaseWhen": _case,
    "If": _if,
}
