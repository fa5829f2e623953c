//! Casts: the twin of `conversions.py`. A conversion is None for a value that the target does not have.

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::BooleanArray;
use arrow_array::builder::StringBuilder;
use arrow_buffer::{BooleanBuffer, NullBuffer};
use lmerge_rows::decimal;
use lmerge_rows::schema::DECIMAL_DIGITS_MAX;

use super::arithmetic::one_nan;
use super::decimals::{self, Scaled};
use super::times::{self, DAY_US, DAYS};
use super::values::{self, Errors, Frame, Value, map};
use crate::Kind;

/// `is_strict`: a value that the target does not have is an error, else NULL.
pub fn cast(frame: Frame<'_>, source: &Kind, target: &Kind, is_strict: bool) -> Value {
    match (source, target) {
        (Kind::Int | Kind::Float(_) | Kind::Decimal(_), Kind::Float(digits)) => to_float(frame, source, *digits),
        (Kind::Int | Kind::Float(_) | Kind::Decimal(_), Kind::Decimal(scale)) => {
            to_decimal(frame, source, *scale, is_strict)
        }
        (Kind::String, Kind::Bool) => to_bool(frame, is_strict),
        (Kind::String, Kind::Float(digits)) => {
            let texts = frame.texts(0);
            let (values, failed) = tried(&frame, |row| float_of_text(texts.get(row), *digits));
            let (frame, errors) = failing(frame, failed, is_strict);
            let array = Arc::new(arrow_array::Float64Array::new(values.into(), frame.nulls.clone()));
            frame.value_or(array, errors)
        }
        (Kind::String, Kind::Decimal(scale)) => {
            let texts = frame.texts(0);
            let (values, failed) = tried(&frame, |row| decimal_of_text(texts.get(row), *scale));
            let (frame, errors) = failing(frame, failed, is_strict);
            frame.of_decimals(*scale, values, errors)
        }
        (Kind::String, Kind::Date) => {
            let texts = frame.texts(0);
            let (values, failed) = tried(&frame, |row| day_of_text(texts.get(row)));
            let (frame, errors) = failing(frame, failed, is_strict);
            let array = values::days(values, frame.nulls.clone());
            frame.value_or(array, errors)
        }
        (_, Kind::String) if source != target => to_text(frame, source, is_strict),
        (Kind::Timestamp, Kind::Date) => times::date_of(frame),
        (Kind::Int, Kind::Timestamp) | (Kind::Timestamp, Kind::Int) => {
            let values = map(frame.len, frame.ints(0), |value| value);
            frame.of_ints(target, values, None)
        }
        _ if std::mem::discriminant(source) == std::mem::discriminant(target) => frame.same(),
        _ => to_int(frame, source, target, is_strict),
    }
}

fn to_float(frame: Frame<'_>, source: &Kind, digits: Option<i32>) -> Value {
    let rounded = |value: f64| match digits {
        Some(digits) => lmerge_rows::round::round(value, digits) + 0.0,
        None => value,
    };
    let values = match *source {
        Kind::Int => map(frame.len, frame.ints(0), |value| rounded(value as f64)),
        Kind::Decimal(scale) => map(frame.len, frame.decimals(0), |value| {
            rounded(decimals::to_float(value, scale))
        }),
        _ => map(frame.len, frame.floats(0), |value| one_nan(rounded(value))),
    };
    frame.of_floats(values)
}

fn to_decimal(frame: Frame<'_>, source: &Kind, scale: u8, is_strict: bool) -> Value {
    let (values, failed) = match *source {
        Kind::Int => {
            let ints = frame.ints(0);
            tried(&frame, |row| {
                decimals::shifted(i128::from(ints.get(row)), i32::from(scale))
            })
        }
        Kind::Decimal(from) => {
            let (cells, shift) = (frame.decimals(0), i32::from(scale) - i32::from(from));
            tried(&frame, |row| decimals::shifted(cells.get(row), shift))
        }
        _ => {
            let floats = frame.floats(0);
            let of = |value: f64| value.is_finite().then(|| decimals::of_float(value, scale)).flatten();
            tried(&frame, |row| of(floats.get(row)))
        }
    };
    let (frame, errors) = failing(frame, failed, is_strict);
    frame.of_decimals(scale, values, errors)
}

/// Ints, and moments of days.
fn to_int(frame: Frame<'_>, source: &Kind, target: &Kind, is_strict: bool) -> Value {
    let (values, failed) = match *source {
        Kind::Bool => {
            let truth = frame.truth(0);
            tried(&frame, |row| Some(i64::from(truth(row))))
        }
        Kind::Float(_) => {
            let floats = frame.floats(0);
            tried(&frame, |row| int_of_float(floats.get(row)))
        }
        Kind::Decimal(scale) => {
            let (cells, unit) = (frame.decimals(0), 10_i128.pow(u32::from(scale)));
            tried(&frame, |row| i64::try_from(cells.get(row) / unit).ok())
        }
        Kind::Date => {
            let days = frame.days(0);
            tried(&frame, |row| i64::from(days.get(row)).checked_mul(DAY_US))
        }
        _ => {
            let texts = frame.texts(0);
            let read = if *target == Kind::Timestamp {
                moment_of_text
            } else {
                int_of_text
            };
            tried(&frame, |row| read(texts.get(row)))
        }
    };
    let (frame, errors) = failing(frame, failed, is_strict);
    frame.of_ints(target, values, errors)
}

