"""Random plans: every kind of node, as JSON and back, fused and shared, over history and step by step."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest
from plan_generator import RandomPlan, ended, random_history, random_plan
from temporal_world import StreamTable

from lmerge.core.elements import INF
from lmerge.temporal.changes import Delta
from lmerge.temporal.plan.compiling import compile_plan, in_order
from lmerge.temporal.plan.json_format import KINDS, plan_from_json, plan_to_json
from lmerge.temporal.running import QueryRun


def names_of(plan: RandomPlan) -> list[str]:
    """Return the sources that the results of a plan read."""
    return [source.label for source in compile_plan(list(plan.nodes.values())).sources]


def test_plans_of_every_kind_are_made_and_survive_json() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(300):
        plan = random_plan(Random(seed))
        nodes = in_order(list(plan.nodes.values()))
        inner = in_order([node.inner for node in nodes if node.inner is not None])
        kinds.update(node.kind for node in (*nodes, *inner))
        assert plan_from_json(json.loads(json.dumps(plan_to_json(plan.nodes)))) == plan.nodes
        assert random_plan(Random(seed)) == plan
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) >= 20, kinds


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_results_are_legal_streams_and_end_without_state(first: int) -> None:
    for seed in range(first, first + 50):
        random_ = Random(seed)
        plan = random_plan(random_)
        names = names_of(plan)
        run, tables = QueryRun(plan.nodes), {name: StreamTable() for name in plan.outputs}
        for name, item in ended(random_history(random_, names), names):
            for step in run.take(name, [item]):
                run.graph.check()
                for output, delta in step.items():
                    tables[output].apply(Delta(delta.changes, delta.stable))
        assert run.graph.live() == 0, seed
        assert {table.stable for table in tables.values()} == {INF}, seed
