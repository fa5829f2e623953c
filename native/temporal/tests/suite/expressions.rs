//! Expressions on columns: one test for a rule that an operation could break. `tests/temporal/native/test_expressions.py`
//! compares random trees with Python.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Float64Array, Int64Array, ListArray, StructArray, TimestampMicrosecondArray,
};
use lmerge_temporal::Kind;
use lmerge_temporal::expressions::{Expressions, Lowered, Operation};

use crate::trees::{
    Marking, OfKind, Tree, bound, cast, cast_or_null, decimal_column, decimals, evaluated, float_column, floats, int,
    int_column, ints, load, of, row_of_error, text, text_column, texts, truths, with,
};

const A: fn() -> Tree = || load(0, Kind::Int);
const B: fn() -> Tree = || load(1, Kind::Int);

/// n * n, which is beyond 64 bits for 2^40.
fn square() -> Tree {
    of("multiply", Kind::Int, [A(), A()])
}

#[test]
fn an_int_beyond_64_bits_is_an_error_of_its_row() {
    let columns = [int_column([Some(1), None, Some(i64::MIN), Some(i64::MAX)])];
    assert_eq!(row_of_error(of("add", Kind::Int, [A(), int(1)]), &columns), 3);
    assert_eq!(row_of_error(of("subtract", Kind::Int, [A(), int(1)]), &columns), 2);
    assert_eq!(row_of_error(of("negate", Kind::Int, [A()]), &columns), 2);
    assert_eq!(row_of_error(of("abs", Kind::Int, [A()]), &columns), 2);
    assert_eq!(row_of_error(of("floor_divide", Kind::Int, [A(), int(-1)]), &columns), 2);
    assert_eq!(row_of_error(of("multiply", Kind::Int, [A(), int(3)]), &columns), 2);
    assert_eq!(row_of_error(with(Operation::Round(-3), Kind::Int, A()), &columns), 2);
}

#[test]
fn what_is_below_a_null_is_no_error() {
    let values = Int64Array::new(vec![i64::MAX, 1].into(), Some(vec![false, true].into()));
    let columns = [Arc::new(values) as ArrayRef];
    assert_eq!(ints(of("add", Kind::Int, [A(), int(1)]), &columns), [None, Some(2)]);
}

#[test]
fn a_condition_guards_what_stands_behind_it() {
    let columns = [int_column([Some(3), Some(1 << 40), None])];
    let is_small = || of("less", Kind::Bool, [A(), int(10)]);
    let is_large = || of("greater_equal", Kind::Bool, [A(), int(10)]);
    let beyond = || of("greater", Kind::Bool, [square(), int(5)]);
    assert_eq!(
        truths(of("and", Kind::Bool, [is_small(), beyond()]), &columns),
        [Some(true), Some(false), None]
    );
    assert_eq!(
        truths(of("or", Kind::Bool, [is_large(), beyond()]), &columns),
        [Some(true), Some(true), None]
    );
    assert_eq!(row_of_error(of("and", Kind::Bool, [beyond(), is_small()]), &columns), 1);
    assert_eq!(row_of_error(of("or", Kind::Bool, [is_small(), beyond()]), &columns), 1);
}

#[test]
fn a_case_takes_the_first_condition_that_is_true() {
    let columns = [int_column([Some(3), Some(1 << 40), None])];
    let is_large = || of("greater_equal", Kind::Bool, [A(), int(10)]);
    let case = of("case", Kind::Int, [is_large(), int(-1), is_large(), square(), square()]);
    assert_eq!(ints(case, &columns), [Some(9), Some(-1), None]);
    let is_small = of("less", Kind::Bool, [A(), int(10)]);
    let case = of("case", Kind::Int, [is_small, square(), int(-1)]);
    assert_eq!(ints(case, &columns), [Some(9), Some(-1), Some(-1)]);
    let case = of("case", Kind::Int, [is_large(), square(), int(7)]);
    assert_eq!(row_of_error(case, &columns), 1);
    let beyond = of("greater", Kind::Bool, [square(), int(5)]);
    assert_eq!(
        row_of_error(of("case", Kind::Int, [beyond, int(1), int(2)]), &columns),
        1
    );
}

