"""PySpark queries of users under test (TESTING 5, X5): beside a plan, by relations, and with their defects found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lmerge.temporal as lt
from lmerge.errors import UsageError
from lmerge.testing import check_relations, check_replicas
from lmerge.testing.systems.spark import SparkSystem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLIGHTS = lt.source("flights", {"origin": "string", "delay": "int?"})
LATE = FLIGHTS.where(lt.col.delay > 1).select("origin")
COUNTED = FLIGHTS.points().group_by("origin").tumbling(5).agg(n=lt.count())
DATA: dict[str, Any] = {"revisions": "none", "values": "plain", "duration": "short", "contact": "free"}


def late(spark: SparkSession, flights: DataFrame) -> DataFrame:
    return flights.where("delay > 1").select("origin", "vs", "ve")


def late_or_unknown(spark: SparkSession, flights: DataFrame) -> DataFrame:
    return flights.where("delay > 1 or delay is null").select("origin", "vs", "ve")


def counted(spark: SparkSession, flights: DataFrame) -> DataFrame:
    windows = flights.selectExpr("origin", "vs - pmod(vs, 5) as start")
    return (
        windows.groupBy("origin", "start").count().selectExpr("origin", "count as n", "start as vs", "start + 5 as ve")
    )


def test_a_query_on_spark_and_a_plan_give_one_table(spark: SparkSession) -> None:
    """X5 (3): a user's own query, in the batches of the generator."""
    verdict = check_replicas({"plan": LATE, "spark": SparkSystem(spark, late)}, data=DATA, rounds=1, merges=4)
    assert not verdict.is_bad, str(verdict)


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_a_query_that_counts_is_judged_in_every_output_mode(spark: SparkSession, mode: str) -> None:
    system = SparkSystem(spark, counted, mode, key=("origin",))
    verdict = check_replicas({"plan": COUNTED, "spark": system}, data={**DATA, "events": 8}, rounds=1, merges=4)
    assert not verdict.is_bad, str(verdict)


def test_a_query_on_spark_that_means_another_table_is_found(spark: SparkSession) -> None:
    system = SparkSystem(spark, late_or_unknown)
    verdict = check_replicas({"plan": LATE, "other plan": LATE.shift(0), "spark": system}, data=DATA, rounds=6)
    assert verdict.is_bad
    assert {finding.replica for finding in verdict.findings} == {"spark"}


def test_a_relation_is_checked_on_spark(spark: SparkSession) -> None:
    (verdict,) = check_relations(LATE, ["time-shift"], system=SparkSystem(spark, late), data=DATA, rounds=1)
    assert not verdict.is_bad, str(verdict)


def test_what_spark_cannot_read_or_raises_is_a_finding(spark: SparkSession) -> None:
    broken = SparkSystem(spark, lambda session, flights: flights.select("nothing"))
    verdict = check_replicas({"plan": LATE, "spark": broken}, data=DATA, rounds=1)
    assert "the query failed" in str(verdict)
    revised = {**DATA, "revisions": "repeated", "overlap": "low", "events": 20}
    found = check_replicas({"plan": LATE, "spark": SparkSystem(spark, late)}, data=revised, rounds=1)
    assert "a query on Spark reads inserts alone" in str(found)


def test_the_snippet_of_the_page_runs(spark: SparkSession) -> None:
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
    (snippet,) = re.findall(r"<!-- run on Spark -->\n```python\n(.*?)```", page, re.DOTALL)
    exec(compile(snippet, "docs/testing.md", "exec"), {"spark": spark})


def test_an_unknown_mode_is_refused(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match="the output mode is 'upsert'; it is one of append, update, complete"):
        SparkSystem(spark, late, "upsert")
