"""The conversion of rows, as Arrow record batches, into elements: each mode, late rows, and refused rows."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spool_world import APPENDS, INTERVALS, SCHEMA, UPDATES, KeyedRow, payload_of, rows_of

from lmerge.client.publish.payload_encoder import RowEncoder
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Insert, Stable
from lmerge.errors import InputViolation, InvalidRow, UsageError
from lmerge.spark.frames import REPORT, Report, frame
from lmerge.spark.options import DROP
from lmerge.spark.sink.elements import RowPlan, RowTally, converter_of
from lmerge.spark.spool.files import SpoolFiles
from lmerge.spark.spool.published_state import PublishedState
from lmerge.wire.schema import parse_schema

ELEMENTS = RowPlan("elements", name="a")
FRAMES = RowPlan("frames", name="a")
ELEMENT_COLUMNS = pa.schema(
    [("kind", pa.string()), ("payload", pa.binary()), ("vs", pa.int64()), ("ve", pa.int64()), ("vold", pa.int64())]
)


def fresh() -> PublishedState:
    return PublishedState(SpoolFiles.at("nowhere"), 0, -1, None)


def convert(plan: RowPlan, *batches: Any, stable: int = NEG_INF, state: PublishedState | None = None) -> list[Element]:
    converter = converter_of(plan, stable, state or fresh())
    return [element for rows in batches for element in converter.take(rows).elements()]


def elements(*rows: tuple[Any, ...]) -> Any:
    return pa.RecordBatch.from_pylist([dict(zip(ELEMENT_COLUMNS.names, row)) for row in rows], schema=ELEMENT_COLUMNS)


def dropping(plan: RowPlan) -> RowPlan:
    return RowPlan(plan.mode, plan.schema, plan.vs, plan.ve, plan.keys, plan.kind, DROP, "a")


# append


def test_each_row_is_an_insert(engine: str) -> None:
    rows = rows_of([("a", 1, 5, 9), ("b", 2, 6, None)])
    assert convert(APPENDS, rows) == [Insert(payload_of("a", 1), 5, 9), Insert(payload_of("b", 2), 6, INF)]
    assert convert(APPENDS, rows.slice(1)) == [Insert(payload_of("b", 2), 6, INF)]
    assert convert(APPENDS, rows.slice(0, 0)) == []
    open_ = convert(RowPlan("append", SCHEMA), rows)
    assert open_ == [Insert(payload_of("a", 1), 5, INF), Insert(payload_of("b", 2), 6, INF)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(st.lists(st.tuples(st.text(max_size=3), st.integers(-9, 9), st.integers(-50, 50), st.integers(0, 50))))
def test_inserts_are_those_of_a_publisher(engine: str, numbered: list[tuple[str, int, int, int]]) -> None:
    """The columns are those of ``publish_rows``, made through Arrow's buffers, also for slices."""
    rows = rows_of([(key, n, vs, vs + length) for key, n, vs, length in numbered])
    expected = list(RowEncoder(SCHEMA).inserts(rows, "vs", "ve").elements())
    for start in {0, len(numbered) // 3}:
        assert convert(APPENDS, rows.slice(start)) == expected[start:]


def test_times_can_be_timestamps_and_stand_in_the_payload(engine: str) -> None:
    at = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
    here, there = pa.timestamp("us", "Europe/Berlin"), pa.timestamp("ms", "UTC")
    schema = pa.schema([("k", pa.string()), ("vs", here), ("ve", there)])
    rows = pa.RecordBatch.from_pylist([{"k": "a", "vs": at, "ve": at}, {"k": "b", "vs": at, "ve": None}], schema=schema)
    plan = RowPlan("append", parse_schema({"k": "string", "vs": "timestamp"}), ve="ve")
    us = 1_714_564_800_000_000
    first, second = convert(plan, rows)
    assert (first[1:], second[1:]) == ((us, us), (us, INF))


def test_a_row_with_vs_at_the_stable_point_is_on_time(engine: str) -> None:
    """A row below the published stable point would be an insert below it (Example 5)."""
    rows = rows_of([("a", 1, 5, 90), ("b", 2, 4, 90), ("c", 3, 3, 90)])
    converter = converter_of(dropping(APPENDS), 5)
    assert list(converter.take(rows).elements()) == [Insert(payload_of("a", 1), 5, 90)]
    assert list(converter.take(rows_of([("d", 1, 1, 2)])).elements()) == []
    tally = converter.tally
    assert (tally.rows, tally.late) == (4, 3)
    assert tally.first_late == "insert(k=b, n=2, 4, 90)"
    message = r"'stream' broke its promise \(late-row\) with insert\(.*, 4, 90\): promised nothing below its own stable"
    with pytest.raises(InputViolation, match=message + r"\(5\).*and 1 of the next rows"):
        convert(APPENDS, rows, stable=5)


@pytest.mark.parametrize(
    ("plan", "before", "late", "shown"),
    [
        (APPENDS, None, ("b", 2, 4, 90), "insert(k=b, n=2, 4, 90)"),
        (APPENDS, None, ("b", None, 4, None), "insert(k=b, n=None, 4, inf)"),
        (UPDATES, None, ("b", 2, 4, 90), "insert(k=b, n=2, 4, 90)"),
        (UPDATES, ("b", 2, 4, 90), ("b", 2, 4, 9), "adjust(k=b, n=2, 4, 90, 9)"),
        (UPDATES, ("b", 2, 4, 90), ("b", 3, 12, 90), "adjust(k=b, n=2, 4, 90, 4)"),
        (INTERVALS, None, ("b", 2, 4, 90), "insert(k=b, n=2, 4, 90)"),
        (RowPlan("append", ve="ve", raw="k"), None, ("b", 2, 4, 90), "insert(b, 4, 90)"),
    ],
)
def test_a_late_row_is_shown_by_its_columns(
    engine: str, plan: RowPlan, before: tuple[Any, ...] | None, late: tuple[Any, ...], shown: str
) -> None:
    """Its payload is unreadable bytes. Without a schema there is nothing else to show."""
    plan = replace(plan, schema=plan.schema and parse_schema({"k": "string", "n": "int?"}))
    state = fresh()
    if before is not None:
        convert(plan, rows_of([before]), state=state)
    converter = converter_of(replace(plan, late=DROP), 10, state)
    converter.take(rows_of([late]))
    assert (converter.tally.late, converter.tally.first_late) == (1, shown)
    with pytest.raises(InputViolation, match=re.escape(f"(late-row) with {shown}: promised")):
        convert(plan, rows_of([late]), stable=10, state=state)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([("a", 1, None, 9)], r"row 0, column 'vs': there is no value \(1 of 1 rows\)"),
        ([("a", 1, 5, 9), ("b", 1, 5, 4)], "row 1: it ends at 4, before its start at 5"),
        ([("a", None, 5, 9)], "row 0, column 'n'"),
    ],
)
def test_rows_that_are_no_events_are_refused(engine: str, rows: list[Any], problem: str) -> None:
    with pytest.raises(InvalidRow, match=problem):
        convert(APPENDS, rows_of(rows))


