"""Rows of Parquet files as columns are the same items as by rows: values, order, pace, feedback and positions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lmerge.core.elements import INF
from lmerge.errors import InvalidRow
from lmerge.replica import ParquetFile
from lmerge.replica.feeds import SourceFeed, feed_of, opened_at
from lmerge.replica.sources import parquet
from lmerge.replica.sources.column_items import column_items
from lmerge.replica.sources.declared import SourceContext
from lmerge.replica.sources.row_changes import RowShape
from lmerge.temporal.changes import Change
from lmerge.temporal.columns import as_rows
from lmerge.wire.schema import Schema, parse_schema

pytestmark = pytest.mark.usefixtures("native_engine")

AT: Final = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
VALUES: Final = {
    "int64": pa.array([3, None, -1]),
    "int32": pa.array([3, 4, -1], pa.int32()),
    "uint64": pa.array([3, 2**63, 1], pa.uint64()),
    "double": pa.array([-0.0, float("nan"), 0.125]),
    "float": pa.array([0.5, None, 1.25], pa.float32()),
    "text": pa.array(["a", "", None]),
    "large_text": pa.array(["a", "é", "c"], pa.large_string()),
    "no_text": pa.Array.from_buffers(pa.string(), 3, pa.array([b"\xff", b"a", b"b"]).buffers()),
    "keyed": pa.array(["a", "b", "a"]).dictionary_encode(),
    "bytes": pa.array([b"\0", b"", None]),
    "bool": pa.array([True, None, False]),
    "moment": pa.array([AT, None, AT], pa.timestamp("us", "Europe/Vienna")),
    "fine_moment": pa.array([AT, AT, AT], pa.timestamp("ns", "UTC")),
    "local": pa.array([AT.replace(tzinfo=None)] * 3, pa.timestamp("us")),
    "day": pa.array([date(2026, 1, 1), None, date(1, 1, 1)]),
    "no_day": pa.array([2**30] * 3, pa.int32()).cast(pa.date32()),
    "money": pa.array([Decimal("1.50"), None, Decimal("-0.01")], pa.decimal128(10, 2)),
    "list": pa.array([[1, 2], None, []], pa.list_(pa.int64())),
    "none": pa.nulls(3),
}
TYPES: Final = (
    "int?",
    "int",
    "float?",
    "float(1)?",
    "string?",
    "bytes?",
    "bool?",
    "timestamp?",
    "date?",
    "decimal(2)?",
)


def write(path: Path, columns: dict[str, Any], group_rows: int = 100) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=group_rows)
    return path


def fed(source: ParquetFile, schema: Schema, as_columns: bool, position: Any = None) -> SourceFeed:
    made = SourceContext("flights", schema, as_columns=as_columns)
    reader = source.open(made, opened_at(source, position)[0])
    return feed_of("flights", source, reader, position, threading.Event())


def rows_of(taken: Any) -> list[Any]:
    return taken if isinstance(taken, list) else as_rows(taken).changes


def shown(items: list[Any]) -> list[str]:
    return [str(item) if isinstance(item, Change) else repr(item) for item in items]


def all_of(feed: SourceFeed) -> tuple[list[str], int]:
    """Return all items, and how many of them came as columns."""
    found: list[str] = []
    in_columns = 0
    with closing(feed):
        while not feed.has_ended:
            if feed.next_release() is not None:
                taken = feed.take(7, None)
                in_columns += 0 if isinstance(taken, list) else len(taken)
                found += shown(rows_of(taken))
    return found, in_columns


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except InvalidRow as error:
        return str(error)


@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("values", list(VALUES))
def test_every_type_of_arrow_is_read_as_by_rows_or_refused(type_name: str, values: str, tmp_path: Path) -> None:
    schema = parse_schema({"x": type_name})
    path = write(tmp_path / "f.parquet", {"x": VALUES[values], "at": [1, 2, 3]})
    source = ParquetFile(path=path, time="at")
    expected = outcome(lambda: all_of(fed(source, schema, False))[0])
    assert outcome(lambda: all_of(fed(source, schema, True))[0]) == expected


TIMES: Final = {
    "ints": (pa.array([5, 1, 9]), pa.array([7, None, INF - 1])),
    "moments": (pa.array([AT] * 3, pa.timestamp("us", "UTC")), pa.array([None] * 3, pa.timestamp("us", "UTC"))),
    "local": (pa.array([AT.replace(tzinfo=None)] * 3, pa.timestamp("us")), pa.array([None] * 3, pa.int64())),
    "backwards": (pa.array([5, 6, 7]), pa.array([6, 6, 8])),
    "missing": (pa.array([5, None, 7]), pa.array([6, 7, 8])),
    "end of time": (pa.array([5, 6, INF]), pa.array([6, 7, None], pa.int64())),
    "end is the end of time": (pa.array([5, 6, 7]), pa.array([6, INF, None], pa.int64())),
}


@pytest.mark.parametrize("shape", ["point", "open", "interval", "released"])
@pytest.mark.parametrize("name", list(TIMES))
def test_times_are_read_as_by_rows(shape: str, name: str, tmp_path: Path) -> None:
    starts, ends = TIMES[name]
    path = write(tmp_path / "f.parquet", {"x": [1, 2, 3], "s": starts, "e": ends, "r": [3, 1, 2]})
    declared: dict[str, Any] = {
        "point": {"time": "s"},
        "open": {"start": "s"},
        "interval": {"start": "s", "end": "e"},
        "released": {"start": "s", "end": "e", "release": "r"},
    }[shape]
    source, schema = ParquetFile(path=path, **declared), parse_schema({"x": "int"})
    expected = outcome(lambda: all_of(fed(source, schema, False))[0])
    assert outcome(lambda: all_of(fed(source, schema, True))[0]) == expected


def test_rows_that_fit_make_no_objects(tmp_path: Path) -> None:
    columns = {"x": list(range(500)), "s": [str(at) for at in range(500)], "at": list(range(500))}
    source, schema = ParquetFile(path=write(tmp_path / "f.parquet", columns), time="at"), {"x": "int", "s": "string"}
    found, in_columns = all_of(fed(source, parse_schema(schema), True))
    assert in_columns == 500
    assert len(found) == 501


class StandingClock:
    """A clock that a test moves."""

    time = 0

    def now(self) -> int:
        return self.time

    def seconds_until(self, instant: int) -> float:
        return float(instant - self.time)


def test_pace_feedback_and_positions_are_those_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROWS_PER_BATCH", 16)
    starts = [at // 3 * 2 - at % 2 for at in range(300)]
    columns = {"x": list(range(300)), "s": starts, "e": [start + 1 + start % 5 for start in starts]}
    source = ParquetFile(path=write(tmp_path / "f.parquet", columns), start="s", end="e")
    schema, clock = parse_schema({"x": "int"}), StandingClock()
    feeds = [fed(source, schema, as_columns) for as_columns in (False, True)]
    found: list[list[str]] = [[], []]
    for clock.time in range(0, 150, 3):
        for items, feed in zip(found, feeds, strict=True):
            while (release := feed.next_release()) is not None and release <= clock.time:
                items += shown(rows_of(feed.take(10, clock)))
        assert found[0] == found[1]
        assert feeds[0].next_release() == feeds[1].next_release()
        assert feeds[0].items == feeds[1].items
    assert len(found[0]) > 150
    # Each goes on where the other one stopped, though its chunks have other lengths.
    positions = [feed.position for feed in feeds]
    again = [fed(source, schema, as_columns, positions[not as_columns]) for as_columns in (False, True)]
    rest = [all_of(feed)[0] for feed in again]
    assert rest[0] == rest[1] == all_of(feeds[0])[0] == all_of(feeds[1])[0]


def test_items_are_unneeded_up_to_the_first_that_is_needed() -> None:
    batch = pa.record_batch({"x": [1, 2, 3, 4], "s": [0, 1, 2, 3], "e": [3, 9, 10, 5]})
    items = column_items(parse_schema({"x": "int"}), RowShape("s", "e", False, None), batch)
    assert items is not None
    assert [items.unneeded(begin, 10) for begin in range(4)] == [2, 1, 0, 1]
    assert items.unneeded(0, 0) == 0
