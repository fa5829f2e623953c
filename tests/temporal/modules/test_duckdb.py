"""Aggregates and ranks against DuckDB, on values with which its sums are exact too (ENGINE O9, O10)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.modules.aggregates import aggregate_module
from lmerge.temporal.modules.arguments import column_argument
from lmerge.temporal.modules.builtin import bind_aggregate
from lmerge.temporal.modules.top_k import OrderBy, TopK
from lmerge.temporal.values import NAN, Values, canonical_float
from lmerge.temporal.windows.kinds import WindowDescriptor
from lmerge.wire.schema import parse_schema

WINDOW = WindowDescriptor(0, 10)
SCHEMA = parse_schema({"i": "int?", "f": "float?", "d": "decimal(2)?", "s": "string?"})
PARTS = (0, 0.1, 0.25, 0.3, 0.5, 0.75, 0.9, 1)

# By aggregate: the columns, and DuckDB's expression over one of them.
EXPRESSIONS: dict[str, tuple[str, str]] = {
    "count": ("ifds", "count({0})"),
    "distinct_count": ("ifds", "count(DISTINCT {0})"),
    "sum": ("id", "sum({0})"),
    "avg": ("if", "avg({0})"),
    "var_pop": ("if", "var_pop({0})"),
    "var_samp": ("if", "var_samp({0})"),
    "stddev_pop": ("if", "stddev_pop({0})"),
    "stddev_samp": ("if", "stddev_samp({0})"),
    "min": ("ifds", "min({0})"),
    "max": ("ifds", "max({0})"),
    "median": ("if", "median({0})"),
    "collect": ("ifds", "coalesce(list({0} ORDER BY {0}) FILTER (WHERE {0} IS NOT NULL), [])"),
}
# Of these DuckDB's own arithmetic is not exact.
NEARLY = frozenset(("var_pop", "var_samp", "stddev_pop", "stddev_samp", "avg"))


def rows_of(random_: random.Random, special: bool) -> list[Values]:
    floats: list[float | None] = [None, 0.0, 0.5, -1.25, 3.0, 8.75, -2.0, *([NAN] if special else [])]
    return [
        (
            random_.choice((None, 0, 1, -5, 12, 7)),
            random_.choice(floats),
            random_.choice((None, Decimal("0.25"), Decimal("-7.50"), Decimal("3.00"))),
            random_.choice((None, "", "a", "ä", "\U0001f600", "Z")),
        )
        for _ in range(random_.randint(1, 12))
    ]


@pytest.fixture(scope="module")
def database() -> Iterator[Any]:
    with duckdb.connect() as found:
        yield found


def table_of(found: Any, rows: Sequence[Values]) -> Any:
    found.execute("CREATE OR REPLACE TABLE t (i BIGINT, f DOUBLE, d DECIMAL(20, 2), s VARCHAR)")
    found.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    return found


def computed(name: str, column: str, rows: Sequence[Values], **parameters: Any) -> Any:
    bound = bind_aggregate(name, [column_argument(SCHEMA, column, name)], parameters, "r", SCHEMA)
    ((found,),) = aggregate_module([bound], SCHEMA).compute([Lifetime(row, 0, 1) for row in rows], WINDOW)
    return found


def canonical(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(canonical, value))
    return canonical_float(value) if isinstance(value, float) else value


@pytest.mark.parametrize("name", list(EXPRESSIONS))
def test_an_aggregate_is_what_duckdb_computes(database: Any, name: str) -> None:
    columns, expression = EXPRESSIONS[name]
    for seed in range(12):
        rows = rows_of(random.Random(seed), special=name in ("min", "max", "count", "distinct_count"))
        table = table_of(database, rows)
        for column in columns:
            (expected,) = table.execute(f"SELECT {expression.format(column)} FROM t").fetchone()
            found = computed(name, column, rows)
            if name in NEARLY and found is not None:
                assert found == pytest.approx(expected, rel=1e-12, abs=1e-15), (rows, column)
            else:
                assert repr(found) == repr(canonical(expected)), (rows, column)


@pytest.mark.parametrize("name", ["percentile_disc", "percentile_cont"])
@pytest.mark.parametrize("part", PARTS)
def test_a_percentile_is_what_duckdb_computes(database: Any, name: str, part: float) -> None:
    function = "quantile_disc" if name == "percentile_disc" else "quantile_cont"
    for seed in range(12):
        rows = rows_of(random.Random(seed), special=False)
        table = table_of(database, rows)
        for column in "if" if name == "percentile_cont" else "ifds":
            (expected,) = table.execute(f"SELECT {function}({column}, {part}) FROM t").fetchone()
            found = computed(name, column, rows, p=part)
            if isinstance(found, float):
                assert found == pytest.approx(expected, rel=1e-15), (rows, column)
            else:
                assert found == expected, (rows, column)


@pytest.mark.parametrize("order", ["f", "f DESC", "s, i DESC"])
def test_the_rows_of_rank_k_or_better_are_those_of_duckdb(database: Any, order: str) -> None:
    by = [
        OrderBy(column_argument(SCHEMA, name.split()[0], "top"), descending=name.endswith("DESC"))
        for name in order.split(", ")
    ]
    in_sql = ", ".join(f"{name} NULLS LAST" for name in order.split(", "))
    for seed in range(12):
        random_ = random.Random(seed)
        rows, k = rows_of(random_, special=True), random_.randint(1, 4)
        found = TopK(SCHEMA, k, by, rank="rank").compute([Lifetime(row, 0, 1) for row in rows], WINDOW)
        sql = f"SELECT * FROM (SELECT *, rank() OVER (ORDER BY {in_sql}) AS rank FROM t) WHERE rank <= {k}"
        expected = [tuple(map(canonical, row)) for row in table_of(database, rows).execute(sql).fetchall()]
        assert sorted(map(repr, found)) == sorted(map(repr, expected))
