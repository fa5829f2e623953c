"""What a spool knows of a batch: values, and their form in JSON. Called by ``spool``, ``said`` and ``retention``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from lmerge.core.elements import INF, NEG_INF


@dataclass(frozen=True)
class SaidRef:
    """Where the keyed state of a partition is: the newest of a chain of files, each of which names the one before it.

    ``whole``: the file at which the chain begins, ``since``: its version. ``deltas``: files after it, ``changed``: keys
    in them. ``entries``: keys in the state. ``looked``: the version at which it was last looked for keys to forget.
    """

    name: str
    whole: str
    since: int
    deltas: int
    changed: int
    entries: int
    looked: int


@dataclass(frozen=True)
class Part:
    """What one attempt at one partition of a batch has said. ``name``: its file in the spool; empty if it says nothing.

    ``largest_end``: of all ends that stand in it, old ones among them, -inf if there are none. ``smallest_vold``: the
    smallest old end of its adjusts, +inf without any. ``ends``: some of its inserts' ends, evenly chosen, in order.
    ``said``: the keyed state after this attempt.
    """

    batch: int
    partition: int
    attempt: int
    name: str = ""
    messages: int = 0
    elements: int = 0
    adjusts: int = 0
    bytes: int = 0
    largest_end: int = NEG_INF
    smallest_vold: int = INF
    ends: tuple[int, ...] = ()
    said: SaidRef | None = None


@dataclass(frozen=True)
class Manifest:
    """A committed batch. ``parts``: of the attempts that won, in the order in which they are said.

    ``stable``: what the batch says at its end; None: nothing new. ``stable_point``: the largest said up to then.
    ``heard``: the merge's stable point when the batch was committed. ``skipped``: the batches after this one leave out
    events that end before (``skipping``). ``meta``: whose stream it is.
    """

    batch: int
    parts: tuple[Part, ...]
    stable: int | None
    stable_point: int
    heard: int = NEG_INF
    skipped: int = NEG_INF
    meta: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def elements(self) -> int:
        """Inserts and adjusts in the batch."""
        return sum(part.elements for part in self.parts)

    @cached_property
    def largest_end(self) -> int:
        return max((part.largest_end for part in self.parts), default=NEG_INF)

    @cached_property
    def smallest_vold(self) -> int:
        return min((part.smallest_vold for part in self.parts), default=INF)

    @property
    def complete_from(self) -> int:
        """Nobody needs events that end before: what was said of them need not be kept (``publish.live_events``)."""
        return max(min(self.heard, self.stable_point), self.skipped)

    def to_json(self) -> dict[str, Any]:
        """As the spool writes it."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Manifest:
        """The reverse. Raises KeyError, TypeError or ValueError if it does not fit."""
        values = dict(body)
        values["parts"] = tuple(_part_of(part) for part in values["parts"])
        values["meta"] = {str(name): str(value) for name, value in values["meta"].items()}
        return cls(**values)


@dataclass(frozen=True)
class Base:
    """The head of a snapshot of live events: what stands for all batches up to ``batch``, which are not kept.

    ``complete_from``: it is right for events that end then or later. ``begins``: the stream begins behind it.
    """

    batch: int
    stable_point: int
    complete_from: int
    messages: int = 0
    elements: int = 0
    largest_end: int = NEG_INF
    ends: tuple[int, ...] = ()
    begins: bool = False
    meta: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Base:
        """The reverse. Raises KeyError, TypeError or ValueError if it does not fit."""
        return cls(**{**body, "ends": tuple(body["ends"])})


def sample(ends: Iterable[int], most: int) -> tuple[int, ...]:
    """At most ``most`` of ``ends``, evenly chosen."""
    kept = list(ends)
    step = -(-len(kept) // most) or 1
    return tuple(kept[::step])


def _part_of(body: Mapping[str, Any]) -> Part:
    values = {**body, "ends": tuple(body["ends"])}
    if values["said"] is not None:
        values["said"] = SaidRef(**values["said"])
    return Part(**values)