def test_columns_that_are_missing_or_no_times_are_named() -> None:
    rows = rows_of([("a", 1, 5, 9)])
    with pytest.raises(InvalidRow, match="no column 'start'; they have k, n, vs, ve"):
        convert(RowPlan("append", SCHEMA, vs="start"), rows)
    with pytest.raises(InvalidRow, match="column 'k' of times is string"):
        convert(RowPlan("append", SCHEMA, vs="k"), rows)
    naive = pa.RecordBatch.from_pylist([{"vs": 1}], schema=pa.schema([("vs", pa.timestamp("us"))]))
    with pytest.raises(InvalidRow, match="has no time zone"):
        convert(RowPlan("append", SCHEMA), naive)


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (RowPlan("replace"), "unknown mode 'replace'"),
        (RowPlan("append"), "needs the schema"),
        (RowPlan("update", SCHEMA), "needs keys"),
    ],
)
def test_plans_that_make_no_sense_are_refused(plan: RowPlan, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        converter_of(plan, NEG_INF)


# update


def test_a_row_replaces_what_was_published_for_its_key(engine: str) -> None:
    state = fresh()
    a1, a2 = payload_of("a", 1), payload_of("a", 2)
    assert convert(UPDATES, rows_of([("a", 1, 10, 20)]), state=state) == [Insert(a1, 10, 20)]
    assert convert(UPDATES, rows_of([("a", 1, 10, 20)]), state=state) == []
    assert convert(UPDATES, rows_of([("a", 1, 10, 30)]), state=state) == [Adjust(a1, 10, 20, 30)]
    assert convert(UPDATES, rows_of([("a", 2, 10, 30)]), state=state) == [Adjust(a1, 10, 30, 10), Insert(a2, 10, 30)]
    assert convert(UPDATES, rows_of([("a", 2, 11, 30)]), state=state) == [Adjust(a2, 10, 30, 10), Insert(a2, 11, 30)]
    assert convert(UPDATES, rows_of([("a", 2, 11, 11)]), state=state) == [Adjust(a2, 11, 30, 11)]
    assert convert(UPDATES, rows_of([("a", 2, 11, 11)]), state=state) == []
    assert state.changes[next(iter(state.changes))] is None


def test_rows_that_take_an_event_back_need_no_new_one(engine: str) -> None:
    state = fresh()
    convert(UPDATES, rows_of([("a", 1, 10, 20)]), state=state)
    assert convert(UPDATES, rows_of([("a", 2, 12, 12)]), state=state) == [Adjust(payload_of("a", 1), 10, 20, 10)]


@pytest.mark.parametrize(
    ("before", "row", "is_late"),
    [
        (None, (1, 9, 90), True),
        (None, (1, 10, 90), False),
        ((1, 5, 9), (1, 5, 30), True),  # fully frozen: never published, and too late for it
        ((1, 5, 9), (2, 10, 30), False),  # the key comes back
        ((1, 5, 10), (1, 5, 30), False),  # half frozen: its end can move
        ((1, 5, 20), (1, 5, 10), False),
        ((1, 5, 20), (1, 5, 9), True),
        ((1, 5, 20), (2, 10, 30), True),  # half frozen: it cannot be taken back
        ((1, 10, 20), (2, 9, 30), True),
        ((1, 10, 20), (2, 10, 30), False),
        ((1, 10, 20), (1, 10, 10), False),
        ((1, 5, 20), (1, 5, 20), False),  # nothing to publish
    ],
)
def test_a_change_is_late_if_either_half_is(
    engine: str, before: tuple[int, int, int] | None, row: tuple[int, int, int], is_late: bool
) -> None:
    state = fresh()
    if before is not None:
        convert(UPDATES, rows_of([("a", *before)]), state=state)
    kept = dict(state.changes)
    converter = converter_of(dropping(UPDATES), 10, state)
    converted = converter.take(rows_of([("a", *row)]))
    assert converter.tally.late == int(is_late)
    if is_late:
        assert (converted.count, state.changes) == (0, kept)
        with pytest.raises(InputViolation, match="late-row"):
            convert(UPDATES, rows_of([("a", *row)]), stable=10, state=state)


def test_keys_can_be_times_and_need_not_be_in_the_payload(engine: str) -> None:
    state = fresh()
    plan = RowPlan("update", parse_schema({"n": "int"}), ve="ve", keys=("k", "vs"))
    converted = convert(plan, rows_of([("a", 1, 10, 20), ("a", 1, 20, 30), ("b", 1, 10, 20)]), state=state)
    assert [element[1:] for element in converted] == [(10, 20), (20, 30), (10, 20)]
    assert len(state.changes) == 3
    assert convert(plan, rows_of([("a", 1, 20, 30)]), state=state) == []


# intervals


def test_starts_and_ends_are_open_events_and_adjusts(engine: str) -> None:
    state = fresh()
    a1, b1 = payload_of("a", 1), payload_of("b", 1)
    assert convert(INTERVALS, rows_of([("a", 1, 10, None)]), state=state) == [Insert(a1, 10, INF)]
    ends = rows_of([("a", None, None, 30), ("b", None, None, 40)])
    assert convert(INTERVALS, ends, state=state) == [Adjust(a1, 10, INF, 30)]
    assert convert(INTERVALS, rows_of([("b", 1, 20, None)]), state=state) == [Insert(b1, 20, 40)]
    assert convert(INTERVALS, rows_of([("b", 1, 20, 20)]), state=state) == [Adjust(b1, 20, 40, 20)]
    assert convert(INTERVALS, rows_of([("c", 1, 20, 25)]), state=state) == [Insert(payload_of("c", 1), 20, 25)]


def test_a_column_of_kinds_distinguishes_starts_ends_and_aborts(engine: str) -> None:
    schema = pa.schema([("kind", pa.string()), ("k", pa.string()), ("n", pa.int64()), ("t", pa.int64())])

    def rows(*values: tuple[Any, ...]) -> Any:
        return pa.RecordBatch.from_pylist([dict(zip(schema.names, row)) for row in values], schema=schema)

    plan, state = RowPlan("intervals", SCHEMA, "t", "t", ("k",), "kind"), fresh()
    converted = convert(plan, rows(("end", "a", None, 9), ("start", "a", 1, 5), ("start", "b", 1, 5)), state=state)
    assert converted == [Insert(payload_of("a", 1), 5, 9), Insert(payload_of("b", 1), 5, INF)]
    assert convert(plan, rows(("abort", "b", None, 7)), state=state) == [Adjust(payload_of("b", 1), 5, INF, 5)]
    with pytest.raises(InvalidRow, match="row 0, column 'kind': 'stop' is none of start, end, abort"):
        convert(plan, rows(("stop", "a", 1, 5)), state=state)
    with pytest.raises(InvalidRow, match="row 0: it has neither a start in 't' nor an end in 't'"):
        convert(plan, rows(("start", "a", 1, None)), state=state)


def test_marks_below_the_stable_point_are_late(engine: str) -> None:
    state = fresh()
    convert(INTERVALS, rows_of([("a", 1, 5, None)]), state=state)
    converter = converter_of(dropping(INTERVALS), 10, state)
    rows: list[KeyedRow] = [("a", None, None, 9), ("b", 1, 9, None), ("a", None, None, 10), ("c", None, None, 12)]
    converted = converter.take(rows_of(rows))
    assert list(converted.elements()) == [Adjust(payload_of("a", 1), 5, INF, 10)]
    assert (converter.tally.late, converter.tally.unmatched) == (2, 0)
    later = converter_of(dropping(INTERVALS), 13, state)
    assert [later.kept(value) for value in state.changes.values() if value] == [None, None]
    assert later.tally.unmatched == 1
    with pytest.raises(InputViolation, match="late-row"):
        convert(INTERVALS, rows_of([("b", 1, 9, None)]), stable=10, state=state)


def test_an_end_whose_start_never_came_is_counted_when_its_key_comes_back(engine: str) -> None:
    state = fresh()
    convert(INTERVALS, rows_of([("a", None, None, 9)]), state=state)
    converter = converter_of(INTERVALS, 10, state)
    assert list(converter.take(rows_of([("a", 1, 20, None)])).elements()) == [Insert(payload_of("a", 1), 20, INF)]
    assert converter.tally.unmatched == 1


# elements


def test_elements_are_published_unchanged(engine: str) -> None:
    converted = convert(
        ELEMENTS,
        elements(
            ("insert", b"x", 5, 9, None),
            ("insert", b"y", 5, None, None),
            ("adjust", b"y", 5, 30, None),
            ("adjust", b"x", 5, 5, 9),
        ),
    )
    assert converted == [Insert(b"x", 5, 9), Insert(b"y", 5, INF), Adjust(b"y", 5, INF, 30), Adjust(b"x", 5, 9, 5)]


def test_the_largest_stable_is_kept_for_the_end_of_the_batch(engine: str) -> None:
    converter = converter_of(ELEMENTS, NEG_INF)
    assert converter.stable is None
    converted = converter.take(elements(("stable", None, 7, None, None), ("insert", b"x", 5, 9, None)))
    assert list(converted.elements()) == [Insert(b"x", 5, 9)]  # it is published before the stable, wherever it stands
    assert converter.take(elements(("stable", None, 6, None, None))).count == 0
    assert converter.stable == 7


def test_payloads_can_be_text_and_times_timestamps(engine: str) -> None:
    at = datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)
    rows = pa.RecordBatch.from_pylist(
        [{"kind": "insert", "payload": "é", "vs": at, "ve": None}],
        schema=pa.schema(
            [
                ("kind", pa.large_string()),
                ("payload", pa.string()),
                ("vs", pa.timestamp("us", "UTC")),
                ("ve", pa.timestamp("us", "UTC")),
            ]
        ),
    )
    assert convert(ELEMENTS, rows) == [Insert("é".encode(), 1_000_000, INF)]


