"""Histories: the elements of each event in their order, with the ends that it has before the right one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias

from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert
from lmerge.testing.streams.facets import Facets

WRONG_MAX: Final = 10
"""How far a wrong end is from the right one, or from the start."""
DRAWN_MAX: Final = 30
"""How far a drawn end is from the start."""
RIGHT_NEXT: Final = 0.6
"""How often a drawn end is the right one, after a first one that was wrong."""

History: TypeAlias = list[Element]
_LOW: Final = -(2**62)  # a start at -inf counts as one from which ends can be reached


def history(random: Random, event: Event, facets: Facets) -> History:
    """Return the elements of one event, in order, by the word of the facet ``revisions``."""
    level = facets.revisions
    if level == "all":
        level = ("none", "grow", "shrink", "repeated", "removed")[random.randrange(5)]
    if level == "drawn":
        return _chain(event, _drawn_ends(random, event, facets.number("revised")))
    if level in ("none", "never-was") or random.random() > facets.number("revised", level):
        return [Insert(event.payload, event.vs, event.ve)]
    if level == "removed":
        return _chain(event, [event.ve, event.vs, event.ve])
    if level == "repeated":
        ends = [_wrong_end(random, event, "any") for _ in range(3)]
        return _chain(event, [*ends, event.ve])
    return _chain(event, [_wrong_end(random, event, level), event.ve])


def never_was(
    random: Random, events: Sequence[Event], facets: Facets, invented: Callable[[int], bytes]
) -> list[tuple[int, History]]:
    """Return histories of events that are inserted and removed, each with the number of the event that it is beside.

    ``invented``: the payload of such an event, by that number.
    """
    if not facets.has_number("invented"):
        return []
    share = facets.number("invented")
    found = []
    for number, event in enumerate(events):
        if random.random() < share and event.vs > NEG_INF:
            ghost = Event(event.vs, invented(number), event.vs + random.randrange(1, WRONG_MAX))
            found.append((number, _chain(ghost, [ghost.ve, ghost.vs])))
    return found


def _wrong_end(random: Random, event: Event, level: str) -> int:
    """Return a wrong end: an earlier one to grow from, a later one to shrink from."""
    vs, ve = max(event.vs, _LOW), event.ve
    later = INF if ve == INF or random.random() < 0.3 else ve + random.randrange(1, WRONG_MAX)
    earlier = vs + random.randrange(1, WRONG_MAX) if ve == INF else vs + 1 + random.randrange(max(1, ve - vs - 1))
    is_earlier = level == "grow" or (level == "any" and random.random() < 0.5)
    return earlier if is_earlier and earlier < ve else later


def _drawn_ends(random: Random, event: Event, share: float) -> list[int]:
    """Return ends up to the right one; ``share``: how often the first one is drawn."""
    vs, ve = max(event.vs, _LOW), event.ve
    ends = [ve]
    if random.random() < share:
        ends = [random.choice((INF, vs + random.randint(1, DRAWN_MAX)))]
    while ends[-1] != ve:
        ends.append(ve if random.random() < RIGHT_NEXT else vs + random.randint(1, DRAWN_MAX))
    return ends


def _chain(event: Event, ends: Sequence[int]) -> History:
    """Return an insert and adjusts through ``ends``; an end at the start removes, and the next one inserts again."""
    vs, payload, _ = event
    found: History = [Insert(payload, vs, ends[0])]
    for old, new in itertools.pairwise(ends):
        if old == vs and new != vs:
            found.append(Insert(payload, vs, new))
        elif old != new:
            found.append(Adjust(payload, vs, old, new))
    return found
