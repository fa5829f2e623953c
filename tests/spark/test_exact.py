"""Exact sums: in any order of rows the result is the double nearest to the true sum, bit for bit.

The oracle is Python's ``fractions``. Hypothesis makes the numbers, from all bit patterns and from those on which sums
of floats break: ties, cancellation, subnormals, the ends of the range. One job adds many groups.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from spark_world import FileFeed, S, run_to_end

from lmerge.errors import UsageError
from lmerge.spark import exact_avg, exact_sum
from lmerge.spark.exact import COMMON_BELOW, COMMON_FROM, NUMBERS_MAX, _result

EDGES = (
    5e-324,
    2.2250738585072014e-308,
    2.225073858507201e-308,
    1.7976931348623157e308,
    9.979201547673599e291,
    1.0,
    0.1,
    2.0**53,
    2.0**-53,
    1e16,
    COMMON_FROM,
    math.nextafter(COMMON_FROM, 0),
    COMMON_BELOW,
    math.nextafter(COMMON_BELOW, 0),
    0.0,
    21.355,
)


def double_of(bits: int) -> float:
    (number,) = struct.unpack("<d", struct.pack("<Q", bits))
    return float(number)


ANY = st.integers(0, 2**64 - 1).map(double_of).filter(math.isfinite)
CENTS = st.integers(-(10**6), 10**6).map(lambda cents: cents / 1000)
EDGE = st.sampled_from(EDGES).flatmap(lambda x: st.sampled_from((x, -x)))
NUMBER = st.one_of(ANY, st.floats(-1e6, 1e6), CENTS, EDGE)
STRANGE = st.sampled_from((None, math.inf, -math.inf, math.nan))


@st.composite
def a_group(draw: Any) -> list[float | None]:
    """Return the numbers of one group: a few, or many that nearly cancel, rarely with infinities or NaN."""
    numbers: list[float | None] = list(draw(st.lists(NUMBER, max_size=12)))
    if draw(st.booleans()):
        numbers += [-x for x in numbers if x is not None] + draw(st.lists(NUMBER, max_size=2))
    if draw(st.integers(0, 9)) == 0:
        numbers += draw(st.lists(STRANGE, max_size=3))
    return numbers


def truth(numbers: Sequence[float | None], *, is_average: bool) -> float | None:
    there = [x for x in numbers if x is not None]
    if not there:
        return None
    infinite = {x for x in there if math.isinf(x)}
    if any(map(math.isnan, there)) or len(infinite) == 2:
        return math.nan
    if infinite:
        return infinite.pop()
    total: Any = sum(map(Fraction, there))
    total = total / len(there) if is_average else total
    if total == 0:
        return 0.0
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def bits(x: float | None) -> str:
    return "null" if x is None else "nan" if math.isnan(x) else struct.pack(">d", x).hex()


def check(spark: Any, groups: Sequence[Sequence[float | None]], partitions: int, seed: int) -> None:
    rows = [(number, x) for number, group in enumerate(groups) for x in group]
    random.Random(seed).shuffle(rows)
    df = spark.createDataFrame(rows, "g int, x double").repartition(partitions)
    sums = df.groupBy("g").agg(exact_sum("x").alias("sum"), exact_avg(df.x).alias("average")).collect()
    assert {row.g for row in sums} == {number for number, group in enumerate(groups) if group}
    for row in sums:
        group = groups[row.g]
        assert bits(row["sum"]) == bits(truth(group, is_average=False)), group
        assert bits(row.average) == bits(truth(group, is_average=True)), group


# A failure names its group, which is small. Shrinking would take minutes, as each try is a job of Spark.
@pytest.mark.parametrize("partitions", [1, pytest.param(2, marks=pytest.mark.long), 7])
@settings(max_examples=3, deadline=None, phases=(Phase.reuse, Phase.generate), suppress_health_check=list(HealthCheck))
@given(groups=st.lists(a_group(), min_size=60, max_size=60), seed=st.integers(0, 2**32))
def test_a_sum_is_the_double_nearest_to_the_true_one(
    spark: Any, partitions: int, groups: list[list[float | None]], seed: int
) -> None:
    check(spark, groups, partitions, seed)


EXAMPLES: list[list[float | None]] = [
    [0.1] * 10,
    [1e308, 1e308, -1e308],
    [1.7976931348623157e308] * 2,
    [1.7976931348623157e308, 9.979201547673599e291],
    [1.7976931348623157e308, 9.9792015476736e291],
    [5e-324] * 3,
    [5e-324, -5e-324],
    [-5e-324, 0.0],
    [-0.0],
    [0.0, -0.0],
    [2.0**53, 1.0],
    [2.0**53, 1.0, 5e-324],
    [2.0**53, 3.0],
    [2.0**53, 3.0, -5e-324],
    [-(2.0**53), -1.0, -(2.0**-1000)],
    [None],
    [None, 1.5],
    [math.nan, 1.0],
    [math.inf, 1.0],
    [math.inf, -math.inf],
    [-math.inf] * 2,
    [math.nan, math.inf],
    [1e300, 1.0, -1e300],
    [1e-300, 1.0, -1.0],
    [2.0**-1022, -(2.0**-1074)],
    [1.0, 2.0**-53, 2.0**-1074],
    [1.0 + 2**-52, 2.0**-53],
    [21.355, -21.0],
    [9.5, 8.555, 3.3],
    [5e-324, 0.0],
    [1e-323, 5e-324],
    [1e-323, 1.5e-323],  # half-way above an even last bit
]


def test_ties_cancellation_and_the_ends_of_the_range(spark: Any) -> None:
    check(spark, EXAMPLES, 3, 1)


def test_floats_are_added_as_they_are_and_no_rows_give_null(spark: Any) -> None:
    floats = [1.1, 2.2, 3.3e-44, 1e-39]
    df = spark.createDataFrame([(x,) for x in floats], "x float")
    stored = [row.x for row in df.collect()]
    (row,) = df.agg(exact_sum("x").alias("s")).collect()
    assert bits(row.s) == bits(truth(stored, is_average=False))
    (nothing,) = df.where("x < 0").agg(exact_sum("x").alias("s"), exact_avg("x").alias("a")).collect()
    assert (nothing.s, nothing.a) == (None, None)


def test_what_is_no_column_is_refused(spark: Any) -> None:
    with pytest.raises(UsageError, match="take a column or its name, not float"):
        exact_sum(1.5)  # type: ignore[arg-type]  # wrong on purpose


def test_a_group_of_more_numbers_than_64_bits_can_add_ends_the_query(spark: Any) -> None:
    from pyspark.sql import functions as f

    for count, message in ((NUMBERS_MAX, None), (NUMBERS_MAX + 1, f"add at most {NUMBERS_MAX} numbers")):
        state = f.struct(
            f.lit(count).cast("bigint").alias("count"),
            f.lit(0).alias("flags"),
            f.array_repeat(f.lit(1).cast("bigint"), 10).alias("sums"),
            f.array().cast("array<double>").alias("rare"),
        )
        df = spark.range(1).select(state.alias("state")).select(_result(f.col("state"), is_average=False).alias("sum"))
        if message is None:
            assert df.collect()[0]["sum"] > 0
        else:
            with pytest.raises(Exception, match=message):
                df.collect()


# In streams: the state is in a checkpoint, and rows come in other batches.


def seconds(numbers: Sequence[float], start: int, key: str = "a") -> list[dict[str, Any]]:
    return [{"ts": (start + i % 10) * S, "k": key, "x": x} for i, x in enumerate(numbers)]


@pytest.mark.parametrize("mode", ["append", "update"])
def test_a_stream_gives_the_same_bits_in_any_batches_and_after_a_restart(spark: Any, tmp_path: Path, mode: str) -> None:
    """Three keys have the same numbers, each in its own order and batches, and each before and after the restart."""
    from pyspark.sql import functions as f

    draw = random.Random(16)
    numbers = [
        draw.choice([draw.uniform(-1e3, 1e3), draw.randrange(10**5) / 1000, 1e-300, 1e300, -1e300]) for _ in range(40)
    ]
    batches: list[list[dict[str, Any]]] = [[] for _ in range(6)]
    for key, parts in {"a": 2, "b": 4, "c": 6}.items():
        rows = seconds(draw.sample(numbers, len(numbers)), 0, key)
        draw.shuffle(rows)
        cuts = sorted(draw.sample(range(1, len(rows)), parts - 1))
        for batch, a, b in zip(batches[-parts:], [0, *cuts], [*cuts, len(rows)]):
            batch += rows[a:b]
    feed = FileFeed(tmp_path / "in", "ts long, k string, x double")
    seen: dict[Any, Any] = {}
    stream = feed.timed(spark, "ts").withWatermark("ts", "20 seconds")
    sums = (
        stream.groupBy(f.window("ts", "10 seconds"), "k")
        .agg(exact_sum("x").alias("sum"), exact_avg("x").alias("average"))
        .select("window.start", "k", "sum", "average")
    )

    def keep(df: Any, number: int) -> None:
        for row in df.collect():
            seen[row.start, row.k] = (bits(row["sum"]), bits(row.average))

    for part in (batches[:-1], [batches[-1], seconds([0.0], 100), seconds([0.0], 101)]):
        for batch in part:
            feed.put(*batch)
        run_to_end(sums.writeStream.outputMode(mode).foreachBatch(keep), tmp_path / "check")
    expected = (bits(truth(numbers, is_average=False)), bits(truth(numbers, is_average=True)))
    results = {key: value for (start, key), value in seen.items() if start.second == 0}
    assert results == dict.fromkeys("abc", expected)
