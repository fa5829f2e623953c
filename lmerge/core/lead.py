"""A bound of the lead of one input over the others: ``Policy.lead_max``, ``lmerge serve --lead-max T``.

A single wrong stable(10^12) of one replica would end the stream for all: the elements of the other inputs would lie
below it from then on. With a bound, such a stable is *held*: it has no effect, and the elements of the input are merged
as always.

    T = 60      a        b       c       output
    stable      100      95      90      100        a: b is within 60
    a: 10^12    (held)   95      90      100        next below is b, more than 60 behind
    c: 120      (held)   95      120     120        c: b is within 60; a is still held
    b, c left   10^12                    10^12      no other input is awaited

The rule takes the joined active inputs by stable point, furthest first. An input whose stable point the output has not
reached is held if the next *awaited* input below it is more than T behind. Then the next input is checked in the same
way, until one is not held. So the output follows the furthest input that another input confirms within T, or the last
input.

An input with stable(+inf) leads like any other, and confirms only other inputs with stable(+inf). Where another input
has confirmed it, and the output waits for the remaining inputs to end as well (law 5, docs/laws.md), the rule is
applied to the remaining inputs. The last of them has no input below it that could confirm it, so its events do not
prevail over those of the inputs that are complete: its stable moves the output, and an input that has ended decides
what the output freezes (``decider``).

    T = 60      a        b       c       output
    stable      inf      inf     10^12   100        all must end: c moves the output to 10^12 with the events of a

An input is awaited while its stable point is within T of the output's, unless it was excused. An input that is far
behind has not taken part for a while, and the output does not wait for it. Before the first stable of the output all
inputs are awaited, also those that have delivered no element. A caller with a clock excuses them (``Merge.excuse``).

The bound needs R3 or R4, which keep the elements below one that is far ahead. R0-R2 drop them.
"""

from __future__ import annotations

from collections.abc import Iterable

from lmerge.core.elements import INF, NEG_INF
from lmerge.core.inputs import Input, InputRole
from lmerge.core.policy import Policy


def by_lead(inputs: Iterable[Input]) -> list[Input]:
    """Return the joined active inputs, furthest stable point first; of equals the longest attached first."""
    return sorted((inp for inp in inputs if inp.joined and inp.role is InputRole.ACTIVE), key=lambda inp: -inp.stable)


def mark_held(inputs: Iterable[Input], max_stable: int, policy: Policy) -> bool:
    """Set ``held`` of all ``inputs``, for the output's stable point ``max_stable``.

    Returns True if it has changed for an input, so other inputs count now.
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

    That is ``inp`` itself, unless no other input confirms it and other inputs have delivered stable(+inf).
    """
    if policy.lead_max is None or inp.stable == INF:
        return inp
    ranked = by_lead(inputs)
    below = ranked[ranked.index(inp) + 1 :]
    if not ranked[0].counts or ranked[0].stable < INF or any(is_awaited(o, max_stable, policy.lead_max) for o in below):
        return inp
    return ranked[0]


def is_awaited(inp: Input, max_stable: int, lead_max: int) -> bool:
    """Return whether the lead of others is measured by this input."""
    return not inp.excused and inp.stable >= max(NEG_INF, max_stable - lead_max)
