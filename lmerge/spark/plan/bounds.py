"""Lower bounds of times, and what expressions make of them.

A bound says how far below the watermark a value can still be in rows that come out later. ``lateness`` finds the bounds
of a plan's columns, operator by operator; here is what the expressions of a projection do to them. Everything that is
not surely known is Unknown with its reason: a stable point that is too early would be found weeks later, by a merge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from lmerge.spark.plan.tree import Expr

# Longer intervals are counted in days of the session's time zone, which are not all of one length.
FIXED_INTERVAL_US_MAX: Final = 86_400_000_000
SESSION_WINDOW: Final = -1


@dataclass(frozen=True)
class Bound:
    """``t > W(N) - lag_us`` for every row after batch N (``>=`` where not ``strict``), or t is null. W: the watermark.

    Of a window it is the bound of its END, as Spark sees it, and ``window_us`` is its length (SESSION_WINDOW: none).
    ``exact``: an operator of Spark drops, or refuses, whatever is below.
    """

    lag_us: int
    strict: bool
    exact: bool
    words: str
    window_us: int | None = None


@dataclass(frozen=True)
class Unknown:
    """No bound, and why."""

    why: str


Known: TypeAlias = Bound | Unknown
# What a null literal is worth: there is no time that it could be.
NEVER: Final = Bound(-(2**62), True, True, "null")


class Flow(NamedTuple):
    """What is known of an operator's output: bounds by attribute, and the watermark that it hands on.

    ``watermark_lag_us``: of the watermark behind the operator against W; None where there is no watermark.
    ``either``: sets of attributes that are never null, of which at least one keeps the bound.
    """

    bounds: Mapping[int, Known]
    watermark_lag_us: int | Unknown | None
    either: tuple[tuple[frozenset[int], Bound], ...] = ()


def bound_of(e: Expr, flow: Flow) -> Known:
    """A lower bound of the value of ``e``, in microseconds of event time."""
    if e.kind == "AttributeReference":
        assert e.expr_id is not None
        return flow.bounds.get(e.expr_id, Unknown(f"{e.name} is no event time that a watermark follows"))
    if e.kind == "Literal":
        return NEVER if e.value is None else Unknown(f"{e.sql} is a constant")
    if _is_same(e) or (e.kind == "Cast" and e.children[0].type == "void"):
        return bound_of(e.children[0], flow)
    rule = _FUNCTIONS.get(e.kind)
    return rule(e, flow) if rule is not None else Unknown(f"of {e.sql:.200} no earliest value can be told")


def weakest(parts: Iterable[Known]) -> Known:
    """What holds for a value that is one of ``parts``."""
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


def later_by(known: Known, shift_us: int, words: str) -> Known:
    """The bound of a time that is ``shift_us`` later (earlier, if negative)."""
    if isinstance(known, Unknown) or known is NEVER:
        return known
    return replace(known, lag_us=known.lag_us - shift_us, words=f"{known.words}; {words}", window_us=None)


def interval_us(e: Expr) -> int | None:
    """A constant interval in microseconds; None for months, days (not all of one length), or no constant."""
    if e.kind == "UnaryMinus":
        inner = interval_us(e.children[0])
        return None if inner is None else -inner
    if e.kind != "Literal" or not e.type.startswith("interval") or not isinstance(e.value, int):
        return None
    return e.value if abs(e.value) < FIXED_INTERVAL_US_MAX and "month" not in e.type else None


def shifted(e: Expr) -> tuple[Expr, int] | None:
    """(inner, microseconds) where ``e`` is a time and a constant; None for anything else."""
    if e.kind in ("TimeAdd", "TimestampAddInterval"):
        shift_us = interval_us(e.children[1])
        return None if shift_us is None else (e.children[0], shift_us)
    if e.kind in ("Add", "Subtract") and e.type == "bigint" and isinstance(e.children[1].value, int):
        value = e.children[1].value
        return e.children[0], value if e.kind == "Add" else -value
    return (e.children[0], 0) if _is_same(e) else None


def window_us(e: Expr) -> int | None:
    """The length of the window that ``e`` builds as Spark's analyzer does; None if it is not built like that."""
    e = _bare(e)
    if e.kind != "CreateNamedStruct" or len(e.children) != 4:
        return None
    start, end = _bare(e.children[1]), _bare(e.children[3])
    if end.kind != "Add" or end.children[0].sql != start.sql or not isinstance(end.children[1].value, int):
        return None
    return end.children[1].value


def duration(us: int) -> str:
    """A length of time for people."""
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


def _field(e: Expr, flow: Flow) -> Known:
    window = bound_of(e.children[0], flow)
    if isinstance(window, Unknown) or window.window_us is None:
        return window if isinstance(window, Unknown) else Unknown(f"{e.sql} is a part of no window")
    if e.name == "end":
        return replace(window, window_us=None)
    if e.name != "start":
        return Unknown(f"{e.sql} is neither start nor end of a window")
    if window.window_us == SESSION_WINDOW:
        return Unknown(
            f"{e.sql} is the start of a session, which can be as long as it likes: the gap bounds how long it is "
            "silent, not how long it lasts; its end has a bound"
        )
    words = f"{e.sql} is {duration(window.window_us)} before its end"
    return later_by(window, -window.window_us, words)


def _shift(e: Expr, flow: Flow) -> Known:
    parts = shifted(e)
    if parts is None:
        return Unknown(f"in {e.sql:.200} what is added is no constant of fixed length")
    inner, shift_us = parts
    return later_by(bound_of(inner, flow), shift_us, f"{e.sql:.200} moves it by {duration(shift_us)}")


def _truncated(e: Expr, flow: Flow) -> Known:
    unit_us = {"SECOND": 1_000_000, "MINUTE": 60_000_000}.get(str(e.children[0].value).upper())
    if unit_us is None:
        return Unknown(f"{e.sql} cuts off a part that is not of one length in all time zones; a window would do")
    return later_by(bound_of(e.children[1], flow), -unit_us, f"{e.sql} cuts off less than {duration(unit_us)}")


def _one_of(e: Expr, flow: Flow) -> Known:
    return weakest(bound_of(child, flow) for child in e.children)


def _case(e: Expr, flow: Flow) -> Known:
    # Condition, value, condition, value, ..., and perhaps the else value.
    values = [child for i, child in enumerate(e.children) if i % 2 or i == len(e.children) - 1]
    return weakest(bound_of(value, flow) for value in values)


def _if(e: Expr, flow: Flow) -> Known:
    return weakest(bound_of(value, flow) for value in e.children[1:])


def _greatest(e: Expr, flow: Flow) -> Known:
    ids = {child.expr_id for child in e.children if child.kind == "AttributeReference"}
    for attributes, known in flow.either:
        if attributes <= ids:
            return known
    # greatest() skips nulls, so the value can be any one of them.
    return _one_of(e, flow)


# The same value, or its conversion between a timestamp and its microseconds.
_SAME: Final = frozenset({
    "Alias", "PreciseTimestampConversion", "KnownNullable", "KnownNotNull", "KnownNonNullable", "UnixMicros",
    "MicrosToTimestamp", "DatetimeSub",
})
_FUNCTIONS: Final[dict[str, Callable[[Expr, Flow], Known]]] = {
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
