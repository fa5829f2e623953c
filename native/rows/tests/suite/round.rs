//! Rounding as Python rounds. The expected values were printed by CPython.

use lmerge_rows::round::round;

#[test]
fn what_is_exactly_between_goes_to_the_even_digit_and_what_only_looks_so_does_not() {
    for (value, digits, expected) in [
        (0.5, 0, 0.0),
        (1.5, 0, 2.0),
        (2.5, 0, 2.0),
        (0.125, 2, 0.12),
        (0.375, 2, 0.38),
        (2.675, 2, 2.67), // a little less
        (1.005, 2, 1.0),
        (0.15, 1, 0.1),
        (0.25, 1, 0.2),
        (0.35, 1, 0.3),
        (0.45, 1, 0.5),
        (1e-320, 15, 0.0),
        (5e-16, 15, 1e-15),
        (4.999e-16, 15, 0.0),
        (1.234_567_890_123_456_7, 15, 1.234_567_890_123_457),
        (5.0, -1, 0.0),
        (15.0, -1, 20.0),
        (25.0, -1, 20.0),
        (25.000_000_000_000_004, -1, 30.0),
        (-1_250.0, -2, -1_200.0),
        (-1_350.0, -2, -1_400.0),
        (0.9, -1, 0.0),
        (499_999_999_999_999.9, -15, 0.0),
        (5e14, -15, 0.0),
        (500_000_000_000_000.06, -15, 1e15),
        (1.797_693_134_862_315_7e308, -15, 1.797_693_134_862_315_7e308),
        (123_456_789_012_345_680.0, -3, 123_456_789_012_346_000.0),
        (9_007_199_254_740_993.0, 2, 9_007_199_254_740_992.0),
        (1_234_567_890_123.456_7, 4, 1_234_567_890_123.456_8),
        (123_456_789_012.345_67, 15, 123_456_789_012.345_67),
    ] {
        assert_eq!(round(value, digits), expected, "round({value}, {digits})");
        assert_eq!(round(-value, digits), -expected, "round(-{value}, {digits})");
    }
}

#[test]
fn what_has_no_digits_stays() {
    assert!(round(f64::NAN, 2).is_nan());
    assert_eq!(round(f64::INFINITY, -2), f64::INFINITY);
    assert_eq!(round(f64::NEG_INFINITY, 2), f64::NEG_INFINITY);
    assert!(round(-0.001, 2).is_sign_negative());
}

#[test]
fn it_is_what_writing_the_digits_and_reading_them_gives() {
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..20_000 {
        let digits = random.i32(0..=15);
        let value = match random.u8(0..4) {
            0 => f64::from_bits(random.u64(..)),
            1 => random.f64() * 1_000.0,
            2 => random.i64(-1_000_000..1_000_000) as f64 / 1_000.0,
            _ => random.i64(-1_000_000..1_000_000) as f64 / 1_024.0,
        };
        if value.is_finite() {
            let written: f64 = format!("{value:.*}", digits as usize).parse().expect("a number");
            assert_eq!(
                round(value, digits).to_bits(),
                written.to_bits(),
                "round({value:?}, {digits})"
            );
        }
    }
}
