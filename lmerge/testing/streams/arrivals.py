"""Arrivals: a physical stream of a table, by disorder, revisions and liveliness. It is legal whatever the facets are.

Each event has a history: an insert, then changes of its end. The elements are put in the order of their sync times,
then displaced. A stable may follow an element if nothing behind it needs an earlier one, which is computed from the
end, so no disorder makes a stream illegal.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple

from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.testing.streams.facets import Facets

DISPLACED: Final = {"in-order": (0.0, 0), "slightly": (0.1, 2), "out-of-order": (0.3, 20), "highly": (0.6, INF)}
"""The share of elements that are displaced, and by how many places at most."""
REVISED: Final = 0.6
REMOVED: Final = 0.4
INVENTED: Final = 0.3
EAGER_OPEN: Final = 0.25
ELEMENTS_OF_LAZY: Final = 100
WRONG_MAX: Final = 10
"""How far a wrong end is from the right one."""


class _Placed(NamedTuple):
    """An element with the place at which it comes; ``number``: of its history."""

    place: float
    number: int
    element: Element


def arrivals(
    random: Random, events: Sequence[Event], facets: Facets, invented: Callable[[int], bytes]
) -> list[Element]:
    """Return a legal stream that means ``events``. ``invented``: the payload of an event that never was, by number."""
    histories = [_history(random, event, facets.revisions) for event in events]
    histories += _never_was(random, events, facets.revisions, invented)
    return with_stables(random, _displaced(random, histories, facets), facets.liveliness)


# Histories.


def _history(random: Random, event: Event, revisions: str) -> list[Element]:
    """Return the elements of one event, in order."""
    level = revisions
    if level == "all":
        level = ("none", "grow", "shrink", "repeated", "removed")[random.randrange(5)]
    chance = REMOVED if level == "removed" else REVISED
    if level in ("none", "never-was") or random.random() > chance:
        return [Insert(event.payload, event.vs, event.ve)]
    if level == "removed":
        return _chain(event, [event.ve, event.vs, event.ve])
    if level == "repeated":
        ends = [_wrong(random, event, "any") for _ in range(3)]
        return _chain(event, [*ends, event.ve])
    return _chain(event, [_wrong(random, event, level), event.ve])


def _wrong(random: Random, event: Event, level: str) -> int:
    """Return a wrong end: an earlier one to grow from, a later one to shrink from."""
    vs, ve = max(event.vs, -(2**62)), event.ve
    later = INF if ve == INF or random.random() < 0.3 else ve + random.randrange(1, WRONG_MAX)
    earlier = vs + random.randrange(1, WRONG_MAX) if ve == INF else vs + 1 + random.randrange(max(1, ve - vs - 1))
    is_earlier = level == "grow" or (level == "any" and random.random() < 0.5)
    return earlier if is_earlier and earlier < ve else later


def _chain(event: Event, ends: Sequence[int]) -> list[Element]:
    """Return an insert and adjusts through ``ends``; an end at the start removes, and the next one inserts again."""
    vs, payload, _ = event
    found: list[Element] = [Insert(payload, vs, ends[0])]
    for old, new in itertools.pairwise(ends):
        if old == vs and new != vs:
            found.append(Insert(payload, vs, new))
        elif old != new:
            found.append(Adjust(payload, vs, old, new))
    return found


def _never_was(
    random: Random, events: Sequence[Event], revisions: str, invented: Callable[[int], bytes]
) -> list[list[Element]]:
    """Return the histories of events that are inserted and removed."""
    if revisions not in ("never-was", "all"):
        return []
    found = []
    for number, event in enumerate(events):
        if random.random() < INVENTED and event.vs > NEG_INF:
            ghost = Event(event.vs, invented(number), event.vs + random.randrange(1, WRONG_MAX))
            found.append(_chain(ghost, [ghost.ve, ghost.vs]))
    return found


# Order.


def sync_time(element: Element) -> int:
    """Return the earliest time at which an element changes the table: a later stable may not come before it."""
    if isinstance(element, Insert):
        return element.vs
    if isinstance(element, Adjust):
        return min(element.vold, element.ve)
    return element.vc


def _displaced(random: Random, histories: Sequence[list[Element]], facets: Facets) -> list[Element]:
    """Return the elements of all histories, each history in its own order."""
    share, places = DISPLACED[facets.disorder]
    share = share if facets.displaced is None else facets.displaced
    places = places if facets.places is None else facets.places
    ordered = sorted(
        ((_due(history, at), number, at) for number, history in enumerate(histories) for at in range(len(history)))
    )
    limit = min(places, len(ordered))
    placed = []
    for place, (_, number, at) in enumerate(ordered):
        moved = random.randrange(1, limit + 1) if limit and random.random() < share else 0
        placed.append(_Placed(place + moved + (0.5 if moved else 0), number, histories[number][at]))
    return _in_history_order(placed, histories)


def _due(history: Sequence[Element], at: int) -> int:
    """Return when an element comes if nothing is displaced: at the latest sync time of its history so far."""
    return max(map(sync_time, history[: at + 1]))


def _in_history_order(placed: Sequence[_Placed], histories: Sequence[list[Element]]) -> list[Element]:
    """Return the elements by their places; each place of a history gets the next element of it."""
    taken = [0] * len(histories)
    found = []
    for _, number, _ in sorted(placed, key=lambda one: (one.place, one.number)):
        found.append(histories[number][taken[number]])
        taken[number] += 1
    return found


# Stables.


def bounds(elements: Sequence[Element]) -> list[int]:
    """Return for each place the largest stable that may come there: before the element of that place, or at the end."""
    found = [INF]
    for element in reversed(elements):
        found.append(min(found[-1], sync_time(element)))
    return found[::-1]


def with_stables(random: Random, elements: Sequence[Element], liveliness: str) -> list[Element]:
    """Return a stream with the stables of a word of the facet."""
    limits = bounds(elements)
    points = _POINTS[liveliness](random, elements, limits)
    found: list[Element] = []
    last = NEG_INF
    for place in range(len(elements) + 1):
        point = points.get(place)
        if point is not None and last <= point < INF and point > NEG_INF:
            found.append(Stable(point))
            last = point
        if place < len(elements):
            found.append(elements[place])
    return found if liveliness == "open" else [*found, Stable(INF)]


Points = dict[int, int]
"""Stable points by the places of the elements before which they come."""


def _tight(random: Random, elements: Sequence[Element], limits: Sequence[int]) -> Points:
    """Return a stable wherever the next element is what holds it back, and at as many other places at most."""
    meeting = [at for at, element in enumerate(elements) if sync_time(element) == limits[at]]
    moving = {at: limits[at] for at in meeting}
    others = [at for at in range(1, len(elements)) if at not in moving and limits[at] > limits[0]]
    for _ in range(min(len(others), len(moving) // 2)):
        at = others.pop(random.randrange(len(others)))
        moving[at] = limits[at]
    return moving


def _eager(random: Random, elements: Sequence[Element], limits: Sequence[int]) -> Points:
    return {at: limits[at] - random.randrange(3) for at in range(1, len(elements) + 1) if limits[at] < INF}


def _lazy(random: Random, elements: Sequence[Element], limits: Sequence[int]) -> Points:
    count = max(1, len(elements) // ELEMENTS_OF_LAZY)
    step = max(1, len(elements) // (count + 1))
    slack = random.randrange(5)
    return {at: limits[at] - slack for at in range(step, len(elements), step) if limits[at] < INF}


def _at_end(random: Random, elements: Sequence[Element], limits: Sequence[int]) -> Points:
    return {}


def _idle(random: Random, elements: Sequence[Element], limits: Sequence[int]) -> Points:
    at = len(elements) * 3 // 4
    return {at: limits[at]} if at else {}


def _open(random: Random, elements: Sequence[Element], limits: Sequence[int]) -> Points:
    return {
        at: limits[at] if random.random() < 0.5 else limits[at] - random.randrange(4)
        for at in range(1, len(elements) + 1)
        if random.random() < EAGER_OPEN and limits[at] < INF
    }


_POINTS: Final = {"tight": _tight, "eager": _eager, "lazy": _lazy, "none": _at_end, "idle": _idle, "open": _open}
