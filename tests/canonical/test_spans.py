"""Span operators and unions against SQL in DuckDB, after every batch of random streams (sheets O1 to O3, O11, O12).

A user's function is a predicate, a column and a part of an expression; its SQL is what it computes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import pytest
from canonical_world import NUMBER_ROWS, NUMBERS, RecordedRuns, graph_of, record, steps_of

from lmerge.core.elements import INF
from lmerge.temporal.expressions.functions import FunctionRegistry
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.stream import Stream, source
from lmerge.testing.canonical import spans

EVENTS, OTHERS = source("events", NUMBERS), source("others", NUMBERS)
ROWS = (*NUMBER_ROWS, (3, -2))
B = EVENTS["b"]
DECLARED = FunctionRegistry()


@DECLARED.scalar(["int", "int"], "bool")
def exceeds(value: int, bound: int) -> bool:
    return value > bound


@DECLARED.scalar(["int"], "int?")
def halved(value: int) -> int | None:
    return value // 2 if value % 2 == 0 else None


@DECLARED.scalar(["int"], "int", vectorised=True)
def squared(values: list[int]) -> list[int]:
    return [value * value for value in values]


def nested(query: str) -> str:
    return f"({query})"


# By name: the plan, its query, and the columns of its rows.
CASES: dict[str, tuple[Callable[[], Stream], str, Sequence[str]]] = {
    "filter": (lambda: EVENTS.where(B > 0), spans.filtered("events", "b > 0"), "ab"),
    "filter by nothing": (
        lambda: EVENTS.where(EVENTS["a"] / B > 0),
        spans.filtered("events", "a / nullif(b, 0) > 0"),
        "ab",
    ),
    "project": (
        lambda: EVENTS.select("a", c=B * 2 + 1),
        spans.projected("events", [("run", "run"), ("a", "a"), ("c", "b * 2 + 1")]),
        "ac",
    ),
    "rows that become equal": (
        lambda: EVENTS.select("a"),
        spans.projected("events", [("run", "run"), ("a", "a")]),
        "a",
    ),
    "filter by a function": (lambda: EVENTS.where(exceeds(B, EVENTS["a"])), spans.filtered("events", "b > a"), "ab"),
    "filter by a function that gives nothing": (
        lambda: EVENTS.where(halved(B) >= 0),
        spans.filtered("events", "CASE WHEN b % 2 = 0 THEN b // 2 END >= 0"),
        "ab",
    ),
    "map by functions": (
        lambda: EVENTS.select("a", c=halved(B), d=squared(B - 1) + 1),
        spans.projected(
            "events", [("run", "run"), ("a", "a"), ("c", "CASE WHEN b % 2 = 0 THEN b // 2 END"), ("d", "(b-1)*(b-1)+1")]
        ),
        "acd",
    ),
    "union": (lambda: EVENTS.union(OTHERS, EVENTS), spans.union(["events", "others", "events"]), "ab"),
    "shift": (lambda: EVENTS.shift(3), spans.shifted("events", 3), "ab"),
    "shift back": (lambda: EVENTS.shift(-7), spans.shifted("events", -7), "ab"),
    "shift to the end of time": (lambda: EVENTS.shift(INF - 10), spans.shifted("events", INF - 10), "ab"),
    "set duration": (lambda: EVENTS.set_duration(4), spans.with_duration("events", 4), "ab"),
    "point": (lambda: EVENTS.set_duration(1), spans.with_duration("events", 1), "ab"),
    "clip duration": (lambda: EVENTS.clip_duration(2), spans.clipped("events", 2), "ab"),
    "extend": (lambda: EVENTS.extend(5), spans.extended("events", 5), "ab"),
    "at the end": (lambda: EVENTS.at_end(2), spans.at_end("events", 2), "ab"),
    "one behind the other": (
        lambda: EVENTS.at_end(4).where(B < 2).shift(-2).clip_duration(3),
        spans.clipped(nested(spans.shifted(nested(spans.filtered(nested(spans.at_end("events", 4)), "b < 2")), -2)), 3),
        "ab",
    ),
}


def judge(name: str, implementations: Sequence[str], seeds: Iterable[int]) -> None:
    make, query, columns = CASES[name]
    plan = compile_plan([make().node])
    names = [source.label for source in plan.sources]
    runs = RecordedRuns(dict.fromkeys(names, NUMBERS))
    for implementation in implementations:
        for seed in seeds:
            steps = steps_of(random.Random(f"{seed} {implementation}"), [ROWS] * len(names))
            record(runs, graph_of(plan, implementation), names, steps, f"{implementation}, seed {seed}")
    runs.judge(query, tuple(columns))


@pytest.mark.parametrize("name", CASES)
def test_an_operator_is_its_query_after_every_batch(name: str, implementations: Sequence[str]) -> None:
    judge(name, implementations, range(80))


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_an_operator_is_its_query_for_many_seeds(name: str, implementations: Sequence[str], long_seeds: range) -> None:
    judge(name, implementations, long_seeds)
