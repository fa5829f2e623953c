"""Inputs of merges: a table of letters, and physically different streams of it, from a source of draws.

A merge takes payloads as bytes, so one letter will do. ``reference`` makes a table, ``present`` and ``ordered`` make
streams of it, ``mistaken`` and ``joining`` are what a replica that starts late computes and publishes. Equal draws give
equal streams.

Called by tests of merges and of the service, and by the simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Final

from lmerge.core.elements import INF, Element, Event, Insert, Stable
from lmerge.testing.streams.arrivals import arrivals
from lmerge.testing.streams.facets import Facets
from lmerge.testing.streams.stables import drawn_stables

MIXED: Final = Facets(disorder="mixed", revisions="drawn", liveliness="drawn")
"""Disorder, revisions and stables of an input, if nothing else is asked for; ``replace`` changes its numbers."""
PLAIN: Final = replace(MIXED, places=0, revised=0.0, invented=0.0)
"""Inserts alone, in the order of the table."""
NO_END: Final = 0.05
"""How many events of a reference have no end."""
ORDERED_SLACK_MAX: Final = 3


def reference(
    random: Random, count: int, *, payloads: int = 4, step_max: int = 3, duplicates: bool = False, strict: bool = False
) -> list[Event]:
    """Return a TDB of about ``count`` events, ordered by (vs, payload, ve).

    ``payloads``: how many letters; ``step_max``: from one start to the next, at most. ``duplicates``: (Vs, payload) is
    no key, and equal events occur. ``strict``: every Vs occurs once.
    """
    events: list[Event] = []
    seen: set[tuple[int, bytes]] = set()
    t = 0
    for _ in range(count):
        t += random.randint(1 if strict else 0, step_max)
        payload = bytes([65 + random.randrange(payloads)])
        if (t, payload) in seen and not duplicates:
            continue
        seen.add((t, payload))
        has_end = random.random() >= NO_END
        ve = t + random.choice((random.randint(1, 20), random.randint(1, 5))) if has_end else INF
        events.append(Event(t, payload, ve))
        while duplicates and random.random() < 0.3:
            events.append(Event(t, payload, random.choice((ve, t + random.randint(1, 20)))))
    return sorted(events)


def present(random: Random, events: Sequence[Event], facets: Facets = MIXED) -> list[Element]:
    """Return a legal stream that reconstitutes to ``events``, by the facets of arrival."""
    return arrivals(random, events, facets, lambda number: b"never%d" % number)


def ordered(
    random: Random, events: Sequence[Event], *, ties: str = "payload", stables: float = 0.25, meeting: float = 0.6
) -> list[Element]:
    """Return an insert-only stream in order of Vs that reconstitutes to ``events``: for R0, R1 and R2.

    ``ties``: equal Vs come in order of ``payload`` (the same on every input, R1) or ``shuffled`` (R2). ``stables``,
    ``meeting``: as in ``Facets``.
    """
    keyed = [(event.vs, random.random() if ties == "shuffled" else at, event) for at, event in enumerate(events)]
    inserts = [Insert(event.payload, event.vs, event.ve) for _, _, event in sorted(keyed, key=lambda item: item[:2])]
    starts = [insert.vs for insert in inserts]
    most = starts[-1] if starts else INF
    stream = drawn_stables(random, inserts, starts, stables, meeting, slack_max=ORDERED_SLACK_MAX, most=most)
    return [*stream, Stable(INF)]


def joining(stream: Sequence[Element], join_at: int, events: Sequence[Event]) -> list[Element]:
    """Return what a replica that starts late publishes of ``stream``: nothing of events that end before ``join_at``."""
    kept = {(event.vs, event.payload) for event in events if event.ve >= join_at}
    never = {(e.vs, e.payload) for e in stream if isinstance(e, Insert)} - {(e.vs, e.payload) for e in events}
    return [e for e in stream if isinstance(e, Stable) or (e.vs, e.payload) in kept | never]


def mistaken(random: Random, events: Sequence[Event], join_at: int) -> list[Event]:
    """Return a TDB that is right only from ``join_at`` on, as a replica that starts late computes it.

    Of the events that end before, some are missing, some end elsewhere before ``join_at``, and some are invented.
    """
    table = []
    for at, event in enumerate(events):
        if event.ve >= join_at or random.random() < 0.4:
            table.append(event)
        elif random.random() < 0.7:
            table.append(Event(event.vs, event.payload, random.randint(event.vs + 1, join_at - 1)))
        if event.vs < join_at - 1 and random.random() < 0.2:
            table.append(Event(event.vs, b"wrong%d" % at, random.randint(event.vs + 1, join_at - 1)))
    return sorted(table)
