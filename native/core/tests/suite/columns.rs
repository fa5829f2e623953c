//! Batches as columns: invalid batches are refused with the messages of `lmerge/wire/codec.py`, and valid ones
//! can be cut.

use lmerge_core::columns::{Columns, DecodeError, Limits, Raw, View};
use lmerge_core::element::{ADJUST, Element, INSERT, STABLE};

use crate::tdb::{a, columns, elements, f, m};

const LIMITS: Limits = Limits {
    elements: 10,
    payload_bytes: 20,
};

fn some() -> Vec<Element> {
    vec![
        a("one", 1, 5),
        f(-3),
        m("", -2, 7, 9),
        a("three", i64::MIN, i64::MAX),
        f(i64::MAX),
        m("last", 0, 1, 2),
    ]
}

/// Decode `some()` after a change.
fn decode(change: impl FnOnce(&mut Columns)) -> Result<Vec<Element>, DecodeError> {
    let mut batch = columns(&some());
    change(&mut batch);
    View::decode(&batch.raw(), LIMITS).map(|view| elements(&view))
}

#[track_caller]
fn refuses(is_limit: bool, message: &str, change: impl FnOnce(&mut Columns)) {
    let error = decode(change).expect_err("no batch");
    assert_eq!((error.message.as_str(), error.is_limit), (message, is_limit));
}

fn put(column: &mut [u8], at: usize, time: i64) {
    column[8 * at..8 * at + 8].copy_from_slice(&time.to_le_bytes());
}

fn put_end(column: &mut [u8], at: usize, end: u32) {
    column[4 * at..4 * at + 4].copy_from_slice(&end.to_le_bytes());
}

#[test]
fn a_batch_comes_back_as_it_was_written() {
    assert_eq!(decode(|_| ()).expect("a batch"), some());
}

#[test]
fn columns_that_are_all_zero_may_be_left_out() {
    let stables = Raw {
        kinds: &[STABLE; 2],
        vs: &[1; 16],
        ..Raw::default()
    };
    let view = View::decode(&stables, LIMITS).expect("stables have a Vs only");
    assert_eq!(
        (view.vs(1), view.ve(1), view.vold(1), view.payload(1)),
        (0x0101_0101_0101_0101, 0, 0, &b""[..])
    );
    assert_eq!((view.payload_bytes(), view.counts()), (0, [0, 0, 2]));
    let inserts = Raw {
        kinds: &[INSERT],
        vs: &[0; 8],
        ve: &[1; 8],
        ends: &[2, 0, 0, 0],
        payloads: b"ab",
        ..Raw::default()
    };
    let view = View::decode(&inserts, LIMITS).expect("without adjusts there is no Vold");
    assert_eq!((view.vold(0), view.payload(0)), (0, &b"ab"[..]));
}

#[test]
fn nothing_is_a_batch() {
    let view = View::decode(&Raw::default(), LIMITS).expect("an empty batch");
    assert!(view.is_empty() && view.kinds().is_empty());
    assert_eq!(
        (view.len(), view.counts(), view.payload_bytes(), view.cuts(1, 1)),
        (0, [0; 3], 0, vec![])
    );
    assert!(view.slice(0, 0).is_empty());
    assert!(elements(&Columns::default().view()).is_empty());
}

#[test]
fn too_many_elements_are_above_the_limit() {
    refuses(true, "a batch of 11 elements is above the limit of 10", |batch| {
        batch.kinds = vec![INSERT; 11]
    });
}

#[test]
fn a_payload_above_the_limit_is_named_after_everything_else() {
    let change = |batch: &mut Columns| {
        batch.payloads.extend([0; 30]);
        put_end(&mut batch.ends, 5, 42);
    };
    refuses(
        true,
        "column payloads, element 5: 34 bytes are above the limit of 20",
        change,
    );
    let exactly = View::decode(
        &Raw {
            kinds: &[0],
            vs: &[0; 8],
            ve: &[0; 8],
            ends: &[20, 0, 0, 0],
            payloads: &[1; 20],
            vold: &[],
        },
        LIMITS,
    )
    .expect("a payload at the limit");
    assert_eq!(exactly.payload_bytes(), 20);
}

#[test]
fn an_unknown_kind_is_named() {
    refuses(false, "column kinds, element 2: unknown kind 3", |batch| {
        batch.kinds[2..4].copy_from_slice(&[3, 200])
    });
}

#[test]
fn columns_of_other_lengths_are_named() {
    refuses(false, "column vs has 47 bytes where 6 elements need 48", |batch| {
        batch.vs.truncate(47)
    });
    refuses(false, "column ve has 56 bytes where 6 elements need 48", |batch| {
        batch.ve.extend([0; 8])
    });
    refuses(false, "column ve has 0 bytes where 6 elements need 48", |batch| {
        batch.ve.clear()
    });
    refuses(false, "column vold has 0 bytes where 6 elements need 48", |batch| {
        batch.vold.clear()
    });
    refuses(false, "column vold has 8 bytes where 6 elements need 48", |batch| {
        batch.vold.truncate(8)
    });
    refuses(
        false,
        "column payload_ends has 0 bytes where 6 elements need 24",
        |batch| batch.ends.clear(),
    );
    refuses(
        false,
        "column payload_ends has 25 bytes where 6 elements need 24",
        |batch| batch.ends.push(0),
    );
    let no_ends = Raw {
        kinds: &[STABLE],
        vs: &[0; 8],
        payloads: b"abc",
        ..Raw::default()
    };
    let error = View::decode(&no_ends, LIMITS).expect_err("payloads of no element");
    assert_eq!(
        error.message,
        "column payloads has 3 bytes, but column payload_ends is empty"
    );
}

