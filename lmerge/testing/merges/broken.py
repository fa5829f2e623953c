"""Inputs that agree on one TDB and break what they have promised: drawn streams of it.

A promise may be false from the start or from some point on.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.testing.merges.declared import DECLARED
from lmerge.testing.streams.merge_inputs import joining, reference

Key = tuple[int, bytes]

MOSTLY_LAZY: Final = ("lazy", "lazy", "lazy", "eager", "lazy+lag:3")


class BrokenPromises(NamedTuple):
    """How a stream breaks its promises. ``truthful``: this many events of the TDB come first, as promised."""

    truthful: int
    revises: float = 0.0  # chance that an event first has a wrong end
    delays: float = 0.0  # chance that an event comes after later ones
    invents: float = 0.0  # chance, per event, of another one that is inserted and removed again
    shuffles: bool = False  # events with one Vs come in any order


class DrawnInputs:
    """A TDB and streams of it, all drawn from ``random``."""

    def __init__(self, random: Random, *, size: int = 9, policies: Sequence[str] = MOSTLY_LAZY) -> None:
        self.random = random
        self.policy = random.choice(policies)
        self.events = reference(
            random, random.randint(1, size), payloads=3, duplicates=random.random() < 0.4, strict=random.random() < 0.3
        )
        self.repeats = len({(event.vs, event.payload) for event in self.events}) < len(self.events)
        self.declared = random.choice(DECLARED)
        self.misses: set[Key] = set()
        self._keeps_promises = random.random() < 0.2

    def promises(self) -> tuple[str, ...]:
        """Return what an input declares: mostly the same for all."""
        return self.declared if self.random.random() < 0.8 else self.random.choice(DECLARED)

    def stream(self, *, may_miss: bool = False) -> list[Element]:
        """Return a legal stream of the TDB that ends with stable(+inf)."""
        random = self.random
        events = list(self.events)
        if may_miss and random.random() < 0.15:
            missed = random.choice(events)
            self.misses.add((missed.vs, missed.payload))
            events.remove(missed)
        if self._keeps_promises or random.random() < 0.25:
            return stream_of(random, events, BrokenPromises(len(events), shuffles=random.random() < 0.3))
        chances = (0.0, 0.0, 0.2, 0.5)
        return stream_of(
            random,
            events,
            BrokenPromises(
                random.randint(0, len(events)),
                random.choice(chances),
                random.choice(chances),
                random.choice((0.0, 0.2)),
                shuffles=random.random() < 0.5,
            ),
        )

    def late(self, join_at: int) -> list[Element]:
        """Return the stream of an input that joins at ``join_at``."""
        return joining(self.stream(), join_at, self.events)


def stream_of(random: Random, events: Sequence[Event], broken: BrokenPromises) -> list[Element]:
    """Return a legal stream that reconstitutes to ``events``, with legal stables at random places."""
    keyed = [(event.vs, random.random() if broken.shuffles else at, event) for at, event in enumerate(events)]
    first: list[Element] = []
    later: list[list[Element]] = []
    for at, (_, _, event) in enumerate(sorted(keyed, key=lambda item: item[:2])):
        history = _history(random, event, broken)
        if random.random() < broken.invents:
            ve = event.vs + random.randint(1, 9)
            never: list[Element] = [Insert(b"x%d" % at, event.vs, ve), Adjust(b"x%d" % at, event.vs, ve, event.vs)]
            if random.random() < 0.5:
                later.append(never)
            else:
                first.append(never[0])
                later.append(never[1:])
        if random.random() < broken.delays:
            later.append(history)
        elif at < broken.truthful:
            first.append(history[0])
            later.append(history[1:])
        else:
            later.append(history)
    rest = [history for history in later if history]
    while rest:
        # Without broken promises the rest is in order too: the window is then one event wide.
        width = 4 if broken.revises or broken.delays or broken.invents else 1
        at = random.randrange(min(width, len(rest)))
        first.append(rest[at].pop(0))
        if not rest[at]:
            del rest[at]
    return with_stables(random, first)


def with_stables(random: Random, elements: Sequence[Element], chance: float = 0.3) -> list[Element]:
    """Return ``elements`` with legal stables between, and stable(+inf) at the end."""
    bounds = [INF]
    for element in reversed(elements):
        assert not isinstance(element, Stable)
        needs = element.vs if isinstance(element, Insert) else min(element.vold, element.ve)
        bounds.append(min(bounds[-1], needs))
    bounds.reverse()
    stream: list[Element] = []
    stable = NEG_INF
    for at, element in enumerate(elements):
        stream.append(element)
        if random.random() < chance and bounds[at + 1] < INF:
            vc = bounds[at + 1] - random.choice((0, 0, random.randint(0, 3)))
            if vc > stable:
                stable = vc
                stream.append(Stable(vc))
    return [*stream, Stable(INF)]


def _history(random: Random, event: Event, broken: BrokenPromises) -> list[Element]:
    vs, payload, ve = event
    last_end = random.choice((INF, vs + random.randint(1, 20))) if random.random() < broken.revises else ve
    history: list[Element] = [Insert(payload, vs, last_end)]
    while last_end != ve:
        after = ve if random.random() < 0.7 else vs + random.randint(1, 20)
        if after != last_end:
            history.append(Adjust(payload, vs, last_end, after))
            last_end = after
    return history