#[test]
fn coalesce_evaluates_only_until_there_is_a_value() {
    let columns = [
        int_column([Some(1 << 40), Some(3), Some(4)]),
        int_column([Some(5), None, None]),
    ];
    assert_eq!(
        ints(of("coalesce", Kind::Int, [B(), square()]), &columns),
        [Some(5), Some(9), Some(16)]
    );
    assert_eq!(row_of_error(of("coalesce", Kind::Int, [square(), B()]), &columns), 0);
}

#[test]
fn no_rows_have_no_values() {
    let columns = [int_column([]), int_column([])];
    assert_eq!(ints(of("coalesce", Kind::Int, [B(), square()]), &columns), []);
    let is_large = of("greater_equal", Kind::Bool, [A(), int(10)]);
    assert_eq!(ints(of("case", Kind::Int, [is_large, int(1), square()]), &columns), []);
}

#[test]
fn logic_has_three_values() {
    let some = [Some(true), Some(false), None];
    let left: BooleanArray = some.iter().flat_map(|one| [*one; 3]).collect();
    let right: BooleanArray = [some; 3].into_iter().flatten().collect();
    let columns = [Arc::new(left) as ArrayRef, Arc::new(right) as ArrayRef];
    let both = || [load(0, Kind::Bool), load(1, Kind::Bool)];
    let (yes, no) = (Some(true), Some(false));
    assert_eq!(
        truths(of("and", Kind::Bool, both()), &columns),
        [yes, no, None, no, no, no, None, no, None]
    );
    assert_eq!(
        truths(of("or", Kind::Bool, both()), &columns),
        [yes, yes, yes, yes, no, None, yes, None, None]
    );
    let kept = bound(of("and", Kind::Bool, both())).kept(&columns, 9).expect("truths");
    assert_eq!(kept.set_indices().collect::<Vec<_>>(), [0]);
}

#[test]
fn division_rounds_down_and_is_null_by_zero() {
    let columns = [
        int_column([Some(7), Some(-7), Some(7), Some(-7), Some(1)]),
        int_column([Some(2), Some(2), Some(-2), Some(-2), Some(0)]),
    ];
    let quotients = [Some(3), Some(-4), Some(-4), Some(3), None];
    assert_eq!(ints(of("floor_divide", Kind::Int, [A(), B()]), &columns), quotients);
    let rests = [Some(1), Some(1), Some(-1), Some(-1), None];
    assert_eq!(ints(of("modulo", Kind::Int, [A(), B()]), &columns), rests);
    let kind = || Kind::Float(None);
    let float = |tree| cast(kind(), tree);
    let expected = [Some(3.0), Some(-4.0), Some(-4.0), Some(3.0), None];
    assert_eq!(
        floats(of("floor_divide", kind(), [float(A()), float(B())]), &columns),
        expected
    );
    let expected = [Some(1.0), Some(1.0), Some(-1.0), Some(-1.0), None];
    assert_eq!(
        floats(of("modulo", kind(), [float(A()), float(B())]), &columns),
        expected
    );
    let scaled = |tree| cast(Kind::Decimal(2), tree);
    let expected = [Some(100), Some(100), Some(-100), Some(-100), None];
    assert_eq!(
        decimals(of("modulo", Kind::Decimal(2), [scaled(A()), scaled(B())]), &columns),
        expected
    );
    assert_eq!(
        floats(of("divide", kind(), [float(int(1)), float(int(0))]), &[]),
        [None]
    );
}

