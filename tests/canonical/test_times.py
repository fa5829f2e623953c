"""Times in SQL against Python's integers, which do not overflow."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from lmerge.testing.canonical.times import INF, NEG_INF, later, saturated, start_above, wide

TIMES = (NEG_INF, NEG_INF + 1, -1_000, -7, -1, 0, 1, 6, 999, INF - 1, INF)


@pytest.fixture(scope="module")
def sql() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def value(sql: duckdb.DuckDBPyConnection, expression: str) -> int:
    found = sql.execute(f"SELECT {expression}").fetchone()
    assert found is not None
    return int(found[0])


def literal(time: int) -> str:
    text = f"'{time}'"
    return f"CAST({wide(text)} AS BIGINT)"


def within(time: int) -> int:
    return max(NEG_INF, min(INF, time))


@pytest.mark.parametrize("time", TIMES)
def test_sums_stay_within_the_range_of_times(sql: duckdb.DuckDBPyConnection, time: int) -> None:
    for d in (-5, 0, 5, INF, NEG_INF):
        assert value(sql, saturated(f"{wide(literal(time))} + {wide(literal(d))}")) == within(time + d)


@pytest.mark.parametrize("time", TIMES)
def test_an_infinity_is_not_moved(sql: duckdb.DuckDBPyConnection, time: int) -> None:
    for d in (-5, 0, 5):
        expected = time if time in (INF, NEG_INF) else within(time + d)
        assert value(sql, later(literal(time), d)) == expected


@pytest.mark.parametrize("time", TIMES)
def test_the_next_start_of_a_grid_lies_above(sql: duckdb.DuckDBPyConnection, time: int) -> None:
    for hop, offset in ((1, 0), (7, 0), (7, 3), (60, -59)):
        start = value(sql, start_above(literal(time), hop, offset))
        assert (start - offset) % hop == 0
        assert time < start <= time + hop