fn to_bool(frame: Frame<'_>, is_strict: bool) -> Value {
    let texts = frame.texts(0);
    let (values, failed) = tried(&frame, |row| match texts.get(row) {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    });
    let (frame, errors) = failing(frame, failed, is_strict);
    let array = Arc::new(BooleanArray::new(values.into(), frame.nulls.clone()));
    frame.value_or(array, errors)
}

fn to_text(frame: Frame<'_>, source: &Kind, is_strict: bool) -> Value {
    let mut texts = StringBuilder::with_capacity(frame.len, 8 * frame.len);
    let mut failed = Vec::new();
    let mut write = |row: usize, write: &dyn Fn(&mut StringBuilder) -> bool| {
        if !frame.is_valid(row) {
            return texts.append_null();
        }
        if !write(&mut texts) {
            failed.push(row);
        }
        texts.append_value("");
    };
    match *source {
        Kind::Bool => {
            let truth = frame.truth(0);
            (0..frame.len).for_each(|row| write(row, &|out| put(out, format_args!("{}", truth(row)))));
        }
        Kind::Int => {
            let ints = frame.ints(0);
            (0..frame.len).for_each(|row| write(row, &|out| put(out, format_args!("{}", ints.get(row)))));
        }
        Kind::Float(_) => {
            let floats = frame.floats(0);
            (0..frame.len).for_each(|row| write(row, &|out| put_float(out, floats.get(row))));
        }
        Kind::Decimal(scale) => {
            let cells = frame.decimals(0);
            (0..frame.len).for_each(|row| {
                write(row, &|out| {
                    let mut buffer = decimal::buffer();
                    let text = decimal::text(cells.get(row), scale, &mut buffer);
                    put(out, format_args!("{}", str::from_utf8(text).expect("digits are ASCII")))
                });
            });
        }
        Kind::Date => {
            let days = frame.days(0);
            (0..frame.len).for_each(|row| write(row, &|out| put_day(out, i64::from(days.get(row)))));
        }
        _ => {
            let moments = frame.ints(0);
            (0..frame.len).for_each(|row| write(row, &|out| put_moment(out, moments.get(row))));
        }
    }
    let texts = texts.finish();
    let failed = (!failed.is_empty()).then(|| {
        let mut bits = vec![false; frame.len];
        failed.iter().for_each(|&row| bits[row] = true);
        BooleanBuffer::from(bits)
    });
    let (frame, errors) = failing(frame, failed, is_strict);
    let (offsets, values, _) = texts.into_parts();
    let array = Arc::new(arrow_array::StringArray::new(offsets, values, frame.nulls.clone()));
    frame.value_or(array, errors)
}

/// The values of a conversion for all rows that are not NULL, and the rows for which it has none.
fn tried<T: Clone + Default>(frame: &Frame<'_>, convert: impl Fn(usize) -> Option<T>) -> (Vec<T>, Errors) {
    let mut failed: Option<Vec<bool>> = None;
    let values = (0..frame.len).map(|row| {
        if !frame.is_valid(row) {
            return T::default();
        }
        convert(row).unwrap_or_else(|| {
            failed.get_or_insert_with(|| vec![false; frame.len])[row] = true;
            T::default()
        })
    });
    let values = values.collect();
    (values, failed.map(BooleanBuffer::from))
}

/// What a conversion that has failed for rows makes of them: errors, or NULL.
fn failing(mut frame: Frame<'_>, failed: Errors, is_strict: bool) -> (Frame<'_>, Errors) {
    match failed {
        Some(failed) if !is_strict => {
            frame.nulls = NullBuffer::union(frame.nulls.as_ref(), Some(&NullBuffer::new(!&failed)));
            (frame, None)
        }
        failed => (frame, failed),
    }
}

/// Cut at the point.
fn int_of_float(value: f64) -> Option<i64> {
    const END: f64 = 9_223_372_036_854_775_808.0;
    (-END..END).contains(&value).then_some(value as i64)
}

