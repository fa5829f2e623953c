"""Runs that are restored, attached to and fast-forwarded at any step go on as if nothing had been (L7, L8, S15)."""

from __future__ import annotations

from random import Random

import pytest
from plan_generator import ended, random_history, random_plan
from run_world import InterruptedRun, random_query, sources_of


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_a_run_that_is_restored_at_every_boundary_goes_on_in_the_same_way(first: int) -> None:
    for seed in range(first, first + 20):
        random_ = Random(seed)
        plan = random_plan(random_)
        names = sources_of(plan.nodes)
        world = InterruptedRun(plan.nodes, random_, attachable=random_.random() < 0.3)
        for name, item in ended(random_history(random_, names), names):
            if random_.random() < 0.5:
                world.restore()
            world.take(name, item)
        assert world.run.graph.live() == 0


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_a_query_that_is_attached_is_right_where_it_promises_to_be(first: int) -> None:
    attached = refused = 0
    for seed in range(first, first + 50):
        random_ = Random(seed)
        plan = random_plan(random_)
        names = sources_of(plan.nodes)
        world = InterruptedRun(plan.nodes, random_)
        for at, (name, item) in enumerate(ended(random_history(random_, names), names)):
            if random_.random() < 0.15:
                attached += world.attach(f"q{at}", random_query(random_, list(plan.nodes.values()), f"q{at}"))
            world.take(name, item)
        refused += world.refused
    assert attached > 15
    assert refused > 1


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_a_run_that_is_asked_for_less_is_right_where_it_is_asked(first: int) -> None:
    skipped = 0
    for seed in range(first, first + 30):
        random_ = Random(seed)
        plan = random_plan(random_)
        names = sources_of(plan.nodes)
        world = InterruptedRun(plan.nodes, random_)
        for at, (name, item) in enumerate(ended(random_history(random_, names), names)):
            choice = random_.random()
            if choice < 0.15:
                world.fast_forward(random_.choice(list(world.results)), random_.randint(-8, 24))
            elif choice < 0.25:
                world.attach(f"q{at}", random_query(random_, list(plan.nodes.values()), f"q{at}"))
            elif choice < 0.35:
                world.restore()
            world.take(name, item)
        skipped += sum(part.operator.skipped for part in world.run.parts)
    assert skipped > 0


@pytest.mark.long
def test_runs_are_right_whatever_happens_to_them(long_seeds: range) -> None:
    for seed in long_seeds:
        random_ = Random(seed)
        plan = random_plan(random_, steps=8)
        names = sources_of(plan.nodes)
        world = InterruptedRun(plan.nodes, random_)
        for at, (name, item) in enumerate(ended(random_history(random_, names, items=40), names)):
            choice = random_.random()
            if choice < 0.1 and seed % 2:
                world.fast_forward(random_.choice(list(world.results)), random_.randint(-8, 24))
            elif choice < 0.25:
                world.attach(f"q{at}", random_query(random_, list(plan.nodes.values()), f"q{at}"))
            elif choice < 0.3 and len(world.run.queries) > 1:
                world.detach(random_.choice([*world.run.queries][1:]))
            elif choice < 0.4:
                world.restore()
            world.take(name, item)
