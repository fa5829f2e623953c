"""Switching a running merge to a more general algorithm without loss (laws 2 and 6, IV.G).

R0-R2 keep no events, so a switch to R3 or R4 builds the index from the output's live events, which the merge keeps
for that and for its subscribers. What each input has delivered follows from where it stands: inputs of R0-R2 are
in order of Vs.
"""

from __future__ import annotations

from collections import Counter

from lmerge.core.algorithm import Algorithm
from lmerge.core.batch import BatchBuilder
from lmerge.core.elements import NEG_INF, Event
from lmerge.core.index import IN, OUT, Indexed
from lmerge.core.inputs import NEVER
from lmerge.core.insert_only import R0, R1, R2, InsertOnly
from lmerge.core.r3 import R3
from lmerge.core.r4 import R4
from lmerge.errors import InputViolation


def switch(old: Algorithm, new: Algorithm, live: list[Event]) -> None:
    """Carry the state of ``old`` into the fresh ``new``. ``live``: output events that are not fully frozen."""
    new.max_stable, new.announced = old.max_stable, old.announced
    slots = 1 + max((inp.slot for inp in old.inputs.values()), default=-1)
    if isinstance(new, R3 | R4):
        new.slots = slots
        if isinstance(old, R3):
            _from_r3(old, new)
        elif isinstance(old, InsertOnly):
            _from_events(old, new, live)
        new.rebuild_calendar()
    elif isinstance(old, R0 | R1) and isinstance(new, R1 | R2):
        _weaken_ties(old, new)
    else:  # nothing more special than what runs is ever chosen
        raise AssertionError(f"cannot switch from {old.name} to {new.name}")


def merge_waiting(new: Indexed, out: BatchBuilder) -> None:
    """With an index, elements of a joining input do not wait: what has waited under R0-R2 is merged now.

    The input's stable point, which it may have said since, is no reason to refuse what came before. A promise found
    broken goes to ``new.broken``: it was another input that made the merge switch.
    """
    for inp in list(new.inputs.values()):
        if not inp.waiting:
            continue
        builder = BatchBuilder()
        builder.rows, inp.waiting = inp.waiting, []
        floor = inp.stable, inp.last_vs
        inp.stable, inp.last_vs = NEG_INF, NEVER
        try:
            new.apply(inp, builder.build(), 0, out)
        except InputViolation as violation:
            violation.index = 0
            new.broken.append(violation)
        inp.stable, inp.last_vs = floor


def _from_r3(old: R3, new: R3 | R4) -> None:
    assert isinstance(new, R4)
    for key, node in old.nodes.items():
        if key[0] < old.max_stable:  # final-only: it was promised, even if who did has left; others may still say it
            new.node(key)
        if node[OUT] is not None:
            new.adopt(Event(*key, node[OUT]), 1, {})
        for inp in old.inputs.values():
            ve = node[IN + inp.slot]
            if ve is not None:
                new.adopt_said(key, inp.slot, ve)


def _from_events(old: InsertOnly, new: R3 | R4, live: list[Event]) -> None:
    active = [inp for inp in old.inputs.values() if not inp.observes and inp.joined]
    for event, copies in Counter(live).items():
        new.adopt(event, copies, {inp.slot: old.delivered(inp, event, copies) for inp in active})


def _weaken_ties(old: R0 | R1, new: R1 | R2) -> None:
    """Carry the elements at MaxVs from ``old`` into ``new`` when the algorithm is downgraded among R0-R2."""
    new.max_vs = old.max_vs
    slot = old.slot if isinstance(old, R1) else [] if old.last is None else [old.last]
    if isinstance(new, R1):
        new.slot[:] = slot
        new.settle()
        return
    inputs = [inp for inp in old.inputs.values() if old.stands(inp)]
    for payload, ve in slot:  # not by position: an input may have passed elements over, and deliver them now
        if ve == old.max_vs:
            new.empties[payload] = new.empties.get(payload, 0) + 1
            continue
        bits = sum(1 << inp.slot for inp in inputs if inp.at_last_vs[payload, ve])
        new.hash[payload] = new.hash.get(payload, 0) | bits
