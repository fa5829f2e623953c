"""Every function of Spark's registry is classified, and experiments check that the lint is right about the classes.

A function that is new in a later Spark fails the first test until it is classified. In each function's documented
examples the lint must find its class and nothing else. Each class is also run twice, with another order of rows, in
another zone, at another time: functions to which the lint objects give different results, other aggregates do not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lmerge.spark.plan.lint import lint
from lmerge.spark.plan.tree import ZONE

# Classes by what the lint finds in the examples; ``same``: nothing.
TABLE = Path(__file__).parent / "functions_of_spark.txt"
# The number of examples that are checked of each function. Further ones only vary constants.
EXAMPLES_MAX = 4


def classified() -> dict[str, set[str]]:
    """Return the functions of each class. Each name must stand only once."""
    found: dict[str, set[str]] = {}
    for line in TABLE.read_text().splitlines():
        codes, _, names = line.partition(": ")
        found[codes] = set(names.split())
    return found


def registered(spark: Any) -> set[str]:
    return {row.function for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}


def examples(spark: Any, name: str) -> list[str]:
    described = "\n".join(row[0] for row in spark.sql(f"DESCRIBE FUNCTION EXTENDED `{name}`").collect())
    return re.findall(r"^\s*> (SELECT .*?);\s*$", described, re.MULTILINE)[:EXAMPLES_MAX]


def test_every_function_of_spark_is_classified(spark: Any) -> None:
    table = classified()
    names = [name for names in table.values() for name in names]
    assert len(names) == len(set(names))
    assert set(names) == registered(spark), "look at what is new, and put it where it belongs"


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_lint_finds_in_the_examples_of_a_function_what_its_class_is(spark: Any) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    wrong = {}
    for codes, names in classified().items():
        for name in sorted(names):
            found: set[str] = set()
            for text in examples(spark, name):
                try:
                    df = spark.sql(text)
                except (PySparkException, Py4JJavaError):
                    continue  # needs a package or a setting that this session lacks
                found |= {finding.code for finding in lint(df)}
            if (",".join(sorted(found)) or "same") != codes:
                wrong[name] = found
    assert wrong == {}


# Rows whose sums, ties and lists show their order. Times lie on both sides of midnight and of a change of clocks.
ROWS = """
    (1, 'a', 0.1D, 1, timestamp'2024-03-10 09:30:00Z', array(1), array(0.1F), 'x'),
    (2, 'b', 0.2D, 1, timestamp'2024-03-10 09:45:15Z', array(2), array(0.2F), 'y'),
    (3, 'a', 0.3D, 2, timestamp'2024-03-10 23:59:59Z', array(3, 1), array(1e8F), 'z'),
    (4, 'c', 1e16D, 2, timestamp'1850-01-01 00:00:00Z', array(4), array(-1e8F), 'u'),
    (5, 'd', -1e16D, 1, timestamp'2024-11-03 08:59:00Z', array(5), array(0.3F), 'v')