FRAME_COLUMNS = pa.schema([("frame", pa.binary()), ("report", REPORT)])


def framed(*given: Element) -> Any:
    data = frame([Batch.of(given)])
    return pa.RecordBatch.from_pylist([{"frame": data, "report": None}], schema=FRAME_COLUMNS)


def test_a_frame_means_its_elements(engine: str) -> None:
    converter = converter_of(FRAMES, NEG_INF)
    expected: list[Element] = [Insert(b"x", 5, 9), Adjust(b"y", 5, INF, 30)]
    assert list(converter.take(framed(*expected)).elements()) == expected
    assert list(converter.take(framed(Stable(4), *expected, Stable(6))).elements()) == expected
    assert converter.take(framed(Stable(5))).count == 0
    assert (converter.stable, converter.tally.rows) == (6, 7)
    both = pa.Table.from_batches([framed(*expected), framed(*expected)]).combine_chunks().to_batches()[0]
    assert [converter.take(part).count for part in converter.parts(both)] == [2, 2]


def test_a_report_is_no_element(engine: str) -> None:
    converter = converter_of(FRAMES, NEG_INF)
    report = {"before": 3, "stable": 7, "shards": 2}
    rows = pa.RecordBatch.from_pylist([{"frame": None, "report": report}], schema=FRAME_COLUMNS)
    assert converter.take(rows).count == 0
    assert converter.reports == [Report(3, 7, 2)]
    assert converter.stable is None


