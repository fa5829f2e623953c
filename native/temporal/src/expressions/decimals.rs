//! Whole numbers of 10^-scale: rounding half to even, without an intermediate result that is not exact.

use arrow_buffer::i256;
use lmerge_rows::schema::DECIMAL_DIGITS_MAX;

/// A decimal as a number of units of its last digit.
pub type Scaled = i128;

/// A decimal is below this, in units of its last digit.
pub const BOUND: Scaled = 10_i128.pow(DECIMAL_DIGITS_MAX as u32);

/// The number, unless it has more than 38 digits.
#[inline]
pub fn within_digits(value: Scaled) -> Option<Scaled> {
    (-BOUND < value && value < BOUND).then_some(value)
}

/// `value` * 10^shift, rounded half to even. None beyond 38 digits.
pub fn shifted(value: Scaled, shift: i32) -> Option<Scaled> {
    if value == 0 {
        return Some(0);
    }
    let power = 10_i128.checked_pow(shift.unsigned_abs());
    if shift >= 0 {
        return value.checked_mul(power?).and_then(within_digits);
    }
    // 10^39 is more than twice any decimal.
    Some(power.map_or(0, |power| half_even(value, power)))
}

/// `value` / `unit`, rounded half to even. `unit`: positive, at most 10^38.
pub fn half_even(value: Scaled, unit: i128) -> Scaled {
    let (whole, rest) = (value.div_euclid(unit), value.rem_euclid(unit));
    let up = rest > unit - rest || (rest == unit - rest && whole & 1 != 0);
    whole + i128::from(up)
}

/// A finite float * 10^digits, rounded half to even by its exact value. `digits`: from -38 to 38. None if the float is
/// so large that it is whole in these units, or the result is beyond 10^38 by far.
///
/// A float is mantissa * 2^exponent. The mantissa with a power of ten has at most 180 bits.
pub fn scaled_float(value: f64, digits: i32) -> Option<i256> {
    let bits = value.to_bits();
    let biased = (bits >> 52 & 0x7ff) as i32;
    let fraction = (bits & ((1 << 52) - 1)) as i128;
    let mantissa = if biased == 0 { fraction } else { fraction | 1 << 52 };
    let exponent = biased.max(1) - 1075;
    let ten = i256::from_i128(10_i128.pow(digits.unsigned_abs()));
    let (mut above, mut below) = (i256::from_i128(mantissa), i256::ONE);
    if digits >= 0 {
        above = above.wrapping_mul(ten);
    } else {
        below = ten;
    }
    match exponent {
        0..=74 => above = above << exponent as u8,
        75..=130 if digits < 0 => above = above << exponent as u8,
        75.. => return None,
        -70..0 => below = below << -exponent as u8,
        // What is below 2^-70 of the mantissa counts only with a power of ten before it.
        _ if digits >= 0 && exponent >= -200 => below = below << -exponent as u8,
        _ => return Some(i256::ZERO),
    }
    let (whole, rest) = (above.wrapping_div(below), above.wrapping_rem(below));
    let other = below.wrapping_sub(rest);
    let is_odd = whole & i256::ONE != i256::ZERO;
    let up = rest > other || (rest == other && is_odd);
    let rounded = if up { whole.wrapping_add(i256::ONE) } else { whole };
    Some(if value < 0.0 { rounded.wrapping_neg() } else { rounded })
}

/// A finite float as a decimal, rounded half to even. None beyond 38 digits.
pub fn of_float(value: f64, scale: u8) -> Option<Scaled> {
    scaled_float(value, i32::from(scale))?.to_i128().and_then(within_digits)
}

/// The float nearest to a decimal.
pub fn to_float(value: Scaled, scale: u8) -> f64 {
    const EXACT: i128 = 1 << 53;
    if scale <= 22 && (-EXACT..=EXACT).contains(&value) {
        return value as f64 / 10_f64.powi(i32::from(scale)); // both are exact, so the division rounds once
    }
    format!("{value}e-{scale}").parse().expect("digits are a number")
}

/// The order of two decimals of any scales.
pub fn ordered(one: Scaled, one_scale: u8, other: Scaled, other_scale: u8) -> std::cmp::Ordering {
    if one_scale == other_scale {
        return one.cmp(&other);
    }
    let scale = one_scale.max(other_scale);
    let wide =
        |value, from: u8| i256::from_i128(value).wrapping_mul(i256::from_i128(10_i128.pow(u32::from(scale - from))));
    wide(one, one_scale).cmp(&wide(other, other_scale))
}
