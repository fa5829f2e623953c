"""Values go from rows to Python and back as they were, and what does not fit is named."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lmerge.temporal.python_values import canonical_form, day_of, decimal_of, moment_of, python_form
from lmerge.temporal.values import NAN
from lmerge.wire.schema import Column, parse_schema

HOUR = 3_600_000_000
LARGEST = 2**63 - 1


def column(declared: Any, *, nullable: bool = False) -> Column:
    name = "value?" if nullable else "value"
    return parse_schema({name: declared}).columns[0]


def to_python(declared: Any, value: Any, *, nullable: bool = False) -> Any:
    convert = python_form(column(declared, nullable=nullable))
    return value if convert is None else convert(value)


def from_python(declared: Any, value: Any, *, nullable: bool = False) -> Any:
    return canonical_form(column(declared, nullable=nullable))(value)


STRUCT = {"at": "timestamp?", "days": "list<date>", "n": "int?"}

PAIRS: list[tuple[Any, Any, Any]] = [
    ("bool", True, True),
    ("int", LARGEST, LARGEST),
    ("float", 1.5, 1.5),
    ("string", "é", "é"),
    ("bytes", b"\x00", b"\x00"),
    ("timestamp", -1, datetime(1969, 12, 31, 23, 59, 59, 999_999, timezone.utc)),
    ("date", -1, date(1969, 12, 31)),
    ("decimal(2)", Decimal("1.50"), Decimal("1.50")),
    ("list<timestamp?>", (HOUR, None), [datetime(1970, 1, 1, 1, tzinfo=timezone.utc), None]),
    ("list<int>", (1, 2), [1, 2]),
    (STRUCT, (None, (1,), 5), {"at": None, "days": [date(1970, 1, 2)], "n": 5}),
]


@pytest.mark.parametrize(("declared", "value", "python"), PAIRS, ids=str)
def test_a_value_is_the_same_behind_both_conversions(declared: Any, value: Any, python: Any) -> None:
    found = to_python(declared, value)
    assert (found, type(found)) == (python, type(python))
    back = from_python(declared, found)
    assert (back, type(back)) == (value, type(value))


def test_null_is_none_where_it_can_be() -> None:
    for declared in ("timestamp?", "list<date>?", "float?"):
        assert to_python(declared, None) is None
        assert from_python(declared, None) is None
    assert to_python(STRUCT, None, nullable=True) is None
    assert from_python(STRUCT, {"days": []}) == (None, (), None)


@pytest.mark.parametrize(
    ("declared", "python", "value"),
    [
        ("float", 3, 3.0),
        ("float", Fraction(1, 4), 0.25),
        ("float(1)", 0.25, 0.2),
        ("decimal(2)", 3, Decimal("3.00")),
        ("decimal(2)", Decimal("3E+1"), Decimal("30.00")),
        ("decimal(1)", Decimal("-0.00"), Decimal("0.0")),
        ("timestamp", HOUR, HOUR),
        ("timestamp", datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=1))), HOUR),
        ("bytes", bytearray(b"ab"), b"ab"),
        ("int", np.int32(7), 7),
        ("float", np.float32(0.5), 0.5),
        ("bool", np.bool_(True), True),
        ("list<int>", (1, 2), (1, 2)),
    ],
    ids=str,
)
def test_what_python_has_besides_is_taken(declared: Any, python: Any, value: Any) -> None:
    found = from_python(declared, python)
    assert (str(found), type(found)) == (str(value), type(value))


def test_floats_have_one_form() -> None:
    assert from_python("float", float("-nan")) is NAN
    assert from_python("float(2)", float("nan")) is NAN
    assert str(from_python("float", -0.0)) == str(from_python("float(1)", -0.01)) == "0.0"
    assert from_python("float(2)", float("inf")) == float("inf")


@pytest.mark.parametrize(
    ("declared", "python", "problem"),
    [
        ("bool", 1, "1 is not true or false"),
        ("int", True, "True is not a whole number"),
        ("int", 1.0, "1.0 is not a whole number"),
        ("int", LARGEST + 1, "is out of the 64-bit range"),
        ("int", None, "None is not a whole number"),
        ("float", "1", "'1' is not a number"),
        ("float", 10**400, "is out of the range of a 64-bit float"),
        ("string", b"a", "b'a' is not a string"),
        ("string", "\ud800", "holds half of a surrogate pair"),
        ("bytes", "a", "'a' is not bytes"),
        ("timestamp", datetime(2013, 1, 1), "has no time zone, so it names no moment"),
        ("timestamp", "2013", "'2013' is not a whole number"),
        ("date", datetime(2013, 1, 1, tzinfo=timezone.utc), "is not a date"),
        ("decimal(1)", Decimal("0.25"), "has more than 1 digits after the point"),
        ("decimal(1)", 0.5, "0.5 is not a decimal"),
        ("decimal(1)", Decimal("inf"), "is not a finite decimal"),
        ("decimal(2)", 10**36, "has more than 38 digits"),
        ("list<int>", "12", "'12' is not a list"),
        ("list<int>", [1, "2"], "'2' is not a whole number"),
        (STRUCT, [1], "[1] is not a mapping"),
        (STRUCT, {"days": [], "more": 1}, "has a field 'more' too many"),
        (STRUCT, {}, "None is not a list"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named(declared: Any, python: Any, problem: str) -> None:
    with pytest.raises(ValueError) as raised:
        from_python(declared, python)
    assert problem in str(raised.value)


def test_times_that_python_does_not_have_are_named() -> None:
    with pytest.raises(ValueError, match="9223372036854775807 microseconds since 1970 is no year from 1 to 9999"):
        moment_of(LARGEST)
    with pytest.raises(ValueError, match="4000000 days since 1970 is no year from 1 to 9999"):
        day_of(4_000_000)


def test_decimals_of_38_digits_are_exact() -> None:
    nines = Decimal("9" * 36 + ".99")
    assert decimal_of(nines, 2) == nines
    assert str(decimal_of(nines, 2)) == str(nines)
