"""The facets of a stream in words, what each word means in numbers, and which words contradict each other.

The span of a table is its largest minus its smallest finite start. TESTING.md of the seeds has the same table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import combinations
from typing import Any, Final

from lmerge.errors import UsageError

FACET_LEVELS: Final[Mapping[str, Sequence[str]]] = {
    "duration": ("mixed", "point", "short", "long", "infinite"),
    "shape": ("interval", "point", "edge"),
    "overlap": ("medium", "low", "high"),
    "contact": ("free", "apart", "one-tick", "back-to-back"),
    "duplicates": ("none", "events"),
    "disorder": ("in-order", "slightly", "out-of-order", "highly"),
    "liveliness": ("tight", "eager", "lazy", "none", "idle", "open"),
    "revisions": ("none", "grow", "shrink", "repeated", "removed", "never-was", "all"),
    "keys": ("few", "uniform", "zipf", "unique"),
    "values": ("plain", "extreme"),
    "batching": ("drawn", "one", "all", "at-stables"),
    "interleaving": ("random", "lockstep", "skewed", "idle", "ended-first"),
}
"""The words of each facet, its default first."""

MEANINGS: Final[Mapping[tuple[str, str], str]] = {
    ("duration", "mixed"): "from one unit to a third of the span, and one in 16 without an end",
    ("duration", "point"): "one unit of time",
    ("duration", "short"): "at most a fiftieth of the span, at least one unit",
    ("duration", "long"): "from a fifth of the span to all of it",
    ("duration", "infinite"): "at least a third of the events have no end; where a plan allows it, one begins at -inf",
    ("shape", "interval"): "any lifetimes",
    ("shape", "point"): "one unit of time each",
    ("shape", "edge"): "of each key one event begins where the one before ends, and the last one is open",
    ("overlap", "low"): "fewer than 1.5 events are alive at a start, on average",
    ("overlap", "medium"): "2 to 10 events are alive at a start, on average",
    ("overlap", "high"): "more than 20 events are alive at a start, or more than two in five of all",
    ("contact", "free"): "distances are drawn",
    ("contact", "apart"): "each event starts behind the end of the one before",
    ("contact", "one-tick"): "at least half of the events start one unit before or behind the end of another",
    ("contact", "back-to-back"): "at least half of the events start where another ends",
    ("duplicates", "none"): "no two events are equal",
    ("duplicates", "events"): "at least one in eight events is there two or three times",
    ("disorder", "in-order"): "elements come in the order of their sync times",
    ("disorder", "slightly"): "one in ten elements is displaced, by 2 places at most",
    ("disorder", "out-of-order"): "three in ten elements are displaced, by 20 places at most",
    ("disorder", "highly"): "six in ten elements are displaced, by up to the whole stream",
    ("liveliness", "tight"): "stables go as far as the rest allows, half of them to the sync time of the next element",
    ("liveliness", "eager"): "a stable behind each element",
    ("liveliness", "lazy"): "a stable for every 100 elements, at least one",
    ("liveliness", "none"): "one stable, at the end",
    ("liveliness", "idle"): "a long silence, then a jump, then the end",
    ("liveliness", "open"): "a stable behind one in four elements, and no end",
    ("revisions", "none"): "no event is adjusted",
    ("revisions", "grow"): "half of the events come with an earlier end",
    ("revisions", "shrink"): "half of the events come with a later end, or without one",
    ("revisions", "repeated"): "half of the events are adjusted three times",
    ("revisions", "removed"): "a third of the events are removed and come again",
    ("revisions", "never-was"): "one in four events more comes and is removed",
    ("revisions", "all"): "each of these for some events",
    ("keys", "few"): "three values of each column of keys",
    ("keys", "uniform"): "eight values, equally often",
    ("keys", "zipf"): "eight values, the n-th one n times as rare as the first",
    ("keys", "unique"): "a value of its own for each event",
    ("values", "plain"): "small numbers and short texts, and missing values",
    ("values", "extreme"): "the ends of each type, NaN, infinities, -0.0, empty texts, texts of 64 kB, missing values",
    ("batching", "drawn"): "from one element to eight in a batch",
    ("batching", "one"): "each element is a batch",
    ("batching", "all"): "all elements of an input that come in a row are one batch",
    ("batching", "at-stables"): "a batch ends with a stable",
    ("interleaving", "random"): "any input comes next",
    ("interleaving", "lockstep"): "inputs come in turn",
    ("interleaving", "skewed"): "the first input comes nine times as often",
    ("interleaving", "idle"): "the last input stops after a quarter until the others have ended",
    ("interleaving", "ended-first"): "one input ends before the others begin",
}
"""What each word means, in numbers."""

_SHORT = "events of a fiftieth of the span"
_LONG = "events of a fifth of the span or more"
_MISFITS: Final[Sequence[tuple[tuple[str, str], tuple[str, str], str]]] = (
    *(
        (("shape", "point"), ("duration", level), "a point lasts one unit of time")
        for level in ("short", "long", "infinite", "mixed")
    ),
    *(
        (("shape", "edge"), ("duration", level), "an edge event lasts until the next one, whenever that is")
        for level in ("point", "short", "long", "infinite")
    ),
    *(
        (("shape", "edge"), ("contact", level), "edge events of a key begin where the one before ends")
        for level in ("free", "apart", "one-tick")
    ),
    (("shape", "edge"), ("overlap", "high"), "one edge event of a key is alive, and so many keys have one event each"),
    (("shape", "edge"), ("keys", "unique"), "edge events follow each other by key"),
    (("shape", "edge"), ("duplicates", "events"), "one edge event of a key is alive"),
    (("duration", "long"), ("overlap", "low"), f"{_LONG} overlap"),
    (("duration", "long"), ("contact", "apart"), f"{_LONG} overlap"),
    (("duration", "infinite"), ("overlap", "low"), "events without an end overlap"),
    (("duration", "infinite"), ("contact", "apart"), "nothing starts behind an event without an end"),
    (("overlap", "medium"), ("contact", "apart"), "events that are apart do not overlap"),
    (("overlap", "high"), ("contact", "apart"), "events that are apart do not overlap"),
    (("overlap", "high"), ("contact", "one-tick"), "events that are all alive at once do not end where others start"),
    (("overlap", "high"), ("contact", "back-to-back"), "events that are all alive at once do not meet end to start"),
    (("duplicates", "events"), ("contact", "apart"), "equal events overlap"),
    (("duplicates", "events"), ("overlap", "low"), "equal events overlap"),
)

EVENTS: Final = 24
"""How many events a stream has, if nothing else is asked for."""


@dataclass(frozen=True)
class Facets:
    """The nature of a stream. Each field but these has the words of ``FACET_LEVELS``.

    ``events``: how many; ``pattern``: the name of a pattern of lifetimes (``patterns``), instead of duration, overlap
    and contact; ``displaced``, ``places``: disorder in numbers, as the share of elements and the largest displacement;
    ``from_beginning``: whether an event may begin at -inf, which no window on a grid takes.

    Raises UsageError for a word that there is not, and for two that contradict each other.
    """

    events: int = EVENTS
    duration: str = "mixed"
    shape: str = "interval"
    overlap: str = "medium"
    contact: str = "free"
    duplicates: str = "none"
    disorder: str = "in-order"
    liveliness: str = "tight"
    revisions: str = "none"
    keys: str = "few"
    values: str = "plain"
    batching: str = "drawn"
    interleaving: str = "random"
    pattern: str = ""
    displaced: float | None = None
    places: int | None = None
    from_beginning: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.events, int) or isinstance(self.events, bool) or self.events < 0:
            raise UsageError(f"a stream of {self.events!r:.64} events; it has a whole number of them")
        for name, levels in FACET_LEVELS.items():
            if getattr(self, name) not in levels:
                raise UsageError(f"{name} is {getattr(self, name)!r:.64}; it is one of {', '.join(levels)}")
        if self.displaced is not None and not 0 <= self.displaced <= 1:
            raise UsageError(f"displaced is {self.displaced!r:.64}; it is a share of the elements, from 0 to 1")
        if self.places is not None and self.places < 0:
            raise UsageError(f"places is {self.places!r:.64}; it is a number of places, from 0")
        for one, other in combinations(FACET_LEVELS, 2):
            reason = facet_misfit(one, getattr(self, one), other, getattr(self, other))
            if reason is not None and not (self.pattern and _of_lifetimes(one) and _of_lifetimes(other)):
                levels = f"{one}={getattr(self, one)} and {other}={getattr(self, other)}"
                raise UsageError(f"{levels} contradict each other: {reason}")

    def to_json(self) -> dict[str, Any]:
        """Return what is not the default."""
        return {one.name: value for one, value in zip(fields(self), asdict(self).values()) if value != one.default}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Facets:
        """Return the facets of ``to_json``. Raises UsageError for a facet that there is not."""
        unknown = given.keys() - {one.name for one in fields(cls)}
        if unknown:
            names = ", ".join(one.name for one in fields(cls))
            raise UsageError(f"there is no facet {min(unknown)!r:.64}; there are {names}")
        return cls(**given)


def facet_misfit(one: str, level: str, other: str, other_level: str) -> str | None:
    """Return why two words of facets contradict each other, in either order, or None."""
    return _REASONS.get(frozenset(((one, level), (other, other_level))))


_REASONS: Final = {frozenset((one, other)): reason for one, other, reason in _MISFITS}


def _of_lifetimes(name: str) -> bool:
    return name in ("duration", "overlap", "contact")
