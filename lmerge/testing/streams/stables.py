"""Stables: how far a stream says that it is decided, by the words of the facet ``liveliness``.

A stable may come where nothing behind it needs an earlier one. That is computed from the elements that are left, so no
disorder makes a stream illegal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Final

from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Insert, Stable
from lmerge.testing.streams.facets import Facets

SLACK_MAX: Final = 4
"""How much earlier a drawn stable comes at most than the rest allows, if it does not meet that."""


def sync_time(element: Element) -> int:
    """Return the earliest time at which an element changes the table: a later stable may not come before it."""
    if isinstance(element, Insert):
        return element.vs
    if isinstance(element, Adjust):
        return min(element.vold, element.ve)
    return element.vc


def bounds(elements: Sequence[Element]) -> list[int]:
    """Return for each place the largest stable that may come there: before the element of that place, or at the end."""
    found = [INF]
    for element in reversed(elements):
        found.append(min(found[-1], sync_time(element)))
    return found[::-1]


def with_stables(random: Random, elements: Iterable[Element], times: Sequence[int], facets: Facets) -> list[Element]:
    """Return a stream with the stables of a word of the facet.

    ``times``: the sync times of all ``elements``, in any order. Elements may be drawn from ``random`` one by one.
    """
    if facets.liveliness in ("drawn", "open"):
        chances = facets.number("stables"), facets.number("meeting")
        most = max(times, default=INF) if facets.liveliness == "open" else INF  # more may come
        found = list(drawn_stables(random, elements, times, *chances, most=most))
    else:
        found = _at_places(random, list(elements), facets)
    return found if facets.liveliness == "open" else [*found, Stable(INF)]


def drawn_stables(
    random: Random,
    elements: Iterable[Element],
    times: Sequence[int],
    stables: float,
    meeting: float,
    *,
    slack_max: int = SLACK_MAX,
    most: int = INF,
) -> Iterator[Element]:
    """Yield elements, each followed by a stable with the chance ``stables``.

    With the chance ``meeting`` it goes as far as the rest allows and ``most``, else up to ``slack_max`` less far.
    """
    left = Counter(times)
    waiting = sorted(left, reverse=True)
    last = NEG_INF
    for element in elements:
        yield element
        left[sync_time(element)] -= 1
        if random.random() < stables:
            while waiting and not left[waiting[-1]]:
                waiting.pop()
            limit = min(waiting[-1] if waiting else INF, most)
            point = limit if random.random() < meeting else limit - random.randint(0, slack_max)
            if last < point < INF:
                last = point
                yield Stable(point)


def _at_places(random: Random, elements: Sequence[Element], facets: Facets) -> list[Element]:
    """Return a stream with stables at the places of a word, as far as they go on."""
    limits = bounds(elements)
    points = _POINTS[facets.liveliness](random, elements, limits, facets)
    found: list[Element] = []
    last = NEG_INF
    for place in range(len(elements) + 1):
        point = points.get(place)
        if point is not None and last <= point < INF and point > NEG_INF:
            found.append(Stable(point))
            last = point
        if place < len(elements):
            found.append(elements[place])
    return found


Points = dict[int, int]
"""Stable points by the places of the elements before which they come."""


def _tight(random: Random, elements: Sequence[Element], limits: Sequence[int], facets: Facets) -> Points:
    """Return a stable wherever the next element is what holds it back, and at as many other places at most."""
    meeting = [at for at, element in enumerate(elements) if sync_time(element) == limits[at]]
    moving = {at: limits[at] for at in meeting}
    others = [at for at in range(1, len(elements)) if at not in moving and limits[at] > limits[0]]
    for _ in range(min(len(others), len(moving) // 2)):
        at = others.pop(random.randrange(len(others)))
        moving[at] = limits[at]
    return moving


def _eager(random: Random, elements: Sequence[Element], limits: Sequence[int], facets: Facets) -> Points:
    return {at: limits[at] - random.randrange(3) for at in range(1, len(elements) + 1) if limits[at] < INF}


def _lazy(random: Random, elements: Sequence[Element], limits: Sequence[int], facets: Facets) -> Points:
    count = max(1, int(len(elements) * facets.number("stables")))
    step = max(1, len(elements) // (count + 1))
    slack = random.randrange(5)
    return {at: limits[at] - slack for at in range(step, len(elements), step) if limits[at] < INF}


def _at_end(random: Random, elements: Sequence[Element], limits: Sequence[int], facets: Facets) -> Points:
    return {}


def _idle(random: Random, elements: Sequence[Element], limits: Sequence[int], facets: Facets) -> Points:
    at = len(elements) * 3 // 4
    return {at: limits[at]} if at else {}


_POINTS: Final = {"tight": _tight, "eager": _eager, "lazy": _lazy, "none": _at_end, "idle": _idle}
