"""A bound of how far one input may lead: ``Policy.lead_max``, ``lmerge serve --lead-max T``.

One stable(10^12) of a replica that is wrong would end the stream for all: what the others deliver lies below it from
then on. With a bound such a stable is *held*: it has no effect, and the elements of the input are merged as always.

    T = 60      a        b       c       output
    stable      100      95      90      100        a: b is within 60
    a: 10^12    (held)   95      90      100        next below is b, more than 60 behind
    c: 120      (held)   95      120     120        c: b is within 60; a goes on being held
    b, c gone   10^12                    10^12      nobody is left to wait for

The rule, of the joined active inputs, by stable point, furthest first: an input whose stable point the output has not
reached is held if the next below it that is *awaited* is more than T behind; then the next one is looked at in the
same way, until one is not held. So the output follows the furthest input that another one confirms within T, or the
last one. An input that has come to its end leads like any other, and confirms only ends: where one has confirmed it and
the output waits for others to end as well (law 5), these are looked at in the same way among themselves. The last of
them has nobody below that could confirm it, so what it has is not believed against those that are complete: its stable
moves the output, and an input that has ended decides what the output freezes (``decider``).

    T = 60      a        b       c       output
    stable      inf      inf     10^12   100        all must end: c moves the output to 10^12 with the events of a

An input is awaited while its stable point is within T of the output's, and unless it was excused: one that
is far behind has not taken part for a while, and the output does not stop for it. Before the first stable of the
output all are awaited, also those that have delivered nothing: whoever has a clock excuses them (``Merge.excuse``).

Only R3 and R4 keep what lies below an element far ahead; R0-R2 do not come back behind one.
"""

from __future__ import annotations

from collections.abc import Iterable

from lmerge.core.elements import INF, NEG_INF
from lmerge.core.inputs import ACTIVE, Input
from lmerge.core.policy import Policy


def by_lead(inputs: Iterable[Input]) -> list[Input]:
    """The joined active inputs, furthest first; of equals the longest attached first."""
    return sorted((inp for inp in inputs if inp.joined and inp.role == ACTIVE), key=lambda inp: -inp.stable)


def mark_held(inputs: Iterable[Input], max_stable: int, policy: Policy) -> bool:
    """Enter in all ``inputs`` whether their stables are held, at the output's stable point ``max_stable``.

    True: this has changed for one of them, so others count now.
    """
    if policy.lead_max is None:
        return False
    ranked = by_lead(inputs)
    awaited = [is_awaited(inp, max_stable, policy.lead_max) for inp in ranked]
    may_hold = True
    changed = False
    for at, inp in enumerate(ranked):
        following = next((other for other, waits in zip(ranked[at + 1 :], awaited[at + 1 :]) if waits), None)
        leads = following is not None and inp.stable > min(INF, following.stable + policy.lead_max)
        held = may_hold and leads and policy.held_back(inp.stable) > max_stable
        may_hold = may_hold and (leads or inp.stable == INF)
        changed = changed or held != inp.held
        inp.held = held
    return changed


def decider(inp: Input, inputs: Iterable[Input], max_stable: int, policy: Policy) -> Input:
    """Return the input whose events the output takes when it follows the stable of ``inp``, which counts.

    That is ``inp`` itself, unless no other one confirms it while others have come to their end.
    """
    if policy.lead_max is None or inp.stable == INF:
        return inp
    ranked = by_lead(inputs)
    below = ranked[ranked.index(inp) + 1 :]
    if not ranked[0].counts or ranked[0].stable < INF or any(is_awaited(o, max_stable, policy.lead_max) for o in below):
        return inp
    return ranked[0]


def is_awaited(inp: Input, max_stable: int, lead_max: int) -> bool:
    """Whether the lead of others is measured by this input."""
    return not inp.excused and inp.stable >= max(NEG_INF, max_stable - lead_max)
