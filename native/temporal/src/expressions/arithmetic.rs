//! `+ - * / // %` and unary `-`: ints of 64 bits, floats as IEEE 754 has them with one NaN and no -0.0, and decimals of
//! 38 digits.

use super::decimals::{self, Scaled};
use super::values::{Cells, Errors, Frame, Value, checked_map, checked_zip, map, zip};
use crate::Kind;

pub fn added(frame: Frame<'_>, result: &Kind) -> Value {
    match *result {
        Kind::Float(_) => of_floats(frame, |a, b| one_nan(a + b)),
        Kind::Decimal(scale) => of_decimals(frame, scale, |a, b| a.checked_add(b)),
        _ => of_ints(frame, result, |a, b| {
            let sum = a.wrapping_add(b);
            (sum, (a ^ sum) & (b ^ sum) < 0)
        }),
    }
}

/// Numbers, or moments or days, whose difference is an int.
pub fn subtracted(frame: Frame<'_>, result: &Kind, of: &Kind) -> Value {
    match *result {
        Kind::Float(_) => of_floats(frame, |a, b| one_nan(a - b)),
        Kind::Decimal(scale) => of_decimals(frame, scale, |a, b| a.checked_sub(b)),
        _ if *of == Kind::Date => {
            let values = zip(frame.len, frame.days(0), frame.days(1), |a, b| {
                i64::from(a) - i64::from(b)
            });
            frame.of_ints(result, values, None)
        }
        _ => of_ints(frame, result, |a, b| {
            let difference = a.wrapping_sub(b);
            (difference, (a ^ b) & (a ^ difference) < 0)
        }),
    }
}

pub fn multiplied(frame: Frame<'_>, result: &Kind) -> Value {
    match *result {
        Kind::Float(_) => of_floats(frame, |a, b| one_nan(a * b + 0.0)),
        Kind::Decimal(scale) => of_decimals(frame, scale, |a, b| a.checked_mul(b)),
        _ => of_ints(frame, result, i64::overflowing_mul),
    }
}

/// Floats; by zero NULL.
pub fn divided(mut frame: Frame<'_>) -> Value {
    let divisors = frame.floats(1);
    frame.present_where(|row| divisors.get(row) != 0.0);
    of_floats(frame, |a, b| one_nan(a / b + 0.0))
}

/// The quotient rounded down; by zero NULL.
pub fn floor_divided(mut frame: Frame<'_>, result: &Kind) -> Value {
    match result {
        Kind::Float(_) => {
            let divisors = frame.floats(1);
            frame.present_where(|row| divisors.get(row) != 0.0);
            of_floats(frame, |a, b| one_nan(floor_of_floats(a, b) + 0.0))
        }
        Kind::Decimal(_) => {
            let divisors = frame.decimals(1);
            frame.present_where(|row| divisors.get(row) != 0);
            of_decimals(frame, 0, |a, b| (b != 0).then(|| floor_div(a, b)))
        }
        _ => {
            let divisors = frame.ints(1);
            frame.present_where(|row| divisors.get(row) != 0);
            of_ints(frame, result, |a, b| match b {
                0 => (0, false),
                -1 => (a.wrapping_neg(), a == i64::MIN),
                _ => (a.div_euclid(b) - i64::from(b < 0 && a.rem_euclid(b) != 0), false),
            })
        }
    }
}

/// What is left of a division rounded down: it has the sign of the divisor. By zero NULL.
pub fn modulo(mut frame: Frame<'_>, result: &Kind) -> Value {
    match *result {
        Kind::Float(_) => {
            let divisors = frame.floats(1);
            frame.present_where(|row| divisors.get(row) != 0.0);
            of_floats(frame, |a, b| one_nan(rest_of_floats(a, b) + 0.0))
        }
        Kind::Decimal(scale) => {
            let divisors = frame.decimals(1);
            frame.present_where(|row| divisors.get(row) != 0);
            of_decimals(frame, scale, |a, b| {
                (b != 0).then(|| a.wrapping_sub(b.wrapping_mul(floor_div(a, b))))
            })
        }
        _ => {
            let divisors = frame.ints(1);
            frame.present_where(|row| divisors.get(row) != 0);
            of_ints(frame, result, |a, b| {
                (if b == 0 { 0 } else { rest_of_ints(a, b) }, false)
            })
        }
    }
}

pub fn negated(frame: Frame<'_>, result: &Kind) -> Value {
    match *result {
        Kind::Float(_) => {
            let values = map(frame.len, frame.floats(0), |a| one_nan(0.0 - a));
            frame.of_floats(values)
        }
        Kind::Decimal(scale) => {
            let values = map(frame.len, frame.decimals(0), i128::wrapping_neg);
            frame.of_decimals(scale, values, None)
        }
        _ => {
            let (values, errors) = checked_map(frame.len, frame.ints(0), i64::overflowing_neg);
            frame.of_ints(result, values, errors)
        }
    }
}

/// A float with the one form of NaN.
#[inline(always)]
pub fn one_nan(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

/// `a % b` of Python.
fn rest_of_ints(a: i64, b: i64) -> i64 {
    let rest = a.wrapping_rem(b);
    if (rest ^ b) < 0 && rest != 0 { rest + b } else { rest }
}

/// `a // b` of Python.
fn floor_of_floats(a: f64, b: f64) -> f64 {
    let rest = a % b;
    let mut quotient = (a - rest) / b;
    if rest != 0.0 && (b < 0.0) != (rest < 0.0) {
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return 0.0;
    }
    let whole = quotient.floor();
    if quotient - whole > 0.5 { whole + 1.0 } else { whole }
}

/// `a % b` of Python.
fn rest_of_floats(a: f64, b: f64) -> f64 {
    let rest = a % b;
    if rest != 0.0 && (b < 0.0) != (rest < 0.0) {
        rest + b
    } else {
        rest
    }
}

fn floor_div(a: i128, b: i128) -> i128 {
    // A NULL can have any value below it, also one that has no opposite.
    let quotient = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) {
        quotient - 1
    } else {
        quotient
    }
}

#[inline]
fn of_ints(frame: Frame<'_>, result: &Kind, f: impl Fn(i64, i64) -> (i64, bool)) -> Value {
    let (values, errors) = checked_zip(frame.len, frame.ints(0), frame.ints(1), f);
    frame.of_ints(result, values, errors)
}

#[inline]
fn of_floats(frame: Frame<'_>, f: impl Fn(f64, f64) -> f64) -> Value {
    let values = zip(frame.len, frame.floats(0), frame.floats(1), f);
    frame.of_floats(values)
}

/// Decimals of one scale; a result beyond 38 digits is an error.
fn of_decimals(frame: Frame<'_>, scale: u8, f: impl Fn(i128, i128) -> Option<i128>) -> Value {
    let (left, right): (Cells<'_, i128>, Cells<'_, i128>) = (frame.decimals(0), frame.decimals(1));
    let (values, errors): (Vec<Scaled>, Errors) = checked_zip(frame.len, left, right, |a, b| {
        match f(a, b).and_then(decimals::within_digits) {
            Some(value) => (value, false),
            None => (0, true),
        }
    });
    frame.of_decimals(scale, values, errors)
}
