"""Arrow tables and dictionaries meet on the same payload bytes."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lmerge.errors import InvalidRow, UsageError
from lmerge.wire.arrow import arrow_schema, decode_table, encode_table, int64_column, schema_of
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import parse_schema

ROWS: list[dict[str, Any]] = [
    {
        "b": True,
        "i": 7,
        "f": -0.0,
        "s": "é",
        "y": b"\xff",
        "t": datetime(2013, 1, 1, 5, tzinfo=timezone.utc),
        "d": date(2013, 1, 1),
        "m": Decimal("1.50"),
        "l": [1, None],
        "o": {"x": 1, "z": ["a"]},
    },
    {"b": False, "i": -1, "f": None, "s": None, "y": b"", "t": None, "d": None, "m": None, "l": [], "o": None},
]
SCHEMA = parse_schema(
    {
        "b": "bool",
        "i": "int",
        "f": "float?",
        "s": "string?",
        "y": "bytes",
        "t": "timestamp?",
        "d": "date?",
        "m": "decimal(2)?",
        "l": "list<int?>",
        "o?": {"x": "int", "z": "list<string>"},
    }
)


def table() -> Any:
    return pa.Table.from_pylist(ROWS, schema=arrow_schema(SCHEMA))


def test_a_table_gives_the_bytes_that_its_rows_give() -> None:
    codec = RowCodec(SCHEMA)
    assert encode_table(codec, table()) == [codec.encode(row) for row in ROWS]
    (batch,) = table().to_batches()
    assert encode_table(codec, batch) == [codec.encode(row) for row in ROWS]


def test_payloads_give_the_table_back() -> None:
    codec = RowCodec(SCHEMA)
    assert decode_table(codec, [codec.encode(row) for row in ROWS]).to_pylist() == table().to_pylist()


def test_a_schema_is_read_off_a_table() -> None:
    assert schema_of(table().schema) == SCHEMA


def test_the_order_of_a_tables_columns_does_not_matter() -> None:
    codec = RowCodec(SCHEMA)
    assert encode_table(codec, table().select(list(reversed(SCHEMA.names)))) == [codec.encode(row) for row in ROWS]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1_356_998_400], pa.timestamp("s", "UTC")),
        pa.array([1_356_998_400_000], pa.timestamp("ms", "America/New_York")),
        pa.array([1_356_998_400_000_000_000], pa.timestamp("ns", "UTC")),
    ],
    ids=str,
)
def test_units_and_time_zones_do_not_change_the_bytes(array: Any) -> None:
    codec = RowCodec({"t": "timestamp"})
    expected = codec.encode({"t": datetime(2013, 1, 1, tzinfo=timezone.utc)})
    assert encode_table(codec, pa.table({"t": array})) == [expected]


def test_dictionaries_and_narrow_types_do_not_change_the_bytes() -> None:
    codec = RowCodec({"s": "string", "i": "int", "f": "float"})
    narrow = pa.table(
        {
            "s": pa.array(["a", "b", "a"]).dictionary_encode(),
            "i": pa.array([1, 2, 3], pa.int8()),
            "f": pa.array([0.5, 1.5, 2.5], pa.float32()),
        }
    )
    assert schema_of(narrow.schema).names == ("s", "i", "f")
    assert encode_table(codec, narrow) == [codec.encode(row) for row in narrow.to_pylist()]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (pa.array([1], pa.timestamp("us")), "has no time zone"),
        (pa.array([1], pa.timestamp("ns", "UTC")), "would lose data"),
        (pa.array(["x"]), "row 0, column 't' (timestamp): 'x' is not a datetime"),
        (pa.array([None], pa.timestamp("us", "UTC")), "row 0, column 't'"),
    ],
    ids=["naive", "nanoseconds", "string", "null"],
)
def test_a_column_that_does_not_fit_is_refused_by_name(array: Any, message: str) -> None:
    with pytest.raises(InvalidRow) as caught:
        encode_table(RowCodec({"t": "timestamp"}), pa.table({"t": array}))
    assert message in str(caught.value)
    assert "'t'" in str(caught.value)


def test_a_table_with_other_columns_is_refused() -> None:
    codec = RowCodec({"a": "int"})
    with pytest.raises(InvalidRow, match="column 'b' too many"):
        encode_table(codec, pa.table({"a": [1], "b": [1]}))
    with pytest.raises(InvalidRow, match="no column 'a'"):
        encode_table(codec, pa.table({"a": [1]}).select([]))


def test_a_type_without_a_canonical_form_is_refused() -> None:
    with pytest.raises(UsageError, match="column 'm': Arrow's map"):
        schema_of(pa.schema([("m", pa.map_(pa.string(), pa.int64()))]))


def test_times_are_read_as_microseconds() -> None:
    times = pa.table(
        {
            "t": pa.array([1_500], pa.timestamp("ms", "UTC")),
            "i": [7],
            "n": pa.array([None], pa.int64()),
            "s": ["x"],
            "local": pa.array([1], pa.timestamp("us")),
        }
    )
    assert int64_column(times, "t") == [1_500_000]
    assert int64_column(times, "i") == [7]
    for name, message in (
        ("n", "has 1 nulls"),
        ("s", "must be a timestamp or an integer"),
        ("gone", "no column 'gone'"),
        ("local", "has no time zone"),
    ):
        with pytest.raises(InvalidRow, match=message):
            int64_column(times, name)
