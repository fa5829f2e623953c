"""Families of scenarios: the plain one of a seed, and the same with hostile clients, wrong replicas or full disks.

A family adds to the scenario of the seed with a random generator of its own, so the plain scenario of a seed stays
unchanged. Each family has kinds of faults that can be chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Final

from lmerge.core.elements import INF
from lmerge.errors import UsageError
from lmerge.testing.sim.scenario import PlannedFault, Scenario

PLAIN: Final = "plain"
HOSTILE: Final = "hostile"
WRONG: Final = "wrong"
DISKS: Final = "disks"

KINDS: Final = {
    PLAIN: (),
    HOSTILE: (
        "impossible-attach",
        "impossible-schema",
        "impossible-name",
        "broken-promise",
        "nonsense",
        "garbage-call",
        "mute",
        "no-attach",
        "incarnations",
        "no-next-incarnation",
    ),
    WRONG: ("wrong-payload", "lost-events", "far-stable", "far-stable-bounded"),
    DISKS: ("store-full", "full-from-the-start", "record-full"),
}
FAMILIES: Final = tuple(KINDS)

#: A stable far ahead: no policy prevents its harm, but the bound of the lead does.
BOUNDED: Final = "far-stable-bounded"
#: No run lasts so long: no input is excused from being waited for.
NEVER_S: Final = 10_000.0
#: The policies under which a wrong replica does no harm, while the right ones are the majority.
PREVENTING: Final = ("majority", "hold")
#: Faults that leave all right replicas in the merge: they are a majority only while they are there.
HARMLESS: Final = ("clock", "slow-disk", "kill-subscriber")


def in_family(plan: Scenario, family: str, kinds: Sequence[str] | None = None) -> Scenario:
    """Return the scenario of the same seed in ``family``, with those ``kinds`` of its faults; None: all of them.

    Raises UsageError if there is no such family or kind.
    """
    if family not in KINDS or not set(kinds or ()) <= set(KINDS[family]):
        raise UsageError(f"there is no family {family!r} with {', '.join(kinds or ()) or 'its kinds'}")
    chosen = tuple(kind for kind in KINDS[family] if kinds is None or kind in kinds)
    random = Random(f"{family} {plan.seed}")
    if family == HOSTILE and chosen:
        return _with(plan, family, _some(random, plan, chosen, random.choice((1, 2, 4, 8))))
    if family == WRONG and chosen:
        return _wrong(random, plan, chosen)
    if family == DISKS and chosen:
        return _disks(random, plan, chosen)
    return plan


def _with(plan: Scenario, family: str, faults: Sequence[PlannedFault]) -> Scenario:
    kinds = sorted({fault.kind for fault in faults})
    together = sorted((*plan.faults, *faults), key=lambda fault: fault.at_s)
    return replace(plan, family=family, allowed=(*plan.allowed, *kinds), faults=tuple(together))


def _some(random: Random, plan: Scenario, kinds: Sequence[str], count: int) -> list[PlannedFault]:
    return [
        PlannedFault(
            random.uniform(0.0, plan.lasts_s),
            random.choice(kinds),
            random.choice((0.2, 3.0, 20.0)) * random.uniform(0.5, 1.5),
            random.random(),
        )
        for _ in range(count)
    ]


def _wrong(random: Random, plan: Scenario, kinds: Sequence[str]) -> Scenario:
    """Return a plan with three right replicas from beginning to end, and a wrong one for a while."""
    policy = random.choice(("alarm", "quarantine", "majority", "majority", "hold"))
    possible = [
        kind for kind in kinds if not kind.startswith("far-stable") or (kind == "far-stable") == (policy in PREVENTING)
    ]
    calm = replace(
        plan,
        case=random.choice(("r3", "r4")) if plan.case not in ("r3", "r4") else plan.case,
        replicas=3,
        observers=0,
        closing="all",
        feedback_lag=None,
        divergence=policy,
        certify_interval=random.choice((2, 5, 20, max(1, plan.events[-1].vs // 4))),
        allowed=tuple(kind for kind in plan.allowed if kind in HARMLESS),
        faults=tuple(fault for fault in plan.faults if fault.kind in HARMLESS),
        behind_events_max=100_000,
    )
    if calm.case == "r3" and plan.case == "r1":  # in r1 (Vs, payload) is no key
        calm = replace(calm, case="r4")
    if not possible:
        return calm
    # Once the right replicas are there: a wrong replica that is alone is its own majority.
    at = 2.0 + random.uniform(0.0, plan.lasts_s)
    lasts = random.choice((0.5, 5.0, 30.0)) * random.uniform(0.5, 1.5)
    wrong = PlannedFault(at, random.choice(possible), lasts, random.random())
    if wrong.kind == BOUNDED:
        calm = _bounded(random, calm)
    return _with(calm, WRONG, [wrong])


def _bounded(random: Random, plan: Scenario) -> Scenario:
    """Return the plan with a bound of the lead that no right replica reaches. An input beyond it protects no other."""
    times = [t for event in plan.events for t in (event.vs, event.ve) if t < INF]
    lead_max = random.choice((1, 3)) * (max(times) - min(times) + 1)
    return replace(plan, closing=random.choice(("any", "all")), lead_max=lead_max, lead_wait_s=NEVER_S)


def _disks(random: Random, plan: Scenario, kinds: Sequence[str]) -> Scenario:
    """Return a plan in which every server has a disk that is full now and then."""
    plan = replace(plan, durable=(True,) * plan.servers, records="record-full" in kinds)
    later = [kind for kind in kinds if kind != "full-from-the-start"] or kinds
    faults = _some(random, plan, later, random.choice((1, 2, 5)))
    if "full-from-the-start" in kinds and random.random() < 0.4:
        faults += [PlannedFault(0.0, "full-from-the-start", random.choice((1.0, 5.0, 40.0)), random.random())]
    return _with(plan, DISKS, faults)
