"""What the merge knows about one attached input: its promises, its own stable point, its place in the index."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from lmerge.core import properties as props
from lmerge.core.batch import Row
from lmerge.core.delivered import Delivered
from lmerge.core.elements import NEG_INF

NEVER: Final = NEG_INF - 1  # in place of a Vs: none has come yet; -inf is a time like any other
ACTIVE = "active"
OBSERVE = "observe"
ROLES = (ACTIVE, OBSERVE)
# Peers write incarnations in 64 bits, with 0 for "the next one". Those up to here are anybody's, times in microseconds
# among them for 290,000 years; beyond there would be no next one for who asks for it.
INCARNATION_MAX: Final = 2**63 - 1


@dataclass(slots=True, eq=False)
class Input:
    """One life of one input. A new incarnation is a new object: it starts with fresh counters (law 3).

    ``slot`` is its column in the index, where entries of an input that has left stay for a while: no other input has
    such a slot. ``place`` is its column in a snapshot, the first that no other has. ``demanded`` is what it must keep:
    what it promised and, where the algorithm was fixed by the user, what that algorithm needs.

    ``Merge`` counts elements here and the engine keeps the rest. The native engine copies its counters in after each
    call; ``at_last_vs``, ``tie_order``, ``tie_marks``, ``waiting`` and ``delivered`` are the Python engine's only.
    """

    name: str
    incarnation: int
    slot: int
    promised: props.Properties
    demanded: props.Properties
    join_at: int | None = None
    role: str = ACTIVE
    joined: bool = True
    place: int = -1  # as ``slot`` if it is not given

    stable: int = NEG_INF  # its own stable point
    last_vs: int = NEVER  # Vs of its last insert
    # R0-R2: its elements with that Vs, as (payload, Ve): what it has delivered there if the algorithm is switched.
    at_last_vs: Counter[tuple[bytes, int]] = field(default_factory=Counter)
    tie_count: int = 0  # R1: how many elements of the output's current Vs slot it has delivered, if last_vs is there
    # R1, while that slot is out of step: the places of these elements in order, each with its rank in that order; and
    # by the slot of another input, the latest of them that both have delivered.
    tie_order: dict[int, int] = field(default_factory=dict)
    tie_marks: dict[int, int] = field(default_factory=dict)
    waiting: list[Row] = field(default_factory=list)  # R0-R2: inserts that came while it was joining
    waiting_bytes: int = 0  # of the payloads in it, at most
    held: bool = False  # its stable point is too far ahead of the others' (``lead``); it follows from the rest
    excused: bool = False  # the others' lead is not measured by it until it has a new stable point (``lead``)
    delivered: Delivered | None = None  # R0-R2: all that it has inserted; None if that is not kept

    inserts: int = 0
    adjusts: int = 0
    stables: int = 0
    late: int = 0  # inserts and adjusts that came below the output's stable point, too late to matter
    won: int = 0  # output inserts and adjusts that its elements caused

    def __post_init__(self) -> None:
        if self.place < 0:
            self.place = self.slot

    @property
    def observes(self) -> bool:
        """Checked against its promises, never merged."""
        return self.role == OBSERVE

    @property
    def counts(self) -> bool:
        """V.B: joined, active and not held, so its stable points move the output."""
        return self.joined and self.role == ACTIVE and not self.held

    @property
    def insert_only(self) -> bool:
        return props.INSERT_ONLY in self.demanded

    @property
    def strict(self) -> bool:
        return props.STRICTLY_ORDERED in self.demanded

    @property
    def ordered(self) -> bool:
        return props.ORDERED in self.demanded or self.strict

    @property
    def keyed(self) -> bool:
        return props.KEY in self.demanded or self.strict

    @property
    def ties(self) -> bool:
        return props.DETERMINISTIC_TIES in self.demanded

    def floor(self) -> int:
        """The smallest Vs that its next insert may have, by its stable point and its order."""
        if not self.ordered:
            return self.stable
        return max(self.stable, self.last_vs + self.strict)
