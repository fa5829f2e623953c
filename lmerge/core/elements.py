"""Stream elements and events: the basic values of the core.

An *element* is one item of a physical stream: ``insert(p, Vs, Ve)``, ``adjust(p, Vs, Vold, Ve)`` or
``stable(Vc)`` (the paper's Example 5). An *event* is a row of the temporal database (TDB) that the
elements reconstitute to: a payload with a lifetime ``[Vs, Ve)``.

Time is a signed 64-bit integer, by default microseconds since the epoch. The two ends of the range stand for
minus and plus infinity.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

NEG_INF: Final = -(2**63)
INF: Final = 2**63 - 1

# The kinds column of a batch; the same numbers are used on the wire.
INSERT: Final = 0
ADJUST: Final = 1
STABLE: Final = 2


class Insert(NamedTuple):
    """``insert(p, Vs, Ve)``: adds an event with lifetime ``[vs, ve)``; ``ve`` may be ``INF``."""

    payload: bytes
    vs: int
    ve: int

    def __str__(self) -> str:
        return f"insert({show_payload(self.payload)}, {show_time(self.vs)}, {show_time(self.ve)})"


class Adjust(NamedTuple):
    """``adjust(p, Vs, Vold, Ve)``: the event ``(p, vs, vold)`` becomes ``(p, vs, ve)``; ``ve == vs`` removes it."""

    payload: bytes
    vs: int
    vold: int
    ve: int

    def __str__(self) -> str:
        times = ", ".join(show_time(t) for t in (self.vs, self.vold, self.ve))
        return f"adjust({show_payload(self.payload)}, {times})"


class Stable(NamedTuple):
    """``stable(Vc)``: no later insert has ``vs < vc``, no later adjust has ``vold < vc`` or ``ve < vc``."""

    vc: int

    def __str__(self) -> str:
        return f"stable({show_time(self.vc)})"


Element: TypeAlias = Insert | Adjust | Stable


class Event(NamedTuple):
    """A row of the TDB. Ordered by ``(vs, payload, ve)``: lmerge always lists events in this order."""

    vs: int
    payload: bytes
    ve: int

    def __str__(self) -> str:
        return f"{show_payload(self.payload)} [{show_time(self.vs)}, {show_time(self.ve)})"


def is_fully_frozen(ve: int, vc: int) -> bool:
    """Return whether an event is fully frozen (FF) at stable point ``vc``: ``Ve < Vc`` (III.C)."""
    return ve < vc


def is_half_frozen(vs: int, ve: int, vc: int) -> bool:
    """Return whether an event is half frozen (HF) at stable point ``vc``: ``Vs < Vc <= Ve`` (III.C)."""
    return vs < vc <= ve


def show_time(t: int) -> str:
    """Return ``t`` as text for people and messages: the two infinities by name."""
    if t == INF:
        return "inf"
    if t == NEG_INF:
        return "-inf"
    return str(t)


def show_payload(payload: bytes, limit: int = 64) -> str:
    """Return ``payload`` for messages: text if it is UTF-8, else a bytes literal; at most ``limit`` bytes of it."""
    head = payload[:limit]
    tail = f"... ({len(payload)} bytes)" if len(payload) > limit else ""
    try:
        return head.decode("utf-8") + tail
    except UnicodeDecodeError:
        return repr(head) + tail
