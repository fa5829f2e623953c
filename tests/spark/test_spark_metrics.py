"""What a Spark driver exports: its queries as Spark reports them, and its JVM; read over HTTP from a real session."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from client_world import threaded_world
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from spark_world import FileFeed, S, publish_flights

from lmerge.spark import session
from lmerge.spark.metrics import SparkMetrics, export_metrics

HOUR = 1_700_002_800 * S
PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples_at(port: int) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        families = text_string_to_metric_families(response.read().decode())
        return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def until(port: int, claim: Callable[[Samples], bool]) -> Samples:
    while not claim(found := samples_at(port)):
        pass
    return found


@pytest.fixture
def registry(spark: Any) -> Iterator[CollectorRegistry]:
    registry = CollectorRegistry()
    metrics = SparkMetrics(spark, registry)
    yield registry
    metrics.close()


def test_the_page_lists_exactly_what_a_driver_exports(registry: CollectorRegistry) -> None:
    rows = re.findall(r"^\| `(lmerge_spark_\w+)` \| (\w+) \| ([\w, ]*?) ?\|", PAGE.read_text(), re.MULTILINE)
    found = {
        f"{f.name}_total" if f.type == "counter" else f.name: (f.type, ", ".join(getattr(f, "_labelnames", ())))
        for f in registry.collect()
    }
    assert {name: (kind, labels) for name, kind, labels in rows} == found


def test_a_query_reports_its_batches_rows_and_watermark_and_goes_when_it_ends(spark: Any, tmp_path: Path) -> None:
    feed = FileFeed(tmp_path / "feed", "ts long, name string, n long")
    exported = export_metrics(spark, 0)
    key = frozenset({("query", "board")})
    try:
        with threaded_world(policy="eager") as world:
            feed.put({"ts": HOUR, "name": "x"}, {"ts": HOUR + S, "name": "y"})
            feed.put({"ts": HOUR + 100 * S, "name": "z"})
            writer = publish_flights(spark, feed, world.target).queryName("board")
            query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(processingTime="50 milliseconds")
            running = query.start()
            try:
                found = until(exported.port, lambda found: found.get(("lmerge_spark_input_rows_total", key)) == 3)
                assert found["lmerge_spark_batches_total", key] >= 2
                assert found["lmerge_spark_batch_number", key] == found["lmerge_spark_batches_total", key] - 1
                assert 0 < found["lmerge_spark_last_batch_seconds", key] < 120
                assert found["lmerge_spark_batch_seconds_total", key] > found["lmerge_spark_last_batch_seconds", key]
                feed.put({"ts": HOUR + 101 * S, "name": "z"})
                until(
                    exported.port,
                    lambda found: found.get(("lmerge_spark_watermark_timestamp_seconds", key), 0) > HOUR / S,
                )
            finally:
                running.stop()
            found = until(exported.port, lambda found: ("lmerge_spark_batches_total", key) not in found)
            used, most = (found["lmerge_spark_heap_bytes", frozenset({("kind", kind)})] for kind in ("used", "max"))
            assert 2**20 < used <= most
            assert any(name == "lmerge_spark_gc_seconds_total" for name, _ in found)
    finally:
        exported.close()


def test_the_environment_asks_for_metrics_and_they_are_served_once(
    spark: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "_exported", [])
    monkeypatch.setenv("LMERGE_METRICS_PORT", "0")
    session.export_if_asked(spark)
    session.export_if_asked(spark)
    (exported,) = session._exported
    try:
        assert any(name == "lmerge_spark_heap_bytes" for name, _ in samples_at(exported.port))
        assert capfd.readouterr().err.count(f"metrics at http://127.0.0.1:{exported.port}/metrics") == 1
    finally:
        exported.close()