def test_what_is_no_frame_is_refused(engine: str) -> None:
    for data, reason in ((None, "neither a frame nor a report"), (b"\xff", "column 'frame': the frame cannot be read")):
        rows = pa.RecordBatch.from_pylist([{"frame": data, "report": None}], schema=FRAME_COLUMNS)
        with pytest.raises(InvalidRow, match=reason):
            converter_of(FRAMES, NEG_INF).take(rows)
    with pytest.raises(InvalidRow, match="ends at 4, before its start at 5"):
        converter_of(FRAMES, NEG_INF).take(framed(Insert(b"x", 5, 4)))


def test_late_elements_of_a_frame_are_left_out_or_an_error(engine: str) -> None:
    expected: list[Element] = [Insert(b"a", 9, 50), Insert(b"b", 10, 50)]
    expected += [Adjust(b"c", 1, 9, 50), Adjust(b"d", 1, 50, 10)]
    converter = converter_of(dropping(FRAMES), 10)
    assert list(converter.take(framed(*expected)).elements()) == [expected[1], expected[3]]
    assert converter.tally.late == 2
    assert "insert(a, 9, 50)" in converter.tally.first_late
    with pytest.raises(InputViolation, match="late-row"):
        converter_of(FRAMES, 10).take(framed(*expected))


