"""L1: for every prefix P, TDB(out(P)) = form(SQL(TDB(P)), c, m), on every implementation.

The SQL is DuckDB's and shares no code with the plan. tests/canonical has further choices of windows.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from canonical_world import NUMBERS, RecordedRuns, StreamClock
from law_queries import QUERIES, TIMES, query_of
from law_world import CASES, PlanUnderLaw, history_of, plan_of

from lmerge.core.elements import NEG_INF
from lmerge.temporal.changes import Lifetime


@pytest.mark.parametrize("case", CASES)
def test_l1_after_every_batch_the_table_is_the_query_over_the_tables(case: str, implementation: str) -> None:
    plan = plan_of(CASES[case])
    names = [one.label for one in plan.sources]
    query, columns = query_of(case)
    runs = RecordedRuns(dict.fromkeys(names, NUMBERS), TIMES)
    for seed in range(6):
        random_ = random.Random(seed)
        run, clock = PlanUnderLaw(plan, implementation), StreamClock()
        tables: dict[str, Counter[Lifetime]] = {name: Counter() for name in names}
        for name, item in history_of(random_, plan, 12):
            passed = run.table.stable
            run.give(name, [item])
            entrance = run.entrances[run.names.index(name)]
            if isinstance(item, int):
                clock.take_stable(entrance.live.stable)
            else:
                clock.take_start(item.vs)
                table = tables[name]
                if item.old > item.vs:
                    table[Lifetime(item.row, item.vs, item.old)] -= 1
                if item.new > item.vs:
                    table[Lifetime(item.row, item.vs, item.new)] += 1
            given = {name: +table for name, table in tables.items()}
            begun = clock.begun_over(event for table in given.values() for event in table)
            runs.note(given, Counter(run.table.events), (run.input_stable, clock.mark, begun, passed))
    runs.judge(query, columns)
    assert run.table.stable > NEG_INF


def test_l1_queries_that_are_written_out_are_those_of_cases() -> None:
    assert set(QUERIES) <= set(CASES)
