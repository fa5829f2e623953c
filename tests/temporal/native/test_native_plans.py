"""Random plans on both implementations, mixed where a step runs in Python: the same after every batch.

``LMERGE_SEEDS=100000 pytest -m long tests/temporal/native`` is the differential fuzzing of the whole engine.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from native_world import Twins, run_twins
from plan_generator import SOURCES, random_plan

from lmerge.temporal.columns import ColumnOperator
from lmerge.temporal.plan.compiling import compile_plan

FOUND = 893
"""A seed with ranked rows of snapshots by watermark, of which the native windows lacked one."""

ROWS = {name: rows for name, (_, rows) in SOURCES.items()}


def run(seed: int) -> Twins:
    random_ = Random(seed)
    plan = random_plan(random_)
    return run_twins(random_, compile_plan(list(plan.nodes.values())), ROWS, items=16)


def test_plans_are_the_same_on_both() -> None:
    natives: Counter[str] = Counter()
    for seed in (*range(150), FOUND):
        twins = run(seed)
        for step, graph_step in zip(twins.plan.steps, twins.graphs[1].steps, strict=True):
            if isinstance(graph_step.operator, ColumnOperator):
                natives.update({step.nodes[0].kind})
    assert {"union", "join", "as_of", "edges", "coalesce", "cleanse", "lifetime", "aggregate", "top"} <= set(natives)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_many_plans_are_the_same_on_both(long_seeds: range) -> None:
    for seed in long_seeds:
        run(seed)
