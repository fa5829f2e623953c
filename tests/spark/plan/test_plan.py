"""The stable rule and the properties derived from a plan. test_plan_proofs.py proves the rules with rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from plan_world import Build, S, functions, tumbling

from lmerge.core.properties import INSERT_ONLY, KEY
from lmerge.errors import UsageError
from lmerge.spark import Payload
from lmerge.spark.plan.promises import PlanFacts, StableRule, explain, explain_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "k string, ts timestamp, n int, other timestamp"


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    return spark.readStream.schema(SCHEMA).json(str(tmp_path_factory.mktemp("in"))).withWatermark("ts", "5 seconds")


class PlanCase(NamedTuple):
    """``expected``: (lag in microseconds, exact, strict), or a part of the reason why there is no rule."""

    name: str
    build: Build
    vs: str
    expected: tuple[int, bool, bool] | str
    mode: str = "append"
    ve: str | None = None


RULES = [
    PlanCase("stateless", lambda df, f: df, "ts", (0, False, False)),
    PlanCase("stateless-filtered", lambda df, f: df.where("n > 3").select("k", "ts"), "ts", (0, False, False)),
    PlanCase("stateless-renamed", lambda df, f: df.select(f.col("ts").alias("at"), "k"), "at", (0, False, False)),
    PlanCase("stateless-earlier", lambda df, f: df, "ts - interval 90 seconds", (90 * S, False, False)),
    # Vs is after the event time. The stable point still does not pass the watermark.
    PlanCase("stateless-later", lambda df, f: df, "ts + interval 1 minute", (0, False, False)),
    PlanCase("stateless-days", lambda df, f: df, "ts - interval 1 day", "not a constant of fixed length"),
    PlanCase("stateless-month", lambda df, f: df, "ts - interval 1 month", "no derivable earliest value"),
    PlanCase("minute", lambda df, f: df, "date_trunc('minute', ts)", (60 * S, False, False)),
    PlanCase("day", lambda df, f: df, "date_trunc('day', ts)", "time zones"),
    PlanCase("micros", lambda df, f: df, "unix_micros(ts)", (0, False, False)),
    PlanCase(
        "when",
        lambda df, f: df,
        "case when n = 1 then ts when n = 2 then ts - interval 3 seconds end",
        (3 * S, False, False),
    ),
    PlanCase("coalesce", lambda df, f: df, "coalesce(ts, ts - interval 2 seconds)", (2 * S, False, False)),
    PlanCase("if-unknown", lambda df, f: df, "if(n = 1, ts, other)", "other is not an event time"),
    PlanCase("other-column", lambda df, f: df, "other", "other is not an event time"),
    PlanCase(
        "udf",
        lambda df, f: df.withColumn("t", f.udf(lambda ts: ts, "timestamp")("ts")),
        "t",
        "no derivable earliest value",
    ),
    PlanCase("map", lambda df, f: df.mapInPandas(lambda frames: frames, SCHEMA), "ts", "MapInPandas"),
    PlanCase("now", lambda df, f: df, "current_timestamp()", "no derivable earliest value"),
    PlanCase("union", lambda df, f: df.union(df), "ts", (0, False, False)),
    PlanCase("union-of-exact-and-not", lambda df, f: df.dropDuplicates(["k", "ts"]).union(df), "ts", (0, False, False)),
    PlanCase(
        "union-unlike", lambda df, f: df.select("ts").union(df.select("other")), "ts", "other is not an event time"
    ),
    PlanCase("explode", lambda df, f: df.select("ts", f.explode(f.array("n", "n"))), "ts", (0, False, False)),
    # a stateful operator drops late rows
    PlanCase("dedup", lambda df, f: df.dropDuplicates(["k", "ts"]), "ts", (0, True, True)),
    PlanCase("dedup-by-other", lambda df, f: df.dropDuplicates(["k"]), "ts", (0, True, True)),
    PlanCase("dedup-within", lambda df, f: df.dropDuplicatesWithinWatermark(["k"]), "ts", (0, True, True)),
    PlanCase("window-start", lambda df, f: tumbling(df, f), "window.start", (10 * S, True, True)),
    PlanCase("window-end", lambda df, f: tumbling(df, f), "window.end", (0, True, True)),
    PlanCase(
        "window-selected",
        lambda df, f: tumbling(df, f).select(f.col("window.start").alias("s"), "k", "n"),
        "s",
        (10 * S, True, True),
    ),
    PlanCase(
        "window-aliased",
        lambda df, f: df.groupBy(f.window("ts", "10 seconds").alias("w"), "k").count(),
        "w.start",
        (10 * S, True, True),
    ),
    PlanCase(
        "window-time",
        lambda df, f: tumbling(df, f).select(f.window_time("window").alias("t"), "k"),
        "t",
        (1, True, True),
    ),
    PlanCase(
        "window-offset",
        lambda df, f: df.groupBy(f.window("ts", "10 seconds", "10 seconds", "3 seconds")).count(),
        "window.start",
        (10 * S, True, True),
    ),
    PlanCase(
        "hopping",
        lambda df, f: df.groupBy(f.window("ts", "1 minute", "10 seconds"), "k").count(),
        "window.start",
        (60 * S, True, True),
    ),
    PlanCase(
        "hopping-uneven",
        lambda df, f: df.groupBy(f.window("ts", "25 seconds", "10 seconds")).count(),
        "window.start",
        (25 * S, True, True),
    ),
    PlanCase("by-event-time", lambda df, f: df.groupBy("ts").count(), "ts", (0, True, True)),
    PlanCase("update", lambda df, f: tumbling(df, f), "window.start", (10 * S, True, True), "update"),
    PlanCase("update-end", lambda df, f: tumbling(df, f), "window.end", (0, True, True), "update"),
    PlanCase(
        "update-no-window",
        lambda df, f: df.groupBy("k").agg(f.max("ts").alias("t")),
        "t",
        "no column with a watermark",
        "update",
    ),
    PlanCase(
        "aggregate-of-time", lambda df, f: tumbling(df, f, f.min("ts").alias("t")), "t", "result of the aggregation"
    ),
    PlanCase(
        "session-end",
        lambda df, f: df.groupBy(f.session_window("ts", "4 seconds"), "k").count(),
        "session_window.end",
        (0, True, True),
    ),
    PlanCase(
        "session-start",
        lambda df, f: df.groupBy(f.session_window("ts", "4 seconds"), "k").count(),
        "session_window.start",
        "of any length",
    ),
    # chains: the last operator's filter counts
    PlanCase(
        "chained-windows",
        lambda df, f: tumbling(df, f).groupBy(f.window("window", "1 minute")).agg(f.sum("n").alias("n")),
        "window.start",
        (60 * S, True, True),
    ),
    PlanCase(
        "dedup-then-window",
        lambda df, f: tumbling(df.dropDuplicates(["k", "ts"]), f),
        "window.start",
        (10 * S, True, True),
    ),
    PlanCase("no-watermark-behind", lambda df, f: df.groupBy("k").count(), "k", "no column with a watermark", "update"),
    # intervals: a row has a start or an end
    PlanCase(
        "intervals",
        lambda df, f: df.selectExpr("k", "if(n = 1, ts, null) as s", "if(n = 2, ts, null) as e"),
        "s",
        (0, False, False),
        "intervals",
        "e",
    ),
    PlanCase(
        "intervals-old-start",
        lambda df, f: df.selectExpr("k", "other as s", "ts as e"),
        "s",
        "other is not an event time",
        "intervals",
        "e",
    ),
]


@pytest.mark.parametrize("case", RULES, ids=[case.name for case in RULES])
def test_the_stable_rule_follows_from_the_plan(stream: Any, case: PlanCase) -> None:
    facts = explain_plan(case.build(stream, functions()), case.vs, case.ve, case.mode)
    if isinstance(case.expected, str):
        assert facts.stable is None
        assert case.expected in facts.stable_why
        assert "stable" in [finding.code for finding in facts.findings]
    else:
        assert facts.stable is not None, facts.stable_why
        assert (facts.stable.lag_us, facts.stable.exact, facts.stable.strict) == case.expected
        assert facts.stable.reason


def test_without_a_watermark_nothing_can_be_stable(spark: Any, tmp_path: Path) -> None:
    df = spark.readStream.schema(SCHEMA).json(str(tmp_path))
    assert explain_plan(df, "ts").stable is None
    f = functions()
    assert "no column with a watermark" in explain_plan(tumbling(df, f), "window.start", mode="update").stable_why


def test_a_declared_lag_goes_before_what_is_derived(stream: Any) -> None:
    rule = explain_plan(stream, "ts", stable_lag_us=7 * S).stable
    assert rule == StableRule(7 * S, False, "as declared by stable_lag")
    assert explain_plan(stream, "other", stable_lag_us=7 * S).findings == ()


def test_the_stable_point_of_a_watermark() -> None:
    assert StableRule(10 * S, True, "").distance_us == 10 * S
    assert StableRule(10 * S, True, "", strict=True).distance_us == 10 * S - 1


# joins of two streams


@pytest.fixture(scope="module")
def sides(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[DataFrame, DataFrame]:
    folder = str(tmp_path_factory.mktemp("sides"))
    left = spark.readStream.schema("lk string, lt timestamp, n int").json(folder).withWatermark("lt", "5 seconds")
    return left, spark.readStream.schema("rk string, rt timestamp").json(folder).withWatermark("rt", "9 seconds")


BOTH = "lk = rk and rt >= lt and rt <= lt + interval 1 minute"
JOINS = [
    # A new left row meets old right ones up to a minute later than it, so a left time is at most a minute old.
    ("inner", BOTH, "lt", (60 * S, True)),
    ("inner", BOTH, "rt", (0, True)),
    ("inner", BOTH, "greatest(lt, rt)", (0, True)),
    ("inner", BOTH, "least(lt, rt)", (60 * S, True)),
    ("inner", "lk = rk and rt between lt and lt + interval 1 minute", "lt", (60 * S, True)),
    ("inner", "lk = rk and lt > rt - interval 30 seconds", "lt", (30 * S, True)),
    ("inner", "lk = rk and lt > rt - interval 30 seconds", "rt", "an old one"),
    ("inner", "lk = rk and lt = rt", "lt", (0, True)),
    ("inner", "lk = rk", "lt", "an old one"),
    ("inner", "lk = rk", "greatest(lt, rt)", "an old one"),
    ("leftsemi", BOTH, "lt", (60 * S, True)),
    ("leftouter", BOTH, "lt", "leave its state"),
]


@pytest.mark.parametrize(("how", "condition", "vs", "expected"), JOINS)
def test_a_join_of_two_streams_bounds_a_time_by_its_condition(
    sides: tuple[Any, Any], how: str, condition: str, vs: str, expected: tuple[int, bool] | str
) -> None:
    left, right = sides
    facts = explain_plan(left.join(right, functions().expr(condition), how), vs)
    if isinstance(expected, str):
        assert facts.stable is None
        assert expected in facts.stable_why
    else:
        assert facts.stable is not None, facts.stable_why
        assert (facts.stable.lag_us, facts.stable.exact) == expected


def test_behind_a_join_over_a_range_of_time_the_watermark_is_unknown(sides: tuple[Any, Any]) -> None:
    left, right = sides
    f = functions()
    ranged = left.join(right, f.expr(BOTH)).groupBy(f.window("lt", "10 seconds")).count()
    assert "range of time" in explain_plan(ranged, "window.start").stable_why
    equal = left.join(right, f.expr("lt = rt")).drop("rt").groupBy(f.window("lt", "10 seconds")).count()
    assert explain_plan(equal, "window.start").stable is not None


# properties


def test_rows_of_an_append_query_are_inserts_and_nothing_else_is_promised(stream: Any) -> None:
    facts = explain_plan(stream, "ts")
    assert facts.properties == {INSERT_ONLY}
    assert facts.keys is None
    assert not facts.stateful


KEYS: list[tuple[Build, str, str, tuple[str, ...] | None, bool]] = [
    (lambda df, f: tumbling(df, f), "window.start", "append", ("k", "window"), True),
    (lambda df, f: tumbling(df, f).select("k", "n", f.col("window.start").alias("s")), "s", "append", ("k", "s"), True),
    (lambda df, f: tumbling(df, f).select("n", f.col("window.start").alias("s")), "s", "append", None, False),
    (lambda df, f: tumbling(df, f).select("k", "n", "window.end"), "end", "update", ("k", "end"), True),
    (lambda df, f: df.dropDuplicates(["k", "ts"]), "ts", "append", ("k", "ts"), True),
    (lambda df, f: df.dropDuplicates(["k", "ts"]).select("k", f.col("ts").alias("t")), "t", "append", ("k", "t"), True),
    (lambda df, f: df.dropDuplicates(["k", "ts"]).select("ts", "n"), "ts", "append", None, False),
    (lambda df, f: df.dropDuplicatesWithinWatermark(["k"]), "ts", "append", ("k", "ts"), True),
    (lambda df, f: tumbling(df, f).union(tumbling(df, f)), "window.start", "append", None, False),
    (
        lambda df, f: tumbling(df, f).select("k", "window", f.explode(f.array("n", "n"))),
        "window.start",
        "append",
        None,
        False,
    ),
    (
        lambda df, f: df.groupBy(f.upper("k").alias("u"), f.window("ts", "10 seconds")).count(),
        "window.start",
        "append",
        ("u", "window"),
        True,
    ),
]


@pytest.mark.parametrize("number", range(len(KEYS)))
def test_a_key_is_promised_where_vs_and_payload_identify_rows(stream: Any, number: int) -> None:
    build, vs, mode, keys, promised = KEYS[number]
    facts = explain_plan(build(stream, functions()), vs, None, mode)
    assert (KEY in facts.properties) == promised, facts.reasons
    if promised:
        assert facts.keys is not None
        assert set(facts.keys) == set(keys or ())
    assert (INSERT_ONLY in facts.properties) == (mode == "append")


def test_what_is_left_out_of_the_payload_identifies_nothing(stream: Any) -> None:
    df = tumbling(stream, functions())
    assert KEY in explain_plan(df, "window.start", payload=Payload(["k", "n"])).properties
    assert KEY not in explain_plan(df, "window.start", payload=Payload(["n"])).properties
    with pytest.raises(UsageError, match="payload has 'm'"):
        explain_plan(df, "window.start", payload=Payload(["m"]))


def test_intervals_are_identified_by_the_declared_keys(stream: Any) -> None:
    facts = explain_plan(stream, "ts", "other", "intervals", keys=["k"], stable_lag_us=0)
    assert facts.properties == {KEY}
    assert facts.keys == ("k",)
    assert (
        KEY
        not in explain_plan(
            stream, "ts", "other", "intervals", keys=["k"], payload=Payload(["n"]), stable_lag_us=0
        ).properties
    )


def test_declared_properties_go_before_derived_ones(stream: Any) -> None:
    assert explain_plan(stream, "ts", properties=["insert-only", "key"]).properties == {INSERT_ONLY, KEY}
    with pytest.raises(UsageError, match="unknown property"):
        explain_plan(stream, "ts", properties=["sorted"])


def test_an_unknown_mode_is_refused(stream: Any) -> None:
    with pytest.raises(UsageError, match="mode is 'complete'"):
        explain_plan(stream, "ts", mode="complete")


# text


def test_the_explanation_is_for_people(stream: Any) -> None:
    text = explain(tumbling(stream, functions()), "window.start", "window.end")
    assert text.splitlines()[0] == "Published in mode append, this query promises: insert-only, key"
    for part in (
        "append mode outputs a row once",
        "partitions are written in parallel",
        "one row for each (window, k)",
        "r3",
        "the watermark that it ran with, less 10 s; Spark lets no row out below it",
        "window.start is 10 s before its end",
        "nothing was found",
    ):
        assert part in text


def test_the_explanation_names_what_to_declare(stream: Any) -> None:
    text = explain(tumbling(stream, functions(), functions().max("ts").alias("t")), "t")
    assert "cannot be derived: declare it with stable_lag=" in text


class Connected:
    """A class that has the module of a Spark Connect DataFrame."""


Connected.__module__ = "pyspark.sql.connect.dataframe"


def test_on_spark_connect_everything_is_declared_by_hand() -> None:
    with pytest.raises(UsageError, match=r"Spark Connect.*properties=.*stable_lag="):
        explain_plan(Connected(), "ts")
    facts = explain_plan(Connected(), "ts", properties=["insert-only"], stable_lag_us=5)
    assert isinstance(facts, PlanFacts)
    assert facts.properties == {INSERT_ONLY}
    assert facts.stable is not None
