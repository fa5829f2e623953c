"""Joins against SQL in DuckDB, after every batch of two random streams (sheets O4 to O6)."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from canonical_world import NUMBER_ROWS, NUMBERS, RecordedRuns, record, steps_of

from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.stream import Stream, source
from lmerge.testing.canonical import joins

LEFT, RIGHT = ("a", "b"), (("a_right", "a"), ("b_right", "b"))
KEY, RANGE = "l.a = r.a", "l.a = r.a AND l.b < r.b"
HOWS = ("inner", "left", "right", "full", "anti")


def lefts() -> Stream:
    return source("lefts", NUMBERS)


def rights() -> Stream:
    return source("rights", NUMBERS)


def planned(how: str, condition: str) -> Stream:
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


def judge(how: str, condition: str, seeds: Iterable[int]) -> None:
    runs, plan = RecordedRuns({"lefts": NUMBERS, "rights": NUMBERS}), compile_plan([planned(how, condition).node])
    for seed in seeds:
        record(runs, plan.graph(), ("lefts", "rights"), steps_of(random.Random(seed), [NUMBER_ROWS, NUMBER_ROWS]))
    runs.judge(queried(how, condition), LEFT if how == "anti" else (*LEFT, "a_right", "b_right"))


@pytest.mark.parametrize("condition", [KEY, RANGE])
@pytest.mark.parametrize("how", HOWS)
def test_a_join_is_the_query_over_both_tables_after_every_batch(how: str, condition: str) -> None:
    judge(how, condition, range(200))


@pytest.mark.long
@pytest.mark.parametrize("condition", [KEY, RANGE])
@pytest.mark.parametrize("how", HOWS)
def test_a_join_is_the_query_over_both_tables_for_many_seeds(how: str, condition: str, long_seeds: range) -> None:
    judge(how, condition, long_seeds)
