"""Switches a running merge to a more general algorithm without loss (laws 2, 6 and 11 in docs/laws.md, IV.G).

R0-R2 keep no events. So a switch to R3 or R4 builds the index from the output's live events, which the merge keeps for
this purpose and for its subscribers, and from what each input has delivered:

* Where a broken promise may cause the switch (``allow_downgrade``), the deliveries are kept (``delivered``). The index
  is then the same as if R3 or R4 had run before. Nothing is assumed, so nothing has to be corrected.
* Elsewhere only an input that attaches with fewer promises causes a switch, and the attached inputs keep theirs. Below
  its last Vs, to which it cannot return, an input is assumed to have what the output has; an event that it missed
  counts too. At its last Vs it has the events that it delivered there. Above, it has none.

Events that an input has delivered and the output has not shown are emitted at the switch, unless they lie below
MaxStable: the leader missed them, or by the promises they were duplicates. So from here on the output is right for
every event that can still change in it: for an unfrozen one always, for a half-frozen one if its end is not below
MaxStable. See docs/design/0014-downgrade-without-loss.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from lmerge.core.algorithm import Algorithm
from lmerge.core.batch import BatchBuilder
from lmerge.core.delivered import DeliveredEvent
from lmerge.core.elements import NEG_INF, Event
from lmerge.core.index import IN, OUT, Indexed
from lmerge.core.inputs import NEVER, Input
from lmerge.core.insert_only import R0, R1, R2, InsertOnly
from lmerge.core.r3 import R3
from lmerge.core.r4 import R4
from lmerge.errors import InputViolation


def switch(old: Algorithm, new: Algorithm, live: list[Event], out: BatchBuilder) -> None:
    """Carry the state of ``old`` into the fresh ``new``. ``live``: output events that are not fully frozen.

    Events that were delivered and not shown are emitted to ``out``.
    """
    new.max_stable, new.announced = old.max_stable, old.announced
    if isinstance(new, R3 | R4):
        new.widen(1 + max((inp.place for inp in old.inputs.values()), default=-1))
        if isinstance(old, R3):
            _from_r3(old, new)
        elif isinstance(old, InsertOnly):
            _from_events(old, new, live, out)
        new.rebuild_calendar()
    elif isinstance(old, R0 | R1) and isinstance(new, R1 | R2):
        _weaken_ties(old, new, out)
    else:  # a case more special than the running one is never chosen
        raise AssertionError(f"cannot switch from {old.name} to {new.name}")


def repeats_a_key(old: Algorithm, live: list[Event]) -> bool:
    """Return whether R3 cannot hold what a switch would carry over: two events of one (Vs, payload)."""
    if _repeats((event.vs, event.payload) for event in live):
        return True
    assert isinstance(old, InsertOnly)
    inputs = old.merged_inputs()
    return any(_repeats((vs, payload) for vs, payload, _ in _certain(inp, old.max_stable)) for inp in inputs)


def merge_waiting(new: Indexed, out: BatchBuilder) -> None:
    """Merge the elements of joining inputs that waited under R0-R2. With an index they do not wait.

    They are not checked against a stable point that the input delivered after them. A broken promise goes to
    ``new.broken``, because another input has caused the switch.
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
        if key[0] < old.max_stable:  # final-only: others may still deliver the event of an input that has left
            new.node(key)
        if node[OUT] is not None:
            new.adopt(Event(*key, node[OUT]), 1)
        for inp in old.inputs.values():
            ve = node[IN + inp.slot]
            if ve is not None:
                new.adopt_entry(key, inp.slot, ve)


def _from_events(old: InsertOnly, new: R3 | R4, live: list[Event], out: BatchBuilder) -> None:
    counted = sorted(Counter(live).items())
    for event, copies in counted:
        new.adopt(event, copies)
    for inp in old.merged_inputs():
        delivered = _certain(inp, old.max_stable)
        if inp.delivered is None:  # no promise is broken, so the other events follow from the order of its stream
            delivered += [event for event, copies in counted if event.vs < inp.last_vs for _ in range(copies)]
        for vs, payload, ve in sorted(delivered):
            new.adopt_delivered(inp.slot, vs, payload, ve, out)


def _certain(inp: Input, max_stable: int) -> list[DeliveredEvent]:
    """Return what ``inp`` has delivered for certain: all events that can still change, or those at its last Vs."""
    if inp.delivered is not None:
        return inp.delivered.since(min(inp.stable, max_stable))  # the same, however much has been forgotten so far
    return [(inp.last_vs, *event) for event in inp.at_last_vs.elements() if event[1] > inp.last_vs]


def _repeats(keys: Iterable[tuple[int, bytes]]) -> bool:
    seen = list(keys)
    return len(set(seen)) < len(seen)


def _weaken_ties(old: R0 | R1, new: R1 | R2, out: BatchBuilder) -> None:
    """Carry the elements at MaxVs from ``old`` into ``new`` when the algorithm is downgraded among R0-R2.

    The new algorithm merges again what each input has delivered there, so it determines by its own rules which input
    has delivered what. R0 takes one element at each Vs. Other elements that inputs delivered there are emitted now.
    """
    new.max_vs = vs = old.max_vs
    shown = old.slot if isinstance(old, R1) else [] if old.last is None else [old.last]
    inputs = [inp for inp in old.merged_inputs() if inp.last_vs == vs]
    new.broken = old.broken
    more = _slot_of(new, shown, inputs) if isinstance(new, R1) else _payloads_of(new, shown, inputs)
    if vs >= old.max_stable:
        for payload, ve in more:
            out.insert(payload, vs, ve)


def _slot_of(new: R1, shown: list[tuple[bytes, int]], inputs: list[Input]) -> list[tuple[bytes, int]]:
    """Enter in ``new`` the elements shown at MaxVs and those that ``inputs`` have delivered there.

    Returns the elements that were not shown.
    """
    slot, more = list(shown), []
    for inp in inputs:
        for element in sorted(inp.at_last_vs.elements()):
            if slot.count(element) < inp.at_last_vs[element]:
                slot.append(element)
                more.append(element)
    new.slot[:] = slot
    new.settle()
    return more


def _payloads_of(new: R2, shown: list[tuple[bytes, int]], inputs: list[Input]) -> list[tuple[bytes, int]]:
    """Do the same as ``_slot_of`` for R2. R1 checks no key: if a key comes twice in the slot, R2 counts copies."""
    for elements in (shown, *(inp.at_last_vs.elements() for inp in inputs)):
        if _repeats((new.max_vs, payload) for payload, ve in elements if ve > new.max_vs):
            new.is_keyed = False
    return new.settle(shown)
