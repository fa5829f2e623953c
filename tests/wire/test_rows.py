"""Rows: the same row gives the same bytes on every engine, and what is not a row is refused by name."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgpack
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmerge.errors import InvalidRow
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Column, Schema

UTC = timezone.utc


def encoded(declared: Any, value: Any) -> bytes:
    """Return the payload of a row of one column, without the array header."""
    payload = RowCodec({"c": declared}).encode({"c": value})
    assert payload[:1] == b"\x91"
    return payload[1:]


# The canonical bytes, which every engine must write: a change here is a change of the wire.
GOLDEN: list[tuple[Any, Any, str]] = [
    ("bool", True, "c3"),
    ("bool", False, "c2"),
    ("int?", None, "c0"),
    ("int", 0, "00"),
    ("int", 127, "7f"),
    ("int", 128, "cc80"),
    ("int", -1, "ff"),
    ("int", -33, "d0df"),
    ("int", 65536, "ce00010000"),
    ("int", 2**63 - 1, "cf7fffffffffffffff"),
    ("int", -(2**63), "d38000000000000000"),
    ("float", 1.5, "cb3ff8000000000000"),
    ("float", 1, "cb3ff0000000000000"),
    ("float", -0.0, "cb0000000000000000"),
    ("float", math.nan, "cb7ff8000000000000"),
    ("float", math.inf, "cb7ff0000000000000"),
    ("float(1)", 0.26, "cb3fd3333333333333"),
    ("float(1)", -0.01, "cb0000000000000000"),
    ("float(-2)", 1250.0, "cb4092c00000000000"),
    ("string", "", "a0"),
    ("string", "é", "a2c3a9"),
    ("bytes", b"\xff", "c401ff"),
    ("timestamp", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "ce000f4240"),
    ("timestamp", datetime(1970, 1, 1, 1, 0, 1, tzinfo=timezone(timedelta(hours=1))), "ce000f4240"),
    ("timestamp", -1, "ff"),
    ("date", date(1970, 1, 2), "01"),
    ("date", date(1969, 12, 31), "ff"),
    ("decimal(2)", Decimal("1.5"), "a4312e3530"),
    ("decimal(2)", Decimal("-0.001E1"), "a52d302e3031"),
    ("decimal(2)", Decimal("-0.00"), "a4302e3030"),
    ("decimal(2)", 3, "a4332e3030"),
    ("decimal", Decimal("1E+3"), "a431303030"),
    ("list<int>", [1, 2], "920102"),
    ("list<int?>", (None,), "91c0"),
    ({"x": "int", "y": "string?"}, {"y": "a", "x": 1}, "9201a161"),
    ({"x": "int", "y": "string?"}, {"x": 1}, "9201c0"),
]


@pytest.mark.parametrize(("declared", "value", "expected"), GOLDEN)
def test_the_canonical_bytes_are_these(declared: Any, value: Any, expected: str) -> None:
    assert encoded(declared, value).hex() == expected


@pytest.mark.parametrize(
    ("declared", "value", "twin"),
    [
        ("bool", True, np.bool_(True)),
        ("int", 7, np.int32(7)),
        ("int", 7, np.uint64(7)),
        ("float", 0.5, np.float32(0.5)),
        ("float", 0.1, np.float64(0.1)),
        ("float", math.nan, -math.nan),
        ("float", math.nan, struct.unpack(">d", bytes.fromhex("fff0000000000001"))[0]),
        ("string", "a", np.str_("a")),
        ("bytes", b"a", bytearray(b"a")),
        ("bytes", b"a", memoryview(b"a")),
        ("list<float>", [1.0, 2.0], np.array([1.0, 2.0])),
        ("timestamp", datetime(2013, 1, 1, 10, tzinfo=UTC), pd.Timestamp("2013-01-01 05:00", tz="America/New_York")),
        ("timestamp", datetime(2013, 1, 1, tzinfo=UTC), 1_356_998_400_000_000),
        ("decimal(3)", Decimal("1.5"), Decimal("1.500")),
    ],
)
def test_two_ways_to_write_a_value_give_the_same_bytes(declared: str, value: Any, twin: Any) -> None:
    assert encoded(declared, value) == encoded(declared, twin)


def test_float_sums_in_another_order_agree_once_rounded() -> None:
    left, right = 0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1
    assert encoded("float", left) != encoded("float", right)
    assert encoded("float(9)", left) == encoded("float(9)", right)


REFUSED: list[tuple[Any, Any, str]] = [
    ("bool", 1, "1 is not true or false"),
    ("int", True, "True is not a whole number"),
    ("int", 1.0, "1.0 is not a whole number"),
    ("int", 2**63, "is out of the 64-bit range"),
    ("int", None, "None is not a whole number"),
    ("float", "1", "'1' is not a number"),
    ("float", Decimal(1), "is not a number"),
    ("float", True, "True is not a number"),
    ("float", 10**400, "is out of the range of a 64-bit float"),
    ("string", b"a", "is not a string"),
    ("string", "\ud800", "half of a surrogate pair"),
    ("bytes", "a", "'a' is not bytes"),
    ("timestamp", datetime(2013, 1, 1), "has no time zone, so it names no moment"),
    ("timestamp", pd.Timestamp(1, tz="UTC"), "has nanoseconds"),
    ("timestamp", pd.NaT, "names no moment"),
    ("timestamp", "2013-01-01", "is not a datetime"),
    ("timestamp", 1.5, "is not a datetime"),
    ("date", datetime(2013, 1, 1, tzinfo=UTC), "is not a date"),
    ("date", 5, "5 is not a date"),
    ("decimal(2)", 1.5, "floats are not exact"),
    ("decimal(2)", Decimal("1.005"), "has more than 2 digits after the point"),
    ("decimal(2)", Decimal("nan"), "is not a finite decimal"),
    ("decimal(2)", Decimal("1E+37"), "has more than 38 digits"),
    ("decimal(2)", Decimal("1E+1000000"), "has more than 38 digits"),
    ("decimal(2)", Decimal("1E-1000000"), "has more than"),
    ("list<int>", "12", "is not a list"),
    ("list<int>", {1}, "is not a list"),
    ({"x": "int"}, [1], "is not a mapping"),
    ({"x": "int"}, {"x": 1, "z": 2}, "has a field 'z' too many"),
]


@pytest.mark.parametrize(("declared", "value", "message"), REFUSED)
def test_a_value_that_does_not_fit_is_refused_by_row_and_column(declared: Any, value: Any, message: str) -> None:
    with pytest.raises(InvalidRow) as caught:
        RowCodec({"a": "int?", "c": declared}).encode({"c": value}, 41)
    assert "row 41, column 'c'" in str(caught.value)
    assert message in str(caught.value)


def test_a_refused_value_deep_inside_is_found_by_its_path() -> None:
    codec = RowCodec({"trip": {"legs": "list<int>"}})
    with pytest.raises(InvalidRow, match=r"row 0, column 'trip\.legs\.1' .*'x' is not a whole number"):
        codec.encode({"trip": {"legs": [1, "x"]}})


def test_what_is_not_a_row_at_all_is_refused() -> None:
    codec = RowCodec({"a": "int"})
    with pytest.raises(InvalidRow, match=r"row 0: a row is a mapping of column to value, not \[1\]"):
        codec.encode([1])  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InvalidRow, match=r"row 0: there is no column 'b' in the schema \(a: int\)"):
        codec.encode({"a": 1, "b": 2})
    with pytest.raises(InvalidRow, match="row 1, column 'a'"):
        codec.encode({"a": None}, 1)


def test_columns_give_the_bytes_that_rows_give() -> None:
    codec = RowCodec({"a": "int", "b": "string?"})
    rows: list[dict[str, Any]] = [{"a": 1, "b": "x"}, {"a": 2}]
    assert codec.encode_columns([[1, 2], ["x", None]]) == [codec.encode(row) for row in rows]
    assert codec.encode_columns([[], []]) == []


def test_columns_that_disagree_are_refused() -> None:
    codec = RowCodec({"a": "int", "b": "string?"})
    with pytest.raises(InvalidRow, match="1 columns came where the schema"):
        codec.encode_columns([[1]])
    with pytest.raises(InvalidRow, match="column 'b' has 0 rows, and column 'a' has 1"):
        codec.encode_columns([[1], []])
    with pytest.raises(InvalidRow, match=r"row 1, column 'b' \(string\?\): 7 is not a string"):
        codec.encode_columns([[1, 2, 3], ["x", 7, None]])


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "is not MessagePack"),
        (b"\xc1", "is not MessagePack"),
        (b"\x92\x01", "is not MessagePack"),
        (b"\x92\x01\xa1a\x00", "is not MessagePack"),
        (b"\x92\x01\xa1\xff", "is not MessagePack"),
        (b"\x91" * 5000, "is not MessagePack"),
        (b"\x07", "the payload is int where the schema has 2 columns"),
        (b"\x91\x01", "the payload is an array of 1 where the schema has 2 columns"),
        (b"\x92\xa1a\x01", "column 'a' (int): 'a' is not a whole number"),
        (b"\x92\xc0\xa1a", "column 'a' (int): None is not a whole number"),
    ],
)
def test_a_payload_that_is_no_row_is_refused(payload: bytes, message: str) -> None:
    with pytest.raises(InvalidRow) as caught:
        RowCodec({"a": "int", "b": "string"}).decode(payload, 3)
    assert "row 3" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("float", 1),
        ("timestamp", 2**62),
        ("date", 2**40),
        ("date", "x"),
        ("decimal(2)", "1.5"),
        ("decimal(2)", "01.50"),
        ("decimal(2)", "1.50 "),
        ("decimal(2)", "+1.50"),
        ("decimal(2)", 5),
        ("decimal(2)", "9" * 40),
        ("decimal(2)", "1..50"),
        ({"x": "int"}, [1, 2]),
        ({"x": "int"}, {"x": 1}),
        ("list<int>", 5),
        ("bool", 1),
    ],
)
def test_a_value_that_no_encoder_writes_is_refused(declared: Any, value: Any) -> None:
    with pytest.raises(InvalidRow, match="row 0, column 'c'"):
        RowCodec({"c": declared}).decode(msgpack.packb([value]))


# Any schema, any row of it.

LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    "bytes": st.binary(max_size=8),
    "timestamp": st.datetimes(
        timezones=st.sampled_from([UTC, timezone(timedelta(hours=-5))]),
        min_value=datetime(2, 1, 1),
        max_value=datetime(9998, 1, 1),
    ),
    "date": st.dates(),
    "decimal": st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**30), max_value=10**30),
}


def columns(name: str, depth: int = 2) -> st.SearchStrategy[tuple[Column, st.SearchStrategy[Any]]]:
    """Draw a column and the values that fit it."""

    def leaf(declared: str, nullable: bool) -> tuple[Column, st.SearchStrategy[Any]]:
        column = Column(name, declared, nullable, scale=3 if declared == "decimal" else 0)
        return column, (st.none() | LEAVES[declared]) if nullable else LEAVES[declared]

    leaves = st.builds(leaf, st.sampled_from(sorted(LEAVES)), st.booleans())
    if depth == 0:
        return leaves
    lists = columns("element", depth - 1).map(
        lambda child: (Column(name, "list", children=(child[0],)), st.lists(child[1], max_size=3))
    )
    structs = st.tuples(columns("x", depth - 1), columns("y", depth - 1)).map(
        lambda fields: (
            Column(name, "struct", children=tuple(column for column, _ in fields)),
            st.fixed_dictionaries({column.name: values for column, values in fields}),
        )
    )
    return leaves | lists | structs


@st.composite
def schemas_and_rows(draw: st.DrawFn) -> tuple[Schema, dict[str, Any]]:
    drawn = [draw(columns(name)) for name in ("a", "b", "c")]
    return Schema(tuple(column for column, _ in drawn)), {column.name: draw(values) for column, values in drawn}


def backwards(value: Any) -> Any:
    """Return the same value with every mapping in the other order."""
    if isinstance(value, Mapping):
        return {key: backwards(value[key]) for key in reversed(list(value))}
    return [backwards(item) for item in value] if isinstance(value, list) else value


@given(schemas_and_rows())
def test_a_row_comes_back_and_gives_the_same_bytes_again(case: tuple[Schema, dict[str, Any]]) -> None:
    schema, row = case
    codec = RowCodec(schema)
    payload = codec.encode(row)
    assert codec.encode(codec.decode(payload)) == payload
    assert RowCodec(Schema.from_message(schema.to_message())).encode(backwards(row)) == payload


@given(st.binary(max_size=30))
def test_any_bytes_are_a_row_or_are_refused(payload: bytes) -> None:
    codec = RowCodec({"a": "list<int?>?", "b?": {"x": "string?"}})
    try:
        row = codec.decode(payload)
    except InvalidRow:
        return
    assert row.keys() == {"a", "b"}
