"""Joins against SQL in DuckDB, after every batch of two random streams."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import duckdb
import pytest
from temporal_world import StreamTable, cut, random_stream

from lmerge.temporal.changes import Delta, Lifetime
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.stream import Stream, source
from lmerge.testing.canonical import joins

ROWS = ((0, 0), (0, 1), (1, 0), (1, 2))
LEFT, RIGHT = ("a", "b"), (("a_right", "a"), ("b_right", "b"))
KEY, RANGE = "l.a = r.a", "l.a = r.a AND l.b < r.b"


def lefts() -> Stream:
    return source("lefts", {"a": "int", "b": "int"})


def rights() -> Stream:
    return source("rights", {"a": "int", "b": "int"})


def planned(how: str, is_ranged: bool) -> Stream:
    where = lefts()["b"] < Stream(lefts().join(rights(), "a").node)["b_right"] if is_ranged else None
    return lefts().join(rights(), "a", how=how, where=where)


def queried(how: str, condition: str) -> str:
    if how == "anti":
        return joins.uncovered("lefts", "rights", [(name, f"l.{name}") for name in LEFT], condition)
    keeps = {"inner": (False, False), "left": (True, False), "right": (False, True), "full": (True, True)}[how]
    return joins.outer("lefts", "rights", LEFT, RIGHT, condition, keeps_left=keeps[0], keeps_right=keeps[1])


def database() -> Callable[[dict[str, StreamTable], str], Counter[Lifetime]]:
    """Return a function that runs a query over tables."""
    connection = duckdb.connect()
    for name in ("lefts", "rights"):
        connection.execute(f"CREATE TABLE {name} (a BIGINT, b BIGINT, vs BIGINT, ve BIGINT)")

    def result(tables: dict[str, StreamTable], query: str) -> Counter[Lifetime]:
        for name, table in tables.items():
            connection.execute(f"DELETE FROM {name}")
            rows = [(*event.row, event.vs, event.ve) for event in table.events.elements()]
            if rows:
                connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?)", rows)
        found: list[tuple[Any, ...]] = connection.execute(query).fetchall()
        return Counter(Lifetime(row[:-2], row[-2], row[-1]) for row in found)

    return result


@pytest.mark.parametrize("is_ranged", [False, True])
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "anti"])
def test_a_join_is_the_query_over_both_tables_after_every_batch(how: str, is_ranged: bool) -> None:
    result, query = database(), queried(how, RANGE if is_ranged else KEY)
    for seed in range(10):
        random_ = random.Random(seed)
        graph = compile_plan([planned(how, is_ranged).node]).graph()
        tables, output = {"lefts": StreamTable(), "rights": StreamTable()}, StreamTable()
        streams = [cut(random_, random_stream(random_, 12, rows=ROWS)) for _ in tables]
        for at in range(max(map(len, streams))):
            step = [stream[at] if at < len(stream) else Delta([]) for stream in streams]
            for table, delta in zip(tables.values(), step, strict=True):
                table.apply(delta)
            output.apply(graph.step(step)[0])
            assert output.events == result(tables, query)
