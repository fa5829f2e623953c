//! Rounds floats to decimal digits exactly like Python's `round(value, digits)`.

use crate::schema::ROUND_DIGITS_MAX;

const POWERS: [f64; ROUND_DIGITS_MAX as usize + 1] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];
const SIGNIFICANT_BITS: u32 = 53;

/// The float nearest to the multiple of 10^-digits that is nearest to the exact `value`. Of two equally near multiples,
/// the one with an even last digit is taken.
///
/// Python writes the exact value in decimal and reads it back. Here the same is done in integers: a float is
/// mantissa * 2^exponent, and both it and the power of ten fit into 128 bits.
///
/// # Panics
/// If the absolute value of `digits` is more than ROUND_DIGITS_MAX.
pub fn round(value: f64, digits: i32) -> f64 {
    assert!(digits.abs() <= ROUND_DIGITS_MAX, "rounding to {digits} digits");
    if !value.is_finite() {
        return value;
    }
    let bits = value.to_bits();
    let biased = (bits >> 52 & 0x7ff) as i32;
    let fraction = bits & ((1 << 52) - 1);
    let mantissa = u128::from(if biased == 0 { fraction } else { fraction | 1 << 52 });
    let exponent = biased.max(1) - 1075;
    let rounded = if digits >= 0 {
        if exponent >= 0 {
            return value; // whole
        }
        after_point(mantissa, exponent.unsigned_abs(), digits as usize)
    } else {
        // The distance between such large floats is so large that the value itself is nearest to the multiple.
        if exponent > 73 {
            return value;
        }
        before_point(mantissa, exponent, digits.unsigned_abs())
    };
    rounded.copysign(value)
}

/// mantissa / 2^shift, rounded to `digits` after the point.
fn after_point(mantissa: u128, shift: u32, digits: usize) -> f64 {
    let scaled = mantissa * 10_u128.pow(digits as u32); // below 2^103
    if shift >= 105 {
        return 0.0;
    }
    let (whole, rest, half) = (scaled >> shift, scaled & ((1 << shift) - 1), 1 << (shift - 1));
    let whole = whole + u128::from(rest > half || (rest == half && whole & 1 == 1));
    if whole < 1 << SIGNIFICANT_BITS {
        return whole as f64 / POWERS[digits]; // both are exact, so the division rounds once
    }
    format!("{whole}e-{digits}").parse().expect("digits are a number")
}

/// mantissa * 2^exponent, rounded to tens of the power `digits`.
fn before_point(mantissa: u128, exponent: i32, digits: u32) -> f64 {
    let ten = 10_u128.pow(digits); // below 2^50
    let (above, below) = match exponent {
        0.. => (mantissa << exponent, ten),
        -62.. => (mantissa, ten << -exponent),
        _ => return 0.0, // less than one
    };
    let (whole, rest) = (above / below, above % below);
    let up = rest > below - rest || (rest == below - rest && whole & 1 == 1);
    ((whole + u128::from(up)) * ten) as f64
}