#[test]
fn payload_ends_must_rise_to_the_end_of_the_payloads() {
    refuses(
        false,
        "column payload_ends, element 3: 1 is less than 3 before it",
        |batch| put_end(&mut batch.ends, 3, 1),
    );
    refuses(
        false,
        "column payload_ends ends at 12, but column payloads has 13 bytes",
        |batch| batch.payloads.push(0),
    );
    refuses(
        false,
        "column payload_ends ends at 4294967295, but column payloads has 12 bytes",
        |batch| {
            put_end(&mut batch.ends, 5, u32::MAX);
        },
    );
}

#[test]
fn a_value_that_an_element_must_not_have_is_named() {
    refuses(
        false,
        "column vold, element 3: only an adjust has a Vold, but -7 came",
        |batch| put(&mut batch.vold, 3, -7),
    );
    refuses(
        false,
        "column vold, element 1: only an adjust has a Vold, but 1 came",
        |batch| put(&mut batch.vold, 1, 1),
    );
    refuses(false, "column ve, element 4: a stable has no Ve, but 9 came", |batch| {
        put(&mut batch.ve, 4, 9)
    });
}

#[test]
fn the_payload_of_a_stable_is_shown_as_python_shows_bytes() {
    let shown = |payload: &[u8]| {
        let mut batch = Columns::default();
        batch.push(STABLE, 0, 0, 0, payload);
        let limits = Limits {
            elements: 1,
            payload_bytes: 1000,
        };
        let message = View::decode(&batch.raw(), limits)
            .expect_err("a stable has no payload")
            .message;
        let before = "column payloads, element 0: a stable has no payload, but ";
        message
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(" came"))
            .expect("the text")
            .to_string()
    };
    assert_eq!(shown(b"abc"), "b'abc'");
    assert_eq!(shown(b"it's"), "b\"it's\"");
    assert_eq!(shown(b"it's \"so\""), "b'it\\'s \"so\"'");
    assert_eq!(shown(b"\\\t\n\r\x00\x7f\xff"), "b'\\\\\\t\\n\\r\\x00\\x7f\\xff'");
    assert_eq!(
        shown(&[b'a'; 100]),
        format!("b'{}", "a".repeat(62)),
        "the first 64 characters of it"
    );
}

#[test]
fn every_slice_is_the_part_that_it_names() {
    let batch = columns(&some());
    let view = batch.view();
    for start in 0..=6 {
        for stop in start..=6 {
            let slice = view.slice(start, stop);
            assert_eq!(elements(&slice), some()[start..stop]);
            let bytes: usize = some()[start..stop].iter().map(|element| element.payload.len()).sum();
            assert_eq!(slice.payload_bytes(), bytes);
            for from in 0..=slice.len() {
                assert_eq!(
                    elements(&slice.slice(from, slice.len())),
                    some()[start + from..stop],
                    "a part of a part"
                );
            }
        }
    }
}

#[test]
fn slices_of_columns_that_were_left_out_are_empty() {
    let stables = Raw {
        kinds: &[STABLE; 3],
        vs: &[1; 24],
        ..Raw::default()
    };
    let slice = View::decode(&stables, LIMITS).expect("stables").slice(1, 3);
    assert_eq!(
        (
            slice.len(),
            slice.ve(1),
            slice.vold(0),
            slice.payload(1),
            slice.payload_bytes()
        ),
        (2, 0, 0, &b""[..], 0)
    );
}

#[test]
fn cuts_keep_every_piece_within_its_limits() {
    let batch = columns(&some());
    assert_eq!(batch.view().cuts(10, 1000), [6]);
    assert_eq!(batch.view().cuts(2, 1000), [2, 4, 6]);
    assert_eq!(batch.view().cuts(4, 1000), [4, 6]);
    assert_eq!(batch.view().cuts(10, 1), [1, 2, 3, 4, 5, 6], "one element always fits");
    // 29 bytes an element and its payload: 32, 29, 29, 34, 29, 33.
    assert_eq!(batch.view().cuts(10, 61), [2, 3, 4, 5, 6]);
    assert_eq!(batch.view().cuts(10, 63), [2, 4, 6]);
    assert_eq!(batch.view().slice(3, 6).cuts(10, 63), [2, 3], "of a part as of a batch");
}

#[test]
fn columns_take_elements_and_whole_batches() {
    let mut batch = Columns::default();
    assert!(batch.is_empty());
    batch.insert(1, 5, b"one");
    batch.stable(-3);
    batch.adjust(-2, 7, 9, b"");
    assert_eq!(elements(&batch.view()), some()[..3]);
    batch.extend(&columns(&some()).view().slice(3, 6));
    assert_eq!((batch.len(), batch.view().counts()), (6, [2, 2, 2]));
    assert_eq!(batch, columns(&some()));
    assert_eq!(batch.kinds, [INSERT, STABLE, ADJUST, INSERT, STABLE, ADJUST]);
}

#[test]
fn a_known_batch_is_read_as_a_decoded_one() {
    let batch = columns(&some());
    assert_eq!(elements(&View::known(&batch.raw())), some());
}
