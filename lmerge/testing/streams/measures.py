"""What a generated stream is like, measured: each facet's words are asserted by these, not by their names."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.temporal.row_forms import RowForms
from lmerge.testing.streams.batches import InputBatch
from lmerge.testing.streams.stables import bounds, sync_time
from lmerge.wire.schema import Schema


@dataclass(frozen=True)
class TableMeasures:
    """Of a table. ``durations``: the finite ones, ascending; ``alive``: how many events are alive at a start, mean.

    ``span``: the largest minus the smallest finite start. ``one_tick``, ``back_to_back``: events that start one unit
    beside the end of another event, and at it; ``tick_before``, ``tick_behind``: of the former, those on each side of
    the end. ``is_apart``: each event starts behind the end of the one before. ``copies``: how many events are there
    several times; ``copies_most``: how often one is there at most.
    """

    events: int
    durations: list[int]
    endless: int
    from_beginning: int
    span: int
    alive: float
    alive_most: int
    one_tick: int
    tick_before: int
    tick_behind: int
    back_to_back: int
    is_apart: bool
    copies: int
    copies_most: int


def measured_table(events: Sequence[Event]) -> TableMeasures:
    """Return the measures of a table; equal events count once but in ``copies`` and ``alive``."""
    ordered = sorted(events)
    starts = sorted(event.vs for event in ordered if event.vs > NEG_INF)
    ends = sorted(event.ve for event in ordered)
    begun = [event.vs for event in ordered]
    alive = [bisect_right(begun, start) - bisect_right(ends, start) for start in begun]
    all_ends = {event.ve for event in ordered if event.ve < INF}
    distinct = sorted(set(ordered))
    ends_of = Counter(event.ve for event in distinct)
    before = [_ends_at(event, event.vs + 1, ends_of) for event in distinct]
    behind = [_ends_at(event, event.vs - 1, ends_of) for event in distinct]
    times = Counter(ordered)
    return TableMeasures(
        events=len(ordered),
        durations=sorted(e.ve - e.vs for e in distinct if e.ve < INF and e.vs > NEG_INF),
        endless=sum(e.ve == INF for e in distinct),
        from_beginning=sum(e.vs == NEG_INF for e in distinct),
        span=starts[-1] - starts[0] if starts else 0,
        alive=sum(alive) / len(alive) if alive else 0.0,
        alive_most=max(alive, default=0),
        one_tick=sum(map(max, before, behind)),
        tick_before=sum(before),
        tick_behind=sum(behind),
        back_to_back=sum(event.vs in all_ends for event in distinct),
        is_apart=all(one.ve < other.vs for one, other in itertools.pairwise(ordered)),
        copies=sum(count > 1 for count in times.values()),
        copies_most=max(times.values(), default=0),
    )


def _ends_at(event: Event, time: int, ends: Counter[int]) -> bool:
    """Return whether another event ends at a time. ``ends``: how many events end at each time, this one among them."""
    return ends[time] > (event.ve == time)


def measured_columns(events: Sequence[Event], schema: Schema) -> dict[str, Counter[Any]]:
    """Return the histogram of each column: how often each value occurs, in the form of ``lmerge.temporal.values``."""
    forms = RowForms(schema)
    rows = [forms.of_payload(event.payload) for event in events]
    return {column.name: Counter(row[at] for row in rows) for at, column in enumerate(schema.columns)}


@dataclass(frozen=True)
class StreamMeasures:
    """Of a physical stream. ``displacement``: the furthest that an element comes behind its place in sync-time order.

    ``displaced``: how many elements do; ``inversions``: pairs of inserts of which the later start comes first.
    ``meeting``: stables that equal the sync time of the next element; ``slack``: of each finite stable, how much
    further it could go. ``grown``, ``shrunk``, ``removed``: adjusts by what they do; ``again``: inserts of an event
    that was removed; ``interrupted``: adjusts directly behind an element of another event.
    """

    inserts: int
    adjusts: int
    stables: int
    displacement: int
    displaced: int
    inversions: int
    meeting: int
    slack: list[int]
    grown: int
    shrunk: int
    removed: int
    again: int
    interrupted: int
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
        inversions=sum(shift),
        meeting=meeting,
        slack=slack,
        grown=sum(one.ve > one.vold for one in adjusts),
        shrunk=sum(one.vs < one.ve < one.vold for one in adjusts),
        removed=sum(one.ve == one.vs for one in adjusts),
        again=again,
        interrupted=sum(
            isinstance(change, Adjust) and _key(before) != _key(change)
            for before, change in itertools.pairwise(changes)
        ),
        is_closed=bool(elements) and elements[-1] == Stable(INF),
    )


def _key(change: Insert | Adjust) -> tuple[bytes, int]:
    return change.payload, change.vs


def _shifts(changes: Sequence[Insert | Adjust]) -> list[int]:
    """Return how many elements with a later sync time have come before each insert."""
    seen: list[int] = []
    found = []
    for change in changes:
        if isinstance(change, Insert):
            found.append(len(seen) - bisect_right(seen, change.vs))
            seen.insert(bisect_left(seen, change.vs), change.vs)
    return found


@dataclass(frozen=True)
class BatchMeasures:
    """Of the batches of several inputs. ``sizes``: elements in each batch, in order; ``inputs``: whose each one is.

    ``alternations``: how often another input comes than before. ``at_stables``: batches that end with their only
    stable.
    """

    sizes: list[int]
    inputs: list[str]
    alternations: int
    at_stables: int


def measured_batches(batches: Sequence[InputBatch]) -> BatchMeasures:
    """Return the measures of batches."""
    names = [batch.name for batch in batches]
    return BatchMeasures(
        sizes=[len(batch.elements) for batch in batches],
        inputs=names,
        alternations=sum(one != other for one, other in itertools.pairwise(names)),
        at_stables=sum(
            [isinstance(element, Stable) for element in batch.elements] == [False] * (len(batch.elements) - 1) + [True]
            for batch in batches
        ),
    )
