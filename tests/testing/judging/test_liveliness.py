"""Liveliness (TESTING P4): an output that is less stable than its operator's rule is different."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from judged_world import verdict_of

import lmerge.temporal as lt
from lmerge.core.elements import INF, Element, Insert, Stable
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.plan.stream import Stream
from lmerge.temporal.row_forms import RowForms
from lmerge.testing.judging.liveliness import stuck
from lmerge.testing.judging.operator_run import OperatorRun, Step
from lmerge.testing.judging.verdict import Judge, Judgement

LEFT = lt.source("left", {"k": "int", "v": "int"})
RIGHT = lt.source("right", {"k": "int", "v": "int"})
GROUPED = LEFT.group_by("k")


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge() as one:
        yield one


@pytest.mark.parametrize(
    ("query", "lifetimes", "c", "least"),
    [
        (LEFT.where(lt.col.v > 0), [], 7, 7),
        (LEFT.select("k"), [], 7, 7),
        (LEFT.shift(3), [], 7, 10),
        (LEFT.extend(3), [], 7, 7),
        (LEFT.edges("k"), [], 7, 7),
        (LEFT.cleanse(), [(2, 7), (3, 6), (4, INF)], 7, 2),
        (LEFT.coalesce(), [(1, 4), (20, 21), (4, 9)], 7, 1),
        (LEFT.coalesce(), [(1, 4), (20, 21), (5, 9)], 7, 5),
        (LEFT.coalesce(), [(1, 4), (20, 21), (4, 6)], 7, 7),
        (LEFT.sessions(2).agg(n=lt.count()), [(1, 3), (5, 6)], 8, 1),
        (LEFT.sessions(2).agg(n=lt.count()), [(1, 2), (5, 6)], 8, 5),
        (LEFT.sessions(2).agg(n=lt.count()), [(1, 3), (5, 6)], 9, 9),
        (LEFT.tumbling(5).agg(n=lt.count()), [(1, INF)], 12, 10),
        (LEFT.hopping(2, 5).agg(n=lt.count()), [], 3, 5),  # EX-14: the gap of a grid
        (LEFT.hopping(5, 2).agg(n=lt.count(), output="point-at-end"), [], 8, 8),
        (LEFT.tumbling(5, since=20).agg(n=lt.count()), [], 3, 20),
        (LEFT.snapshot().agg(n=lt.count(), form="eager"), [(1, 9)], 7, 7),
        (LEFT.snapshot().agg(n=lt.count(), form="final"), [(1, 9), (4, 9)], 7, 4),
        (LEFT.snapshot().agg(n=lt.count(), form="final"), [(1, 5)], 7, 7),
        (GROUPED.snapshot().agg(n=lt.count(), form="final"), [(1, 9), (4, 9)], 7, 1),
        (LEFT.count_windows(2).agg(n=lt.count()), [(1, 2), (3, 4), (5, 6)], 7, 5),
        (LEFT.count_windows(3, by="ends").agg(n=lt.count()), [(1, 2), (3, 4), (5, 6)], 7, 4),
    ],
)
def test_a_rule_is_met_and_one_unit_less_is_not(
    query: Stream, lifetimes: list[tuple[int, int]], c: int, least: int
) -> None:
    events = [Change((at % 2, 1), vs, vs, ve) for at, (vs, ve) in enumerate(lifetimes)]
    taken = Delta(events, c)

    def run(stable: int) -> OperatorRun:
        return OperatorRun("one", query.node, query.node.reads, [(1, (taken,), Delta([], stable))])

    assert stuck(run(least)) is None
    assert stuck(run(least - 1)) == (1, least - 1, least)


def test_of_several_inputs_the_least_counts() -> None:
    for query in (LEFT.union(RIGHT), LEFT.join(RIGHT, "k"), LEFT.join(RIGHT, "k", how="anti"), LEFT.as_of(RIGHT, "k")):
        steps: list[Step] = [(1, (Delta([], 9), Delta([])), Delta([])), (2, (Delta([]), Delta([], 4)), Delta([], 3))]
        run = OperatorRun("both", query.node, query.node.reads, steps)
        assert stuck(run) == (2, 3, 4)
        steps[1] = (2, (Delta([]), Delta([], 4)), Delta([], 4))
        assert stuck(run) is None


def late(run: OperatorRun) -> OperatorRun:
    """Return a run whose output is one unit less stable in each step but the last."""
    steps = [
        (step, read, found if found.stable in (None, INF) else Delta(found.changes, found.stable - 1))
        for step, read, found in run.steps
    ]
    return replace(run, steps=steps)


@pytest.mark.parametrize(
    "query",
    [
        lambda: LEFT.shift(-4),
        lambda: GROUPED.hopping(7, 3).agg(n=lt.count(), form="final"),
        lambda: GROUPED.tumbling(4).agg(n=lt.count(), form="watermark"),
        lambda: LEFT.snapshot().agg(n=lt.count(), form="settled"),
    ],
)
def test_the_engine_meets_the_rules_and_an_output_that_stays_behind_is_different(
    judge: Judge, query: Callable[[], Stream]
) -> None:
    payload = RowForms(LEFT.node.schema).payload
    elements: list[Element] = []
    for start in range(0, 40, 3):
        elements += [Insert(payload((start % 2, 1)), start, start + 5), Stable(start)]
    verdict = verdict_of(judge, query(), [("left", [one]) for one in [*elements, Stable(INF)]])
    assert verdict.outcome is Judgement.EQUAL, str(verdict)
    assert verdict.run is not None
    (operator,) = verdict.run.operators
    found = judge.judged(late(operator))
    assert found.outcome is Judgement.DIFFERENT
    assert "and its input freezes all before" in found.reason
