//! Moments and days in UTC. They are rounded down, also before 1970.

use std::ops::RangeInclusive;

use super::values::{self, Frame, Value, checked_map, map};
use crate::Kind;

pub const DAY_US: i64 = 86_400_000_000;
const HOUR_US: i64 = 3_600_000_000;
/// The days of the years 1 to 9999, which have a text.
pub const DAYS: RangeInclusive<i64> = -719_162..=2_932_896;

pub fn truncated(frame: Frame<'_>, unit: i64) -> Value {
    let (values, errors) = checked_map(frame.len, frame.ints(0), |at| at.overflowing_sub(at.rem_euclid(unit)));
    frame.of_ints(&Kind::Timestamp, values, errors)
}

pub fn hour_of_day(frame: Frame<'_>) -> Value {
    let values = map(frame.len, frame.ints(0), |at| at.rem_euclid(DAY_US) / HOUR_US);
    frame.of_ints(&Kind::Int, values, None)
}

/// 1 for Monday. 1970-01-01 was a Thursday.
pub fn day_of_week(frame: Frame<'_>, of: &Kind) -> Value {
    let of_day = |day: i64| (day + 3).rem_euclid(7) + 1;
    let values = match of {
        Kind::Date => map(frame.len, frame.days(0), |day| of_day(i64::from(day))),
        _ => map(frame.len, frame.ints(0), |at| of_day(at.div_euclid(DAY_US))),
    };
    frame.of_ints(&Kind::Int, values, None)
}

pub fn date_of(frame: Frame<'_>) -> Value {
    let values = map(frame.len, frame.ints(0), day_of);
    let array = values::days(values, frame.nulls.clone());
    frame.value(array)
}

/// The day of a moment. Every moment's day has 32 bits.
pub fn day_of(at: i64) -> i32 {
    at.div_euclid(DAY_US) as i32
}

/// The number of a day since 1970. None if the calendar has no such day in the years 1 to 9999.
pub fn day_number(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=9999).contains(&year) || !(1..=last).contains(&day) {
        return None;
    }
    // Years from March on, so that the leap day is the last one.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    Some(days - 719_468)
}

/// Year, month and day of the number of a day; the reverse of `day_number`.
pub fn calendar_day(number: i64) -> (i64, i64, i64) {
    let days = number + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let year = year_of_era + era * 400;
    if month < 10 {
        (year, month + 3, day)
    } else {
        (year + 1, month - 9, day)
    }
}
