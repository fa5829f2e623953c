//! Exact arithmetic: values as integers, and rationals that are rounded once. `lmerge/temporal/modules/exact.py`.

use num_bigint::{BigInt, BigUint, Sign};

use super::integer::Integer;
use crate::{Column, Kind};

/// Below it the product of a float and a power of ten is off by far less than a quarter.
const SAFE: f64 = (1_u64 << 49) as f64;
/// The bits to which a quotient is cut: more than a float has, and the last one is set if anything was cut off.
const QUOTIENT_BITS: i64 = 66;
const ROOT_BITS: i64 = 109;

/// What the integers of a column count: `up / down`; and how its values are such integers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    pub up: BigInt,
    pub down: BigInt,
    kind: ScaleKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScaleKind {
    Integers,
    PowersOfTwo,
    /// Floats that are rounded to digits.
    Digits,
}

/// A finite value as an integer of its column's unit, divided by `2^power`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scaled {
    pub count: Integer,
    pub power: u32,
}

impl Scale {
    /// The scale of a column of int, float or decimal.
    pub fn of(column: &Column) -> Scale {
        let ten = |digits: i32| BigInt::from(10).pow(digits.max(0) as u32);
        let (up, down, kind) = match column.kind {
            Kind::Decimal(scale) => (ten(0), ten(scale.into()), ScaleKind::Integers),
            Kind::Float(None) => (ten(0), ten(0), ScaleKind::PowersOfTwo),
            Kind::Float(Some(digits)) => (ten(-digits), ten(digits), ScaleKind::Digits),
            _ => (ten(0), ten(0), ScaleKind::Integers),
        };
        Scale { up, down, kind }
    }

    /// A finite float of the column.
    #[inline]
    pub fn of_float(&self, value: f64) -> Scaled {
        match self.kind {
            ScaleKind::Digits => Scaled {
                count: self.digits(value),
                power: 0,
            },
            _ => in_powers_of_two(value),
        }
    }

    /// The integer nearest to a float in the unit, half to even.
    fn digits(&self, value: f64) -> Integer {
        let float = |one: &BigInt| i64::try_from(one).map_or(f64::INFINITY, |one| one as f64);
        let product = value * float(&self.down) / float(&self.up);
        let nearest = if -SAFE < product && product < SAFE {
            product.round_ties_even()
        } else {
            0.0
        };
        if (product - nearest).abs() < 0.25 {
            return Integer::Small(nearest as i128);
        }
        let Scaled { count, power } = in_powers_of_two(value);
        Integer::from(rounded_quotient(
            &(count.big() * &self.down),
            &((BigInt::from(1) << power) * &self.up),
        ))
    }
}

/// A finite float as an odd integer (or 0) over a power of two, or as an integer.
#[inline]
fn in_powers_of_two(value: f64) -> Scaled {
    let bits = value.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i32;
    let fraction = (bits & ((1 << 52) - 1)) as i64;
    let (mantissa, exponent) = if exponent == 0 {
        (fraction, -1074)
    } else {
        (fraction | 1 << 52, exponent - 1075)
    };
    if mantissa == 0 {
        return Scaled {
            count: Integer::Small(0),
            power: 0,
        };
    }
    let twos = mantissa.trailing_zeros() as i32;
    let (mantissa, exponent) = (i128::from(mantissa >> twos), exponent + twos);
    let count = Integer::Small(if value < 0.0 { -mantissa } else { mantissa });
    if exponent > 0 {
        return Scaled {
            count: count.shifted_left(exponent as u32),
            power: 0,
        };
    }
    Scaled {
        count,
        power: (-exponent) as u32,
    }
}

/// The integer nearest to `up / down`, half to even; `down` is above 0.
fn rounded_quotient(up: &BigInt, down: &BigInt) -> BigInt {
    let rest = ((up % down) + down) % down;
    let whole: BigInt = (up - &rest) / down;
    let twice = rest * 2;
    let is_odd = whole.bit(0);
    if &twice > down || (&twice == down && is_odd) {
        whole + 1
    } else {
        whole
    }
}

/// The float nearest to `up / down`, half to even; beyond the range of floats an infinity. `down` is above 0.
pub fn rounded_ratio(up: &BigInt, down: &BigInt) -> f64 {
    const EXACT: i64 = 1 << 53;
    if let (Ok(up), Ok(down)) = (i64::try_from(up), i64::try_from(down))
        && (-EXACT..=EXACT).contains(&up)
        && down <= EXACT
    {
        return up as f64 / down as f64 + 0.0;
    }
    let magnitude = rounded_magnitude(up.magnitude(), down.magnitude());
    if up.sign() == Sign::Minus {
        -magnitude + 0.0
    } else {
        magnitude
    }
}

fn rounded_magnitude(up: &BigUint, down: &BigUint) -> f64 {
    if up.bits() == 0 {
        return 0.0;
    }
    let shift = QUOTIENT_BITS - (up.bits() as i64 - down.bits() as i64);
    let (up, down) = if shift >= 0 {
        (up << shift, down.clone())
    } else {
        (up.clone(), down << -shift)
    };
    let quotient = &up / &down;
    let is_exact = &quotient * &down == up;
    let quotient = u128::try_from(&quotient).expect("a quotient has 66 or 67 bits") | u128::from(!is_exact);
    let bits = i64::from(128 - quotient.leading_zeros());
    // The value is below 2^top. A float has 53 bits, and none below 2^-1074.
    let top = bits - shift;
    let kept = 53.min(top + 1074);
    if top > 1024 {
        return f64::INFINITY;
    }
    if kept < 0 {
        return 0.0;
    }
    let dropped = bits - kept;
    let (whole, rest, half) = (
        quotient >> dropped,
        quotient & ((1 << dropped) - 1),
        1_u128 << (dropped - 1),
    );
    let rounded = whole + u128::from(rest > half || (rest == half && whole & 1 == 1));
    scaled(rounded as f64, dropped - shift)
}

/// `value * 2^power`, which is a float, or beyond their range.
fn scaled(mut value: f64, mut power: i64) -> f64 {
    while power > 900 {
        value *= 2_f64.powi(900);
        power -= 900;
    }
    while power < -900 {
        value *= 2_f64.powi(-900);
        power += 900;
    }
    value * 2_f64.powi(power as i32)
}

/// The float nearest to the square root of `up / down`, which is not negative.
pub fn rounded_root(up: &BigInt, down: &BigInt) -> f64 {
    let (up, down) = (up.magnitude(), down.magnitude());
    if up.bits() == 0 {
        return 0.0;
    }
    let shift = (up.bits() as i64 - down.bits() as i64 - ROOT_BITS).div_euclid(2);
    let one = BigUint::from(1_u8);
    if shift >= 0 {
        return rounded_magnitude(&(odd_root(up, &(down << (2 * shift))) << shift), &one);
    }
    rounded_magnitude(&odd_root(&(up << (-2 * shift)), down), &(one << -shift))
}

/// The whole part of the square root of a quotient, made odd if it is not exact.
fn odd_root(up: &BigUint, down: &BigUint) -> BigUint {
    let root = (up / down).sqrt();
    let is_exact = &root * &root * down == *up;
    if is_exact || root.bit(0) { root } else { root + 1_u8 }
}
