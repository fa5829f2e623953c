"""The facets of a stream in words, what each word means in numbers, and which words contradict each other.

Intents draw from ``FACET_LEVELS``. Tests of merges and the simulation have words besides, with which chances are drawn
element by element (``FURTHER_LEVELS``). ``NUMBERS`` has the numbers that a facet can be stated by instead of a word.

The span of a table is its largest minus its smallest finite start. TESTING.md of the seeds has the same table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import combinations
from typing import Any, Final

from lmerge.core.elements import INF
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
"""The words of each facet from which intents draw, its default first."""

FURTHER_LEVELS: Final[Mapping[str, Sequence[str]]] = {
    "disorder": ("mixed",),
    "liveliness": ("drawn",),
    "revisions": ("drawn",),
}
"""Words that are to be asked for: those of inputs of merges (``merge_inputs``)."""

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
    ("disorder", "mixed"): "elements of 8 events at a time are mixed, and an event comes 6 events later at most",
    ("liveliness", "tight"): "stables go as far as the rest allows, half of them to the sync time of the next element",
    ("liveliness", "eager"): "a stable behind each element",
    ("liveliness", "lazy"): "a stable for every 100 elements, at least one",
    ("liveliness", "none"): "one stable, at the end",
    ("liveliness", "idle"): "a long silence, then a jump, then the end",
    ("liveliness", "drawn"): "a stable behind one in four elements, six in ten of them as far as the rest allows",
    ("liveliness", "open"): "the same, and no end",
    ("revisions", "none"): "no event is adjusted",
    ("revisions", "grow"): "half of the events come with an earlier end",
    ("revisions", "shrink"): "half of the events come with a later end, or without one",
    ("revisions", "repeated"): "half of the events are adjusted three times",
    ("revisions", "removed"): "a third of the events are removed and come again",
    ("revisions", "never-was"): "one in four events more comes and is removed",
    ("revisions", "all"): "each of these for some events",
    ("revisions", "drawn"): "half of the events come with any end, until it is right; one in ten more is removed",
    ("keys", "few"): "three values of each column of keys",
    ("keys", "uniform"): "eight values, equally often",
    ("keys", "zipf"): "eight values, the n-th one n times as rare as the first",
    ("keys", "unique"): "a value of its own for each event",
    ("values", "plain"): "small numbers and short texts, and missing values",
    ("values", "extreme"): "the ends of each type, NaN, infinities, empty texts, texts of 64 kB, missing values",
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

NUMBERS: Final[Mapping[str, tuple[str, Mapping[str, int | float]]]] = {
    "alive": ("overlap", {"low": 1, "medium": 4}),
    "displaced": ("disorder", {"in-order": 0.0, "slightly": 0.1, "out-of-order": 0.3, "highly": 0.6}),
    "places": ("disorder", {"in-order": 0, "slightly": 2, "out-of-order": 20, "highly": INF, "mixed": 6}),
    "revised": ("revisions", {"grow": 0.6, "shrink": 0.6, "repeated": 0.6, "removed": 0.4, "all": 0.6, "drawn": 0.5}),
    "invented": ("revisions", {"never-was": 0.3, "all": 0.3, "drawn": 0.1}),
    "stables": ("liveliness", {"lazy": 0.01, "drawn": 0.25, "open": 0.25}),
    "meeting": ("liveliness", {"drawn": 0.6, "open": 0.6}),
}
"""The numbers that facets can be stated by: the facet, and the number of each word. Other words have no such number."""

SHARES: Final = ("displaced", "revised", "invented", "stables", "meeting")
"""The numbers that are shares, from 0 to 1: of elements, of events, of events, of elements, of stables."""

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
    """The nature of a stream. Each field but these has the words of ``FACET_LEVELS`` and ``FURTHER_LEVELS``.

    ``events``: how many; ``pattern``: the name of a pattern of lifetimes (``patterns``), instead of duration, overlap
    and contact; ``from_beginning``: whether an event may begin at -inf, which no window on a grid takes.

    In numbers instead of a word: ``alive``: how many events are alive at once, but for those without an end;
    ``displaced``, ``places``: the share of elements that are displaced, and by how many places at most; ``revised``,
    ``invented``: the share of events that are revised, and that never were; ``stables``, ``meeting``: the share of
    elements that a stable follows, and of stables that go as far as the rest allows.

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
    alive: int | None = None
    displaced: float | None = None
    places: int | None = None
    revised: float | None = None
    invented: float | None = None
    stables: float | None = None
    meeting: float | None = None
    from_beginning: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.events, int) or isinstance(self.events, bool) or self.events < 0:
            raise UsageError(f"a stream of {self.events!r:.64} events; it has a whole number of them")
        for name, levels in FACET_LEVELS.items():
            every = (*levels, *FURTHER_LEVELS.get(name, ()))
            if getattr(self, name) not in every:
                raise UsageError(f"{name} is {getattr(self, name)!r:.64}; it is one of {', '.join(every)}")
        self._check_numbers()
        for one, other in combinations(FACET_LEVELS, 2):
            reason = facet_misfit(one, getattr(self, one), other, getattr(self, other))
            if reason is not None and not (self.pattern and _of_lifetimes(one) and _of_lifetimes(other)):
                both = f"{one}={getattr(self, one)} and {other}={getattr(self, other)}"
                raise UsageError(f"{both} contradict each other: {reason}")

    def _check_numbers(self) -> None:
        for name, (facet, by_level) in NUMBERS.items():
            value, level = getattr(self, name), getattr(self, facet)
            if value is None:
                continue
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if name in SHARES and not (is_number and 0 <= value <= 1):
                raise UsageError(f"{name} is {value!r:.64}; it is a share, from 0 to 1")
            least = 1 if name == "alive" else 0
            if name not in SHARES and not (is_number and isinstance(value, int) and value >= least):
                raise UsageError(f"{name} is {value!r:.64}; it is a whole number from {least}")
            # Any overlap can be had with another number of events.
            if level not in by_level and name != "alive":
                raise UsageError(f"{name}={value} and {facet}={level} contradict each other: {MEANINGS[facet, level]}")

    def has_number(self, name: str) -> bool:
        """Return whether the word of the facet of a number has one."""
        facet, by_level = NUMBERS[name]
        return getattr(self, facet) in by_level

    def number(self, name: str, level: str | None = None) -> int | float:
        """Return a number of ``NUMBERS``: the one that was stated, or that of the facet's word, or of ``level``."""
        facet, by_level = NUMBERS[name]
        stated: int | float | None = getattr(self, name)
        return by_level[level or getattr(self, facet)] if stated is None else stated

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


def fitting_levels(stated: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Return the words of each facet that the stated numbers go with, of facets whose words are not all among them."""
    found: dict[str, Sequence[str]] = {}
    for name, (facet, by_level) in NUMBERS.items():
        if name in stated and name != "alive":
            found[facet] = [level for level in found.get(facet, FACET_LEVELS[facet]) if level in by_level]
    return found


def _of_lifetimes(name: str) -> bool:
    return name in ("duration", "overlap", "contact")
