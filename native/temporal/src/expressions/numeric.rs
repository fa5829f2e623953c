//! Functions of numbers. Those of floats give what IEEE 754 defines.

use super::arithmetic::one_nan;
use super::decimals;
use super::values::{Frame, Value, checked_map, map, zip};
use crate::Kind;

pub fn absolute(frame: Frame<'_>, result: &Kind) -> Value {
    match *result {
        Kind::Float(_) => {
            let values = map(frame.len, frame.floats(0), |a| one_nan(a.abs()));
            frame.of_floats(values)
        }
        Kind::Decimal(scale) => {
            let values = map(frame.len, frame.decimals(0), i128::wrapping_abs);
            frame.of_decimals(scale, values, None)
        }
        _ => {
            let (values, errors) = checked_map(frame.len, frame.ints(0), i64::overflowing_abs);
            frame.of_ints(result, values, errors)
        }
    }
}

/// -1, 0 or 1; NaN of NaN.
pub fn sign(frame: Frame<'_>, result: &Kind) -> Value {
    match result {
        Kind::Float(_) => {
            let values = map(frame.len, frame.floats(0), |a| match a {
                _ if a > 0.0 => 1.0,
                _ if a < 0.0 => -1.0,
                _ => one_nan(a),
            });
            frame.of_floats(values)
        }
        Kind::Decimal(scale) => {
            let values = map(frame.len, frame.decimals(0), i128::signum);
            frame.of_decimals(*scale, values, None)
        }
        _ => {
            let values = map(frame.len, frame.ints(0), i64::signum);
            frame.of_ints(result, values, None)
        }
    }
}

pub fn to_whole(frame: Frame<'_>, of: &Kind, is_floor: bool) -> Value {
    match *of {
        Kind::Float(_) => {
            let whole = |a: f64| if is_floor { a.floor() } else { a.ceil() } + 0.0;
            let values = map(frame.len, frame.floats(0), |a| one_nan(whole(a)));
            frame.of_floats(values)
        }
        Kind::Decimal(scale) => {
            let unit = 10_i128.pow(u32::from(scale));
            let values = map(frame.len, frame.decimals(0), |a: i128| {
                a.div_euclid(unit) + i128::from(!is_floor && a.rem_euclid(unit) != 0)
            });
            frame.of_decimals(0, values, None)
        }
        _ => frame.same(),
    }
}

/// Rounded half to even, by the exact value, to `digits` behind the point.
pub fn rounded(frame: Frame<'_>, of: &Kind, digits: i32) -> Value {
    match *of {
        Kind::Float(_) => {
            let values = map(frame.len, frame.floats(0), |a| rounded_float(a, digits));
            frame.of_floats(values)
        }
        Kind::Decimal(scale) if digits < i32::from(scale) => {
            let (cut, back) = (digits - i32::from(scale), (-digits).max(0));
            let (values, errors) = checked_map(frame.len, frame.decimals(0), |a| {
                let whole = decimals::shifted(a, cut).and_then(|whole| decimals::shifted(whole, back));
                (whole.unwrap_or(0), whole.is_none())
            });
            frame.of_decimals(digits.max(0) as u8, values, errors)
        }
        Kind::Int if digits < 0 => {
            let unit = 10_i128.pow(digits.unsigned_abs());
            let (values, errors) = checked_map(frame.len, frame.ints(0), |a| {
                let rounded = decimals::half_even(i128::from(a), unit).checked_mul(unit);
                let narrow = rounded.and_then(|rounded| i64::try_from(rounded).ok());
                (narrow.unwrap_or(0), narrow.is_none())
            });
            frame.of_ints(of, values, errors)
        }
        _ => frame.same(),
    }
}

/// As Python's `round`, without -0.0.
fn rounded_float(value: f64, digits: i32) -> f64 {
    if !value.is_finite() {
        return one_nan(value);
    }
    if digits.abs() <= lmerge_rows::schema::ROUND_DIGITS_MAX {
        return lmerge_rows::round::round(value, digits) + 0.0;
    }
    if digits >= 0 && value == value.trunc() {
        return value;
    }
    match decimals::scaled_float(value, digits) {
        Some(whole) => {
            format!("{whole}e{}", -digits)
                .parse::<f64>()
                .expect("digits are a number")
                + 0.0
        }
        None => value,
    }
}

pub fn of_float(frame: Frame<'_>, function: impl Fn(f64) -> f64) -> Value {
    let values = map(frame.len, frame.floats(0), |a| one_nan(function(a) + 0.0));
    frame.of_floats(values)
}

pub fn power(frame: Frame<'_>) -> Value {
    let values = zip(frame.len, frame.floats(0), frame.floats(1), |a, b| {
        one_nan(a.powf(b) + 0.0)
    });
    frame.of_floats(values)
}
