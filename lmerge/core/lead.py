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
last one. An input is awaited while its stable point is within T of the output's, and unless it was excused: one that
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
        may_hold = may_hold and leads
        held = may_hold and policy.held_back(inp.stable) > max_stable
        changed = changed or held != inp.held
        inp.held = held
    return changed


def is_awaited(inp: Input, max_stable: int, lead_max: int) -> bool:
    """Whether the lead of others is measured by this input."""
    return not inp.excused and inp.stable >= max(NEG_INF, max_stable - lead_max)
