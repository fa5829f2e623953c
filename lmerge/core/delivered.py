"""Keeps what one input has delivered under R0-R2, for a switch of the algorithm after a broken promise.

R0-R2 drop an insert as soon as the promises imply that it is a duplicate. After a broken promise, conclusions from it
are not valid (law 11, docs/laws.md), so R3 and R4 need the events that each input really has. Only events that can
still change are kept: those that are live in the output, or that the input itself may still adjust. That costs a row
for each live event and input, and nothing where ``allow_downgrade`` is off.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any, Final

from lmerge.core.batch import Row
from lmerge.core.elements import INSERT

KEPT: Final = 1024  # up to this many rows are kept without a search for events that can be forgotten

DeliveredEvent = tuple[int, bytes, int]
"""An event as (Vs, payload, Ve)."""


class Delivered:
    """The events that one input has inserted."""

    __slots__ = ("_forget_at", "events")

    def __init__(self, events: Iterable[DeliveredEvent] = ()) -> None:
        self.events: list[DeliveredEvent] = list(events)
        self._forget_at = max(KEPT, 2 * len(self.events))

    def add(self, rows: Iterable[Row], below: int) -> None:
        """Add the inserts among ``rows``. Events that end before ``below`` can be forgotten. Amortised O(rows)."""
        self.events += [(vs, payload, ve) for kind, vs, ve, _, payload in rows if kind == INSERT and ve > vs]
        if len(self.events) >= self._forget_at:
            self.events = self.since(below)
            self._forget_at = max(KEPT, 2 * len(self.events))

    def since(self, below: int) -> list[DeliveredEvent]:
        """Return the events that do not end before ``below``, in the order of their delivery."""
        return [event for event in self.events if event[2] >= below]

    def dump(self, below: int) -> list[list[Any]]:
        """Return plain data for ``load``. It does not depend on what has been forgotten so far."""
        return [[vs, b64encode(payload).decode(), ve] for vs, payload, ve in self.since(below)]

    @classmethod
    def load(cls, rows: Iterable[list[Any]]) -> Delivered:
        """Return what ``dump`` wrote."""
        return cls((vs, b64decode(payload), ve) for vs, payload, ve in rows)
