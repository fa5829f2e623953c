"""Random temporal databases and physically different streams of one of them, from a seed.

For tests of anything that merges: ``reference`` makes a TDB, ``present`` makes a legal stream that reconstitutes to it,
with disorder, wrong ends that are revised, events that are inserted and removed again, and stables as tight as they may
be. The same seed gives the same streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable


@dataclass(frozen=True)
class Shape:
    """How a presentation differs from the plain one.

    ``disorder``: how many events later an insert may come. ``revision``: chance that an event first gets a wrong end.
    ``spurious``: chance, per event, of another one that is inserted and removed again. ``stable``: chance of a stable
    after an element; ``tight``: chance that it goes as far as the rest of the stream allows. ``closes``: end with
    stable(+inf).
    """

    disorder: int = 6
    revision: float = 0.5
    spurious: float = 0.1
    stable: float = 0.25
    tight: float = 0.6
    closes: bool = True


PLAIN = Shape(disorder=0, revision=0.0, spurious=0.0)


def reference(
    random: Random, count: int, *, payloads: int = 4, step_max: int = 3, duplicates: bool = False, strict: bool = False
) -> list[Event]:
    """Return a TDB of about ``count`` events, ordered by (vs, payload, ve).

    ``duplicates``: (Vs, payload) is no key, and equal events occur. ``strict``: every Vs occurs once.
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
        ve = INF if random.random() < 0.05 else t + random.choice((random.randint(1, 20), random.randint(1, 5)))
        events.append(Event(t, payload, ve))
        while duplicates and random.random() < 0.3:
            events.append(Event(t, payload, random.choice((ve, t + random.randint(1, 20)))))
    return sorted(events)


def present(random: Random, events: Sequence[Event], shape: Shape = Shape()) -> list[Element]:
    """Return a legal stream that reconstitutes to ``events``."""
    histories = [_history(random, event, shape) for event in events]
    for at in range(len(events)):
        if random.random() < shape.spurious:
            vs = events[at].vs
            ve = vs + random.randint(1, 9)
            payload = b"never%d" % at
            histories.insert(at, [Insert(payload, vs, ve), Adjust(payload, vs, ve, vs)])
    queue = sorted(range(len(histories)), key=lambda at: at + random.random() * shape.disorder)
    return _interleave(random, [histories[at] for at in queue], shape)


def _history(random: Random, event: Event, shape: Shape) -> list[Element]:
    """Return the elements of one event, in order."""
    vs, payload, ve = event
    end = ve
    if random.random() < shape.revision:
        end = random.choice((INF, vs + random.randint(1, 30)))
    history: list[Element] = [Insert(payload, vs, end)]
    while end != ve:
        after = ve if random.random() < 0.6 else vs + random.randint(1, 30)
        if after != end:
            history.append(Adjust(payload, vs, end, after))
            end = after
    return history


def _interleave(random: Random, histories: list[list[Element]], shape: Shape) -> list[Element]:
    """Mix several histories at a time, each in its own order, with legal stables between."""
    stream: list[Element] = []
    window: list[list[Element]] = []
    width = 8 if shape.disorder else 1
    stable, following = NEG_INF, 0
    later = _needs_from(histories)
    while following < len(histories) or window:
        if following < len(histories) and (len(window) < width and (not window or random.random() < 0.7)):
            window.append(list(histories[following]))
            following += 1
            continue
        at = random.randrange(len(window))
        stream.append(window[at].pop(0))
        if not window[at]:
            del window[at]
        if random.random() < shape.stable:
            bound = min((_needs(e) for h in window for e in h), default=INF)
            bound = min(bound, later[following])
            vc = bound if random.random() < shape.tight else bound - random.randint(0, 4)
            if stable < vc < INF:
                stable = vc
                stream.append(Stable(vc))
    if shape.closes:
        stream.append(Stable(INF))
    return stream


def _needs_from(histories: list[list[Element]]) -> list[int]:
    """Return for each place the largest stable after which all histories from there on may still come."""
    bounds = [INF]
    for history in reversed(histories):
        bounds.append(min(bounds[-1], min(map(_needs, history), default=INF)))
    return bounds[::-1]


def _needs(element: Element) -> int:
    """Return the largest stable after which ``element`` may still come."""
    if isinstance(element, Insert):
        return element.vs
    if isinstance(element, Adjust):
        return min(element.vold, element.ve)
    return element.vc


def ordered(
    random: Random, events: Sequence[Event], *, ties: str = "payload", stable: float = 0.25, tight: float = 0.6
) -> list[Element]:
    """Return an insert-only stream in order of Vs that reconstitutes to ``events``: for R0, R1 and R2.

    ``ties``: equal Vs come in order of ``payload`` (the same on every input, R1) or ``shuffled`` (R2).
    """
    keyed = [(event.vs, random.random() if ties == "shuffled" else at, event) for at, event in enumerate(events)]
    stream: list[Element] = []
    last = NEG_INF
    queue = [event for _, _, event in sorted(keyed, key=lambda item: item[:2])]
    for at, event in enumerate(queue):
        stream.append(Insert(event.payload, event.vs, event.ve))
        if random.random() < stable:
            bound = queue[at + 1].vs if at + 1 < len(queue) else event.vs
            vc = bound if random.random() < tight else bound - random.randint(0, 3)
            if vc > last:
                last = vc
                stream.append(Stable(vc))
    stream.append(Stable(INF))
    return stream


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
