"""What has happened to a merge of late: inputs that attached, joined or ended, switches, differences, cutovers.

The hub and the commands of administrators note occurrences, and the status page shows them as a timeline. The list is
bounded. Occurrences are rare, and noting one appends to a deque, so they are always noted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from lmerge.core.detaching import DetachCause, InputDetached
from lmerge.text_enum import TextEnum


class OccurrenceKind(TextEnum):
    """The kinds of occurrences. The texts are those of the status page."""

    ATTACHED = "attached"
    JOINED = "joined"  # the input counts from now on
    ADMITTED = "admitted"  # it counts before the merge has reached its join_at
    LEFT = "left"  # by itself, or replaced by a newer incarnation
    DIED = "died"  # its connection ended without a leave
    ENDED = "ended"  # by the server: a broken promise, a limit, a policy, an administrator
    SWITCHED = "switched"  # the algorithm
    DIFFERED = "differed"
    CUTOVER = "cutover"
    RELEASED = "released"
    GAP = "gap"
    RESET = "reset"


class Occurrence(NamedTuple):
    """One occurrence. ``number``: 1, 2, ... in one merge. ``at_s``: a time of the loop's clock. ``text``: a sentence.

    ``input``: the input that it concerns; empty if it concerns the merge.
    """

    number: int
    at_s: float
    kind: OccurrenceKind
    input: str
    text: str


class Occurrences:
    """The last occurrences of one merge, oldest first. ``count``: how many there were in all."""

    def __init__(self, remembered: int) -> None:
        self.count = 0
        self.recent: Final[deque[Occurrence]] = deque(maxlen=remembered)

    def note(self, kind: OccurrenceKind, text: str, input_name: str = "") -> None:
        """Note an occurrence of now. To be called on the loop."""
        self.count += 1
        now_s = asyncio.get_running_loop().time()
        self.recent.append(Occurrence(self.count, now_s, kind, input_name, text))

    def note_detached(self, gone: InputDetached) -> None:
        """Note the end of an input."""
        self.note(_KINDS.get(gone.cause, OccurrenceKind.ENDED), gone.reason, gone.input)


_KINDS: Final = {
    DetachCause.LEFT: OccurrenceKind.LEFT,
    DetachCause.REPLACED: OccurrenceKind.LEFT,
    DetachCause.CONNECTION_ENDED: OccurrenceKind.DIED,
    DetachCause.GAP: OccurrenceKind.GAP,
    DetachCause.RESET: OccurrenceKind.RESET,
}
