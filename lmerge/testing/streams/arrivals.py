"""Arrivals: a physical stream of a table, by disorder, revisions and liveliness. It is legal whatever the facets are.

Each event has a history: an insert, then changes of its end (``histories``). The elements are put in the order of their
sync times, then displaced; or the histories of several events are mixed. Stables come between (``stables``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final, NamedTuple

from lmerge.core.elements import Element, Event
from lmerge.testing.streams.facets import Facets
from lmerge.testing.streams.histories import History, history, never_was
from lmerge.testing.streams.stables import sync_time, with_stables

MIXED_MAX: Final = 8
"""How many events come at a time, if they come mixed."""
ANOTHER: Final = 0.7
"""How often another event joins those that come."""


class _Placed(NamedTuple):
    """An element with the place at which it comes; ``number``: of its history."""

    place: float
    number: int
    element: Element


def arrivals(
    random: Random, events: Sequence[Event], facets: Facets, invented: Callable[[int], bytes]
) -> list[Element]:
    """Return a legal stream that means ``events``. ``invented``: the payload of an event that never was, by number."""
    histories = [history(random, event, facets) for event in events]
    ghosts = never_was(random, events, facets, invented)
    is_mixed = facets.disorder == "mixed"
    for number, ghost in ghosts:
        histories.insert(number if is_mixed else len(histories), ghost)
    order = _mixed if is_mixed else _displaced
    times = [sync_time(element) for one in histories for element in one]
    return with_stables(random, order(random, histories, facets), times, facets)


def _mixed(random: Random, histories: Sequence[History], facets: Facets) -> Iterator[Element]:
    """Yield the elements of several histories at a time, each history in its own order, drawn one by one."""
    places = facets.number("places")
    queue = sorted(range(len(histories)), key=lambda at: at + random.random() * places)
    coming: list[History] = []
    width = MIXED_MAX if places else 1
    following = 0
    while following < len(queue) or coming:
        if following < len(queue) and len(coming) < width and (not coming or random.random() < ANOTHER):
            coming.append(list(histories[queue[following]]))
            following += 1
            continue
        at = random.randrange(len(coming))
        yield coming[at].pop(0)
        if not coming[at]:
            del coming[at]


def _displaced(random: Random, histories: Sequence[History], facets: Facets) -> Iterator[Element]:
    """Yield the elements of all histories in the order of their sync times, some of them displaced."""
    share, places = facets.number("displaced"), facets.number("places")
    ordered = sorted(
        ((_due(history, at), number, at) for number, history in enumerate(histories) for at in range(len(history)))
    )
    limit = int(min(places, len(ordered)))
    placed = []
    for place, (_, number, at) in enumerate(ordered):
        moved = random.randrange(1, limit + 1) if limit and random.random() < share else 0
        placed.append(_Placed(place + moved + (0.5 if moved else 0), number, histories[number][at]))
    return _in_history_order(placed, histories)


def _due(history: History, at: int) -> int:
    """Return when an element comes if nothing is displaced: at the latest sync time of its history so far."""
    return max(map(sync_time, history[: at + 1]))


def _in_history_order(placed: Sequence[_Placed], histories: Sequence[History]) -> Iterator[Element]:
    """Yield the elements by their places; each place of a history gets the next element of it."""
    taken = [0] * len(histories)
    for _, number, _ in sorted(placed, key=lambda one: (one.place, one.number)):
        yield histories[number][taken[number]]
        taken[number] += 1
