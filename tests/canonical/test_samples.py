"""Edges, as-of joins, coalesce and cleanse against SQL in DuckDB, after every batch (sheets O13, O14, O16)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest
from canonical_world import RecordedRuns, graph_of, record, steps_of

from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.stream import Stream, source
from lmerge.temporal.values import Values
from lmerge.testing.canonical import presence, samples

ROWS: Sequence[Values] = ((0, 0), (0, 1), (1, 0), (1, None), (None, 3))


NUMBERS = {"a": "int?", "b": "int?"}
TYPES = {"a": "int", "b": "int"}
LEFTS, RIGHTS = source("lefts", NUMBERS), source("rights", NUMBERS)
COLUMNS = ("a", "b")
PAIRS = (("run", "l.run"), ("a", "l.a"), ("b", "l.b"), ("a_right", "s.a"), ("b_right", "s.b"))


def as_of_query(is_outer: bool, within: int | None) -> str:
    keys = (("run", "run"), ("a", "a"))
    return samples.as_of("lefts", "rights", keys, PAIRS, COLUMNS, is_outer=is_outer, within=within)


PAIRED = ("a", "b", "a_right", "b_right")

# By name: the plan, its query, and the columns of its rows.
CASES: dict[str, tuple[Stream, str, Sequence[str]]] = {
    "edges": (LEFTS.edges("a"), samples.edges("lefts", ("run", "a"), ("run", *COLUMNS)), COLUMNS),
    "edges that end": (
        LEFTS.edges("a", lasts=4),
        samples.edges("lefts", ("run", "a"), ("run", *COLUMNS), lasts=4),
        COLUMNS,
    ),
    "as of": (LEFTS.as_of(RIGHTS, "a"), as_of_query(False, None), PAIRED),
    "as of, or nothing": (LEFTS.as_of(RIGHTS, "a", how="left"), as_of_query(True, None), PAIRED),
    "as of, within": (LEFTS.as_of(RIGHTS, "a", within=3), as_of_query(False, 3), PAIRED),
    "as of, within, or nothing": (LEFTS.as_of(RIGHTS, "a", within=3, how="left"), as_of_query(True, 3), PAIRED),
    "coalesce": (LEFTS.coalesce(), presence.coalesced("lefts", ("run", *COLUMNS)), COLUMNS),
    "cleanse": (LEFTS.cleanse(), presence.released("lefts", "stable", ("run",)), COLUMNS),
}


def judge(name: str, implementations: Sequence[str], seeds: Iterable[int]) -> None:
    stream, query, columns = CASES[name]
    plan = compile_plan([stream.node])
    names = [one.label for one in plan.sources]
    runs = RecordedRuns(dict.fromkeys(names, TYPES), ("stable",))
    for implementation in implementations:
        for seed in seeds:
            steps = steps_of(random.Random(f"{seed} {implementation}"), [ROWS] * len(names), open_part=0.05)
            record(runs, graph_of(plan, implementation), names, steps, f"{implementation}, seed {seed}")
    runs.judge(query, columns)


@pytest.mark.parametrize("name", CASES)
def test_an_operator_is_its_query_after_every_batch(name: str, implementations: Sequence[str]) -> None:
    judge(name, implementations, range(80))


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_an_operator_is_its_query_for_many_seeds(name: str, implementations: Sequence[str], long_seeds: range) -> None:
    judge(name, implementations, long_seeds)
