"""Schemas: the names of types, invalid schemas, and the wire form."""

from __future__ import annotations

from typing import Any

import pytest

from lmerge.errors import UsageError
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.schema import COLUMNS_MAX, DEPTH_MAX, Column, Schema, parse_schema

EVERYTHING: dict[str, Any] = {
    "b": "bool",
    "i": "int?",
    "f": "float",
    "r": "float(2)?",
    "s": "string",
    "y": "bytes",
    "t": "timestamp",
    "d": "date?",
    "m": "decimal(4)",
    "l": "list<list<int?>>?",
    "o?": {"x": "int", "y?": {"z": "string"}},
}


def test_every_type_is_parsed_and_described_again() -> None:
    assert str(parse_schema(EVERYTHING)) == (
        "b: bool, i: int?, f: float, r: float(2)?, s: string, y: bytes, t: timestamp, d: date?, m: decimal(4), "
        "l: list<list<int?>>?, o: {x: int, y: {z: string}?}?"
    )


def test_a_schema_comes_back_from_the_wire_as_it_went() -> None:
    schema = parse_schema(EVERYTHING)
    message = pb.Schema.FromString(schema.to_message().SerializeToString())
    assert Schema.from_message(message) == schema
    assert parse_schema(schema) is schema


def test_rounding_to_no_digits_is_not_no_rounding() -> None:
    rounded = parse_schema({"a": "float(0)"})
    assert Schema.from_message(rounded.to_message()) == rounded
    assert rounded != parse_schema({"a": "float"})


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({}, "a schema has 0 columns"),
        ({"a": "text"}, "column 'a': unknown type 'text'; the types are bool, int"),
        ({"a": "list"}, "column 'a': unknown type 'list'"),
        ({"a": "list<text>"}, "unknown type 'text'"),
        ({"a": "int(2)"}, "unknown type 'int(2)'"),
        ({"a": 7}, "a type is text or a mapping, not 7"),
        ({"a": "decimal(39)"}, "a scale of 39 is not between 0 and 38"),
        ({"a": "decimal(-1)"}, "a scale of -1"),
        ({"a": "float(16)"}, "rounding to 16 digits is beyond 15"),
        ({"a": {}}, "column 'a' has 0 columns"),
        ({"": "int"}, "the name of a column must not be empty"),
        ({"a?": {"b": "int"}, "a": "int"}, "two columns named 'a'"),
        ({"a": "list<" * (DEPTH_MAX + 2) + "int" + ">" * (DEPTH_MAX + 2)}, "nested deeper than"),
    ],
)
def test_a_schema_that_makes_no_sense_is_refused(declared: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_schema(declared)
    assert message in str(caught.value)


COLUMN = pb.Schema.Column


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], "a schema has 0 columns"),
        ([COLUMN(name="a", type="int")] * 2, "two columns named 'a'"),
        ([COLUMN(name=str(at), type="int") for at in range(COLUMNS_MAX + 1)], "it needs 1 to"),
        ([COLUMN(name="a", type="map")], "unknown type 'map'"),
        ([COLUMN(type="int")], "the name of a column must not be empty"),
        ([COLUMN(name="a", type="int", scale=1)], "only a decimal has a scale"),
        ([COLUMN(name="a", type="int", round_digits=1)], "only a float is rounded"),
        ([COLUMN(name="a", type="list")], "a list has one type of element, not 0"),
        ([COLUMN(name="a", type="struct")], "has 0 columns"),
        ([COLUMN(name="a", type="int", children=[COLUMN(name="b", type="int")])], "int has no children"),
    ],
)
def test_a_hostile_schema_is_refused(columns: list[pb.Schema.Column], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Schema.from_message(pb.Schema(columns=columns))
    assert message in str(caught.value)


def test_a_schema_nested_too_deeply_is_refused_before_it_is_walked() -> None:
    column = COLUMN(name="a", type="int")
    for _ in range(DEPTH_MAX + 2):
        column = COLUMN(name="a", type="list", children=[column])
    with pytest.raises(UsageError, match="nested deeper than"):
        Schema.from_message(pb.Schema(columns=[column]))


def test_schemas_are_values() -> None:
    assert Schema((Column("a", "int"),)) == parse_schema({"a": "int"})
    assert hash(parse_schema({"a": "int"})) == hash(parse_schema({"a": "int"}))
    assert parse_schema({"a": "int", "b": "int"}) != parse_schema({"b": "int", "a": "int"})
