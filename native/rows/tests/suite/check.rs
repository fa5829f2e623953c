//! The check whether payloads are rows accepts what decoding accepts, for any bytes.

use lmerge_rows::schema::{Kind, Schema};

use crate::tables::{column, nullable};

fn schema() -> Schema {
    Schema {
        columns: vec![
            column("b", Kind::Bool),
            column("i", Kind::Int),
            column("s", Kind::String),
            column("y", Kind::Bytes),
            column("t", Kind::Timestamp),
            column("d", Kind::Date),
            column("m", Kind::Decimal(2)),
            nullable("l", Kind::List(Box::new(nullable("element", Kind::Int)))),
            nullable("o", Kind::Struct(vec![column("a", Kind::Int)])),
            column("f", Kind::Float(None)),
        ],
    }
}

fn row() -> Vec<u8> {
    let mut payload = vec![0x9a, 0xc3, 0xcd, 1, 0, 0xa1, b'x', 0xc4, 1, 0xff, 1, 0xff];
    payload.extend_from_slice(b"\xa5-1.50\x92\x01\xc0\x91\x07\xcb\x3f\xf8\0\0\0\0\0\0");
    payload
}

#[test]
fn every_change_of_a_byte_is_judged_as_decoding_does() {
    let schema = schema();
    let payload = row();
    assert!(schema.takes(&payload));
    let (mut taken, mut refused) = (0, 0);
    for at in 0..payload.len() {
        for byte in 0..=255 {
            let mut changed = payload.clone();
            changed[at] = byte;
            let decodes = schema.decode([changed.as_slice()]).is_some();
            assert_eq!(schema.takes(&changed), decodes, "{changed:x?}");
            *(if decodes { &mut taken } else { &mut refused }) += 1;
        }
    }
    assert!(taken > 1_000 && refused > 1_000, "{taken} {refused}");
}

#[test]
fn a_row_that_is_cut_off_or_followed_by_something_is_refused() {
    let schema = schema();
    let payload = row();
    for stop in 0..payload.len() {
        assert!(!schema.takes(&payload[..stop]), "{stop}");
    }
    assert!(!schema.takes(&[payload, vec![0xc0]].concat()));
}

#[test]
fn floats_of_32_bits_are_taken_and_other_numbers_are_not() {
    let schema = Schema {
        columns: vec![column("f", Kind::Float(None))],
    };
    assert!(schema.takes(b"\x91\xca\x3f\xc0\0\0"));
    assert!(!schema.takes(b"\x91\xca\x3f\xc0\0"));
    assert!(!schema.takes(b"\x91\x01"));
}

#[test]
fn counts_that_the_bytes_do_not_hold_cost_nothing() {
    let list = Kind::List(Box::new(nullable("element", Kind::Int)));
    let schema = Schema {
        columns: vec![column("l", list)],
    };
    assert!(!schema.takes(b"\x91\xdd\xff\xff\xff\xff\x01"));
}