#[test]
fn floats_have_one_nan_and_no_negative_zero() {
    let columns = [float_column([f64::INFINITY, -0.5, 0.0])];
    let (kind, x) = (|| Kind::Float(None), || load(0, Kind::Float(None)));
    let bits = |tree| {
        floats(tree, &columns)
            .into_iter()
            .map(|value| value.map(f64::to_bits))
            .collect::<Vec<_>>()
    };
    let nan = Some(0x7ff8_0000_0000_0000);
    assert_eq!(bits(of("subtract", kind(), [x(), x()]))[0], nan);
    assert_eq!(bits(of("ceil", kind(), [x()]))[1], Some(0));
    assert_eq!(bits(of("negate", kind(), [x()]))[2], Some(0));
    assert_eq!(bits(of("multiply", kind(), [x(), cast(kind(), int(-1))]))[2], Some(0));
    assert_eq!(bits(of("sqrt", kind(), [of("negate", kind(), [x()])]))[0], nan);
    assert_eq!(bits(with(Operation::Round(0), kind(), x()))[1], Some(0));
}

#[test]
fn nan_is_equal_to_itself_and_the_greatest() {
    let columns = [float_column([f64::NAN, 1.0]), float_column([f64::NAN, f64::NAN])];
    let both = || [load(0, Kind::Float(None)), load(1, Kind::Float(None))];
    assert_eq!(
        truths(of("equal", Kind::Bool, both()), &columns),
        [Some(true), Some(false)]
    );
    assert_eq!(
        truths(of("less", Kind::Bool, both()), &columns),
        [Some(false), Some(true)]
    );
    assert_eq!(floats(of("least", Kind::Float(None), both()), &columns)[1], Some(1.0));
}

#[test]
fn decimals_are_exact_up_to_38_digits() {
    let nines = 10_i128.pow(38) - 1;
    let columns = [decimal_column(0, [5, nines]), decimal_column(0, [5, 1])];
    let both = || [load(0, Kind::Decimal(0)), load(1, Kind::Decimal(0))];
    assert_eq!(
        decimals(of("subtract", Kind::Decimal(0), both()), &columns),
        [Some(0), Some(nines - 1)]
    );
    assert_eq!(row_of_error(of("add", Kind::Decimal(0), both()), &columns), 1);
    assert_eq!(
        row_of_error(
            with(Operation::Round(-1), Kind::Decimal(0), load(0, Kind::Decimal(0))),
            &columns
        ),
        1
    );
    assert_eq!(
        row_of_error(cast(Kind::Decimal(1), load(0, Kind::Decimal(0))), &columns),
        1
    );
    assert_eq!(
        ints(cast_or_null(Kind::Int, load(0, Kind::Decimal(0))), &columns),
        [Some(5), None]
    );
}

#[test]
fn decimals_of_different_scales_are_compared_by_value() {
    let columns = [
        decimal_column(1, [15, 10_i128.pow(38) - 1]),
        decimal_column(38, [1, 10_i128.pow(38) - 1]),
    ];
    let both = [load(0, Kind::Decimal(1)), load(1, Kind::Decimal(38))];
    assert_eq!(
        truths(of("greater", Kind::Bool, both), &columns),
        [Some(true), Some(true)]
    );
    let with_int = [load(0, Kind::Decimal(1)), int(2)];
    assert_eq!(
        truths(of("less", Kind::Bool, with_int), &columns),
        [Some(true), Some(false)]
    );
}

#[test]
fn halves_are_rounded_to_even_by_the_exact_value() {
    let columns = [
        decimal_column(3, [125, 135, -125, 126]),
        int_column([Some(25), Some(35), Some(-25), Some(26)]),
    ];
    let rounded = with(Operation::Round(2), Kind::Decimal(2), load(0, Kind::Decimal(3)));
    assert_eq!(decimals(rounded, &columns), [Some(12), Some(14), Some(-12), Some(13)]);
    let rounded = with(Operation::Round(-1), Kind::Int, B());
    assert_eq!(ints(rounded, &columns), [Some(20), Some(40), Some(-20), Some(30)]);
    let columns = [float_column([0.5, 1.5, 2.675, 1e-20 * 1.5, -0.375])];
    let scaled = |scale| cast(Kind::Decimal(scale), load(0, Kind::Float(None)));
    assert_eq!(
        decimals(scaled(0), &columns),
        [Some(0), Some(2), Some(3), Some(0), Some(0)]
    );
    assert_eq!(decimals(scaled(2), &columns)[2..], [Some(267), Some(0), Some(-38)]);
    let rounded = with(Operation::Round(20), Kind::Float(None), load(0, Kind::Float(None)));
    assert_eq!(floats(rounded, &columns)[3], Some(1e-20), "1.5e-20 is below the half");
}

