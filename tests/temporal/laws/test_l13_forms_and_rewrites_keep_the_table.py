"""L13: all forms of a query, and all its rewrites, have one table; replicas of them merge to it.

The merge of replicas that are killed is judged in tests/temporal/test_merged_forms.py.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from law_world import CASES, FORMS, PlanUnderLaw, history_of, plan_of, random_case

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.rewriting import REWRITES, rewrite

QUERIES = sorted(
    {case.replace(", final:", ", {}:").replace(", final, ", ", {}, ") for case in CASES if "final" in case}
)


def table_of(node: PlanNode, history: list[tuple[str, object]], implementation: str) -> Counter[Lifetime]:
    run = PlanUnderLaw(compile_plan([node]), implementation)
    for name, item in history:
        if name in run.names:
            run.give(name, [item])  # type: ignore[list-item]  # items of a source
    return run.table.events


@pytest.mark.parametrize("query", QUERIES)
def test_l13_all_forms_end_with_one_table(query: str, implementation: str) -> None:
    forms = [query.format(form) for form in FORMS if query.format(form) in CASES]
    assert len(forms) > 1
    for seed in range(5):
        history = [*history_of(random.Random(seed), plan_of(CASES[forms[0]]))]
        tables = [table_of(CASES[form].node, [*history], implementation) for form in forms]
        assert all(table == tables[0] for table in tables), forms


def test_l13_every_rewrite_keeps_the_table(implementation: str) -> None:
    applied: Counter[str] = Counter()
    for seed in range(120):
        plan, history = random_case(seed)
        place = plan.outputs[0] - len(plan.sources)
        node = plan.sources[plan.outputs[0]] if place < 0 else plan.steps[place].nodes[-1]
        expected = None
        for name in REWRITES:
            found, steps = rewrite(node, [name])
            if steps:
                applied[name] += 1
                expected = expected or table_of(node, [*history], implementation)
                assert table_of(found, [*history], implementation) == expected, (seed, name)
    assert len(applied) > 5, applied