fn int_of_text(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = text.len() <= 64 && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

fn float_of_text(text: &str, digits: Option<i32>) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let value = match (text, unsigned) {
        ("nan", _) => f64::NAN,
        (_, "inf") => text.parse().ok()?,
        _ => {
            let (number, exponent) = match unsigned.find(['e', 'E']) {
                Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
                None => (unsigned, None),
            };
            let exponent = exponent.map(|text| text.strip_prefix(['+', '-']).unwrap_or(text));
            let is_number = is_decimal(number)
                && exponent.is_none_or(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
            is_number.then(|| text.parse().ok()).flatten()?
        }
    };
    Some(match digits {
        Some(digits) => lmerge_rows::round::round(value, digits) + 0.0,
        None => value + 0.0,
    })
}

/// Whether text is digits with at most one point, before, between or behind them.
fn is_decimal(text: &str) -> bool {
    let (whole, after) = text.split_once('.').unwrap_or((text, ""));
    let mut digits = whole.bytes().chain(after.bytes());
    whole.len() + after.len() > 0 && digits.all(|byte| byte.is_ascii_digit())
}

fn decimal_of_text(text: &str, scale: u8) -> Option<Scaled> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if text.len() > 4 * usize::from(DECIMAL_DIGITS_MAX) || !is_decimal(unsigned) {
        return None;
    }
    let (whole, after) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let (kept, rest) = after.split_at(after.len().min(usize::from(scale)));
    let mut value: Scaled = 0;
    for byte in whole.bytes().chain(kept.bytes()) {
        value = value.checked_mul(10)?.checked_add(i128::from(byte - b'0'))?;
    }
    let missing = usize::from(scale) - kept.len();
    value = value.checked_mul(10_i128.pow(missing as u32))?;
    let is_half = rest.starts_with('5') && rest[1..].bytes().all(|byte| byte == b'0');
    let up = if is_half {
        value & 1 == 1
    } else {
        rest.bytes().next().is_some_and(|byte| byte >= b'5')
    };
    let rounded = decimals::within_digits(value + i128::from(up))?;
    Some(if text.starts_with('-') { -rounded } else { rounded })
}

/// The digits at `at`, as a number.
fn number(text: &[u8], at: std::ops::Range<usize>) -> Option<i64> {
    let digits = text.get(at)?;
    digits.iter().try_fold(0, |number, byte| {
        byte.is_ascii_digit().then(|| 10 * number + i64::from(byte - b'0'))
    })
}

/// The day of `2013-01-31`.
fn day_of_text(text: &str) -> Option<i32> {
    let text = text.as_bytes();
    if text.len() != 10 || text[4] != b'-' || text[7] != b'-' {
        return None;
    }
    let day = times::day_number(number(text, 0..4)?, number(text, 5..7)?, number(text, 8..10)?)?;
    Some(day as i32)
}

/// The moment of `2013-01-31T10:00:00.5Z`; the seconds may be missing, and `+01:00` may stand for `Z`.
fn moment_of_text(text: &str) -> Option<i64> {
    let day = i64::from(day_of_text(text.get(..10)?)?);
    let mut rest = &text.as_bytes()[10..];
    if !matches!(rest.first()?, b'T' | b' ') || *rest.get(3)? != b':' {
        return None;
    }
    let (hour, minute) = (number(rest, 1..3)?, number(rest, 4..6)?);
    rest = &rest[6..];
    let (mut second, mut fraction) = (0, 0);
    if rest.first()? == &b':' {
        second = number(rest, 1..3)?;
        rest = &rest[3..];
        if rest.first()? == &b'.' {
            let digits = rest[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if !(1..=6).contains(&digits) {
                return None;
            }
            fraction = number(rest, 1..1 + digits)? * 10_i64.pow(6 - digits as u32);
            rest = &rest[1 + digits..];
        }
    }
    let offset = match rest {
        b"Z" => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let minutes = 60 * number(rest, 1..3)? + number(rest, 4..6)?;
            if *sign == b'-' { -minutes } else { minutes }
        }
        _ => return None,
    };
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some(day * DAY_US + ((hour * 60 + minute - offset) * 60 + second) * 1_000_000 + fraction)
}

fn put(out: &mut StringBuilder, text: std::fmt::Arguments<'_>) -> bool {
    out.write_fmt(text).is_ok()
}

/// A day as `2013-01-31`; false outside the years 1 to 9999.
fn put_day(out: &mut StringBuilder, number: i64) -> bool {
    let (year, month, day) = times::calendar_day(number);
    DAYS.contains(&number) && put(out, format_args!("{year:04}-{month:02}-{day:02}"))
}

/// A moment as `2013-01-31T10:00:00Z`, with six digits behind the seconds if they are not zero.
fn put_moment(out: &mut StringBuilder, at: i64) -> bool {
    let second = at.rem_euclid(DAY_US) / 1_000_000;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    if !put_day(out, at.div_euclid(DAY_US)) {
        return false;
    }
    let is_put = put(out, format_args!("T{hour:02}:{minute:02}:{second:02}"));
    is_put
        && match at.rem_euclid(1_000_000) {
            0 => put(out, format_args!("Z")),
            fraction => put(out, format_args!(".{fraction:06}Z")),
        }
}

/// A float as Python's `repr` has it: the shortest digits that give it back.
fn put_float(out: &mut StringBuilder, value: f64) -> bool {
    if !value.is_finite() {
        let text = if value.is_nan() { "nan" } else { "inf" };
        return put(
            out,
            format_args!("{}{text}", if value == f64::NEG_INFINITY { "-" } else { "" }),
        );
    }
    let shortest = format!("{value:e}");
    let (mantissa, exponent) = shortest.split_once('e').expect("the form of an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent");
    if (-4..16).contains(&exponent) {
        return put(out, format_args!("{value:?}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    put(out, format_args!("{mantissa}e{sign}{:02}", exponent.abs()))
}
