//! Payloads from peers: any bytes are rows or are refused.

use lmerge_rows::schema::{Column, Kind, Schema};

use crate::tables::{column, nullable};

fn schema() -> Schema {
    let nested = Kind::Struct(vec![column("a", Kind::String), nullable("b", Kind::Decimal(3))]);
    let kinds: [Kind; 8] = [
        Kind::Int,
        Kind::Float(None),
        Kind::String,
        Kind::Bytes,
        Kind::Timestamp,
        Kind::Date,
        Kind::List(Box::new(nullable("element", nested.clone()))),
        nested,
    ];
    let columns: Vec<Column> = kinds
        .into_iter()
        .enumerate()
        .map(|(at, kind)| nullable(&at.to_string(), kind))
        .collect();
    Schema { columns }
}

#[test]
fn damaged_payloads_are_rows_or_refused() {
    let mut payload = vec![0x98, 5, 0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0];
    payload.extend_from_slice(b"\xa3abc\xc4\x02ab\x07\x08\x92\xc0\x92\xa1x\xa51.500\x92\xa1y\xc0");
    let schema = schema();
    assert!(schema.decode([payload.as_slice()]).is_some());
    let mut random = fastrand::Rng::with_seed(5);
    let mut taken = 0;
    for _ in 0..50_000 {
        let mut damaged = payload.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..damaged.len());
            match random.u8(0..4) {
                0 => drop(damaged.remove(at)),
                1 => damaged.insert(at, random.u8(..)),
                2 => damaged.truncate(at),
                _ => damaged[at] = random.u8(..),
            }
            if damaged.is_empty() {
                break;
            }
        }
        if let Some(rows) = schema.decode([damaged.as_slice()]) {
            taken += 1;
            assert!(
                schema.payloads(&[rows], &[]).is_some(),
                "accepted rows can be encoded again"
            );
        }
    }
    assert!(taken > 100, "the test damages too much to see anything");
}

#[test]
fn a_head_that_promises_much_costs_nothing() {
    let schema = schema();
    for head in [
        &[0xdd, 0xff, 0xff, 0xff, 0xff][..],
        &[0x98, 1, 0xc0, 0xdb, 0xff, 0xff, 0xff, 0xff],
        &[
            0x98, 1, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xdd, 0xff, 0xff, 0xff, 0xff, 0xc0,
        ],
    ] {
        assert!(schema.decode([head]).is_none());
    }
}
