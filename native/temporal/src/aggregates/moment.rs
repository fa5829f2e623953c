//! Exact count, sum and sum of squares: `lmerge/temporal/modules/moments.py`.

use super::exact::Scaled;
use super::integer::Integer;
use crate::failure::Failure;
use crate::plain::Plain;

/// Count, sum and sum of squares of values, as integers of a unit divided by `2^power`. Infinities and NaN are counted
/// apart, and are in the count of values. All numbers are signed: the difference of two moments is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    pub count: i64,
    pub power: u32,
    pub total: Integer,
    pub squares: Integer,
    pub special: Special,
}

/// How many values are infinite or NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Special {
    pub plus_inf: i32,
    pub minus_inf: i32,
    pub nan: i32,
}

/// A value as a moment takes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Number {
    /// An int or a decimal: an integer of the unit.
    Whole(i128),
    Scaled(Scaled),
    PlusInf,
    MinusInf,
    Nan,
}

impl Moment {
    /// Add a value, or take it away.
    #[inline]
    pub fn count(&mut self, value: &Number, is_added: bool, has_squares: bool) {
        let sign = if is_added { 1 } else { -1 };
        self.count += i64::from(sign);
        match value {
            Number::Whole(value) => self.count_integer(&Integer::Small(*value), is_added, has_squares),
            Number::Scaled(Scaled { count, power }) => {
                if *power > self.power {
                    self.scale_to(*power);
                }
                if *power == self.power {
                    self.count_integer(count, is_added, has_squares);
                } else {
                    self.count_integer(&count.shifted_left(self.power - power), is_added, has_squares);
                }
            }
            Number::PlusInf => self.special.plus_inf += sign,
            Number::MinusInf => self.special.minus_inf += sign,
            Number::Nan => self.special.nan += sign,
        }
    }

    #[inline]
    fn count_integer(&mut self, value: &Integer, is_added: bool, has_squares: bool) {
        self.total.add(value, is_added);
        if has_squares {
            self.squares.add(&value.square(), is_added);
        }
    }

    fn scale_to(&mut self, power: u32) {
        let finer = power - self.power;
        self.total = self.total.shifted_left(finer);
        self.squares = self.squares.shifted_left(2 * finer);
        self.power = power;
    }

    /// Add the values of another moment, or take them away.
    #[inline]
    pub fn merge(&mut self, other: &Moment, is_added: bool) {
        if other.power > self.power {
            self.scale_to(other.power);
        }
        let finer = self.power - other.power;
        if finer == 0 {
            self.total.add(&other.total, is_added);
            self.squares.add(&other.squares, is_added);
        } else {
            self.total.add(&other.total.shifted_left(finer), is_added);
            self.squares.add(&other.squares.shifted_left(2 * finer), is_added);
        }
        let sign = if is_added { 1 } else { -1 };
        self.count += i64::from(sign) * other.count;
        self.special.plus_inf += sign * other.special.plus_inf;
        self.special.minus_inf += sign * other.special.minus_inf;
        self.special.nan += sign * other.special.nan;
    }

    pub fn is_zero(&self) -> bool {
        self.count == 0 && self.total.is_zero() && self.squares.is_zero() && self.special == Special::default()
    }

    /// The sum if it is no finite number.
    pub fn special_sum(&self) -> Option<f64> {
        let Special {
            plus_inf,
            minus_inf,
            nan,
        } = self.special;
        if nan > 0 || (plus_inf > 0 && minus_inf > 0) {
            Some(crate::plain_rows::NAN)
        } else if plus_inf > 0 {
            Some(f64::INFINITY)
        } else if minus_inf > 0 {
            Some(f64::NEG_INFINITY)
        } else {
            None
        }
    }

    /// As plain values, without common factors: they depend on the values alone.
    pub fn state(&self) -> Plain {
        let common = self
            .power
            .min(self.total.twos(self.power))
            .min(self.squares.twos(2 * self.power) / 2);
        let Special {
            plus_inf,
            minus_inf,
            nan,
        } = self.special;
        Plain::List(vec![
            Plain::Int(self.count),
            Plain::Text(self.total.shifted_right(common).text()),
            Plain::Text(self.squares.shifted_right(2 * common).text()),
            Plain::Int((self.power - common).into()),
            Plain::Int(plus_inf.into()),
            Plain::Int(minus_inf.into()),
            Plain::Int(nan.into()),
        ])
    }

    pub fn restored(state: &Plain) -> Result<Moment, Failure> {
        let [count, total, squares, power, plus_inf, minus_inf, nan] = state.tuple()?;
        let integer = |plain: &Plain| {
            Integer::of_text(plain.text()?).ok_or_else(|| plain.unexpected("an integer in hexadecimal digits"))
        };
        let small = |plain: &Plain| Ok(plain.int()? as i32);
        Ok(Moment {
            count: count.int()?,
            power: small(power)? as u32,
            total: integer(total)?,
            squares: integer(squares)?,
            special: Special {
                plus_inf: small(plus_inf)?,
                minus_inf: small(minus_inf)?,
                nan: small(nan)?,
            },
        })
    }
}
