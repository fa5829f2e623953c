"""What one input has delivered: kept under R0-R2 where a broken promise switches the algorithm.

R0-R2 drop an insert without a look at it as soon as the promises imply that it is known. When a promise turns out to
be broken, nothing that it implied may be believed (law 11), so R3 and R4 need what each input really has. It is kept
for those events only that an element can still concern: those that are live in the output, or that the input itself
may still adjust. It costs a row per live event and input, and nothing where ``allow_downgrade`` is off.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any, Final

from lmerge.core.batch import Row
from lmerge.core.elements import INSERT

KEPT: Final = 1024  # up to so many rows nothing is looked for that could be forgotten

DeliveredEvent = tuple[int, bytes, int]
"""An event as (Vs, payload, Ve)."""


class Delivered:
    """The events that one input has inserted."""

    __slots__ = ("_forget_at", "events")

    def __init__(self, events: Iterable[DeliveredEvent] = ()) -> None:
        self.events: list[DeliveredEvent] = list(events)
        self._forget_at = max(KEPT, 2 * len(self.events))

    def add(self, rows: Iterable[Row], below: int) -> None:
        """Note the inserts among ``rows``. What ends before ``below`` can be forgotten. Amortised O(rows)."""
        self.events += [(vs, payload, ve) for kind, vs, ve, _, payload in rows if kind == INSERT and ve > vs]
        if len(self.events) >= self._forget_at:
            self.events = self.since(below)
            self._forget_at = max(KEPT, 2 * len(self.events))

    def since(self, below: int) -> list[DeliveredEvent]:
        """The events that do not end before ``below``, in the order of their delivery."""
        return [event for event in self.events if event[2] >= below]

    def dump(self, below: int) -> list[list[Any]]:
        """As plain data: what ``load`` takes. Its bytes do not depend on what has been forgotten so far."""
        return [[vs, b64encode(payload).decode(), ve] for vs, payload, ve in self.since(below)]

    @classmethod
    def load(cls, rows: Iterable[list[Any]]) -> Delivered:
        """The reverse of ``dump``."""
        return cls((vs, b64decode(payload), ve) for vs, payload, ve in rows)
