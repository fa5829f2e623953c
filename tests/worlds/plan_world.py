"""What the tests of plans share: Spark's functions, loaded late, and one aggregate in windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

S = 1_000_000  # microseconds in a second

Build = Callable[[Any, Any], Any]  # a stream and Spark's functions to a query


def functions() -> Any:
    from pyspark.sql import functions as f

    return f


def tumbling(df: Any, f: Any, *aggregates: Any) -> Any:
    return df.groupBy(f.window("ts", "10 seconds"), "k").agg(*(aggregates or [f.count("*").alias("n")]))
