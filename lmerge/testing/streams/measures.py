"""What a generated stream is like, measured: each facet's words are asserted by these, not by their names."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.testing.streams.arrivals import bounds, sync_time


@dataclass(frozen=True)
class TableMeasures:
    """Of a table. ``durations``: the finite ones, ascending; ``alive``: how many events are alive at a start, mean.

    ``span``: the largest minus the smallest finite start. ``one_tick``, ``back_to_back``: events that start one unit
    beside the end of another event, and at it. ``apart``: each event starts behind the end of the one before.
    ``copies``: how many events are there more than once.
    """

    events: int
    durations: list[int]
    endless: int
    from_beginning: int
    span: int
    alive: float
    alive_most: int
    one_tick: int
    back_to_back: int
    is_apart: bool
    copies: int


def measured_table(events: Sequence[Event]) -> TableMeasures:
    """Return the measures of a table; equal events count once but in ``copies`` and ``alive``."""
    ordered = sorted(events)
    starts = sorted(event.vs for event in ordered if event.vs > NEG_INF)
    ends = sorted(event.ve for event in ordered)
    begun = [event.vs for event in ordered]
    alive = [bisect_right(begun, start) - bisect_right(ends, start) for start in begun]
    all_ends = {event.ve for event in ordered if event.ve < INF}
    distinct = sorted(set(ordered))
    one_tick = sum(
        any(other.ve in (event.vs - 1, event.vs + 1) for other in distinct if other != event) for event in distinct
    )
    return TableMeasures(
        events=len(ordered),
        durations=sorted(e.ve - e.vs for e in distinct if e.ve < INF and e.vs > NEG_INF),
        endless=sum(e.ve == INF for e in distinct),
        from_beginning=sum(e.vs == NEG_INF for e in distinct),
        span=starts[-1] - starts[0] if starts else 0,
        alive=sum(alive) / len(alive) if alive else 0.0,
        alive_most=max(alive, default=0),
        one_tick=one_tick,
        back_to_back=sum(event.vs in all_ends for event in distinct),
        is_apart=all(one.ve < other.vs for one, other in itertools.pairwise(ordered)),
        copies=sum(count > 1 for count in Counter(ordered).values()),
    )


@dataclass(frozen=True)
class StreamMeasures:
    """Of a physical stream. ``displacement``: the furthest that an element comes behind its place in sync-time order.

    ``displaced``: how many elements do. ``meeting``: stables that equal the sync time of the next element; ``slack``:
    of each finite stable, how much further it could go. ``grown``, ``shrunk``, ``removed``: adjusts by what they do;
    ``again``: inserts of an event that was removed.
    """

    inserts: int
    adjusts: int
    stables: int
    displacement: int
    displaced: int
    meeting: int
    slack: list[int]
    grown: int
    shrunk: int
    removed: int
    again: int
    is_closed: bool


def measured_stream(elements: Sequence[Element]) -> StreamMeasures:
    """Return the measures of a stream."""
    changes = [element for element in elements if not isinstance(element, Stable)]
    adjusts = [element for element in changes if isinstance(element, Adjust)]
    shift = _shifts(changes)
    limits = bounds([element for element in elements if not isinstance(element, Stable)])
    slack, meeting, place = [], 0, 0
    for at, element in enumerate(elements):
        if not isinstance(element, Stable):
            place += 1
        elif element.vc < INF:
            slack.append(limits[place] - element.vc)
            following = elements[at + 1] if at + 1 < len(elements) else None
            meeting += following is not None and sync_time(following) == element.vc
    gone: Counter[tuple[bytes, int]] = Counter()
    again = 0
    for change in changes:
        if isinstance(change, Adjust) and change.ve == change.vs:
            gone[change.payload, change.vs] += 1
        elif isinstance(change, Insert) and gone[change.payload, change.vs]:
            gone[change.payload, change.vs] -= 1
            again += 1
    return StreamMeasures(
        inserts=len(changes) - len(adjusts),
        adjusts=len(adjusts),
        stables=len(elements) - len(changes),
        displacement=max(shift, default=0),
        displaced=sum(one > 0 for one in shift),
        meeting=meeting,
        slack=slack,
        grown=sum(one.ve > one.vold for one in adjusts),
        shrunk=sum(one.vs < one.ve < one.vold for one in adjusts),
        removed=sum(one.ve == one.vs for one in adjusts),
        again=again,
        is_closed=bool(elements) and elements[-1] == Stable(INF),
    )


def _shifts(changes: Sequence[Element]) -> list[int]:
    """Return how many elements with a later sync time have come before each insert."""
    seen: list[int] = []
    found = []
    for change in changes:
        if isinstance(change, Insert):
            found.append(len(seen) - bisect_right(seen, change.vs))
            seen.insert(bisect_left(seen, change.vs), change.vs)
    return found