#[test]
fn a_cast_of_what_the_type_lacks_is_an_error_or_null() {
    let columns = [
        float_column([1.9, -9.3e18, 9_223_372_036_854_775_807.0]),
        text_column(["12", "1_0", " 1"]),
    ];
    let of_float = || load(0, Kind::Float(None));
    assert_eq!(
        ints(cast_or_null(Kind::Int, of_float()), &columns),
        [Some(1), None, None]
    );
    assert_eq!(row_of_error(cast(Kind::Int, of_float()), &columns), 1);
    assert_eq!(
        ints(cast_or_null(Kind::Int, load(1, Kind::String)), &columns),
        [Some(12), None, None]
    );
}

#[test]
fn floats_are_written_as_python_writes_them() {
    let columns = [float_column([1.0, 1e16, 1e-5, 1e-4, 1.5e300, f64::NAN, -f64::INFINITY])];
    let expected = ["1.0", "1e+16", "1e-05", "0.0001", "1.5e+300", "nan", "-inf"];
    let found = texts(cast(Kind::String, load(0, Kind::Float(None))), &columns);
    assert_eq!(found, expected.map(|text| Some(text.to_owned())));
}

#[test]
fn the_calendar_knows_leap_years() {
    let columns = [text_column([
        "2000-02-29",
        "1900-02-29",
        "1969-12-31",
        "0001-01-01",
        "2013-02-29",
    ])];
    let found = evaluated(cast_or_null(Kind::Date, load(0, Kind::String)), &columns).expect("days");
    let days: Vec<_> = found.as_primitive::<Date32Type>().iter().collect();
    assert_eq!(days, [Some(11_016), None, Some(-1), Some(-719_162), None]);
    let dates = [Arc::new(Date32Array::from(vec![11_016, -1, -719_162, 2_932_896])) as ArrayRef];
    let found = texts(cast(Kind::String, load(0, Kind::Date)), &dates);
    assert_eq!(
        found,
        ["2000-02-29", "1969-12-31", "0001-01-01", "9999-12-31"].map(|text| Some(text.to_owned()))
    );
}

#[test]
fn moments_are_read_with_their_offset_and_rounded_down() {
    let columns = [text_column(["1970-01-01T01:00:00.5+01:30", "1969-12-31 23:59Z"])];
    let moment = || cast(Kind::Timestamp, load(0, Kind::String));
    let found = evaluated(moment(), &columns).expect("moments");
    let moments: Vec<_> = found
        .as_primitive::<TimestampMicrosecondType>()
        .iter()
        .flatten()
        .collect();
    assert_eq!(moments, [-1_799_500_000, -60_000_000]);
    assert_eq!(
        ints(of("hour_of_day", Kind::Int, [moment()]), &columns),
        [Some(23), Some(23)]
    );
    assert_eq!(
        ints(of("day_of_week", Kind::Int, [moment()]), &columns),
        [Some(3), Some(3)]
    );
    let least = TimestampMicrosecondArray::from(vec![i64::MIN]).with_timezone("UTC");
    let truncated = with(
        Operation::Truncate(86_400_000_000),
        Kind::Timestamp,
        load(0, Kind::Timestamp),
    );
    assert_eq!(row_of_error(truncated, &[Arc::new(least)]), 0);
}

