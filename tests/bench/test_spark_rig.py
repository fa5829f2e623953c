"""The rig's table as Spark reads it equals the table that the judge expects, and the judge finds what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from bench.rig.spark_gates import PLACES, come_to, gate, reached
from bench.rig.spark_judge import TableJudge
from bench.rig.spark_table import TableReader, TableReference
from lmerge.core.batch import Batch
from lmerge.core.elements import NEG_INF, Insert, Stable
from lmerge.spark.sink.elements import RowPlan, converter_of
from lmerge.wire.schema import parse_schema

REFERENCE = TableReference(1_000, life_max=400)


def published(rows: Any) -> list[Any]:
    """Return the elements of a query that publishes these rows."""
    plan = RowPlan("append", parse_schema({"number": "int?", "text": "string?"}), ve="ve")
    return list(converter_of(plan, NEG_INF).take(rows).elements())


def events(first: int, end: int) -> list[Insert]:
    return [Insert(payload, vs, ve) for at in range(first, end) for vs, ve, payload in [REFERENCE.event(at)]]


def test_rows_are_published_as_the_events_of_the_reference() -> None:
    reader = TableReader(REFERENCE, 0.0)
    parts = reader.partitions({"event": 3}, {"event": 90})
    assert [element for part in parts for rows in reader.read(part) for element in published(rows)] == events(3, 90)
    assert published(REFERENCE.rows(5, 5)) == []


def test_the_log_grows_with_the_clock_and_never_goes_back() -> None:
    reader = TableReader(REFERENCE, 0.0)
    now = reader.latestOffset({"event": 0}, None)
    assert now["event"] > 0
    ahead = {"event": now["event"] + 10**9}
    assert reader.latestOffset(ahead, None) == ahead


def judged(elements: list[Any], stable: int) -> TableJudge:
    judge = TableJudge(REFERENCE)
    judge.take(Batch.of([*elements, Stable(stable)]), 1.0)
    return judge


def test_a_stream_that_goes_on_is_right_up_to_its_stable_point() -> None:
    verdict = judged(events(0, 2_000), 1_500_000).verdict_now()
    assert verdict.is_good, verdict.summary()
    assert 1_000 < verdict.expected < 1_500
    assert not TableJudge(REFERENCE).verdict_now().is_good, "nothing came"


def test_what_is_lost_doubled_or_made_up_is_found() -> None:
    right = events(0, 2_000)
    lost = judged([*right[:700], *right[701:]], 1_500_000).verdict_now()
    assert (lost.lost, lost.duplicates, lost.unexpected) == (1, 0, 0)
    assert "event 700" in lost.summary()
    doubled = judged([*right, right[700]], 1_500_000).verdict_now()
    assert (doubled.lost, doubled.duplicates, doubled.unexpected) == (0, 1, 0)
    made_up = judged([*right, Insert(b"no row", right[700].vs, right[700].ve)], 1_500_000).verdict_now()
    assert (made_up.lost, made_up.duplicates, made_up.unexpected) == (0, 0, 1)
    assert not any(verdict.is_good for verdict in (lost, doubled, made_up))


@pytest.mark.parametrize("place", PLACES)
def test_an_open_place_is_passed(tmp_path: Path, place: str) -> None:
    come_to(tmp_path, place)
    assert not reached(tmp_path, place).exists()
    assert not gate(tmp_path, place).exists()
