"""Each row of the table of semantics, by its number."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from typing import Any

import pytest

from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.expressions.binding import bind
from lmerge.temporal.expressions.functions import FunctionRegistry
from lmerge.temporal.expressions.surface import Expression, coalesce, col, concat, greatest, least, lit, when
from lmerge.temporal.values import NAN
from lmerge.wire.schema import parse_schema

INF, LARGEST, SMALLEST = math.inf, 2**63 - 1, -(2**63)
NINES = Decimal("9" * 38)

SCHEMA = parse_schema({"null": "int?", "no_text": "string?", "no_bool": "bool?", "no_float": "float?", "zero": "int"})
ROW = (None, None, None, None, 0)


def value(expression: Expression) -> Any:
    """Return the value in a row of NULLs; its type must allow NULL if it is NULL."""
    bound = bind(expression, SCHEMA)
    found = bound.evaluate(ROW)
    assert found is not None or bound.column.nullable
    return found


def type_of(expression: Expression) -> str:
    return bind(expression, SCHEMA).column.describe()


def moment(text: str) -> Expression:
    return lit(text, "timestamp")


def fails(expression: Expression) -> str:
    with pytest.raises(ModuleViolation) as raised:
        value(expression)
    return str(raised.value)


def refused(expression: Expression) -> str:
    with pytest.raises(PlanError) as raised:
        bind(expression, SCHEMA)
    return str(raised.value)


NULL, TEXT, BOOL, FLOAT = col.null, col.no_text, col.no_bool, col.no_float


@pytest.mark.parametrize(
    "expression",
    [
        *(NULL + 1, 1 - NULL, NULL * 2, 1 / NULL, NULL // 1, 1 % NULL, -NULL, NULL == NULL, NULL != 1, NULL < 1),
        *(NULL <= 1, NULL.between(1, 2), ~BOOL, NULL.is_in([1]), NULL.is_in([]), NULL.cast("float"), NULL.abs()),
        *(TEXT.lower(), TEXT.upper(), TEXT.length(), concat("a", TEXT), TEXT.substring(1), lit("a").substring(NULL)),
        *(TEXT.starts_with("a"), lit("a").ends_with(TEXT), TEXT.contains("a"), TEXT.replace("a", "b"), TEXT.trim()),
        *(FLOAT.floor(), FLOAT.ceil(), FLOAT.round(), FLOAT.sqrt(), FLOAT.exp(), FLOAT.ln(), FLOAT.power(2)),
        *(FLOAT.sign(), lit(None, "timestamp").truncate("day"), lit(None, "timestamp").hour_of_day()),
        *(lit(None, "date").day_of_week(), lit(None, "timestamp").date_of(), lit(None, "list<int>").element(0)),
    ],
    ids=str,
)
def test_e1_an_operation_of_null_is_null(expression: Expression) -> None:
    assert value(expression) is None


def test_e2_logic_has_three_values() -> None:
    three = {True: lit(True), False: lit(False), None: BOOL}
    for a, left in three.items():
        for b, right in three.items():
            conjunction = False if False in (a, b) else None if None in (a, b) else True
            assert value(left & right) is conjunction
            disjunction = True if True in (a, b) else None if None in (a, b) else False
            assert value(left | right) is disjunction
            assert value(left & right & left) is conjunction
            assert value(left | right | left) is disjunction
        assert value(~left) is (None if a is None else not a)


def test_e3_what_stands_behind_what_decides_is_not_evaluated() -> None:
    overflow = (col.zero + LARGEST) * 2 > 0
    assert "beyond 64 bits" in fails(overflow)
    assert value((col.zero != 0) & overflow) is False
    assert value((col.zero == 0) | overflow) is True
    assert value(when(col.zero == 0).then(1).when(overflow).then(2).otherwise(3)) == 1
    assert value(when(col.zero != 0).then(overflow).otherwise(False)) is False
    assert value(coalesce(col.zero, (col.zero + LARGEST) * 2)) == 0
    assert "beyond 64 bits" in fails(overflow & (col.zero != 0))


def test_e4_is_null_finds_null_and_coalesce_skips_it() -> None:
    assert value(NULL.is_null()) is True
    assert value(col.zero.is_null()) is False
    assert value(NULL.is_not_null()) is False
    assert value(coalesce(NULL, NULL, 3, 4)) == 3
    assert value(coalesce(NULL, NULL)) is None
    assert type_of(coalesce(NULL, 3)) == "int"
    assert type_of(NULL.is_null()) == "bool"


def test_e5_a_condition_that_is_null_is_not_true() -> None:
    assert value(when(BOOL).then(1).otherwise(2)) == 2
    assert value(when(BOOL).then(1)) is None
    assert value(when(col.zero == 0).then(None).otherwise(2)) is None
    assert type_of(when(col.zero == 0).then(1)) == "int?"
    assert type_of(when(col.zero == 0).then(1).otherwise(2.5)) == "float"


def test_e6_least_and_greatest_ignore_null() -> None:
    assert value(least(NULL, 3, 2)) == 2
    assert value(greatest(NULL, 3, 2)) == 3
    assert value(least(NULL, NULL)) is None
    assert (type_of(least(NULL, 3)), type_of(least(NULL, NULL))) == ("int", "int?")
    assert value(greatest(1.0, lit("nan", "float"), INF)) is NAN
    assert value(least(lit("nan", "float"), INF)) == INF


def test_e7_nan_is_equal_to_itself_and_the_greatest() -> None:
    schema = parse_schema({"x": "float", "y": "float"})
    ascending = [-INF, -1.0, 0.0, 2.5, INF, NAN]
    for i, x in enumerate(ascending):
        for j, y in enumerate(ascending):
            expected = [i == j, i != j, i < j, i <= j, i > j, i >= j]
            for left, right in ((col.x, col.y), (col.x, lit(y)), (lit(x), col.y), (lit(x), lit(y))):
                compared = [left == right, left != right, left < right, left <= right, left > right, left >= right]
                assert [bind(one, schema).evaluate((x, y)) for one in compared] == expected, (left, right, x, y)
    assert value(lit("nan", "float").is_in([1.0, math.nan])) is True
    assert value((lit(INF) - INF).is_in([math.nan])) is True


@pytest.mark.parametrize(
    "expression",
    [-lit(0.0), lit(0.0) * -1.0, lit(0.0) / -1, lit(-0.5).ceil(), lit(-0.4).round(), lit(0.0) // -3.0, lit(-0.0)],
    ids=str,
)
def test_e7_there_is_no_negative_zero(expression: Expression) -> None:
    assert math.copysign(1.0, value(expression)) == 1.0


def test_e8_values_of_a_type_have_an_order() -> None:
    assert value(lit(False) < lit(True)) is True
    ordered = ["", "A", "Z", "a", "aa", "é", "\uffff", "\U0001f600"]
    assert ordered == sorted(ordered, key=str.encode)
    for low, high in itertools.pairwise(ordered):
        assert value(lit(low) < lit(high)) is True
    assert value(lit(b"\x01\xff") < lit(b"\x02")) is True
    assert value(moment("1969-12-31T23:59:59Z") < moment("1970-01-01T00:00:00Z")) is True
    assert value(lit("2013-01-31", "date") < lit("2013-02-01", "date")) is True


def test_e9_lists_and_structs_are_equal_or_not() -> None:
    schema = parse_schema({"a": "list<float?>", "b": "list<float?>", "s": {"n": "int?"}, "t": {"n": "int?"}})
    row = ((1.0, None, NAN), (1.0, None, NAN), (None,), (3,))
    assert bind(col.a == col.b, schema).evaluate(row) is True
    assert bind(col.s != col.t, schema).evaluate(row) is True
    with pytest.raises(PlanError, match="list<float\\?> has no order; only == and != compare it"):
        bind(col.a < col.b, schema)
    with pytest.raises(PlanError, match="has no order"):
        bind(least(col.s, col.t), schema)


def test_e10_is_in_takes_constants_and_between_both_ends() -> None:
    assert [value(lit(n).between(2, 4)) for n in (1, 2, 4, 5)] == [False, True, True, False]
    assert value(col.zero.between(1, NULL)) is False
    assert value(col.zero.between(0, NULL)) is None
    assert [value(lit(n).is_in([2, 4])) for n in (2, 3)] == [True, False]
    assert value(lit(2).is_in([2.0])) is True
    assert value(col.zero.is_in([])) is False
    assert "use is_null()" in refused(col.zero.is_in([lit(None, "int")]))  # type: ignore[list-item]  # what is refused
    assert "it takes constants" in refused(col.zero.is_in([col.null]))  # type: ignore[list-item]  # what is refused


@pytest.mark.parametrize(
    "expression",
    [
        *(lit(LARGEST) + 1, lit(SMALLEST) - 1, lit(2**32) * 2**31, lit(SMALLEST) // -1, -lit(SMALLEST)),
        *(lit(SMALLEST).abs(), lit(LARGEST).round(-3), moment("9999-01-01T00:00:00Z") - lit(SMALLEST, "timestamp")),
        lit(SMALLEST, "timestamp").truncate("day"),
    ],
    ids=str,
)
def test_e11_an_int_beyond_64_bits_is_an_error(expression: Expression) -> None:
    assert fails(expression) == f"{expression}: the result is beyond 64 bits, in row {ROW}"


def test_e11_the_ends_of_64_bits_are_no_error() -> None:
    assert value(lit(LARGEST - 1) + 1) == LARGEST
    assert value(lit(-(2**62)) * 2) == SMALLEST
    assert value(-lit(LARGEST)) == SMALLEST + 1


def test_e12_decimals_are_exact() -> None:
    assert str(value(lit(Decimal("0.10")) + Decimal("0.2"))) == "0.30"
    assert str(value(lit(Decimal("0.10")) - 1)) == "-0.90"
    assert str(value(lit(Decimal("1.5")) * Decimal("-0.00"))) == "0.000"
    assert str(value(-lit(Decimal("0.00")))) == "0.00"
    assert value(lit(NINES) + Decimal(-1)) == Decimal("9" * 37 + "8")
    assert value(lit(Decimal("9" * 20)) * Decimal("9" * 18)) == int("9" * 20) * int("9" * 18)
    assert type_of(lit(Decimal("0.1")) * Decimal("0.01")) == "decimal(3)"
    assert type_of(lit(Decimal("0.1")) % Decimal("0.01")) == "decimal(2)"
    for beyond in (lit(NINES) + 1, lit(NINES) * 2, lit(NINES) // Decimal("0.1"), -lit(NINES) - 1, lit(NINES).round(-1)):
        assert "more than 38 digits" in fails(beyond)
    tiny = lit(Decimal("1E-20"))
    assert "40 digits after the point" in refused(tiny * tiny)


def test_e13_a_quotient_is_a_float() -> None:
    assert value(lit(7) / 2) == 3.5
    assert value(lit(2**53 + 1) / 1) == float(2**53)
    assert value(lit(Decimal("1.00")) / Decimal(8)) == 0.125
    assert type_of(lit(Decimal("1.00")) / 3) == "float"
    assert value(lit(1e308) / 1e-10) == INF


def test_e14_division_rounds_down() -> None:
    for kind in (int, float, lambda n: Decimal(n).quantize(Decimal("0.1"))):
        for a, b, quotient, rest in ((7, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1)):
            assert value(lit(kind(a)) // lit(kind(b))) == quotient
            assert value(lit(kind(a)) % lit(kind(b))) == rest
    assert type_of(lit(Decimal("7.5")) // Decimal("0.25")) == "decimal(0)"
    assert str(value(lit(Decimal("-7.5")) % Decimal("0.4"))) == "0.1"


@pytest.mark.parametrize("one", [1, 1.0, Decimal("1.0")], ids=str)
def test_e15_a_division_by_zero_is_null(one: Any) -> None:
    zero = lit(one) - one
    for quotient in (lit(one) / zero, lit(one) // zero, lit(one) % zero):
        assert value(quotient) is None
        assert type_of(quotient).endswith("?")
    assert not type_of(zero / one).endswith("?")
    assert not type_of(zero // one).endswith("?")
    assert type_of(zero / lit(0)).endswith("?")


def test_e16_functions_of_floats_are_those_of_ieee_754() -> None:
    assert value(lit(-1).sqrt()) is NAN
    assert value(lit(0).ln()) == -INF
    assert value(lit(-1.0).ln()) is NAN
    assert value(lit(1000).exp()) == INF
    assert value(lit(-1000).exp()) == 0.0
    assert value(lit(1e308) * 10) == INF
    assert value(lit(INF) - INF) is NAN
    assert value(lit(0.0) * INF) is NAN
    assert value(lit("nan", "float") + 1) is NAN
    assert value(abs(lit("nan", "float"))) is NAN
    assert value(-lit("nan", "float")) is NAN
    assert [value(lit(b).power(e)) for b, e in ((2, 10), (0, -1), (-2, 0.5), (10, 400), (-10, 401))] == [
        1024.0,
        INF,
        NAN,
        INF,
        -INF,
    ]
    assert value(lit(Decimal("6.25")).sqrt()) == 2.5
    assert value(lit(1).exp()) == pytest.approx(math.e)
    assert value(lit(INF).floor()) == INF
    assert value(lit("nan", "float").round(2)) is NAN
    assert value(lit("nan", "float").sign()) is NAN


def test_e17_ints_become_floats_or_decimals_and_nothing_else() -> None:
    assert type_of(lit(1) + 1.5) == "float"
    assert type_of(lit(1) + Decimal("1.5")) == "decimal(1)"
    assert type_of(coalesce(NULL, Decimal("1.50"))) == "decimal(2)"
    assert str(value(coalesce(NULL, col.zero, Decimal("1.50")))) == "0.00"
    assert value(lit(2**53 + 1) == float(2**53)) is True, "the int becomes a float first"
    assert value(lit(1) == Decimal("1.00")) is True
    for expression in (
        lit(1.5) + Decimal("1.5"),
        lit(1.5) == Decimal("1.5"),
        lit("1") == 1,
        moment("2013-01-01T00:00:00Z") > "2013-01-01",
        moment("2013-01-01T00:00:00Z") > lit("2013-01-01", "date"),
        lit(True) + 1,
        lit(1) & lit(2),
        when(col.zero).then(1).otherwise(2),
        when(lit(True)).then(1).otherwise("a"),
    ):
        refused(expression)


def test_e18_a_cast_of_a_value_that_the_type_lacks() -> None:
    for source, target in (("a", "int"), ("1.5", "int"), ("1e", "float"), ("2013-02-30", "date"), ("yes", "bool")):
        assert repr(source) in fails(lit(source).cast(target))
        assert value(lit(source).cast(target, strict=False)) is None
        assert type_of(lit("1").cast(target, strict=False)).endswith("?")
    assert "nan is no whole number" in fails(lit("nan", "float").cast("int"))
    assert "is beyond 64 bits" in fails(lit(1e19).cast("int"))
    assert "inf is no decimal" in fails(lit(INF).cast("decimal(2)"))
    assert "more than 38 digits" in fails(lit(10**18).cast("decimal(20)"))
    assert "is no year from 1 to 9999" in fails(lit(LARGEST, "timestamp").cast("string"))
    assert "there is no cast from int to date" in refused(col.zero.cast("date"))
    assert "has no ?" in refused(col.zero.cast("float?"))
    assert value(lit(NINES).cast("decimal(0)")) == NINES


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        *((lit(2.9).cast("int"), 2), (lit(-2.9).cast("int"), -2), (lit(Decimal("-2.9")).cast("int"), -2)),
        *(
            (lit(0.125).cast("decimal(2)"), Decimal("0.12")),
            (lit(Decimal("0.375")).cast("decimal(2)"), Decimal("0.38")),
        ),
        *((lit(0.375).cast("float(2)"), 0.38), (lit(True).cast("int"), 1), (lit(True).cast("string"), "true")),
        *(
            (lit(5).cast("timestamp").cast("int"), 5),
            (lit(1.0).cast("string"), "1.0"),
            (lit(1e22).cast("string"), "1e+22"),
        ),
        *((lit(Decimal("1.50")).cast("string"), "1.50"), (lit(-3).cast("string"), "-3")),
        *((lit("-12").cast("int"), -12), (lit("-1.5e3").cast("float"), -1500.0), (lit("inf").cast("float"), INF)),
        *((lit("1.005").cast("decimal(2)"), Decimal("1.00")), (lit("false").cast("bool"), False)),
        *((lit("2013-01-31").cast("date").cast("string"), "2013-01-31"),),
        (lit("2013-01-31 10:00+01:30").cast("timestamp").cast("string"), "2013-01-31T08:30:00Z"),
        (moment("1969-12-31T23:59:59.5Z").cast("string"), "1969-12-31T23:59:59.500000Z"),
        (moment("1969-12-31T23:59:59.5Z").cast("date").cast("string"), "1969-12-31"),
        (lit("1969-12-31", "date").cast("timestamp").cast("string"), "1969-12-31T00:00:00Z"),
        *((lit(" 12").cast("int", strict=False), None), (lit("1_0").cast("int", strict=False), None)),
        *((lit("٣").cast("int", strict=False), None), (lit("12\n").cast("int", strict=False), None)),
    ],
    ids=str,
)
def test_e19_casts(expression: Expression, expected: Any) -> None:
    assert value(expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected", "kind"),
    [
        *((lit(0.5).round(), 0.0, "float"), (lit(2.5).round(), 2.0, "float"), (lit(2.675).round(2), 2.67, "float")),
        *((lit(25).round(-1), 20, "int"), (lit(35).round(-1), 40, "int"), (lit(7).round(2), 7, "int")),
        *((lit(Decimal("2.25")).round(1), Decimal("2.2"), "decimal(1)"),),
        *((lit(Decimal("25.00")).round(-1), Decimal(20), "decimal(0)"),),
        *((lit(Decimal("2.25")).round(5), Decimal("2.25"), "decimal(2)"),),
        *((lit(-1.5).floor(), -2.0, "float"), (lit(-1.5).ceil(), -1.0, "float"), (lit(7).floor(), 7, "int")),
        *(
            (lit(Decimal("-1.5")).floor(), Decimal(-2), "decimal(0)"),
            (lit(Decimal("-0.5")).ceil(), Decimal(0), "decimal(0)"),
        ),
        *(
            (lit(-7).sign(), -1, "int"),
            (lit(-7.5).sign(), -1.0, "float"),
            (lit(Decimal("0.1")).sign(), Decimal(1), "decimal(0)"),
        ),
        *(
            (lit(-7).abs(), 7, "int"),
            (abs(lit(-7.5)), 7.5, "float"),
            (lit(Decimal("-0.1")).abs(), Decimal("0.1"), "decimal(1)"),
        ),
    ],
    ids=str,
)
def test_e20_rounding(expression: Expression, expected: Any, kind: str) -> None:
    found = value(expression)
    assert (str(found), type_of(expression)) == (str(expected), kind)


def test_e21_functions_get_null_if_they_pass_it() -> None:
    functions = FunctionRegistry()
    calls: list[Any] = []

    @functions.scalar(["int"], "int", name="skips")
    def skips(n: int) -> int:
        calls.append(n)
        return n + 1

    @functions.scalar(["int?"], "string", nulls="pass", name="passes")
    def passes(n: int | None) -> str:
        return str(n)

    assert value(skips(NULL)) is None
    assert value(skips(col.zero)) == 1
    assert calls == [0]
    assert value(passes(NULL)) == "None"
    assert (type_of(skips(NULL)), type_of(skips(col.zero)), type_of(passes(NULL))) == ("int?", "int", "string")


def test_e23_text_is_counted_in_characters() -> None:
    assert value(lit("é\U0001f600a").length()) == 3
    assert value(lit(b"\x00\x01").length()) == 2
    parts = [(0, None), (1, 2), (-2, None), (-2, 1), (-9, 2), (9, 1), (1, 0), (1, -1)]
    found = [
        value(lit("abcd").substring(start) if n is None else lit("abcd").substring(start, n)) for start, n in parts
    ]
    assert found == ["abcd", "bc", "cd", "c", "ab", "", "", ""]
    assert value(lit("Straße").upper()) == "STRASSE"
    assert value(lit("ÉCOLE").lower()) == "école"
    assert value(concat("a", "b", "c")) == "abc"
    assert [value(lit("abc").starts_with("ab")), value(lit("abc").ends_with("ab"))] == [True, False]
    assert [value(lit("abc").contains("bc")), value(lit("abc").contains(""))] == [True, True]


def test_e24_replacing_nothing_changes_nothing() -> None:
    assert value(lit("aXbX").replace("X", "--")) == "a--b--"
    assert value(lit("ab").replace("", "-")) == "ab"
    assert value(lit(" \t\r\n\v\f a \u00a0").trim()) == "a \u00a0"
    assert value(lit("xxaxx").trim("x")) == "a"


def test_e25_times_are_rounded_down() -> None:
    at = moment("1969-12-31T22:58:57.5Z")
    found = [value(at.truncate(unit).cast("string")) for unit in ("second", "minute", "hour", "day")]
    assert found == [f"1969-12-31T{time}Z" for time in ("22:58:57", "22:58:00", "22:00:00", "00:00:00")]
    assert value(at.hour_of_day()) == 22
    assert [value(lit(f"1970-01-0{n}", "date").day_of_week()) for n in (1, 4, 5)] == [4, 7, 1]
    assert value(at.day_of_week()) == 3
    assert value(at.date_of().cast("string")) == "1969-12-31"
    assert value(at - moment("1969-12-31T22:58:57Z")) == 500_000
    assert value(lit("2013-03-01", "date") - lit("2013-02-28", "date")) == 1


def test_e26_elements_and_fields() -> None:
    schema = parse_schema({"l": "list<int>", "m?": {"city": "string"}})
    found = [bind(col.l.element(index), schema).evaluate(((1, 2, 3), None)) for index in (0, 2, 3, -1, -3, -4)]
    assert found == [1, 3, None, 3, 1, None]
    assert bind(col.l.element(0), schema).column.describe() == "int?"
    city = bind(col.m.field("city"), schema)
    assert [city.evaluate(((), None)), city.evaluate(((), ("Rome",)))] == [None, "Rome"]
    assert city.column.describe() == "string?"
    assert bind(col.l.length(), schema).evaluate(((1, 2), None)) == 2
    with pytest.raises(PlanError, match="there is no field 'town'; the fields are city"):
        bind(col.m.field("town"), schema)
