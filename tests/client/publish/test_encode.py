"""RowEncoder: rows of a declared or inferred schema become payloads, and the schema that is declared."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lmerge.client.publish.payload_encoder import RowEncoder, infer_schema
from lmerge.core.elements import INF
from lmerge.errors import InvalidRow, UsageError
from lmerge.wire.rows import RowCodec

ROWS = [
    {"carrier": "UA", "flight": 1545, "delay": 2.0, "from": 10, "to": 20},
    {"carrier": "DL", "flight": 461, "delay": None, "from": 11, "to": 21},
]
SCHEMA = {"carrier": "string?", "flight": "int?", "delay": "float?"}


@pytest.mark.parametrize(
    "schema", [SCHEMA, "infer", pa.schema([("carrier", pa.string()), ("flight", pa.int64()), ("delay", pa.float64())])]
)
@pytest.mark.parametrize("rows", [ROWS, pa.Table.from_pylist(ROWS), pa.RecordBatch.from_pylist(ROWS), iter(ROWS)])
def test_dicts_and_arrow_give_the_same_bytes_however_the_schema_is_declared(schema: Any, rows: Any) -> None:
    rows = list(ROWS) if not hasattr(rows, "schema") else rows
    encoder = RowEncoder(schema)
    batch = encoder.inserts(rows, "from", "to")
    codec = RowCodec(SCHEMA)
    expected = [codec.encode({name: row[name] for name in SCHEMA}) for row in ROWS]
    assert batch.payloads == expected
    assert (batch.vs, batch.ve) == ([10, 11], [20, 21])
    assert encoder.message == codec.schema.to_message()


def test_a_column_of_the_lifetime_stays_in_the_payload_if_the_schema_has_it() -> None:
    encoder = RowEncoder({"carrier": "string", "from": "int"})
    batch = encoder.inserts([{"carrier": "UA", "from": 10, "to": 20}], "from", "to")
    assert encoder.codec is not None
    assert encoder.codec.decode(batch.payloads[0]) == {"carrier": "UA", "from": 10}


def test_without_an_end_column_events_do_not_end() -> None:
    assert RowEncoder("infer").inserts([{"a": 1, "t": 5}], "t", None).ve == [INF]


def test_times_can_be_moments() -> None:
    moment = datetime(2013, 1, 1, 5, 15, 0, 1, tzinfo=timezone.utc)
    expected = 1357017300_000001
    assert RowEncoder("infer").inserts([{"a": 1, "t": moment}], "t", None).vs == [expected]
    assert RowEncoder("infer").inserts(pa.Table.from_pylist([{"a": 1, "t": moment}]), "t", None).vs == [expected]
    assert RowEncoder("infer").inserts([{"a": 1, "t": np.int64(7)}], "t", None).vs == [7]


@pytest.mark.parametrize("time", [None, 1.5, "10", True, datetime(2013, 1, 1)])
def test_what_is_no_time_names_its_row_and_column(time: Any) -> None:
    with pytest.raises(InvalidRow, match="row 1, column 't'"):
        RowEncoder("infer").inserts([{"a": 1, "t": 5}, {"a": 1, "t": time}], "t", None)


def test_every_simple_type_is_inferred_and_whole_numbers_give_way_to_floats() -> None:
    rows = [
        {"b": True, "i": 1, "f": 1.5, "s": "x", "y": b"x", "mixed": 1, "late": None},
        {"t": datetime(2013, 1, 1, tzinfo=timezone.utc), "d": date(2013, 1, 1), "mixed": 0.5, "late": "x"},
        {"n": np.int64(1)},
    ]
    assert str(infer_schema(rows)) == (
        "b: bool?, i: int?, f: float?, s: string?, y: bytes?, mixed: float?, late: string?, "
        "t: timestamp?, d: date?, n: int?"
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"a": None}], "column 'a' has no value"),
        ([{"a": 1}, {"a": "x"}], "column 'a' has values of int and of string"),
        ([{"a": Decimal("1.5")}], "column 'a' has a Decimal; declare the schema"),
        ([{"a": [1]}], "column 'a' has a list; declare the schema"),
    ],
)
def test_what_rows_do_not_decide_must_be_declared(rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        infer_schema(rows)


def test_later_rows_must_fit_the_schema_of_the_first() -> None:
    encoder = RowEncoder("infer")
    encoder.inserts(ROWS, "from", "to")
    with pytest.raises(InvalidRow, match="row 0, column 'flight'"):
        encoder.inserts([{**ROWS[0], "flight": "none"}], "from", "to")
    with pytest.raises(InvalidRow, match="no column 'gate'"):
        encoder.encode({"gate": 1})


def test_rows_without_a_schema_are_refused_with_the_way_out() -> None:
    with pytest.raises(UsageError, match="infer"):
        RowEncoder().inserts(ROWS, "from", "to")


@pytest.mark.parametrize("payload", [1, None, 1.5, ["x"], object()])
def test_a_payload_is_bytes_text_or_a_row(payload: Any) -> None:
    with pytest.raises(UsageError, match="bytes or text"):
        RowEncoder().encode(payload)


@pytest.mark.parametrize("schema", ["guess", 5, ["a"]])
def test_an_impossible_schema_is_refused(schema: Any) -> None:
    with pytest.raises(UsageError, match="a schema is"):
        RowEncoder(schema)
