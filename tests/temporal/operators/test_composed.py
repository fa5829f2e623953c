"""Operators one behind the other: feedback goes upstream through all of them, and what is needed stays as it is (L7).

The reference is the same graph without feedback, over inputs that leave nothing out.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from operator_world import LossyInput, from_then_on, interleaved, own_order
from temporal_world import StreamTable, random_stream

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.graph import GraphStep, OperatorGraph
from lmerge.temporal.operators.as_of import AsOfJoinOperator
from lmerge.temporal.operators.cleanse import CleanseOperator
from lmerge.temporal.operators.coalesce import CoalesceOperator
from lmerge.temporal.operators.edges import EdgeOperator
from lmerge.temporal.operators.join import JoinKind, JoinOperator, JoinRules
from lmerge.temporal.operators.join_side import JoinInput
from lmerge.temporal.operators.lifetimes import AtEnd, ClipDuration, Extend, SetDuration, Shift
from lmerge.temporal.operators.span import KeepRows, MapRows, SpanOperator, SpanPart
from lmerge.temporal.operators.union import UnionOperator
from lmerge.temporal.values import Values

ROWS = ((0, 1), (0, 2), (1, 1))


def key_of(row: Values) -> Values:
    return row[:1]


def span(*parts: SpanPart) -> SpanOperator:
    return SpanOperator("span", own_order, own_order, parts)


def join(kind: JoinKind) -> JoinOperator:
    side = JoinInput(own_order, 2, key_of)
    return JoinOperator("join", own_order, JoinRules(kind, side, side))


def as_of() -> AsOfJoinOperator:
    side = JoinInput(own_order, 2, key_of)
    return AsOfJoinOperator("as of", own_order, side, side, is_outer=True, within=6)


# Sources are the places 0 and 1, the steps follow from place 2.
GRAPHS: dict[str, Callable[[], list[GraphStep]]] = {
    "filter, anti-join with what was shifted, extend": lambda: [
        GraphStep(span(KeepRows(lambda row: row[1] == 1)), (0,)),
        GraphStep(span(Shift(2)), (1,)),
        GraphStep(join(JoinKind.ANTI), (2, 3)),
        GraphStep(span(Extend(3)), (4,)),
    ],
    "each without the other": lambda: [
        GraphStep(join(JoinKind.ANTI), (0, 1)),
        GraphStep(join(JoinKind.ANTI), (1, 0)),
        GraphStep(UnionOperator("union", own_order, 2), (2, 3)),
    ],
    "full join with itself": lambda: [
        GraphStep(span(KeepRows(lambda row: row[1] == 1)), (0,)),
        GraphStep(span(Shift(-3), ClipDuration(4)), (0,)),
        GraphStep(join(JoinKind.FULL), (2, 3)),
        GraphStep(span(MapRows(lambda row: row[:2])), (4,)),
    ],
    "left join of left joins": lambda: [
        GraphStep(join(JoinKind.LEFT), (0, 1)),
        GraphStep(span(MapRows(lambda row: row[:2]), AtEnd(2)), (2,)),
        GraphStep(join(JoinKind.LEFT), (3, 1)),
    ],
    "coalesced and cleansed": lambda: [
        GraphStep(CoalesceOperator("coalesce", own_order), (0,)),
        GraphStep(CleanseOperator("cleanse", own_order), (2,)),
        GraphStep(span(SetDuration(5)), (3,)),
    ],
    "samples": lambda: [
        GraphStep(EdgeOperator("edges", own_order, key_of, lasts=5), (1,)),
        GraphStep(span(Shift(1)), (0,)),
        GraphStep(as_of(), (3, 2)),
        GraphStep(span(Extend(1)), (4,)),
    ],
    "cleansed, then joined": lambda: [
        GraphStep(CleanseOperator("cleanse", own_order), (0,)),
        GraphStep(CleanseOperator("cleanse", own_order), (1,)),
        GraphStep(join(JoinKind.INNER), (2, 3)),
    ],
}


def graph_of(name: str) -> OperatorGraph:
    steps = GRAPHS[name]()
    return OperatorGraph(2, steps, [1 + len(steps)])


@pytest.mark.parametrize("name", GRAPHS)
def test_feedback_through_a_plan_leaves_what_is_needed(name: str) -> None:
    compared = 0
    for seed in range(150):
        random_ = random.Random(seed)
        graph, reference = graph_of(name), graph_of(name)
        output, expected = StreamTable(), StreamTable()
        inputs = [StreamTable(), StreamTable()]
        lossy = [LossyInput(random_), LossyInput(random_)]
        t = latest = NEG_INF
        for deltas in interleaved(random_, [random_stream(random_, 20, ROWS) for _ in inputs]):
            if random_.random() < 0.2:
                t = max(t, random_.randint(-8, 24))
                for source, until in zip(lossy, graph.fast_forward(0, t), strict=True):
                    source.until = max(source.until, until)
                    latest = max(latest, t, until)
            for table, delta in zip(inputs, deltas, strict=True):
                table.apply(delta)
            given = [source.take(delta) for source, delta in zip(lossy, deltas, strict=True)]
            output.apply(graph.step(given)[0])
            expected.apply(reference.step(deltas)[0])
            graph.check()
            # While something is left out, the stable point waits, and what a stable releases with it.
            if min(table.stable for table in inputs) > latest + 10:
                assert from_then_on(output.events, t) == from_then_on(expected.events, t)
                assert output.stable == expected.stable
                compared += t > NEG_INF
        if all(table.stable == INF for table in inputs):
            assert graph.live() == 0
    assert compared > 30