"""
COLUMNS = "id, k, x, n, ts, a, v, s"
# A different number for each row, all with one hash, so that a hash table keeps them in the order of arrival.
ALIKE = "((CAST(id AS bigint) << 32) | (id ^ 7))"

DIFFER_BY_ORDER = {
    "unordered": [
        "collect_list(id)",
        "array_agg(id)",
        f"collect_set({ALIKE})",
        f"collect_union(array({ALIKE}))",
        "listagg(s)",
        "string_agg(s)",
        "collect_list(id)[0]",
        "array_join(collect_list(s), ',')",
        "slice(collect_list(id), 1, 2)",
    ],
    "first-last": ["first(id)", "first_value(id)", "last(id)", "last_value(id)", "any_value(id)"],
    "ties": [
        "max_by(id, n)",
        "min_by(id, n)",
        f"mode({ALIKE})",
        "listagg(s) WITHIN GROUP (ORDER BY n)",
        "array_sort(collect_list(s), (p, q) -> 0)",
        "array_sort(collect_list(struct(n, s)), (p, q) -> IF(p.n < q.n, -1, IF(p.n > q.n, 1, 0)))",
    ],
    "float-aggregate": [
        "sum(x)",
        "avg(x)",
        "mean(x)",
        "try_sum(x)",
        "try_avg(x)",
        "std(id * 0.1D + 1e6D)",
        "stddev(id * 0.1D + 1e6D)",
        "stddev_pop(x)",
        "stddev_samp(id * 0.1D + 1e6D)",
        "var_pop(x)",
        "var_samp(x)",
        "variance(x)",
        "skewness(x)",
        "kurtosis(x)",
        "corr(x, id)",
        "covar_pop(x, id)",
        "covar_samp(x, id)",
        "regr_avgx(id, x)",
        "regr_avgy(x, id)",
        "regr_slope(x, id)",
        "regr_intercept(x, id)",
        "regr_r2(x, id)",
        "regr_sxx(id, x)",
        "regr_syy(x, id)",
        "regr_sxy(x, id)",
        "vector_sum(v)",
        "vector_avg(v)",
        "CAST(sum(x) * 10 AS int)",
        "CAST(sum(x) AS string)",
        "floor(sum(x) * 10)",
    ],
    "rounded-float": [
        "round(sum(x), 2)",
        "round(sum(x), 15)",
        "bround(sum(x), 2)",
        "format_number(sum(x), 2)",
        "CAST(sum(x) AS decimal(20, 2))",
    ],
}
SAME_IN_ANY_ORDER = [
    "any(n = 1)",
    "bit_and(id)",
    "bit_or(id)",
    "bit_xor(id)",
    "bool_and(n = 1)",
    "bool_or(n = 1)",
    "count(k)",
    "count(*)",
    "count(DISTINCT k)",
    "count_if(n = 1)",
    "every(n = 1)",
    "some(n = 1)",
    "max(x)",
    "min(x)",
    "max(ts)",
    "min(s)",
    "sum(id)",
    "avg(id)",
    "sum(CAST(x AS decimal(38, 6)))",
    "median(x)",
    "percentile(x, 0.3)",
    "approx_count_distinct(s)",
    "percentile_cont(0.3) WITHIN GROUP (ORDER BY x)",
    "percentile_disc(0.3) WITHIN GROUP (ORDER BY x)",
    "regr_count(x, id)",
    "hex(bitmap_construct_agg(id))",
    "hex(count_min_sketch(id, 0.5d, 0.5d, 1))",
    "array_sort(collect_list(x))",
    "sort_array(collect_set(s), false)",
    "listagg(s) WITHIN GROUP (ORDER BY s)",
    "size(collect_list(id))",
    "array_max(collect_set(id))",
    "max(struct(n, id))",
    "max_by(id, struct(n, id))",
    f"mode({ALIKE}) IS NULL",
]


def results(spark: Any, texts: Sequence[str]) -> list[set[str]]:
    """Return the result of each aggregate of the rows in several orders, in one partition and in more."""
    df = spark.sql(f"SELECT * FROM VALUES {ROWS} AS t({COLUMNS})")
    found: list[set[str]] = [set() for _ in texts]
    for order in ("id", "-id", "s", "n, -id"):
        for partitions in (1, 2):
            rows = df.orderBy(*map(_column, order.split(", "))).coalesce(1)
            rows = rows if partitions == 1 else rows.repartition(partitions, "n")
            (given,) = rows.selectExpr(*(f"{text} AS r{number}" for number, text in enumerate(texts))).collect()
            for values, value in zip(found, given, strict=True):
                values.add(str(value))
    return found


def _column(text: str) -> Any:
    from pyspark.sql import functions as f

    return f.expr(text)


def found_in(spark: Any, text: str, rows: str = ROWS) -> set[str]:
    return {finding.code for finding in lint(spark.sql(f"SELECT {text} AS result FROM VALUES {rows} AS t({COLUMNS})"))}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("code", DIFFER_BY_ORDER)
def test_what_the_lint_objects_to_differs_with_the_order_of_rows(spark: Any, code: str) -> None:
    texts = DIFFER_BY_ORDER[code]
    same = [text for text, values in zip(texts, results(spark, texts), strict=True) if len(values) == 1]
    silent = [text for text in texts if code not in found_in(spark, text)]
    assert (same, silent) == ([], [])


@pytest.mark.timeout(900)
def test_aggregates_that_the_lint_lets_pass_are_the_same_in_any_order(spark: Any) -> None:
    texts = SAME_IN_ANY_ORDER
    differing = [text for text, values in zip(texts, results(spark, texts), strict=True) if len(values) > 1]
    objected = [text for text in SAME_IN_ANY_ORDER if found_in(spark, text)]
    assert (differing, objected) == ([], [])


def test_every_aggregate_of_the_lint_is_run() -> None:
    run = " ".join([*SAME_IN_ANY_ORDER, *(text for texts in DIFFER_BY_ORDER.values() for text in texts)])
    tried = set(re.findall(r"(\w+)\(", run))
    table = classified()
    suspects = table["float-aggregate"] | table["unordered"] | table["first-last"] | table["ties"]
    assert suspects <= tried


ZONES = ("America/Los_Angeles", "Asia/Kolkata")
DIFFER_BY_ZONE = [
    "hour(ts)",
    "minute(ts)",
    "second(ts)",
    "date_format(ts, 'HH:mm')",
    "date_part('HOUR', ts)",
    "datepart('HOUR', ts)",
    "extract(HOUR FROM ts)",
    "date_trunc('DAY', ts)",
    "CAST(ts AS string)",
    "CAST(ts AS date)",
    "year(ts)",
    "month(ts)",
    "day(ts)",
    "dayofweek(ts)",
    "weekofyear(ts)",
    "to_date(ts)",
    "unix_micros(to_timestamp(s2))",
    "unix_micros(try_to_timestamp(s2))",
    "unix_timestamp(s2)",
    "to_unix_timestamp(s2)",
    "from_unixtime(id * 3600)",
    "unix_micros(CAST(s2 AS timestamp))",
    "unix_micros(make_timestamp(2024, 1, 1, 0, 0, 0))",
    "unix_micros(make_timestamp_ltz(2024, 1, 1, 0, 0, 0))",
    "unix_micros(try_make_timestamp(2024, 1, 1, 0, 0, 0))",
    "unix_micros(try_make_timestamp_ltz(2024, 1, 1, 0, 0, 0))",
    "to_json(struct(ts))",
    "to_csv(struct(ts))",
    "to_xml(struct(ts))",
    "unix_micros(from_json(concat('{\"t\":\"', s2, '\"}'), 't timestamp').t)",
    "unix_micros(from_csv(s2, 't timestamp').t)",
    "months_between(ts, timestamp'2024-01-31 08:00:00Z')",
    "unix_micros(ts + INTERVAL 1 DAY)",
    "unix_micros(ts + INTERVAL 1 MONTH)",
    "unix_micros(CAST(CAST(ts AS date) AS timestamp))",
    "concat(ts, '')",
    "ts > '2024-03-11'",
    "unix_micros(from_utc_timestamp(s2, 'Asia/Tokyo'))",
    "unix_micros(to_utc_timestamp(s2, 'Asia/Tokyo'))",
]
# Spark's parser makes a constant of it, and the plan does not show its origin.
DIFFER_UNSEEN = ["unix_micros(timestamp'2024-05-01 00:00:00')"]
SAME_IN_ANY_ZONE = [
    "unix_micros(ts)",
    "unix_seconds(ts)",
    "unix_micros(ts + INTERVAL 23 HOURS)",
    "CAST(ts AS bigint)",
    "CAST(ts AS double)",
    "unix_micros(timestamp_micros(id))",
    "unix_micros(window(ts, '1 day').start)",
    "to_date(s2)",
    "date'2024-01-01' + id",
    "hour(timestamp_ntz'2024-01-01 12:00:00')",
    "ts > '2024-03-10T00:00:00Z'",
    "make_date(2024, 1, id)",
    "datediff(s2, s2)",
    "format_string('%s', ts)",
    "to_json(struct(id))",
    "unix_micros(from_utc_timestamp(ts, 'Asia/Tokyo'))",
    "count(ts) OVER ()",
]


@pytest.mark.timeout(900)
def test_what_depends_on_the_zone_of_the_session_is_found(spark: Any) -> None:
    zone = spark.conf.get(ZONE)
    texts = (*DIFFER_BY_ZONE, *DIFFER_UNSEEN, *SAME_IN_ANY_ZONE)
    given, silent = [], set(texts)
    try:
        for one in ZONES:
            spark.conf.set(ZONE, one)
            # The rows are the same moments in both zones, as each has its offset.
            rows = spark.sql(f"SELECT *, '2024-03-10 02:30:00' AS s2 FROM VALUES {ROWS} AS t({COLUMNS})")
            columns = (f"CAST({text} AS string) AS r{number}" for number, text in enumerate(texts))
            given.append(list(zip(*rows.selectExpr(*columns).collect(), strict=True)))
            silent -= {text for text in silent if _minds_zone(rows.selectExpr(f"{text} AS result"))}
    finally:
        spark.conf.set(ZONE, zone)
    differing = {text for text, first, second in zip(texts, *given, strict=True) if first != second}
    assert differing == {*DIFFER_BY_ZONE, *DIFFER_UNSEEN}
    assert silent == {*DIFFER_UNSEEN, *SAME_IN_ANY_ZONE}


def _minds_zone(df: Any) -> bool:
    return "session-zone" in {finding.code for finding in lint(df)}


BY_CHANCE = [
    ("random", "rand()"),
    ("random", "randn()"),
    ("random", "random()"),
    ("random", "uuid()"),
    ("random", "randstr(8)"),
    ("random", "uniform(0, 1000000000)"),
    ("random", "shuffle(sequence(1, 30))"),
    ("clock", "current_timestamp()"),
    ("random", "hex(aes_encrypt(s, '0000111122223333'))"),
    ("clock", "now()"),
    ("clock", "localtimestamp()"),
    ("clock", "unix_micros(current_timestamp())"),
    ("nondeterministic", "reflect('java.util.UUID', 'randomUUID')"),
    ("nondeterministic", "java_method('java.util.UUID', 'randomUUID')"),
    ("nondeterministic", "try_reflect('java.util.UUID', 'randomUUID')"),
]


@pytest.mark.parametrize(("code", "text"), BY_CHANCE)
def test_what_is_another_value_each_time_is_found(spark: Any, code: str, text: str) -> None:
    query = f"SELECT {text} AS result FROM VALUES {ROWS} AS t({COLUMNS})"
    assert spark.sql(query).collect() != spark.sql(query).collect()
    assert code in found_in(spark, text)


def test_what_depends_on_partitions_and_files_is_found(spark: Any, tmp_path: Path) -> None:
    for parts, folder in ((1, "a"), (3, "b")):
        spark.range(6).repartition(parts).write.json(str(tmp_path / folder))
    texts = {
        "partition": ["monotonically_increasing_id()", "spark_partition_id()"],
        "input-file": [
            "input_file_name()",
            "_metadata.file_name",
            "_metadata.file_size",
            "_metadata.file_path",
            "_metadata.file_modification_time",
            "input_file_block_length()",
        ],
    }
    for code, expressions in texts.items():
        for text in expressions:
            results = []
            for folder in ("a", "b"):
                df = spark.read.schema("id long").json(str(tmp_path / folder)).selectExpr("id", f"{text} AS result")
                assert code in {finding.code for finding in lint(df)}, text
                results.append(sorted(map(str, df.collect())))
            assert results[0] != results[1], text
