"""The values that a spool keeps of a batch, and their JSON. Called by all of the package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from lmerge.core.elements import INF, NEG_INF


@dataclass(frozen=True)
class PublishedStateRef:
    """Where the keyed state of a partition is: the newest file of a chain. Each file names the one before it.

    ``whole``: the first file of the chain, ``since``: its version. ``deltas``: the number of files after it,
    ``changed``: the number of keys in them. ``entries``: the number of keys in the state. ``looked``: the version at
    which the state was last scanned for keys to forget.
    """

    name: str
    whole: str
    since: int
    deltas: int
    changed: int
    entries: int
    looked: int


@dataclass(frozen=True)
class SpoolPart:
    """What one attempt at one partition of a batch wrote. ``name``: its file in the spool; empty if it has no elements.

    ``largest_end``: the largest of all ends in it, old ends included; -inf without any. ``smallest_vold``: the smallest
    old end of its adjusts; +inf without any. ``ends``: an even sample of its inserts' ends, in order.
    ``keyed_state``: the state of the partition's keys after this attempt (``said`` in JSON).
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
    keyed_state: PublishedStateRef | None = None


@dataclass(frozen=True)
class Manifest:
    """A committed batch. ``parts``: those of the attempts that won, in the order in which they are published.

    ``stable``: the stable at the end of the batch; None: no new one. ``stable_point``: the largest stable up to then.
    ``merge_stable``: the merge's stable point when the batch was committed (``heard`` in JSON). ``skipped``: the
    batches after this one leave out events that end before it (``skipping``). ``meta``: identifies the stream.
    """

    batch: int
    parts: tuple[SpoolPart, ...]
    stable: int | None
    stable_point: int
    merge_stable: int = NEG_INF
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
        """The time before which ended events are not needed, so they need not be kept (``publish.live_events``)."""
        return max(min(self.merge_stable, self.stable_point), self.skipped)

    def to_json(self) -> dict[str, Any]:
        """Return the object that the spool writes."""
        body = asdict(self)
        for part in body["parts"]:
            part["said"] = part.pop("keyed_state")
        return {"heard" if name == "merge_stable" else name: value for name, value in body.items()}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Manifest:
        """Return the manifest of an object. Raises KeyError, TypeError or ValueError if it is not one."""
        values = {"merge_stable" if name == "heard" else name: value for name, value in body.items()}
        values["parts"] = tuple(_part_of(part) for part in values["parts"])
        values["meta"] = {str(name): str(value) for name, value in values["meta"].items()}
        return cls(**values)


@dataclass(frozen=True)
class Base:
    """The head of a snapshot of live events, which replaces all batches up to ``batch``.

    ``complete_from``: the snapshot is right for events that end then or later.
    """

    batch: int
    stable_point: int
    complete_from: int
    messages: int = 0
    elements: int = 0
    largest_end: int = NEG_INF
    ends: tuple[int, ...] = ()
    meta: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Base:
        """Return the head of an object. Raises KeyError, TypeError or ValueError if it is not one."""
        values = {name: value for name, value in body.items() if name != "begins"}  # false, in older files
        return cls(**{**values, "ends": tuple(body["ends"])})


def sample(ends: Iterable[int], most: int) -> tuple[int, ...]:
    """Return at most ``most`` of ``ends``, evenly spaced."""
    kept = list(ends)
    step = -(-len(kept) // most) or 1
    return tuple(kept[::step])


def _part_of(body: Mapping[str, Any]) -> SpoolPart:
    values = {"keyed_state" if name == "said" else name: value for name, value in body.items()}
    values["ends"] = tuple(values["ends"])
    if values["keyed_state"] is not None:
        values["keyed_state"] = PublishedStateRef(**values["keyed_state"])
    return SpoolPart(**values)
