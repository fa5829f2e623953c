"""Random expressions give what DuckDB gives for the SQL that they mean."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from expression_world import KINDS, SCHEMA, ExpressionOracle, random_expression, random_row, sql_of

from lmerge.temporal.expressions.binding import bind, bind_all

ROWS = [random_row(Random(f"row {index}")) for index in range(60)]


@pytest.fixture(scope="module")
def oracle() -> Iterator[ExpressionOracle]:
    oracle = ExpressionOracle(ROWS)
    yield oracle
    oracle.close()


@pytest.mark.parametrize("seed", range(40))
def test_random_expressions_give_what_duckdb_gives(seed: int, oracle: ExpressionOracle) -> None:
    rng = Random(seed)
    expressions = [random_expression(rng, rng.choice(KINDS), rng.randint(0, 4)) for _ in range(20)]
    together = bind_all(expressions, SCHEMA).evaluate_batch(ROWS)
    expected = oracle.values(expressions)
    for index, expression in enumerate(expressions):
        bound = bind(expression, SCHEMA)
        for row, all_values, values in zip(ROWS, together, expected, strict=True):
            alone = bound.evaluate(row)
            assert alone is values[index] or alone == values[index], (
                f"{expression} of {row}: {alone!r}, DuckDB {values[index]!r} by {sql_of(expression.node)}"
            )
            assert all_values[index] is alone or all_values[index] == alone, f"{expression} of {row} beside others"
            assert alone is not None or bound.column.nullable, f"{expression} is NULL, and {bound.column.describe()}"
