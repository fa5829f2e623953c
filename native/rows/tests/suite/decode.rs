//! Payloads to record batches.

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, StructArray};
use lmerge_rows::schema::{Kind, Schema};

use crate::tables::{column, nullable, of, of_nullable};

fn decode(schema: &Schema, payloads: &[&[u8]]) -> Option<StructArray> {
    schema.decode(payloads.iter().copied())
}

#[test]
fn every_type_comes_back_as_its_arrow_type() {
    let schema = Schema {
        columns: vec![
            column("b", Kind::Bool),
            column("i", Kind::Int),
            column("f", Kind::Float(Some(1))),
            column("s", Kind::String),
            column("y", Kind::Bytes),
            column("t", Kind::Timestamp),
            column("d", Kind::Date),
            column("m", Kind::Decimal(2)),
            nullable("l", Kind::List(Box::new(nullable("element", Kind::Int)))),
            nullable("o", Kind::Struct(vec![column("a", Kind::Int)])),
        ],
    };
    let mut payload = vec![
        0x9a, 0xc3, 0xcd, 1, 0, 0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 0xa1, b'x', 0xc4, 1, 0xff, 1,
    ];
    payload.extend_from_slice(b"\xff\xa5-1.50\x92\x01\xc0\x91\x07");
    let rows = decode(&schema, &[&payload]).expect("it fits");
    assert!(rows.column(0).as_boolean().value(0));
    assert_eq!(rows.column(1).as_primitive::<Int64Type>().values(), &[256]);
    assert_eq!(rows.column(2).as_primitive::<Float64Type>().values(), &[1.5]);
    assert_eq!(rows.column(3).as_string::<i32>().value(0), "x");
    assert_eq!(rows.column(4).as_binary::<i32>().value(0), [0xff]);
    assert_eq!(rows.column(5).as_primitive::<TimestampMicrosecondType>().values(), &[1]);
    assert_eq!(rows.column(6).as_primitive::<Date32Type>().values(), &[-1]);
    assert_eq!(rows.column(7).as_primitive::<Decimal128Type>().values(), &[-150]);
    let list = rows.column(8).as_list::<i32>().value(0);
    assert_eq!((list.len(), list.null_count()), (2, 1));
    assert_eq!(
        rows.column(9)
            .as_struct()
            .column(0)
            .as_primitive::<Int64Type>()
            .values(),
        &[7]
    );
    let again = schema.payloads(&[rows], &[]).expect("it fits");
    assert_eq!(again.iter().collect::<Vec<_>>(), [payload.as_slice()]);
}

#[test]
fn nulls_come_back_where_they_may_be() {
    let inner = Kind::Struct(vec![
        column("a", Kind::Int),
        column("l", Kind::List(Box::new(column("e", Kind::Bool)))),
    ]);
    let rows = decode(&of_nullable(inner.clone()), &[b"\x91\xc0", b"\x91\x92\x01\x91\xc2"]).expect("it fits");
    assert_eq!(rows.column(0).null_count(), 1);
    assert_eq!(
        rows.column(0)
            .as_struct()
            .column(0)
            .as_primitive::<Int64Type>()
            .value(1),
        1
    );
    assert!(decode(&of(inner.clone()), &[b"\x91\xc0"]).is_none());
    assert!(
        decode(&of_nullable(inner), &[b"\x91\x92\xc0\x90"]).is_none(),
        "a is never null"
    );
}

#[test]
fn nothing_is_left_over_and_nothing_is_missing() {
    let schema = of(Kind::Int);
    for refused in [
        &b""[..],
        b"\x90",
        b"\x92\x01\x01",
        b"\x91",
        b"\x91\x01\x01",
        b"\x01",
        b"\x91\xa1x",
        b"\x81\x01\x01",
    ] {
        assert!(decode(&schema, &[refused]).is_none(), "{refused:?}");
    }
    assert_eq!(decode(&schema, &[]).expect("no rows").len(), 0);
    let pair = of(Kind::Struct(vec![column("a", Kind::Int), column("b", Kind::Int)]));
    assert!(decode(&pair, &[b"\x91\x92\x01\x02"]).is_some());
    for head in [b'\x91', b'\x93', b'\x9f'] {
        assert!(
            decode(&pair, &[&[0x91, head, 1, 2]]).is_none(),
            "a struct of {} fields",
            head & 0x0f
        );
    }
}

#[test]
fn days_and_moments_that_python_cannot_represent_are_left_to_it() {
    let moment = |us: i64| [&[0x91, 0xd3][..], &us.to_be_bytes()].concat();
    let last = 253_402_300_799_999_999;
    assert!(decode(&of(Kind::Timestamp), &[&moment(last)]).is_some());
    assert!(decode(&of(Kind::Timestamp), &[&moment(last + 1)]).is_none());
    let first = -62_135_596_800_000_000;
    assert!(decode(&of(Kind::Timestamp), &[&moment(first)]).is_some());
    assert!(decode(&of(Kind::Timestamp), &[&moment(first - 1)]).is_none());
    assert!(decode(&of(Kind::Date), &[&moment(2_932_896)]).is_some());
    assert!(decode(&of(Kind::Date), &[&moment(2_932_897)]).is_none());
    assert!(decode(&of(Kind::Date), &[&moment(-719_163)]).is_none());
}
