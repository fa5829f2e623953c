"""L11: events in another order of arrival give the same table, bit for bit."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from law_world import CASES, ROWS, PlanUnderLaw, plan_of
from temporal_world import Item

from lmerge.core.elements import INF
from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.modules.builtin import BUILTIN_AGGREGATES
from lmerge.temporal.plan.stream import aggregate, source


def revised(random_: random.Random, event: Lifetime) -> list[Change]:
    """Return the changes of an event that ends as it is, some of them on the way there."""
    ends = [event.ve]
    if random_.random() < 0.3:
        ends.insert(0, event.vs + random_.randint(1, 9))
    changes, old = [], event.vs
    for end in ends:
        if end != old:
            changes.append(Change(event.row, event.vs, old, end))
        old = end
    return changes


def arrivals(random_: random.Random, events: list[Lifetime]) -> list[Item]:
    """Return changes that make the events, in a random order in which each event's own are in order."""
    left = [revised(random_, event) for event in events]
    found: list[Item] = []
    while any(left):
        changes = random_.choice([one for one in left if one])
        found.append(changes.pop(0))
    return [*found, INF]


@pytest.mark.parametrize("case", CASES)
def test_l11_any_order_of_arrival_gives_the_same_table(case: str, implementation: str) -> None:
    plan = plan_of(CASES[case])
    for seed in range(3):
        random_ = random.Random(seed)
        given = {
            one.label: [
                Lifetime(random_.choice(ROWS), vs, vs + random_.choice((1, 2, 5, 9)))
                for vs in (random_.randint(-5, 12) for _ in range(8))
            ]
            for one in plan.sources
        }
        found = []
        for _ in range(3):
            run = PlanUnderLaw(plan, implementation)
            for name, events in given.items():
                for item in arrivals(random_, events):
                    run.give(name, [item])
            found.append(Counter(map(repr, run.table.events.elements())))
        assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("name", BUILTIN_AGGREGATES)
def test_l11_aggregates_of_floats_are_the_same_bit_for_bit(name: str, implementation: str) -> None:
    floats = source("floats", {"x": "float?"})
    parameters = {"p": 0.3} if name.startswith("percentile") else {}
    values = (0.1, 0.2, -0.3, 1e16, -1e16, 5e-324, 1e100, -1e100, None, 0.7)
    plan = plan_of(floats.tumbling(5).agg(r=aggregate(name, col.x, **parameters)))
    events = [Lifetime((value,), 1 + at % 3, 4) for at, value in enumerate(values)]
    found = set()
    for seed in range(8):
        run = PlanUnderLaw(plan, implementation)
        for item in arrivals(random.Random(seed), events):
            run.give("floats", [item])
        found.add(repr(sorted(run.table.events.elements())))
    assert len(found) == 1
