"""The lint: each rule has a row in a table, with a real plan that breaks it and one that does not."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lmerge.errors import UsageError
from lmerge.spark.exact import exact_avg, exact_sum
from lmerge.spark.plan import lint as lint_module
from lmerge.spark.plan import lint_rules, promises
from lmerge.spark.plan.lint import Finding, LintWarning, lint, lint_plan
from lmerge.spark.plan.lint_rules import CODES, ERROR, UNREAD, WARNING
from lmerge.spark.plan.promises import check
from lmerge.spark.plan.tree import Expr, Node, read_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "k string, id bigint, ts timestamp, x double, n int, big bigint, dec decimal(10,2), words array<string>"

Build = Callable[[Any, Any], Any]


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """Return a stream of files, with a watermark."""
    folder = tmp_path_factory.mktemp("in")
    return spark.readStream.schema(SCHEMA).json(str(folder)).withWatermark("ts", "10 seconds")


def functions() -> Any:
    from pyspark.sql import functions as f

    return f


def grouped(df: Any, f: Any, *aggregates: Any) -> Any:
    return df.groupBy(f.window("ts", "10 seconds"), "k").agg(*aggregates)


# Plans that break a rule: the code, its severity, what the finding must name, and the plan.
BREAKING: list[tuple[str, str, str, Build]] = [
    ("clock", ERROR, "current_timestamp()", lambda df, f: df.withColumn("now", f.current_timestamp())),
    ("clock", ERROR, "now()", lambda df, f: df.withColumn("at", f.expr("now()"))),
    ("clock", ERROR, "current_date()", lambda df, f: df.withColumn("day", f.current_date())),
    ("clock", ERROR, "localtimestamp()", lambda df, f: df.withColumn("at", f.localtimestamp())),
    ("clock", ERROR, "current_timestamp()", lambda df, f: df.withColumn("s", f.unix_timestamp())),
    ("clock", ERROR, "current_timestamp()", lambda df, f: df.where(f.col("ts") > f.current_timestamp())),
    (
        "clock",
        ERROR,
        "current_timestamp()",
        lambda df, f: df.withColumn("t", f.current_timestamp()).groupBy(f.window("t", "1 minute")).count(),
    ),
    ("random", ERROR, "rand(", lambda df, f: df.withColumn("r", f.rand())),
    ("random", ERROR, "rand(", lambda df, f: df.withColumn("r", f.rand(7))),
    ("random", ERROR, "randn(", lambda df, f: df.withColumn("r", f.randn(7))),
    ("random", ERROR, "uuid(", lambda df, f: df.withColumn("u", f.expr("uuid()"))),
    ("random", ERROR, "shuffle(", lambda df, f: df.withColumn("w", f.shuffle("words"))),
    ("random", ERROR, "rand(", lambda df, f: df.where(f.rand() < 0.5)),
    ("random", ERROR, "aes_encrypt", lambda df, f: df.withColumn("c", f.aes_encrypt("k", f.lit("0000111122223333")))),
    (
        "partition",
        ERROR,
        "monotonically_increasing_id()",
        lambda df, f: df.withColumn("row", f.monotonically_increasing_id()),
    ),
    ("partition", ERROR, "SPARK_PARTITION_ID()", lambda df, f: df.withColumn("p", f.spark_partition_id())),
    ("input-file", ERROR, "input_file_name()", lambda df, f: df.withColumn("file", f.input_file_name())),
    ("unordered", ERROR, "collect_list(id)", lambda df, f: grouped(df, f, f.collect_list("id").alias("ids"))),
    ("unordered", ERROR, "collect_set(id)", lambda df, f: grouped(df, f, f.collect_set("id").alias("ids"))),
    ("unordered", ERROR, "listagg", lambda df, f: grouped(df, f, f.listagg("k").alias("ks"))),
    ("first-last", ERROR, "first(id)", lambda df, f: grouped(df, f, f.first("id").alias("one"))),
    ("first-last", ERROR, "last(id)", lambda df, f: grouped(df, f, f.last("id").alias("one"))),
    ("first-last", ERROR, "any_value(id)", lambda df, f: grouped(df, f, f.any_value("id").alias("one"))),
    ("ties", WARNING, "max_by(id, ts)", lambda df, f: grouped(df, f, f.max_by("id", "ts").alias("one"))),
    ("ties", WARNING, "min_by(id, ts)", lambda df, f: grouped(df, f, f.min_by("id", "ts").alias("one"))),
    ("ties", WARNING, "mode(id)", lambda df, f: grouped(df, f, f.mode("id").alias("one"))),
    ("float-aggregate", ERROR, "sum(x)", lambda df, f: grouped(df, f, f.sum("x").alias("total"))),
    ("float-aggregate", ERROR, "avg(x)", lambda df, f: grouped(df, f, f.avg("x").alias("mean"))),
    ("float-aggregate", ERROR, "regr_avgx", lambda df, f: grouped(df, f, f.regr_avgx("n", "x").alias("mean"))),
    ("session-zone", WARNING, "to_timestamp", lambda df, f: df.withColumn("at", f.to_timestamp("k"))),
    ("float-aggregate", ERROR, "stddev", lambda df, f: grouped(df, f, f.stddev("n").alias("spread"))),
    ("float-aggregate", ERROR, "corr(", lambda df, f: grouped(df, f, f.corr("n", "id").alias("c"))),
    ("float-aggregate", ERROR, "sum(x)", lambda df, f: grouped(df, f, f.sum("x").cast("int").alias("total"))),
    ("float-aggregate", ERROR, "sum(x)", lambda df, f: grouped(df, f, f.sum("x").cast("string").alias("total"))),
    # Cutting off digits does not help: the sum of ten tenths is 0.9999999999999999 or 1.0.
    ("float-aggregate", ERROR, "sum(x)", lambda df, f: grouped(df, f, f.floor(f.sum("x")).alias("total"))),
    (
        "float-aggregate",
        ERROR,
        "sum(x)",
        lambda df, f: grouped(df, f, f.sum("x").alias("s")).where("s > 10").select("k"),
    ),
    ("float-aggregate", WARNING, "avg(big)", lambda df, f: grouped(df, f, f.avg("big").alias("mean"))),
    ("float-aggregate", WARNING, "avg(big)", lambda df, f: grouped(df, f, f.round(f.avg("big"), 2).alias("mean"))),
    # Rounding only makes differences rarer: 24.565 and 24.564999999999998 are two sums of the same numbers.
    ("rounded-float", WARNING, "sum(x)", lambda df, f: grouped(df, f, f.round(f.sum("x"), 2).alias("total"))),
    ("rounded-float", WARNING, "sum(x)", lambda df, f: grouped(df, f, f.round(f.sum("x"), 15).alias("total"))),
    ("rounded-float", WARNING, "avg(x)", lambda df, f: grouped(df, f, f.bround(f.avg("x"), 2).alias("mean"))),
    (
        "rounded-float",
        WARNING,
        "sum(x)",
        lambda df, f: grouped(df, f, f.sum("x").alias("total")).withColumn("total", f.round("total", 3)),
    ),
    (
        "rounded-float",
        WARNING,
        "sum(x)",
        lambda df, f: grouped(df, f, f.sum("x").alias("total")).select("k", f.col("total").cast("decimal(20,4)")),
    ),
    ("rounded-float", WARNING, "sum(x)", lambda df, f: grouped(df, f, f.format_number(f.sum("x"), 2).alias("total"))),
    (
        "ties",
        WARNING,
        "collect_list(struct(x, k))",
        lambda df, f: grouped(
            df,
            f,
            f.array_sort(
                f.collect_list(f.struct("x", "k")), lambda a, b: f.when(a.x < b.x, -1).when(a.x > b.x, 1).otherwise(0)
            ).alias("all"),
        ),
    ),
    (
        "ties",
        WARNING,
        "collect_list(k)",
        lambda df, f: grouped(
            df, f, f.array_sort(f.collect_list("k"), lambda a, b: f.length(a) - f.length(b)).alias("all")
        ),
    ),
    (
        "ties",
        WARNING,
        "listagg(k",
        lambda df, f: grouped(df, f, f.expr("listagg(k) WITHIN GROUP (ORDER BY id)").alias("ks")),
    ),
    ("input-file", ERROR, "_metadata.file_name", lambda df, f: df.select("ts", "_metadata.file_name")),
    (
        "input-file",
        ERROR,
        "_metadata.file_modification_time",
        lambda df, f: df.withColumn("at", f.col("_metadata.file_modification_time")),
    ),
    ("input-file", ERROR, "_metadata.file_size", lambda df, f: df.where("_metadata.file_size > 10").select("ts")),
    ("input-file", ERROR, "_metadata", lambda df, f: df.select("ts", "_metadata")),
    ("session-zone", WARNING, "hour(ts)", lambda df, f: df.withColumn("h", f.hour("ts"))),
    ("session-zone", WARNING, "CAST(ts AS STRING)", lambda df, f: df.withColumn("h", f.col("ts").cast("string"))),
    ("session-zone", WARNING, "CAST(ts AS DATE)", lambda df, f: df.withColumn("y", f.year("ts"))),
    ("session-zone", WARNING, "date_format(ts", lambda df, f: df.withColumn("d", f.date_format("ts", "yyyy"))),
    ("session-zone", WARNING, "INTERVAL '1' DAY", lambda df, f: df.withColumn("t", f.expr("ts + INTERVAL 1 DAY"))),
    ("session-zone", WARNING, "CAST('2024-05-01' AS TIMESTAMP)", lambda df, f: df.where("ts > '2024-05-01'")),
    ("session-zone", WARNING, "to_json(", lambda df, f: df.withColumn("j", f.to_json(f.struct("ts")))),
    ("approximate", WARNING, "percentile", lambda df, f: grouped(df, f, f.percentile_approx("n", 0.5).alias("median"))),
    ("environment", WARNING, "current_user()", lambda df, f: df.withColumn("who", f.expr("current_user()"))),
    (
        "nondeterministic",
        ERROR,
        "reflect(",
        lambda df, f: df.withColumn("r", f.expr("reflect('java.util.UUID', 'randomUUID')")),
    ),
    ("udf", WARNING, "shout(k)", lambda df, f: df.withColumn("loud", f.udf(shout, "string")("k"))),
    ("udf", WARNING, "shout(k)", lambda df, f: df.where(f.udf(shout, "string")("k") == "A")),
    (
        "udf-nondeterministic",
        ERROR,
        "shout(k)",
        lambda df, f: df.withColumn("loud", f.udf(shout, "string").asNondeterministic()("k")),
    ),
    ("udf", WARNING, "MapInPandas", lambda df, f: df.mapInPandas(lambda frames: frames, SCHEMA)),
    ("udf", WARNING, "MapInArrow", lambda df, f: df.mapInArrow(lambda batches: batches, SCHEMA)),
    ("limit", ERROR, "GlobalLimit", lambda df, f: df.limit(10)),
    ("sample", ERROR, "Sample", lambda df, f: df.sample(0.5, seed=7)),
    ("dedup-first", WARNING, "id, ts", lambda df, f: df.dropDuplicates(["id", "ts"])),
    ("dedup-state", WARNING, "id", lambda df, f: df.dropDuplicates(["id"])),
    ("dedup-within-watermark", WARNING, "id", lambda df, f: df.dropDuplicatesWithinWatermark(["id"])),
    ("static-join", WARNING, "k = k", lambda df, f: df.join(table(df), "k")),
    ("source", ERROR, "rate", lambda df, f: df.sparkSession.readStream.format("rate").load()),
    (
        "source",
        ERROR,
        "socket",
        lambda df, f: df.sparkSession.readStream.format("socket").option("host", "localhost").option("port", 9).load(),
    ),
]

# The same aims in a form that can be replicated.
SOUND: list[Build] = [
    lambda df, f: df,
    lambda df, f: df.withColumn("now", f.current_timestamp()).drop("now"),
    lambda df, f: df.withColumn("u", f.xxhash64("k", "id")),
    lambda df, f: grouped(df, f, f.array_sort(f.collect_list("id")).alias("ids")),
    lambda df, f: grouped(df, f, f.sort_array(f.collect_set("id")).alias("ids")),
    lambda df, f: grouped(df, f, f.size(f.collect_set("id")).alias("distinct")),
    lambda df, f: grouped(df, f, f.collect_list("id").alias("ids")).withColumn("ids", f.array_sort("ids")),
    lambda df, f: grouped(df, f, f.count("*"), f.min("x"), f.max("ts")),
    lambda df, f: grouped(df, f, f.approx_count_distinct("id").alias("distinct")),
    lambda df, f: grouped(df, f, f.sum("n"), f.sum("dec"), f.avg("n"), f.avg("dec")),
    lambda df, f: grouped(df, f, exact_sum("x").alias("total"), exact_avg("x").alias("mean")),
    lambda df, f: grouped(df, f, f.round(exact_sum(f.col("x") * 2), 2).alias("total")),
    lambda df, f: grouped(
        df,
        f,
        f.array_sort(f.collect_list("x"), lambda a, b: f.when(a < b, 1).when(a > b, -1).otherwise(0)).alias("falling"),
    ),
    lambda df, f: grouped(df, f, f.expr("listagg(k) WITHIN GROUP (ORDER BY k DESC)").alias("ks")),
    lambda df, f: df.where("ts > '2024-05-01T00:00:00Z' and ts < '2025-05-01 00:00:00+02:00'"),
    lambda df, f: df.withColumn("t", f.expr("ts + INTERVAL 23 HOURS")).withColumn("us", f.unix_micros("ts")),
    lambda df, f: df.withColumn("j", f.to_json(f.struct("k"))),
    lambda df, f: (
        df.withColumn("h", f.hour(f.expr("timestamp_ntz'2024-05-01 12:00:00'")))
        .withColumn("d", f.to_date("k"))
        .withColumn("c", f.expr("aes_encrypt(k, '0000111122223333', 'ECB')"))
    ),
    lambda df, f: df.groupBy(f.session_window("ts", "5 seconds"), "k").count(),
    lambda df, f: df.select("ts", "_metadata.file_name").drop("file_name"),
    lambda df, f: grouped(df, f, f.sum(f.col("x").cast("decimal(20,4)")).alias("total")),
    lambda df, f: grouped(df, f, f.sum("x").alias("total")).drop("total"),
    lambda df, f: df.dropDuplicates(),
    lambda df, f: df.union(df).select("k", "ts"),
    lambda df, f: df.withColumn("word", f.explode("words")),
]


def shout(text):  # type: ignore[no-untyped-def]  # PySpark would take hints for those of pandas
    return text.upper()


def table(df: Any) -> Any:
    return df.sparkSession.createDataFrame([("a", 1)], "k string, colour int")


def codes(findings: list[Finding]) -> list[str]:
    return [finding.code for finding in findings]


@pytest.mark.parametrize("case", BREAKING, ids=[f"{i}-{case[0]}" for i, case in enumerate(BREAKING)])
def test_what_differs_between_replicas_is_found_and_named(stream: Any, case: tuple[str, str, str, Build]) -> None:
    code, severity, named, build = case
    found = [finding for finding in lint(build(stream, functions())) if finding.code == code]
    assert found, f"nothing of code {code}"
    assert {finding.severity for finding in found} == {severity}
    assert any(named.lower() in f"{finding.sql} {finding.where}".lower() for finding in found), found
    assert all(finding.problem and finding.instead and finding.where for finding in found)


def test_every_code_is_that_of_some_finding() -> None:
    source = "".join(inspect.getsource(module) for module in (lint_rules, lint_module, promises))
    codes = re.findall(r'(?:Rule\(\s*|Finding\((?:ERROR|WARNING), )"([a-z-]+)"', source)
    assert set(codes) | {UNREAD} == set(CODES)


@pytest.mark.parametrize("number", range(len(SOUND)))
def test_what_is_the_same_on_every_replica_passes(stream: Any, number: int) -> None:
    assert lint(SOUND[number](stream, functions())) == []


def test_a_column_that_is_published_rounded_only_warns_of_a_float_sum(stream: Any) -> None:
    df = grouped(stream, functions(), functions().sum("x").alias("total"))
    assert codes(lint(df)) == ["float-aggregate"]
    assert codes(lint(df, round_digits={"total": 2})) == ["rounded-float"]
    assert codes(lint(df, round_digits={"other": 2})) == ["float-aggregate"]


def test_a_finding_names_where_the_value_was_made_and_where_it_matters(stream: Any) -> None:
    f = functions()
    df = grouped(stream, f, f.sum("x").alias("total")).withColumn("double", f.col("total") * 2).select("k", "double")
    (finding,) = lint(df)
    assert finding.sql == "sum(x)"
    assert finding.where == "column 'total' of Aggregate"
    assert "published column 'double'" in finding.problem
    assert str(finding).startswith("error [float-aggregate] sum(x) in column 'total' of Aggregate: ")


def test_a_value_is_reported_once_wherever_it_goes(stream: Any) -> None:
    f = functions()
    df = stream.withColumn("r", f.rand()).select("r", (f.col("r") * 2).alias("s"), f.col("r").alias("t"))
    assert codes(lint(df)) == ["random"]


def test_errors_come_first_and_allowed_codes_not_at_all(stream: Any) -> None:
    f = functions()
    df = stream.withColumn("loud", f.udf(shout, "string")("k")).withColumn("r", f.rand())
    assert codes(lint(df)) == ["random", "udf"]
    assert codes(lint(df, allow=("udf",))) == ["random"]


# update mode: operators above rows that are revised

UPDATES: list[tuple[str | None, Build]] = [
    (None, lambda df, f: grouped(df, f, f.count("*").alias("n"))),
    (None, lambda df, f: grouped(df, f, f.count("*").alias("n")).select("window.start", "k", "n")),
    (None, lambda df, f: grouped(df, f, f.count("*").alias("n")).where("k != 'x' and window.start > '2020-01-01'")),
    ("update-filter", lambda df, f: grouped(df, f, f.count("*").alias("n")).where("n < 5")),
    ("update-filter", lambda df, f: grouped(df, f, f.count("*").alias("n")).select("k", "n", "window").where("n < 5")),
    (
        "update-explode",
        lambda df, f: grouped(df, f, f.sort_array(f.collect_set("id")).alias("ids")).select(
            "window", "k", f.explode("ids")
        ),
    ),
    ("update-partitions", lambda df, f: grouped(df, f, f.count("*").alias("n")).coalesce(1)),
    ("update-partitions", lambda df, f: grouped(df, f, f.count("*").alias("n")).repartition(3)),
    ("update-join", lambda df, f: grouped(df, f, f.count("*").alias("n")).join(table(df), "k")),
    ("update-key", lambda df, f: grouped(df, f, f.count("*").alias("n")).select("k", "n")),
    ("update-key", lambda df, f: df),
]


@pytest.mark.parametrize("number", range(len(UPDATES)))
def test_revised_rows_must_reach_the_sink_as_they_are(stream: Any, number: int) -> None:
    code, build = UPDATES[number]
    found = {finding.code for finding in lint(build(stream, functions()), "update")}
    assert {one for one in found if one.startswith("update")} == ({code} if code else set())


def test_declared_keys_define_which_row_is_revised(stream: Any) -> None:
    assert lint(stream, "update", keys=("id",)) == []


# stateful programs: the nodes are made in Python, as the lint of a program needs no Java


def program(kind: str, time: str) -> Node:
    source = Node("StreamingRelation", (), (), streaming=True, details={"source": "files"})
    return Node(kind, (source,), (), streaming=True, details={"time": time})


@pytest.mark.parametrize(
    ("kind", "time", "code"),
    [
        ("TransformWithStateInPySpark", "ProcessingTime", "processing-time"),
        ("TransformWithStateInPySpark", "EventTime", "udf"),
        ("FlatMapGroupsInPandasWithState", "ProcessingTimeTimeout", "processing-time"),
        ("FlatMapGroupsInPandasWithState", "NoTimeout", "udf"),
    ],
)
def test_processing_time_is_refused(kind: str, time: str, code: str) -> None:
    assert codes(lint_plan(program(kind, time))) == [code]


def kafka(**options: str) -> Node:
    return Node("StreamingRelationV2", (), (), streaming=True, details={"source": "kafka", **options})


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, ["source-start"]),
        ({"startingoffsets": "latest"}, ["source-start"]),
        ({"startingoffsets": "earliest"}, []),
        ({"startingoffsets": "earliest", "failondataloss": "false"}, ["source-loss"]),
    ],
)
def test_replicas_must_begin_with_the_same_rows(options: dict[str, str], found: list[str]) -> None:
    assert codes(lint_plan(kafka(**options))) == found


# check: how publish() uses it


def test_check_refuses_errors_and_names_how_to_accept_them(stream: Any) -> None:
    f = functions()
    df = stream.withColumn("r", f.rand()).withColumn("at", f.current_timestamp())
    with pytest.raises(UsageError, match=r"(?s)2 found.*rand\(.*Instead: .*allow=\("):
        check(df, "ts")
    facts = check(df, "ts", allow=("random", "clock"))
    assert {finding.code for finding in facts.findings} == {"random", "clock"}


def test_check_warns_of_the_rest(stream: Any) -> None:
    df = stream.withColumn("loud", functions().udf(shout, "string")("k"))
    with pytest.warns(LintWarning, match="shout"):
        check(df, "ts")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(df, "ts", allow=("udf",))


def test_check_refuses_a_stream_that_never_becomes_stable(stream: Any) -> None:
    df = grouped(stream, functions(), functions().max("ts").alias("latest"))
    with pytest.raises(UsageError, match=r"allow has 'stable', and .* declare stable_lag="):
        check(df, "latest", allow=("stable",))


# The relations of WITH, the query itself, and its vs.
WITH = [
    (
        {"q": "SELECT window, k, count(*) AS n FROM rows GROUP BY window(ts, '10 seconds'), k"},
        "SELECT * FROM q",
        "window.start",
    ),
    ({"q": "SELECT ts, k FROM rows", "r": "SELECT * FROM q WHERE k = 'a'"}, "SELECT ts, k FROM r", "ts"),
    ({"q": "SELECT ts, k FROM rows"}, "SELECT ts, k FROM q UNION ALL SELECT ts, k FROM q", "ts"),
    ({"q": "SELECT ts, k FROM rows"}, "SELECT a.k, b.ts FROM q a JOIN q b ON a.k = b.k AND a.ts = b.ts", "ts"),
    # A window is recognised where its column is made, whatever its name in the second use.
    (
        {"q": "SELECT window, k, count(*) AS n FROM rows GROUP BY window(ts, '10 seconds'), k"},
        "SELECT a.k, b.window FROM q a JOIN q b ON a.k = b.k AND a.window = b.window",
        "window.start",
    ),
]


@pytest.mark.parametrize(("shared", "text", "vs"), WITH)
def test_what_stands_in_a_with_clause_counts_as_a_view(stream: Any, shared: dict[str, str], text: str, vs: str) -> None:
    spark = stream.sparkSession
    stream.createOrReplaceTempView("rows")
    clause = ", ".join(f"{name} AS ({body})" for name, body in shared.items())
    in_clause = check(spark.sql(f"WITH {clause} {text}"), vs)
    for name, body in shared.items():
        spark.sql(body).createOrReplaceTempView(name)
    as_views = check(spark.sql(text), vs)
    assert in_clause == as_views
    assert in_clause.stable is not None


def test_a_value_is_followed_out_of_a_with_clause(stream: Any) -> None:
    stream.createOrReplaceTempView("rows")
    df = stream.sparkSession.sql(
        "WITH q AS (SELECT ts, rand() AS r, k FROM rows) SELECT a.ts, b.r FROM q a JOIN q b "
        "ON a.ts = b.ts AND a.k = b.k"
    )
    assert "random" in codes(lint(df))


def test_texts_without_an_offset_are_in_the_zone_of_the_machine(spark: Any, tmp_path: Path) -> None:
    folder = str(tmp_path)
    zone = spark.conf.get("spark.sql.session.timeZone")
    reader = spark.readStream.schema("ts timestamp, k string")
    try:
        spark.conf.unset("spark.sql.session.timeZone")
        assert codes(lint(reader.json(folder))) == codes(lint(reader.csv(folder))) == ["session-zone"]
        assert lint(reader.option("timeZone", "UTC").json(folder)) == []
        assert lint(spark.readStream.schema("ts timestamp").parquet(folder)) == []
        assert lint(spark.readStream.schema("ts long").json(folder)) == []
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert lint(spark.readStream.schema("ts timestamp").json(folder)) == []


def test_check_refuses_a_misspelt_code(stream: Any) -> None:
    with pytest.raises(UsageError, match="allow has 'clocks'"):
        check(stream, "ts", allow=("clocks",))


def test_check_refuses_a_plan_without_a_stable_point(stream: Any) -> None:
    df = grouped(stream, functions(), functions().max("ts").alias("latest"))
    with pytest.raises(UsageError, match="stable_lag="):
        check(df, "latest")
    assert check(df, "latest", stable_lag_us=1).stable is not None


def test_every_code_has_a_plan_that_breaks_it() -> None:
    broken = {case[0] for case in BREAKING} | {code for code, _ in UPDATES if code}
    assert broken | {"processing-time", "source-start", "source-loss", "stable", "unread"} == set(CODES)


def test_the_tree_is_plain_values(stream: Any) -> None:
    tree = read_plan(stream.withColumn("r", functions().rand(7)))
    assert isinstance(tree, Node)
    assert tree.kind == "Project"
    assert [column.name for column in tree.output][-1] == "r"
    (made,) = [e for e in tree.all_exprs() if e.kind == "Alias"]
    assert isinstance(made, Expr)
    assert [part.kind for part in made.walk()][:2] == ["Alias", "Rand"]
    assert not made.deterministic
    assert hash(made)


def test_the_folder_of_a_stream_may_be_empty(stream: Any, tmp_path: Path) -> None:
    df = stream.sparkSession.readStream.schema("a int").json(str(tmp_path))
    assert lint(df) == []
