"""The state of one attached input: its promises, its own stable point, its place in the index."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from lmerge.core import properties as props
from lmerge.core.batch import Row
from lmerge.core.delivered import Delivered
from lmerge.core.elements import NEG_INF
from lmerge.text_enum import TextEnum

NEVER: Final = NEG_INF - 1  # in place of a Vs: no insert has come yet; -inf is a time like any other
# Peers write incarnations in 64 bits, with 0 for "the next one". All incarnations up to this one are allowed, including
# times in microseconds for the next 290,000 years. After a larger one there would be no next one.
INCARNATION_MAX: Final = 2**63 - 1


class InputRole(TextEnum):
    """What an input is for. The texts are those of sessions, snapshots and options."""

    ACTIVE = "active"  # it is merged
    OBSERVE = "observe"  # it is compared with the others, and contributes nothing


class JoinState(TextEnum):
    """Whether the merge relies on an input (V.B)."""

    JOINING = "joining"  # MaxStable has not reached its join_at
    JOINED = "joined"


@dataclass(slots=True, eq=False)
class Input:
    """One life of one input. A new incarnation is a new object: it starts with fresh counters (law 3, docs/laws.md).

    ``slot`` is its column in the index. Entries of an input that has left stay in its column for a while, and no other
    input uses that slot then. ``place`` is its column in a snapshot, the first that no other input has. ``demanded``
    are the properties that it must keep: those that it promised and, where the user fixed the algorithm, those that
    the algorithm needs.

    ``Merge`` counts elements here, and the engine updates the other fields. The native engine copies its counters here
    after each call. Only the Python engine uses ``at_last_vs``, ``tie_order``, ``tie_marks``, ``waiting`` and
    ``delivered``.
    """

    name: str
    incarnation: int
    slot: int
    promised: props.Properties
    demanded: props.Properties
    join_at: int | None = None
    role: InputRole = InputRole.ACTIVE
    joined: bool = True
    place: int = -1  # equal to ``slot`` if it is not given

    stable: int = NEG_INF  # its own stable point
    last_vs: int = NEVER  # Vs of its last insert
    # R0-R2: its elements with that Vs, as (payload, Ve), for a switch of the algorithm.
    at_last_vs: Counter[tuple[bytes, int]] = field(default_factory=Counter)
    tie_count: int = 0  # R1: how many elements of the output's current Vs slot it has delivered, if last_vs is there
    # R1, while that slot is out of step. ``tie_order``: the rank, in order of delivery, of each of these elements, by
    # place. ``tie_marks``: by the slot of another input, the latest element that both have delivered.
    tie_order: dict[int, int] = field(default_factory=dict)
    tie_marks: dict[int, int] = field(default_factory=dict)
    waiting: list[Row] = field(default_factory=list)  # R0-R2: inserts that came while it was joining
    waiting_bytes: int = 0  # an upper bound of the payload bytes in ``waiting``
    held: bool = False  # its stable point is too far ahead of the others' (``lead``); computed from other fields
    excused: bool = False  # the others' lead is not measured by it until it has a new stable point (``lead``)
    delivered: Delivered | None = None  # R0-R2: all events that it has inserted; None if they are not kept

    inserts: int = 0
    adjusts: int = 0
    stables: int = 0
    late: int = 0  # inserts and adjusts that came below the output's stable point, too late to have an effect
    won: int = 0  # output inserts and adjusts that its elements caused

    def __post_init__(self) -> None:
        if self.place < 0:
            self.place = self.slot

    @property
    def join_state(self) -> JoinState:
        return JoinState.JOINED if self.joined else JoinState.JOINING

    @property
    def observes(self) -> bool:
        """Whether it is only checked against its promises and never merged."""
        return self.role is InputRole.OBSERVE

    @property
    def counts(self) -> bool:
        """V.B: whether its stable points move the output: it is joined, active and not held."""
        return self.joined and self.role is InputRole.ACTIVE and not self.held

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
        """Return the smallest Vs that its next insert may have, by its stable point and its order."""
        if not self.ordered:
            return self.stable
        return max(self.stable, self.last_vs + self.strict)
