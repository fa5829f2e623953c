//! Decimals: their canonical text, and conversions between scales without losing a digit.

use arrow_buffer::i256;
use lmerge_rows::decimal::{Rescale, buffer, parse, text};

const LARGEST: i128 = 10_i128.pow(38) - 1;

#[test]
fn the_text_has_exactly_the_digits_of_its_scale() {
    for (unscaled, scale, expected) in [
        (0, 0, "0"),
        (0, 2, "0.00"),
        (5, 2, "0.05"),
        (-5, 2, "-0.05"),
        (150, 2, "1.50"),
        (-12_345, 0, "-12345"),
        (1, 38, "0.00000000000000000000000000000000000001"),
        (LARGEST, 0, "99999999999999999999999999999999999999"),
        (-LARGEST, 38, "-0.99999999999999999999999999999999999999"),
        (LARGEST, 37, "9.9999999999999999999999999999999999999"),
        (i128::from(u64::MAX) + 1, 1, "1844674407370955161.6"),
    ] {
        let mut buffer = buffer();
        let written = str::from_utf8(text(unscaled, scale, &mut buffer)).expect("digits");
        assert_eq!(written, expected);
        assert_eq!(parse(expected, scale), Some(unscaled));
    }
}

#[test]
fn text_that_is_not_canonical_is_refused() {
    for refused in [
        "", "-", ".", "1", "1.5", "1.500", "01.50", "00.50", "+1.50", " 1.50", "1.50 ", "-0.00", ".50", "1,50", "1.5x",
        "--1.50", "1_0.00", "é.50", "1e2.50",
    ] {
        assert_eq!(parse(refused, 2), None, "{refused}");
    }
    assert_eq!(parse("100000000000000000000000000000000000000", 0), None, "39 digits");
    assert_eq!(parse("9999999999999999999999999999999999999999", 0), None, "40 digits");
    assert_eq!(parse("1.0", 0), None);
}

#[test]
fn no_digit_is_dropped_and_none_too_many_are_made() {
    assert_eq!(Rescale::new(2, 2).narrow(150), Some(150));
    assert_eq!(Rescale::new(2, 4).narrow(150), Some(15_000));
    assert_eq!(Rescale::new(2, 1).narrow(150), Some(15));
    assert_eq!(Rescale::new(2, 1).narrow(155), None);
    assert_eq!(Rescale::new(-3, 1).narrow(7), Some(70_000));
    assert_eq!(Rescale::new(0, 1).narrow(LARGEST), None);
    assert_eq!(Rescale::new(0, 0).narrow(LARGEST), Some(LARGEST));
    assert_eq!(Rescale::new(0, 0).narrow(LARGEST + 1), None);
    assert_eq!(Rescale::new(0, 0).narrow(-LARGEST - 1), None);
    assert_eq!(Rescale::new(-76, 38).narrow(0), Some(0));
    assert_eq!(Rescale::new(-76, 38).narrow(1), None);
    assert_eq!(Rescale::new(76, 0).narrow(i128::MAX), None);
}

#[test]
fn wide_decimals_come_in_where_they_fit() {
    let large = i256::from_i128(LARGEST)
        .checked_mul(i256::from_i128(10_i128.pow(20)))
        .expect("it fits");
    assert_eq!(Rescale::new(30, 10).wide(large), Some(LARGEST));
    assert_eq!(Rescale::new(30, 11).wide(large), None, "39 digits");
    assert_eq!(Rescale::new(30, 9).wide(large), None, "a digit would go");
    assert_eq!(Rescale::new(0, 0).wide(large), None);
    assert_eq!(Rescale::new(2, 2).wide(i256::from_i128(-150)), Some(-150));
}
