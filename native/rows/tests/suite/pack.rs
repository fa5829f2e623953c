//! MessagePack: the smallest forms, and back.

use lmerge_rows::pack::{self, Reader};

fn packed(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

#[test]
fn an_int_takes_its_smallest_form() {
    let cases: [(i64, &[u8]); 22] = [
        (0, &[0]),
        (127, &[0x7f]),
        (128, &[0xcc, 0x80]),
        (255, &[0xcc, 0xff]),
        (256, &[0xcd, 1, 0]),
        (65_535, &[0xcd, 0xff, 0xff]),
        (65_536, &[0xce, 0, 1, 0, 0]),
        (0xffff_ffff, &[0xce, 0xff, 0xff, 0xff, 0xff]),
        (0x1_0000_0000, &[0xcf, 0, 0, 0, 1, 0, 0, 0, 0]),
        (i64::MAX, &[0xcf, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        (-1, &[0xff]),
        (-32, &[0xe0]),
        (-33, &[0xd0, 0xdf]),
        (-128, &[0xd0, 0x80]),
        (-129, &[0xd1, 0xff, 0x7f]),
        (-32_768, &[0xd1, 0x80, 0]),
        (-32_769, &[0xd2, 0xff, 0xff, 0x7f, 0xff]),
        (-0x8000_0000, &[0xd2, 0x80, 0, 0, 0]),
        (-0x8000_0001, &[0xd3, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]),
        (i64::MIN, &[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        (1, &[1]),
        (-2, &[0xfe]),
    ];
    for (value, bytes) in cases {
        assert_eq!(packed(|out| pack::int(out, value)), bytes, "{value}");
        assert_eq!(Reader(bytes).int(), Some(value));
    }
}

#[test]
fn heads_grow_with_what_follows() {
    for (len, head) in [
        (0, &[0xa0][..]),
        (31, &[0xbf]),
        (32, &[0xd9, 32]),
        (255, &[0xd9, 255]),
        (256, &[0xda, 1, 0]),
        (65_535, &[0xda, 255, 255]),
        (65_536, &[0xdb, 0, 1, 0, 0]),
    ] {
        let text = "x".repeat(len);
        let out = packed(|out| pack::string(out, text.as_bytes()).expect("it is small"));
        assert_eq!(&out[..out.len() - len], head);
        assert_eq!(Reader(&out).string(), Some(text.as_str()));
    }
    for (len, head) in [
        (0, &[0xc4, 0][..]),
        (255, &[0xc4, 255]),
        (256, &[0xc5, 1, 0]),
        (65_535, &[0xc5, 255, 255]),
        (65_536, &[0xc6, 0, 1, 0, 0]),
    ] {
        let bytes = vec![0xff; len];
        let out = packed(|out| pack::bytes(out, &bytes).expect("it is small"));
        assert_eq!(&out[..out.len() - len], head);
        assert_eq!(Reader(&out).bytes(), Some(bytes.as_slice()));
    }
    for (len, head) in [
        (0, &[0x90][..]),
        (15, &[0x9f]),
        (16, &[0xdc, 0, 16]),
        (65_535, &[0xdc, 255, 255]),
        (65_536, &[0xdd, 0, 1, 0, 0]),
    ] {
        assert_eq!(packed(|out| pack::array(out, len).expect("it is small")), head);
        assert_eq!(Reader(head).array(), Some(len));
    }
}

#[test]
fn floats_have_64_bits() {
    let out = packed(|out| pack::float(out, 1.5));
    assert_eq!(out, [0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Reader(&out).float(), Some(1.5));
    assert_eq!(
        Reader(&[0xca, 0x3f, 0xc0, 0, 0]).float(),
        None,
        "32 bits are left to Python"
    );
}

#[test]
fn a_reader_takes_nothing_that_is_cut_or_of_another_kind() {
    for bytes in [
        &[][..],
        &[0xcd, 1],
        &[0xcf, 0xff, 0, 0, 0, 0, 0, 0, 0],
        &[0xa1, b'x'],
        &[0xc0],
    ] {
        assert_eq!(Reader(bytes).int(), None);
    }
    for bytes in [&[][..], &[0xa2, b'x'], &[0xd9], &[0xa1, 0xff], &[0xc4, 0], &[1]] {
        assert_eq!(Reader(bytes).string(), None);
    }
    assert_eq!(Reader(&[0xc4, 2, 1]).bytes(), None);
    assert_eq!(Reader(&[0x80]).array(), None);
    assert_eq!(Reader(&[0xc1]).bool(), None);
    assert_eq!(Reader(&[0xc2]).bool(), Some(false));
    assert_eq!(Reader(&[0xc3]).bool(), Some(true));
}
