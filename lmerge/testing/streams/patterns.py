"""Patterns of lifetimes, which testers write and register: a function of a source of draws and a number of events.

``PATTERNS.register("name", pattern)`` or the entry point group ``lmerge.testing.patterns`` makes one known.
"""

from __future__ import annotations

from random import Random
from typing import Final, Protocol, TypeAlias

from lmerge.core.elements import INF
from lmerge.testing.registry import PartRegistry

Span: TypeAlias = tuple[int, int]
"""A lifetime: start and end."""


class Pattern(Protocol):
    """A pattern of lifetimes."""

    def __call__(self, random: Random, count: int) -> list[Span]:
        """Return ``count`` lifetimes, each with its end behind its start. Draws come from ``random`` alone."""


def periodic(random: Random, count: int) -> list[Span]:
    """Return events of one duration at one distance, as of a sensor."""
    period, duration = random.randrange(2, 9), random.randrange(1, 9)
    return [(at * period, at * period + duration) for at in range(count)]


def bursts(random: Random, count: int) -> list[Span]:
    """Return groups of events that begin within two units, far from each other."""
    found: list[Span] = []
    start = 0
    while len(found) < count:
        for _ in range(min(count - len(found), random.randrange(3, 8))):
            begins = start + random.randrange(3)
            found.append((begins, begins + random.randrange(1, 6)))
        start += random.randrange(20, 40)
    return found


def nested(random: Random, count: int) -> list[Span]:
    """Return events each of which lies inside the one before."""
    return [(at, 2 * count - at + (at % 2)) for at in range(count)]


def staircase(random: Random, count: int) -> list[Span]:
    """Return events each of which begins half way through the one before."""
    step = random.randrange(1, 4)
    return [(at * step, at * step + 2 * step) for at in range(count)]


def comb(random: Random, count: int) -> list[Span]:
    """Return pairs of a short and a longer event of one start, with ends that meet the next start."""
    return [(at // 2 * 6, at // 2 * 6 + (6 if at % 2 else 1)) for at in range(count)]


def sessions(random: Random, count: int) -> list[Span]:
    """Return runs of events with gaps of up to three units, and wider ones between the runs."""
    found: list[Span] = []
    start = 0
    for _ in range(count):
        duration = random.randrange(1, 5)
        found.append((start, start + duration))
        start += duration + (random.randrange(12, 20) if random.random() < 0.2 else random.randrange(4))
    return found


def clock_change(random: Random, count: int) -> list[Span]:
    """Return events of one distance whose clock goes back by an hour of 30 units in the middle."""
    found = []
    for at in range(count):
        start = at * 3 - (30 if at >= count // 2 else 0)
        found.append((start, start + random.randrange(1, 7)))
    return found


def one_long(random: Random, count: int) -> list[Span]:
    """Return short events below one that has begun before all of them and has no end."""
    short = [(at * 4 + random.randrange(3), at * 4 + 3 + random.randrange(2)) for at in range(count - 1)]
    return [(-10, INF), *short][:count]


PATTERNS: Final[PartRegistry[Pattern]] = PartRegistry(
    "lmerge.testing.patterns",
    "pattern of lifetimes",
    {
        "periodic": periodic,
        "bursts": bursts,
        "nested": nested,
        "staircase": staircase,
        "comb": comb,
        "sessions": sessions,
        "clock-change": clock_change,
        "one-long": one_long,
    },
)
