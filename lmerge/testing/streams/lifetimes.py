"""Lifetimes by facets: how long events last, how many are alive at once, and how their ends meet.

Events stand in lanes, as many as are to be alive at once. In a lane each begins behind the one before, so the number of
lanes decides the overlap, the distances in a lane decide the contact, and the durations decide the span.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import UsageError
from lmerge.testing.streams.facets import Facets
from lmerge.testing.streams.patterns import PATTERNS, Span

CONTACTS: Final = 0.85
"""How often an event meets the one before it in its lane, where half of all events must."""
SHORT: Final = 2
MIXED: Final = 12
LONG: Final = (24, 32)
SPAN_OF_LONG: Final = 90
FIRST_START: Final = -20
"""Where streams begin: half of the plans' grids and durations meet times below 0."""


@dataclass(frozen=True)
class _Lanes:
    """``count`` lanes; ``shortest``, ``longest``: of durations; ``gap``: the mean distance in a lane."""

    count: int
    shortest: int
    longest: int
    gap: int


def lifetimes(random: Random, facets: Facets) -> list[Span]:
    """Return the lifetimes of the events, in order of start. Those of edge events are made with their keys."""
    if not facets.events:
        return []
    if facets.pattern:
        if facets.alive is not None:
            levels = f"alive={facets.alive} and pattern={facets.pattern}"
            raise UsageError(f"{levels} contradict each other: a pattern decides itself how many events are alive")
        return sorted(PATTERNS.find(facets.pattern)(random, facets.events))
    if facets.shape == "point" or facets.duration == "point":
        return _in_lanes(random, facets, _lanes(facets, 1, 1))
    if facets.duration == "short":
        return _in_lanes(random, facets, _lanes(facets, 1, SHORT))
    if facets.duration == "long":
        return _long(random, facets)
    spans = _in_lanes(random, facets, _lanes(facets, 1, MIXED))
    return _without_end(random, facets, spans)


def _lanes(facets: Facets, shortest: int, longest: int) -> _Lanes:
    """Return the lanes of an overlap. Gaps are wide enough that short events are a fiftieth of the span."""
    is_high = facets.overlap == "high" and facets.alive is None
    count = facets.events if is_high else int(min(facets.number("alive"), facets.events))
    per_lane = max(1, facets.events // count)
    is_short = longest <= SHORT
    if per_lane == 1:
        longest = min(longest, 1) if is_short else longest
    gap = -(-50 * longest // max(1, per_lane - 1)) if is_short else 3
    return _Lanes(min(count, facets.events), shortest, longest, gap)


def _in_lanes(random: Random, facets: Facets, lanes: _Lanes) -> list[Span]:
    """Return chains of events. Lanes begin together, so that all of them are alive at once."""
    found: list[Span] = []
    is_tight = lanes.longest <= SHORT
    nexts = [FIRST_START if is_tight else FIRST_START + random.randrange(3) for _ in range(lanes.count)]
    for event in range(facets.events):
        lane = event % lanes.count
        duration = random.randrange(lanes.shortest, lanes.longest + 1)
        start = nexts[lane]
        found.append((start, start + duration))
        nexts[lane] = start + duration + _distance(random, facets, lanes, event)
    if is_tight and lanes.count > 1 and facets.contact == "free":
        found = _aligned(found, lanes)
    return sorted(found)


def _distance(random: Random, facets: Facets, lanes: _Lanes, event: int) -> int:
    """Return how far behind the end of an event the next one in its lane starts."""
    wide = lanes.gap + random.randrange(lanes.gap)
    if facets.contact == "free":
        return wide if lanes.longest <= SHORT else random.randrange(2 * lanes.gap)
    if facets.contact == "apart":
        return wide if lanes.longest <= SHORT else 1 + random.randrange(2 * lanes.gap)
    is_wide = event // lanes.count % 4 == 3 if lanes.longest <= SHORT else random.random() > CONTACTS
    if is_wide:
        return 4 * lanes.gap
    if facets.contact == "back-to-back":
        return 0
    # One unit before the end only if the event has begun by then, and another start is left for the next one.
    return 1 if random.random() < 0.5 else -1


def _aligned(spans: list[Span], lanes: _Lanes) -> list[Span]:
    """Return short events in bursts: those of one place in their lanes begin together, so that they overlap."""
    found = []
    for event, (start, end) in enumerate(spans):
        first = spans[event - event % lanes.count][0]
        found.append((first, first + end - start))
    return found


def _long(random: Random, facets: Facets) -> list[Span]:
    """Return events of a fifth of the span to all of it."""
    if facets.overlap == "high":
        starts = [FIRST_START + random.randrange(SPAN_OF_LONG) for _ in range(facets.events)]
        spans = [(start, start + random.randrange(SPAN_OF_LONG * 3 // 4, SPAN_OF_LONG + 1)) for start in starts]
        return sorted(_spread(spans))
    spans = []
    lanes = facets.alive or max(1, min(7, facets.events * 3 // 10))
    nexts = [FIRST_START + random.randrange(4) for _ in range(lanes)]
    for event in range(facets.events):
        lane = event % lanes
        duration = random.randrange(*LONG)
        spans.append((nexts[lane], nexts[lane] + duration))
        gap = _distance(random, facets, _Lanes(lanes, *LONG, 1), event)
        nexts[lane] += duration + (random.randrange(4) if facets.contact == "free" else gap)
    return sorted(spans)


def _spread(spans: list[Span]) -> list[Span]:
    """Return long events of which the first and last starts are a span apart, so that durations keep their share."""
    first, last = min(spans), max(spans)
    spans[spans.index(first)] = (FIRST_START, FIRST_START + SPAN_OF_LONG)
    if len(spans) > 1:
        at = max(1, spans.index(last)) if spans.index(last) else len(spans) - 1
        spans[at] = (FIRST_START + SPAN_OF_LONG, FIRST_START + 2 * SPAN_OF_LONG)
    return spans


def _without_end(random: Random, facets: Facets, spans: list[Span]) -> list[Span]:
    """Return the lifetimes with as many open ends as the duration asks for, and with one start at -inf if it may."""
    if facets.contact == "apart" or facets.overlap == "low":
        return [*spans[:-1], (spans[-1][0], INF)] if facets.duration == "mixed" and facets.contact != "apart" else spans
    share = {"mixed": 1 / 16, "infinite": 0.8 if facets.overlap == "high" else 1 / 3}[facets.duration]
    needed = -(-len(spans) * share // 1)
    places = list(range(len(spans)))
    chosen: set[int] = set()
    while len(chosen) < needed:
        chosen.add(places.pop(random.randrange(len(places))))
    found = [(start, INF) if at in chosen else (start, end) for at, (start, end) in enumerate(spans)]
    if facets.from_beginning and facets.duration == "infinite":
        found[0] = (NEG_INF, INF)
    return sorted(found)