#[test]
fn text_is_counted_in_characters() {
    let columns = [text_column(["\u{e9}bcd", "abcd"])];
    let part = |start, length| {
        of(
            "substring",
            Kind::String,
            [load(0, Kind::String), int(start), int(length)],
        )
    };
    assert_eq!(
        texts(part(1, 2), &columns),
        [Some("bc".to_owned()), Some("bc".to_owned())]
    );
    assert_eq!(
        texts(part(-2, 9), &columns),
        [Some("cd".to_owned()), Some("cd".to_owned())]
    );
    assert_eq!(
        texts(part(-9, -1), &columns),
        [Some(String::new()), Some(String::new())]
    );
    assert_eq!(
        ints(of("length", Kind::Int, [load(0, Kind::String)]), &columns),
        [Some(4), Some(4)]
    );
    assert_eq!(
        texts(of("upper", Kind::String, [load(0, Kind::String)]), &columns),
        [Some("<\u{e9}bcd>".to_owned()), Some("ABCD".to_owned())]
    );
    let replaced = of("replace", Kind::String, [load(0, Kind::String), text(""), text("-")]);
    assert_eq!(texts(replaced, &columns)[1], Some("abcd".to_owned()));
}

#[test]
fn parts_of_what_is_not_there_are_null() {
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), Some(2)]), Some(vec![]), None]);
    let list_kind = Kind::List(Box::new(Kind::Int.of("element")));
    let columns = [Arc::new(list) as ArrayRef];
    let element = |index| of("element", Kind::Int, [load(0, list_kind.clone()), int(index)]);
    assert_eq!(ints(element(1), &columns), [Some(2), None, None]);
    assert_eq!(ints(element(-2), &columns), [Some(1), None, None]);
    assert_eq!(ints(element(-3), &columns), [None, None, None]);
    let fields = vec![Kind::Int.of("n").field()].into();
    let structs = StructArray::new(
        fields,
        vec![int_column([Some(1), Some(2)])],
        Some(vec![true, false].into()),
    );
    let kind = Kind::Struct(vec![Kind::Int.of("n")]);
    let field = with(Operation::Field(0), Kind::Int, load(0, kind));
    assert_eq!(ints(field, &[Arc::new(structs)]), [Some(1), None]);
}

#[test]
fn least_and_greatest_ignore_null() {
    let columns = [
        int_column([Some(3), None, None, Some(1)]),
        int_column([Some(2), Some(5), None, None]),
    ];
    assert_eq!(
        ints(of("least", Kind::Int, [A(), B()]), &columns),
        [Some(2), Some(5), None, Some(1)]
    );
    assert_eq!(
        ints(of("greatest", Kind::Int, [A(), B()]), &columns),
        [Some(3), Some(5), None, Some(1)]
    );
    assert_eq!(
        ints(of("least", Kind::Int, [int(4), int(9), A()]), &columns),
        [Some(3), Some(4), Some(4), Some(1)]
    );
}

#[test]
fn is_in_finds_nan_and_text() {
    let columns = [float_column([f64::NAN, 1.0, 2.0]), text_column(["JFK", "", "LGA"])];
    let values = || Arc::new(Float64Array::from(vec![f64::NAN, 2.0]));
    let found = with(Operation::IsIn(values()), Kind::Bool, load(0, Kind::Float(None)));
    assert_eq!(truths(found, &columns), [Some(true), Some(false), Some(true)]);
    let found = with(
        Operation::IsIn(text_column(["LGA", ""])),
        Kind::Bool,
        load(1, Kind::String),
    );
    assert_eq!(truths(found, &columns), [Some(false), Some(true), Some(true)]);
}

#[test]
fn what_fails_for_every_row_fails_only_where_a_row_needs_it() {
    let columns = [int_column([Some(1), Some(20)])];
    let number = || cast(Kind::Int, text("no number"));
    let is_large = of("greater_equal", Kind::Bool, [A(), int(10)]);
    assert_eq!(
        row_of_error(of("case", Kind::Int, [is_large, number(), int(0)]), &columns),
        1
    );
    assert_eq!(row_of_error(of("add", Kind::Int, [A(), number()]), &columns), 0);
}

#[test]
fn a_node_that_reads_a_later_one_is_refused() {
    let column = Kind::Int.of("");
    let operation = Operation::named("negate").expect("an operation");
    let node = Lowered {
        operation,
        column,
        operands: vec![0],
    };
    let problem = Expressions::bind(vec![node], vec![0], Arc::new(Marking)).expect_err("no earlier node");
    assert_eq!(problem, "node 0 reads node 0, which is not before it");
}
