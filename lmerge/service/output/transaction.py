"""The changes of a turn that must be in the store before the turn's output is delivered: one transaction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from lmerge.core.batch import AnyBatch

NewMessage: TypeAlias = tuple[int, int, bytes, int, int]
"""Its number, the number of its segment, the encoded batch, its elements, its inserts."""


class NewSegment(NamedTuple):
    """A segment of the journal. ``first``: the number of its first message; ``live``: its snapshot."""

    number: int
    first: int
    stable_point: int
    complete_from: int
    bytes: int
    events: int
    live: AnyBatch


@dataclass
class Changes:
    """The changes of one transaction.

    ``is_reset``: everything in the store is deleted first. ``forgotten``: the numbers of segments to delete. ``facts``:
    by name, see ``merge_record``. ``bytes``: the approximate size of the messages. ``incarnations``: the newest one of
    each replica; None deletes it.
    """

    segments: list[NewSegment] = field(default_factory=list)
    messages: list[NewMessage] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)
    incarnations: dict[str, int | None] = field(default_factory=dict)
    facts: dict[str, bytes] = field(default_factory=dict)
    bytes: int = 0
    is_reset: bool = False

    def __bool__(self) -> bool:
        return bool(
            self.is_reset or self.segments or self.messages or self.forgotten or self.incarnations or self.facts
        )

    def reset(self) -> None:
        """Delete everything in the store, and drop the changes that were collected so far."""
        self.take()
        self.is_reset = True

    def take(self) -> Changes:
        """Return the collected changes, and start with none."""
        taken = Changes(
            self.segments, self.messages, self.forgotten, self.incarnations, self.facts, self.bytes, self.is_reset
        )
        self.segments, self.messages, self.forgotten = [], [], []
        self.incarnations, self.facts, self.bytes, self.is_reset = {}, {}, 0, False
        return taken
