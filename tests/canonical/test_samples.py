"""Edges, as-of joins, coalesce and cleanse against SQL in DuckDB, after every batch (sheets O13, O14, O16)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import pytest
from canonical_world import NUMBERS, RecordedRuns, record, steps_of
from operator_world import own_order

from lmerge.temporal.graph import GraphStep, OperatorGraph
from lmerge.temporal.operators.as_of import AsOfJoinOperator
from lmerge.temporal.operators.cleanse import CleanseOperator
from lmerge.temporal.operators.coalesce import CoalesceOperator
from lmerge.temporal.operators.edges import EdgeOperator
from lmerge.temporal.operators.join_side import JoinInput
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.values import Values
from lmerge.testing.canonical import presence, samples

ROWS: Sequence[Values] = ((0, 0), (0, 1), (1, 0), (1, None), (None, 3))


def key_of(row: Values) -> Values:
    return row[:1]


SIDE = JoinInput(own_order, 2, key_of)
COLUMNS = ("a", "b")
PAIRS = (("run", "l.run"), ("a", "l.a"), ("b", "l.b"), ("c", "s.a"), ("d", "s.b"))


def as_of_query(is_outer: bool, within: int | None) -> str:
    keys = (("run", "run"), ("a", "a"))
    return samples.as_of("lefts", "rights", keys, PAIRS, COLUMNS, is_outer=is_outer, within=within)


def as_of(is_outer: bool, within: int | None) -> PlanOperator:
    return AsOfJoinOperator("as of", own_order, SIDE, SIDE, is_outer=is_outer, within=within)


# By name: the operator, its query, and the columns of its rows.
CASES: dict[str, tuple[Callable[[], PlanOperator], str, Sequence[str]]] = {
    "edges": (
        lambda: EdgeOperator("edges", own_order, key_of),
        samples.edges("lefts", ("run", "a"), ("run", *COLUMNS)),
        COLUMNS,
    ),
    "edges that end": (
        lambda: EdgeOperator("edges", own_order, key_of, lasts=4),
        samples.edges("lefts", ("run", "a"), ("run", *COLUMNS), lasts=4),
        COLUMNS,
    ),
    "as of": (lambda: as_of(False, None), as_of_query(False, None), (*COLUMNS, "c", "d")),
    "as of, or nothing": (lambda: as_of(True, None), as_of_query(True, None), (*COLUMNS, "c", "d")),
    "as of, within": (lambda: as_of(False, 3), as_of_query(False, 3), (*COLUMNS, "c", "d")),
    "as of, within, or nothing": (lambda: as_of(True, 3), as_of_query(True, 3), (*COLUMNS, "c", "d")),
    "coalesce": (
        lambda: CoalesceOperator("coalesce", own_order),
        presence.coalesced("lefts", ("run", *COLUMNS)),
        COLUMNS,
    ),
    "cleanse": (lambda: CleanseOperator("cleanse", own_order), presence.released("lefts", "stable", ("run",)), COLUMNS),
}


def judge(name: str, seeds: Iterable[int]) -> None:
    make, query, columns = CASES[name]
    inputs = make().inputs
    names = ("lefts", "rights")[:inputs]
    runs = RecordedRuns(dict.fromkeys(names, NUMBERS), ("stable",))
    for seed in seeds:
        graph = OperatorGraph(inputs, [GraphStep(make(), tuple(range(inputs)))], [inputs])
        record(runs, graph, names, steps_of(random.Random(seed), [ROWS] * inputs, open_part=0.05))
    runs.judge(query, columns)


@pytest.mark.parametrize("name", CASES)
def test_an_operator_is_its_query_after_every_batch(name: str) -> None:
    judge(name, range(200))


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_an_operator_is_its_query_for_many_seeds(name: str, long_seeds: range) -> None:
    judge(name, long_seeds)
