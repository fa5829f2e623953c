//! Record batches to payloads.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder};
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::*;
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer, i256};
use arrow_schema::{DataType, Field};
use lmerge_core::columns::View;
use lmerge_core::element::INF;
use lmerge_rows::schema::{Kind, Schema};

use crate::tables::{batch, cells, column, nullable, of, of_nullable, x};

const NAN: [u8; 9] = [0xcb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0];
const ZERO: [u8; 9] = [0xcb, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn columns_go_in_the_order_of_the_schema_whatever_that_of_the_batch() {
    let schema = Schema {
        columns: vec![
            column("a", Kind::Int),
            nullable("b", Kind::String),
            column("c", Kind::Bool),
        ],
    };
    let rows = batch(vec![
        ("c", Arc::new(BooleanArray::from(vec![true, false]))),
        ("b", Arc::new(StringArray::from(vec![Some("é"), None]))),
        ("a", Arc::new(Int64Array::from(vec![1, 300]))),
    ]);
    let payloads = schema.payloads(&[rows.clone(), rows], &[]).expect("they fit");
    let expected: [&[u8]; 2] = [&[0x93, 1, 0xa2, 0xc3, 0xa9, 0xc3], &[0x93, 0xcd, 1, 0x2c, 0xc0, 0xc2]];
    assert_eq!(payloads.len(), 4);
    assert_eq!(
        payloads.iter().collect::<Vec<_>>(),
        [expected[0], expected[1], expected[0], expected[1]]
    );
}

#[test]
fn a_batch_with_other_columns_is_refused() {
    let schema = of(Kind::Int);
    let ints = || Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    let refuses = |columns| schema.payloads(&[batch(columns)], &["t"]).is_none();
    assert!(!refuses(vec![("x", ints()), ("t", ints())]));
    assert!(refuses(vec![("x", ints()), ("y", ints())]));
    assert!(refuses(vec![("t", ints())]));
    assert!(refuses(vec![("x", ints()), ("x", ints())]));
}

#[test]
fn null_goes_where_it_may() {
    let rows = x(Int64Array::from(vec![Some(1), None]));
    assert_eq!(cells(&of(Kind::Int), &rows), None);
    assert_eq!(cells(&of_nullable(Kind::Int), &rows), Some(vec![vec![1], vec![0xc0]]));
    assert_eq!(cells(&of(Kind::Int), &rows.slice(0, 1)), Some(vec![vec![1]]));
    let nulls = x(NullArray::new(2));
    assert_eq!(cells(&of_nullable(Kind::Date), &nulls), Some(vec![vec![0xc0]; 2]));
    assert_eq!(cells(&of(Kind::Date), &nulls), None);
}

#[test]
fn floats_are_canonical() {
    let other = f64::from_bits(0xfff0_0000_0000_0001);
    let rows = x(Float64Array::from(vec![-0.0, f64::NAN, other, -0.001]));
    let rounded = cells(&of(Kind::Float(Some(2))), &rows).expect("floats");
    assert_eq!(rounded, [ZERO, NAN, NAN, ZERO]);
    let plain = cells(&of(Kind::Float(None)), &rows).expect("floats");
    assert_eq!(plain[..3], [ZERO, NAN, NAN]);
    let narrow = cells(
        &of(Kind::Float(None)),
        &x(Float32Array::from(vec![-0.0, f32::NAN, 1.5])),
    );
    assert_eq!(narrow.expect("floats")[..2], [ZERO, NAN]);
    assert!(cells(&of(Kind::Float(None)), &x(UInt64Array::from(vec![u64::MAX]))).is_some());
    assert_eq!(cells(&of(Kind::Float(None)), &x(StringArray::from(vec!["1"]))), None);
}

#[test]
fn ints_fit_64_bits_with_a_sign() {
    let max = i64::MAX as u64;
    assert!(cells(&of(Kind::Int), &x(UInt64Array::from(vec![max]))).is_some());
    assert_eq!(cells(&of(Kind::Int), &x(UInt64Array::from(vec![max, max + 1]))), None);
    assert_eq!(
        cells(&of(Kind::Int), &x(Int8Array::from(vec![-33]))),
        Some(vec![vec![0xd0, 0xdf]])
    );
    assert_eq!(cells(&of(Kind::Int), &x(Float64Array::from(vec![1.0]))), None);
    // The value of a null slot does not matter.
    let hidden = UInt64Array::new(vec![u64::MAX, 1].into(), Some(NullBuffer::from(vec![false, true])));
    assert_eq!(
        cells(&of_nullable(Kind::Int), &x(hidden)),
        Some(vec![vec![0xc0], vec![1]])
    );
}

#[test]
fn text_must_be_utf8_in_every_layout() {
    let ends = || OffsetBuffer::new(ScalarBuffer::from(vec![0, 1, 2]));
    // SAFETY: an invalid string array, as a library without checks can export it; no code reads it as text.
    let cut = unsafe { StringArray::new_unchecked(ends(), "é".as_bytes().into(), None) };
    assert_eq!(cells(&of(Kind::String), &x(cut)), None, "a character cut in two");
    // SAFETY: as above.
    let wrong = unsafe { StringArray::new_unchecked(ends(), vec![b'x', 0xff].into(), None) };
    assert_eq!(cells(&of(Kind::String), &x(wrong)), None);
    let long = "long enough to lie outside of a view".to_string();
    let expected = |value: &str| {
        let mut out = Vec::new();
        lmerge_rows::pack::string(&mut out, value.as_bytes()).expect("it is small");
        out
    };
    let values = vec!["é", long.as_str(), ""];
    let encoded: Vec<Vec<u8>> = values.iter().map(|value| expected(value)).collect();
    let schema = of(Kind::String);
    assert_eq!(
        cells(&schema, &x(StringArray::from(values.clone()))).as_ref(),
        Some(&encoded)
    );
    assert_eq!(
        cells(&schema, &x(LargeStringArray::from(values.clone()))).as_ref(),
        Some(&encoded)
    );
    assert_eq!(
        cells(&schema, &x(StringViewArray::from(values.clone()))).as_ref(),
        Some(&encoded)
    );
    let dictionary: DictionaryArray<Int8Type> = values.into_iter().collect();
    assert_eq!(cells(&schema, &x(dictionary)).as_ref(), Some(&encoded));
    assert_eq!(cells(&schema, &x(BinaryArray::from(vec![&b"x"[..]]))), None);
}

#[test]
fn bytes_come_in_every_layout() {
    let values = vec![&b"ab"[..], &[0xff, 0]];
    let encoded = Some(vec![vec![0xc4, 2, b'a', b'b'], vec![0xc4, 2, 0xff, 0]]);
    let schema = of(Kind::Bytes);
    assert_eq!(cells(&schema, &x(BinaryArray::from(values.clone()))), encoded);
    assert_eq!(cells(&schema, &x(LargeBinaryArray::from(values.clone()))), encoded);
    assert_eq!(cells(&schema, &x(BinaryViewArray::from(values.clone()))), encoded);
    let fixed = FixedSizeBinaryArray::try_from_iter(values.into_iter()).expect("two bytes each");
    assert_eq!(cells(&schema, &x(fixed)), encoded);
    assert_eq!(cells(&schema, &x(StringArray::from(vec!["x"]))), None);
}

#[test]
fn moments_are_microseconds_and_name_a_zone() {
    let schema = of(Kind::Timestamp);
    let one = Some(vec![vec![0xce, 0, 0x0f, 0x42, 0x40]]);
    assert_eq!(
        cells(&schema, &x(TimestampSecondArray::from(vec![1]).with_timezone("UTC"))),
        one
    );
    assert_eq!(
        cells(
            &schema,
            &x(TimestampMillisecondArray::from(vec![1_000]).with_timezone("Asia/Tokyo"))
        ),
        one
    );
    assert_eq!(
        cells(
            &schema,
            &x(TimestampMicrosecondArray::from(vec![1_000_000]).with_timezone("+01:00"))
        ),
        one
    );
    assert_eq!(
        cells(
            &schema,
            &x(TimestampNanosecondArray::from(vec![1_000_000_000]).with_timezone("UTC"))
        ),
        one
    );
    assert_eq!(cells(&schema, &x(Int64Array::from(vec![1_000_000]))), one);
    assert_eq!(cells(&schema, &x(TimestampSecondArray::from(vec![1]))), None, "no zone");
    assert_eq!(
        cells(
            &schema,
            &x(TimestampNanosecondArray::from(vec![1]).with_timezone("UTC"))
        ),
        None
    );
    assert_eq!(
        cells(
            &schema,
            &x(TimestampSecondArray::from(vec![i64::MAX]).with_timezone("UTC"))
        ),
        None
    );
    assert_eq!(
        cells(
            &of(Kind::Int),
            &x(TimestampSecondArray::from(vec![1]).with_timezone("UTC"))
        ),
        None
    );
}

#[test]
fn days_are_those_of_the_calendar() {
    let schema = of(Kind::Date);
    assert_eq!(cells(&schema, &x(Date32Array::from(vec![-1]))), Some(vec![vec![0xff]]));
    assert_eq!(
        cells(&schema, &x(Date64Array::from(vec![86_400_000]))),
        Some(vec![vec![1]])
    );
    assert_eq!(cells(&schema, &x(Date64Array::from(vec![86_400_001]))), None);
    assert!(cells(&schema, &x(Date32Array::from(vec![-719_162, 2_932_896]))).is_some());
    assert_eq!(cells(&schema, &x(Date32Array::from(vec![-719_163]))), None);
    assert_eq!(cells(&schema, &x(Date32Array::from(vec![2_932_897]))), None);
    assert_eq!(cells(&schema, &x(Int32Array::from(vec![1]))), None);
}

#[test]
fn decimals_of_every_width_have_one_text() {
    let schema = of(Kind::Decimal(2));
    let encoded = Some(vec![b"\xa41.50".to_vec()]);
    let typed = |precision, scale| Decimal128Array::from(vec![1_500]).with_precision_and_scale(precision, scale);
    assert_eq!(cells(&schema, &x(typed(10, 3).expect("it fits"))), encoded);
    let wide = Decimal256Array::from(vec![i256::from_i128(150)]).with_precision_and_scale(76, 2);
    assert_eq!(cells(&schema, &x(wide.expect("it fits"))), encoded);
    let narrow = Decimal32Array::from(vec![15]).with_precision_and_scale(9, 1);
    assert_eq!(cells(&schema, &x(narrow.expect("it fits"))), encoded);
    let middle = Decimal64Array::from(vec![150]).with_precision_and_scale(18, 2);
    assert_eq!(cells(&schema, &x(middle.expect("it fits"))), encoded);
    assert_eq!(
        cells(&schema, &x(Int32Array::from(vec![-7]))),
        Some(vec![b"\xa5-7.00".to_vec()])
    );
    assert_eq!(cells(&schema, &x(Float64Array::from(vec![1.5]))), None);
    let digits = Decimal128Array::from(vec![1_501]).with_precision_and_scale(10, 3);
    assert_eq!(
        cells(&schema, &x(digits.expect("it fits"))),
        None,
        "a digit would be dropped"
    );
}

fn lists() -> ListArray {
    let mut builder = ListBuilder::new(Int64Builder::new());
    builder.append_value([Some(1), None]);
    builder.append_null();
    builder.append_value([]);
    builder.append_value([Some(2), Some(3)]);
    builder.finish()
}

#[test]
fn lists_keep_their_elements_when_sliced() {
    let schema = of_nullable(Kind::List(Box::new(nullable("element", Kind::Int))));
    let encoded = [vec![0x92, 1, 0xc0], vec![0xc0], vec![0x90], vec![0x92, 2, 3]];
    assert_eq!(cells(&schema, &x(lists())).as_deref(), Some(&encoded[..]));
    assert_eq!(cells(&schema, &x(lists().slice(1, 3))).as_deref(), Some(&encoded[1..]));
    assert_eq!(cells(&schema, &x(lists()).slice(3, 1)).as_deref(), Some(&encoded[3..]));
    let strict = of_nullable(Kind::List(Box::new(column("element", Kind::Int))));
    assert_eq!(cells(&strict, &x(lists())), None);
    assert_eq!(
        cells(&strict, &x(lists().slice(1, 3))).as_deref(),
        Some(&encoded[1..]),
        "outside of the slice"
    );
    let pairs = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(
        vec![Some(vec![Some(1), Some(2)]), None, Some(vec![Some(3), Some(4)])],
        2,
    );
    let encoded = [vec![0x92, 1, 2], vec![0xc0], vec![0x92, 3, 4]];
    assert_eq!(cells(&schema, &x(pairs.clone())).as_deref(), Some(&encoded[..]));
    assert_eq!(cells(&schema, &x(pairs.slice(1, 2))).as_deref(), Some(&encoded[1..]));
}

#[test]
fn structs_go_in_the_order_of_the_schema_and_what_they_lack_is_null() {
    let fields = vec![column("a", Kind::Int), nullable("b", Kind::Int)];
    let schema = of_nullable(Kind::Struct(fields));
    let ints = |values: Vec<i64>| Arc::new(Int64Array::from(values)) as ArrayRef;
    let both = batch(vec![("b", ints(vec![1, 2])), ("a", ints(vec![3, 4]))]);
    assert_eq!(cells(&schema, &x(both)), Some(vec![vec![0x92, 3, 1], vec![0x92, 4, 2]]));
    assert_eq!(
        cells(&schema, &x(batch(vec![("a", ints(vec![5]))]))),
        Some(vec![vec![0x92, 5, 0xc0]])
    );
    assert_eq!(
        cells(&schema, &x(batch(vec![("b", ints(vec![5]))]))),
        None,
        "a is missing"
    );
    let more = batch(vec![("a", ints(vec![1])), ("z", ints(vec![1]))]);
    assert_eq!(cells(&schema, &x(more)), None, "a field too many");
}

#[test]
fn a_field_under_a_null_struct_is_not_looked_at() {
    let child = Arc::new(Int64Array::from(vec![None, Some(1)])) as ArrayRef;
    let fields = vec![Field::new("a", DataType::Int64, true)];
    let array = StructArray::new(fields.into(), vec![child], Some(NullBuffer::from(vec![false, true])));
    let schema = of_nullable(Kind::Struct(vec![column("a", Kind::Int)]));
    assert_eq!(cells(&schema, &x(array)), Some(vec![vec![0xc0], vec![0x91, 1]]));
}

#[test]
fn dictionaries_are_their_values() {
    let keys = Int8Array::from(vec![Some(1), None, Some(0), Some(1)]);
    let values = Arc::new(Int64Array::from(vec![7, 8]));
    let array = DictionaryArray::new(keys, values);
    assert_eq!(
        cells(&of_nullable(Kind::Int), &x(array)),
        Some(vec![vec![8], vec![0xc0], vec![7], vec![8]])
    );
    let null_inside = DictionaryArray::new(
        Int8Array::from(vec![0, 1]),
        Arc::new(Int64Array::from(vec![None, Some(1)])),
    );
    assert_eq!(
        cells(&of_nullable(Kind::Int), &x(null_inside.clone())),
        Some(vec![vec![0xc0], vec![1]])
    );
    assert_eq!(cells(&of(Kind::Int), &x(null_inside)), None);
    let empty = DictionaryArray::new(
        Int8Array::from(vec![None]),
        Arc::new(Int64Array::from(Vec::<i64>::new())),
    );
    assert_eq!(cells(&of_nullable(Kind::Int), &x(empty)), Some(vec![vec![0xc0]]));
}

#[test]
fn extension_types_are_left_to_python() {
    let field = Field::new("x", DataType::Int64, true);
    let extended = field.with_metadata(HashMap::from([(
        "ARROW:extension:name".to_string(),
        "their.type".to_string(),
    )]));
    let array = StructArray::new(vec![extended].into(), vec![Arc::new(Int64Array::from(vec![1]))], None);
    assert_eq!(cells(&of(Kind::Int), &array), None);
}

#[test]
fn inserts_take_their_times_from_columns() {
    let schema = of(Kind::Int);
    let rows = batch(vec![
        ("x", Arc::new(Int64Array::from(vec![7, 8]))),
        (
            "from",
            Arc::new(TimestampMillisecondArray::from(vec![1, 2]).with_timezone("UTC")),
        ),
        ("to", Arc::new(UInt32Array::from(vec![9_000, 9_001]))),
    ]);
    let seen = |columns: &lmerge_core::columns::Columns| {
        let view: View<'_> = columns.view();
        let row = |at| {
            (
                view.kind(at),
                view.vs(at),
                view.ve(at),
                view.vold(at),
                view.payload(at).to_vec(),
            )
        };
        (0..view.len()).map(row).collect::<Vec<_>>()
    };
    let columns = schema
        .inserts(&[rows.clone(), rows.slice(1, 1)], "from", Some("to"))
        .expect("they fit");
    let (one, two) = ((0, 1_000, 9_000, 0, vec![0x91, 7]), (0, 2_000, 9_001, 0, vec![0x91, 8]));
    assert_eq!(seen(&columns), [one, two.clone(), two]);
    assert_eq!(
        schema.inserts(std::slice::from_ref(&rows), "from", None),
        None,
        "a column too many"
    );
    let open = batch(vec![("x", Arc::new(Int64Array::from(vec![7])))]);
    let columns = schema.inserts(&[open], "x", None).expect("they fit");
    assert_eq!(seen(&columns), [(0, 7, INF, 0, vec![0x91, 7])]);
}

#[test]
fn times_are_whole_and_never_null() {
    let schema = of(Kind::Int);
    let with = |times: ArrayRef| {
        let rows = batch(vec![("x", Arc::new(Int64Array::from(vec![1]))), ("t", times)]);
        schema.inserts(&[rows], "t", None).is_some()
    };
    assert!(with(Arc::new(UInt64Array::from(vec![i64::MAX as u64]))));
    assert!(!with(Arc::new(UInt64Array::from(vec![u64::MAX]))));
    assert!(!with(Arc::new(Int64Array::from(vec![None]))));
    assert!(!with(Arc::new(TimestampSecondArray::from(vec![1]))), "no zone");
    assert!(!with(Arc::new(Float64Array::from(vec![1.0]))));
    assert!(!with(Arc::new(Date32Array::from(vec![1]))));
}