@pytest.mark.parametrize(
    ("row", "is_late"),
    [
        (("insert", b"x", 9, 50, None), True),
        (("insert", b"x", 10, 50, None), False),
        (("adjust", b"x", 1, 10, 50), False),
        (("adjust", b"x", 1, 9, 50), True),
        (("adjust", b"x", 1, 50, 9), True),
        (("adjust", b"x", 1, 50, None), False),
    ],
)
def test_elements_below_the_stable_point_are_late(engine: str, row: tuple[Any, ...], is_late: bool) -> None:
    converter = converter_of(dropping(ELEMENTS), 10)
    converted = list(converter.take(elements(row, ("insert", b"z", 20, 30, None))).elements())
    tally = converter.tally
    assert (len(converted), tally.late, tally.first_late != "") == (2 - is_late, int(is_late), is_late)
    if is_late:
        with pytest.raises(InputViolation, match=rf"input 'a' broke its promise \(late-row\) with {row[0]}"):
            convert(ELEMENTS, elements(row), stable=10)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (("delete", b"x", 5, 9, None), "row 0, column 'kind': 'delete' is none of insert, adjust, stable"),
        ((None, b"x", 5, 9, None), "column 'kind': None is none of"),
        (("insert", None, 5, 9, None), "column 'payload': there is no value"),
        (("insert", b"x", None, 9, None), "column 'vs': there is no value"),
        (("stable", None, None, None, None), "column 'vs': there is no value"),
        (("adjust", b"x", 5, 4, 9), "it ends at 4, before its start at 5"),
    ],
)
def test_rows_that_are_no_elements_are_refused(engine: str, row: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(InvalidRow, match=problem):
        convert(ELEMENTS, elements(row))


def test_an_adjust_needs_its_column_of_old_ends() -> None:
    columns = ELEMENT_COLUMNS.remove(4)
    insert = pa.RecordBatch.from_pylist([{"kind": "insert", "payload": b"x", "vs": 1, "ve": 2}], schema=columns)
    adjust = pa.RecordBatch.from_pylist([{"kind": "adjust", "payload": b"x", "vs": 1, "ve": 2}], schema=columns)
    assert convert(ELEMENTS, insert) == [Insert(b"x", 1, 2)]
    with pytest.raises(InvalidRow, match="no column 'vold'"):
        convert(ELEMENTS, adjust)


def test_kinds_are_text() -> None:
    rows = pa.RecordBatch.from_pylist([{"kind": 0}], schema=pa.schema([("kind", pa.int64())]))
    with pytest.raises(InvalidRow, match="column 'kind' is int64; it must hold one of insert, adjust, stable"):
        convert(ELEMENTS, rows)


def test_tallies_add_up() -> None:
    total = RowTally()
    for one in (RowTally(3), RowTally(4, 2, "first", 1), RowTally(5, 1, "second", 2)):
        total.add(one)
    assert total == RowTally(12, 3, "first", 3)


def test_batches_of_both_engines_hold_the_same(engine: str) -> None:
    rows = elements(*[("adjust", b"x" * (i % 7), i, i + 9, i + 5) for i in range(100)])
    batch = converter_of(ELEMENTS, NEG_INF).take(rows.slice(10, 70))
    assert isinstance(batch, Batch) == (engine == "python")
    assert batch.vs == list(range(10, 80))
    assert batch.payloads == [b"x" * (i % 7) for i in range(10, 80)]
    assert batch.counts(70) == (0, 70, 0)
