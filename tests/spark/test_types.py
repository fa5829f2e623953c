"""The schema of a DataFrame's payloads: types with a canonical form, and the names by which others are refused."""

from __future__ import annotations

from typing import Any

import pytest

from lmerge.errors import UsageError
from lmerge.spark.types import schema_of_spark
from lmerge.wire.schema import parse_schema

types = pytest.importorskip("pyspark.sql.types")


def struct(ddl: str) -> Any:
    """Return a schema without Spark's parser of DDL, which needs a JVM for some types."""
    fields = [field.split(" ", 1) for field in ddl.split(", ")]
    return types.StructType([types.StructField(name, simple(type_name)) for name, type_name in fields])


def simple(type_name: str) -> Any:
    made = {
        "boolean": types.BooleanType,
        "byte": types.ByteType,
        "short": types.ShortType,
        "int": types.IntegerType,
        "long": types.LongType,
        "float": types.FloatType,
        "double": types.DoubleType,
        "string": types.StringType,
        "binary": types.BinaryType,
        "date": types.DateType,
        "timestamp": types.TimestampType,
        "timestamp_ntz": types.TimestampNTZType,
    }
    return made[type_name]()


def test_every_type_that_has_a_canonical_form_is_taken() -> None:
    fields = struct(
        "b boolean, i1 byte, i2 short, i4 int, i8 long, f4 float, f8 double, s string, y binary, d date, t timestamp"
    )
    fields.add("m", types.DecimalType(10, 2))
    fields.add("l", types.ArrayType(types.DoubleType(), containsNull=False))
    fields.add("o", struct("x int, z string"), nullable=False)
    fields.add("c", types.CharType(3)).add("v", types.VarcharType(3))
    assert schema_of_spark(fields) == parse_schema(
        {
            "b": "bool?",
            "i1": "int?",
            "i2": "int?",
            "i4": "int?",
            "i8": "int?",
            "f4": "float?",
            "f8": "float?",
            "s": "string?",
            "y": "bytes?",
            "d": "date?",
            "t": "timestamp?",
            "m": "decimal(2)?",
            "l": "list<float>?",
            "o": {"x": "int?", "z": "string?"},
            "c": "string?",
            "v": "string?",
        }
    )


def test_what_must_not_be_null_stays_so() -> None:
    fields = types.StructType([types.StructField("a", types.LongType(), nullable=False)])
    assert schema_of_spark(fields) == parse_schema({"a": "int"})


class PointType(types.UserDefinedType):  # type: ignore[misc,name-defined]  # PySpark gives no type
    """A type that a library adds."""

    @classmethod
    def sqlType(cls) -> Any:  # noqa: N802 - Spark's name
        return types.ArrayType(types.DoubleType())


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            lambda: types.MapType(types.StringType(), types.LongType()),
            "map<string,bigint>: a map's entries have no order",
        ),
        (lambda: types.DayTimeIntervalType(), "interval"),
        (lambda: types.YearMonthIntervalType(), "interval"),
        (lambda: types.CalendarIntervalType(), "a month has no one length"),
        (lambda: types.VariantType(), "variant: equal variants"),
        (lambda: types.NullType(), "void: a column without a type"),
        (lambda: types.TimestampNTZType(), "timestamp_ntz, a local time that names no moment"),
        (lambda: PointType(), r"PointType \(user-defined\): there is no canonical form"),
    ],
    ids=["map", "day-time", "year-month", "calendar", "variant", "null", "ntz", "udt"],
)
@pytest.mark.parametrize("inside", ["alone", "array", "struct"])
def test_a_type_without_a_canonical_form_is_refused_by_name(kind: Any, message: str, inside: str) -> None:
    made, path = kind(), "x"
    if inside == "array":
        made, path = types.ArrayType(made), r"x\.element"
    if inside == "struct":
        made, path = types.StructType().add("y", made), r"x\.y"
    with pytest.raises(UsageError, match=rf"column '{path}' is of Spark's type {message}|column '{path}'.*{message}"):
        schema_of_spark(types.StructType().add("x", made))


def test_a_local_time_needs_a_zone_and_a_column_of_its_own() -> None:
    assert schema_of_spark(struct("t timestamp_ntz"), zone="Europe/Berlin") == parse_schema({"t": "timestamp?"})
    nested = types.StructType().add("l", types.ArrayType(types.TimestampNTZType()))
    with pytest.raises(UsageError, match=r"column 'l\.element' is of Spark's type timestamp_ntz inside another type"):
        schema_of_spark(nested, zone="UTC")


def test_floats_are_rounded_where_it_is_requested() -> None:
    fields = struct("a double, b double, i int").add("o", struct("m float"))
    fields.add("l", types.ArrayType(types.DoubleType()))
    assert schema_of_spark(fields, 2) == parse_schema(
        {"a": "float(2)?", "b": "float(2)?", "i": "int?", "o?": {"m": "float(2)?"}, "l": "list<float(2)?>?"}
    )
    assert schema_of_spark(fields, {"a": 1, "o.m": 0, "l.element": -3}) == parse_schema(
        {"a": "float(1)?", "b": "float?", "i": "int?", "o?": {"m": "float(0)?"}, "l": "list<float(-3)?>?"}
    )


@pytest.mark.parametrize(
    ("digits", "message"),
    [
        ({"gone": 1}, "there is no column 'gone'; the columns are a, i"),
        ({"i": 1}, "column 'i' is int, and only floats are rounded"),
        (16, "rounding to 16 digits is beyond 15"),
    ],
    ids=["unknown", "no float", "too many"],
)
def test_rounding_that_makes_no_sense_is_refused(digits: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        schema_of_spark(struct("a double, i int"), digits)
