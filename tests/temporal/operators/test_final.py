"""Final events alone: by their definition after every step, and as what a run emits (E10)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from operator_world import OperatorCase, Table, judge, judge_every_stream, own_order
from plan_generator import ended, random_history, random_plan
from run_world import sources_of
from temporal_world import StreamTable

from lmerge.core.elements import INF
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.operators.final import FinalOperator
from lmerge.temporal.plan.stream import source
from lmerge.temporal.running import QueryRun, ResultTable


def final_events(tables: Sequence[StreamTable]) -> tuple[Table, int]:
    (table,) = tables
    final = Counter({event: n for event, n in table.events.items() if event.ve < table.stable or table.stable == INF})
    return final, min([table.stable, *(event.vs for event in table.events if event not in final)])


CASE = OperatorCase(lambda: FinalOperator("final", own_order), final_events)


def test_every_event_comes_when_it_is_final() -> None:
    judge(CASE, range(400))


def test_every_short_stream() -> None:
    assert judge_every_stream(CASE, [((0,),)], 4) > 1000


@pytest.mark.parametrize("first", [0, 60])
def test_a_run_emits_each_final_result_once_and_takes_nothing_back(first: int) -> None:
    for seed in range(first, first + 60):
        random_ = Random(seed)
        plan = random_plan(random_)
        names = sources_of(plan.nodes)
        whole, run = QueryRun(plan.nodes), QueryRun(plan.nodes, only="final")
        tables = {output: (ResultTable(), StreamTable()) for output in plan.outputs}
        for name, item in ended(random_history(random_, names), names):
            if random_.random() < 0.2:
                run = QueryRun.load(run.dump(), plan.nodes)
            for steps, place in ((whole.take(name, [item]), 0), (run.take(name, [item]), 1)):
                for step in steps:
                    for output, delta in step.items():
                        tables[output][place].apply(Delta(delta.changes, delta.stable))
            for every, final in tables.values():
                assert final.inserts_only
                assert final.events == Counter({e: n for e, n in every.events.items() if every.is_final(e)})
        assert all(every.events == final.events for every, final in tables.values())


def test_a_table_marks_what_is_final() -> None:
    run, table = QueryRun({"all": source("s", {"a": "int"}).node}), ResultTable()
    for step in run.take("s", [Change((1,), 1, 1, 4), Change((2,), 2, 2, 5), 5]):
        table.apply(step["all"])
    assert [(event.row, is_final) for event, is_final in table.marked()] == [((1,), True), ((2,), False)]
    for step in run.end():
        table.apply(step["all"])
    assert all(is_final for _, is_final in table.marked())


def test_a_query_that_is_attached_to_such_a_run_emits_final_results_as_well() -> None:
    numbers = source("s", {"a": "int"})
    run = QueryRun({"all": numbers.node}, only="final", attachable=True)
    assert run.take("s", [Change((1,), 1, 1, 9), 5])[0]["all"].changes == []
    assert run.attach("late", {"late": numbers.shift(1).node}).first["late"].changes == []
    (step,) = run.take("s", [11])
    assert [change.vs for delta in step.values() for change in delta.changes] == [1, 2]
