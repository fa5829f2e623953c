"""Other ways to say the same TDB (III.A, Example 3): adapters to and from elements.

* open(p, Vs) and close(p, Ve): an event begins; it ends, or its end is revised. One event of a payload at a time.
* I-stream and D-stream (STREAM, Oracle CEP): (p, t) enters, (p, t) leaves the relation.
* positive and negative tuples (Nile): the same, with a sign.

The last two are open and close under other names, except that they form a bag: a payload may be there several times.
A leaving tuple then ends the oldest open event with its payload, which is a choice: the relation at every instant
is the same whichever of them ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lmerge.core.elements import INF, Adjust, Element, Event, Insert, Stable, show_payload, show_time
from lmerge.errors import UsageError


class Open(NamedTuple):
    """An event with payload ``payload`` starts at ``vs``; its end is not known."""

    payload: bytes
    vs: int


class Close(NamedTuple):
    """The event with payload ``payload`` ends at ``ve``; a later close of the same event revises that."""

    payload: bytes
    ve: int


class Signed(NamedTuple):
    """A positive (``sign`` = 1, I-stream) or negative (``sign`` = -1, D-stream) tuple at time ``t``."""

    sign: int
    payload: bytes
    t: int


def from_open_close(stream: Iterable[Open | Close | Stable]) -> Iterator[Element]:
    """Elements of an open/close stream. Raises UsageError for a close without an open, or a second open event.

    A payload may be opened again once its event was closed at or before the new start.
    """
    current: dict[bytes, tuple[int, int]] = {}  # payload -> (Vs, Ve) of its last event
    for item in stream:
        if isinstance(item, Stable):
            yield item
        elif isinstance(item, Open):
            if item.payload in current and current[item.payload][1] > item.vs:
                raise UsageError(
                    f"open({show_payload(item.payload)}, {show_time(item.vs)}): the event that starts at "
                    f"{show_time(current[item.payload][0])} is still active"
                )
            current[item.payload] = (item.vs, INF)
            yield Insert(item.payload, item.vs, INF)
        else:
            if item.payload not in current:
                raise UsageError(f"close({show_payload(item.payload)}, {show_time(item.ve)}): no such event was opened")
            vs, vold = current[item.payload]
            if item.ve < vs:
                raise UsageError(
                    f"close({show_payload(item.payload)}, {show_time(item.ve)}): before its start {show_time(vs)}"
                )
            current[item.payload] = (vs, item.ve)
            yield Adjust(item.payload, vs, vold, item.ve)


def to_open_close(events: Iterable[Event]) -> list[Open | Close]:
    """An open/close stream of a TDB, in order of time; of equal times, closes first."""
    items: list[tuple[int, int, bytes, Open | Close]] = []
    for vs, payload, ve in events:
        items.append((vs, 1, payload, Open(payload, vs)))
        if ve < INF:
            items.append((ve, 0, payload, Close(payload, ve)))
    items.sort(key=lambda item: item[:3])
    return [item[3] for item in items]


def from_signed(stream: Iterable[Signed | Stable]) -> Iterator[Element]:
    """Elements of an I-/D-stream, or of positive and negative tuples.

    Raises UsageError for a negative tuple without a positive one.
    """
    open_events: dict[bytes, deque[int]] = {}
    for item in stream:
        if isinstance(item, Stable):
            yield item
        elif item.sign > 0:
            open_events.setdefault(item.payload, deque()).append(item.t)
            yield Insert(item.payload, item.t, INF)
        else:
            starts = open_events.get(item.payload)
            if not starts:
                what = f"({show_payload(item.payload)}, {show_time(item.t)})"
                raise UsageError(f"negative tuple {what}: nothing to take out")
            vs = starts.popleft()
            if not starts:
                del open_events[item.payload]
            yield Adjust(item.payload, vs, INF, item.t)


def to_signed(events: Iterable[Event]) -> list[Signed]:
    """The I-/D-stream of a TDB, in order of time; of equal times, what leaves comes first."""
    items = []
    for vs, payload, ve in events:
        items.append((vs, 1, payload))
        if ve < INF:
            items.append((ve, -1, payload))
    return [Signed(sign, payload, t) for t, sign, payload in sorted(items)]
