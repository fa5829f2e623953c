"""Joins against SQL in DuckDB, after every batch of two or three random streams (sheets O4 to O6)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import permutations

import pytest
from canonical_world import NUMBER_ROWS, NUMBERS, RecordedRuns, graph_of, record, steps_of

from lmerge.temporal.expressions.functions import FunctionRegistry
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.joining import join
from lmerge.temporal.plan.stream import Stream, source
from lmerge.testing.canonical import joins

LEFT, RIGHT = ("a", "b"), (("a_right", "a"), ("b_right", "b"))
KEY, RANGE = "l.a = r.a", "l.a = r.a AND l.b < r.b"
BY_FUNCTION = "l.b * 2 > r.b"
HOWS = ("inner", "left", "right", "full", "anti")


def lefts() -> Stream:
    return source("lefts", NUMBERS)


def rights() -> Stream:
    return source("rights", NUMBERS)


DECLARED = FunctionRegistry()


@DECLARED.scalar(["int", "int"], "bool")
def more_than_half(value: int, other: int) -> bool:
    return value * 2 > other


def planned(how: str, condition: str) -> Stream:
    if condition == BY_FUNCTION:
        return lefts().join(rights(), where=more_than_half(lefts()["b"], col.b_right), how=how)
    where = None if condition == KEY else lefts()["b"] < Stream(lefts().join(rights(), "a").node)["b_right"]
    return lefts().join(rights(), "a", how=how, where=where)


def queried(how: str, condition: str) -> str:
    condition = f"l.run = r.run AND {condition}"
    if how == "anti":
        return joins.uncovered("lefts", "rights", [(name, f"l.{name}") for name in ("run", *LEFT)], condition)
    keeps = {"inner": (False, False), "left": (True, False), "right": (False, True), "full": (True, True)}[how]
    query = joins.outer(
        "lefts",
        "rights",
        ("run", *LEFT),
        (("run_right", "run"), *RIGHT),
        condition,
        keeps_left=keeps[0],
        keeps_right=keeps[1],
    )
    return f"SELECT * REPLACE (coalesce(run, run_right) AS run) FROM ({query})"


def judge(how: str, condition: str, implementations: Sequence[str], seeds: Iterable[int]) -> None:
    runs, plan = RecordedRuns({"lefts": NUMBERS, "rights": NUMBERS}), compile_plan([planned(how, condition).node])
    for implementation in implementations:
        for seed in seeds:
            steps = steps_of(random.Random(f"{seed} {implementation}"), [NUMBER_ROWS, NUMBER_ROWS])
            graph = graph_of(plan, implementation)
            record(runs, graph, ("lefts", "rights"), steps, f"{implementation}, seed {seed}")
    runs.judge(queried(how, condition), LEFT if how == "anti" else (*LEFT, "a_right", "b_right"))


@pytest.mark.parametrize("condition", [KEY, RANGE, BY_FUNCTION])
@pytest.mark.parametrize("how", HOWS)
def test_a_join_is_the_query_over_both_tables_after_every_batch(
    how: str, condition: str, implementations: Sequence[str]
) -> None:
    judge(how, condition, implementations, range(50))


@pytest.mark.long
@pytest.mark.parametrize("condition", [KEY, RANGE, BY_FUNCTION])
@pytest.mark.parametrize("how", HOWS)
def test_a_join_is_the_query_over_both_tables_for_many_seeds(
    how: str, condition: str, implementations: Sequence[str], long_seeds: range
) -> None:
    judge(how, condition, implementations, long_seeds)


# Joins of three.

THREE = ("lefts", "rights", "thirds")
BY_KEY = "l.a = r.a AND r.a = t.a"
BY_CHAIN = "l.a = r.b AND t.b >= r.a AND l.b + t.a < 3"
OF_THREE = ("a", "b", "a_2", "b_2", "a_3", "b_3")


def of_three(condition: str) -> str:
    """Return the query of combinations of three events that are valid together."""
    sides = {"l": "", "r": "_2", "t": "_3"}
    chosen = ", ".join(f"{side}.{name} AS {name}{end}" for side, end in sides.items() for name in "ab")
    starts, ends = (", ".join(f"{side}.{time}" for side in sides) for time in ("vs", "ve"))
    lifetime = f"greatest({starts}) AS vs, least({ends}) AS ve"
    return (
        f"SELECT * FROM (SELECT l.run AS run, {chosen}, {lifetime} FROM lefts AS l, rights AS r, thirds AS t "
        f"WHERE l.run = r.run AND r.run = t.run AND {condition}) WHERE vs < ve"
    )


ORDERS: Sequence[Sequence[int] | None] = (None, *permutations(range(3)))


# A conjunct is not tested before one that stands before it, so the chain begins with its first two streams.
@pytest.mark.parametrize(
    ("condition", "order"),
    [(BY_KEY, order) for order in ORDERS] + [(BY_CHAIN, order) for order in (None, (0, 1, 2), (1, 0, 2))],
)
def test_a_join_of_three_is_the_query_over_their_tables_in_any_order(
    condition: str, order: Sequence[int] | None, implementations: Sequence[str]
) -> None:
    streams = [source(name, NUMBERS) for name in THREE]
    if condition == BY_KEY:
        joined = join(*streams, on="a", order=order)
    else:
        joined = join(*streams, where=(col.a == col.b_2) & (col.b_3 >= col.a_2) & (col.b + col.a_3 < 3), order=order)
    plan, runs = compile_plan([joined.node]), RecordedRuns(dict.fromkeys(THREE, NUMBERS))
    names = [one.label for one in plan.sources]
    for implementation in implementations:
        for seed in range(12):
            steps = steps_of(random.Random(f"{seed} {implementation}"), [NUMBER_ROWS] * 3, open_part=0.2)
            record(runs, graph_of(plan, implementation), names, steps, f"{implementation}, seed {seed}")
    runs.judge(of_three(condition), OF_THREE)
