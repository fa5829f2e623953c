//! From states to results: `lmerge/temporal/modules/builtin.py`.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::Decimal128Type;
use num_bigint::BigInt;

use super::exact::{Scale, rounded_ratio, rounded_root};
use super::integer::Integer;
use super::keys::{Key, KeyForm};
use super::moment::Moment;
use super::states::{Accumulator, State};
use super::terms::RankedRow;
use super::values::Values;
use crate::plain_rows::{NAN, canonical_float};
use crate::{Column, Kind};

/// A result of an aggregate. Floats are by their bits, so that NaN is equal to itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Missing,
    Int(i64),
    Float(u64),
    /// The digits of a decimal.
    Digits(i128),
    Key(Key),
    Keys(Vec<Key>),
    /// A row behind what it is ranked by.
    Row(RankedRow),
}

/// How a result comes from a state.
#[derive(Clone, Debug)]
pub enum Function {
    Count,
    DistinctCount,
    Mode,
    Sum,
    Avg,
    Spread { of_sample: bool, is_root: bool },
    Min,
    Max,
    First,
    Last,
    Collect,
    PercentileDisc(BigInt, BigInt),
    PercentileCont(BigInt, BigInt),
}

/// A sum that its type cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow;

impl Function {
    /// The result of the state of a window with `events`. `column`: the argument.
    pub fn finished(
        &self,
        accumulator: &Accumulator,
        column: &Column,
        state: &State,
        events: i64,
    ) -> Result<Value, Overflow> {
        Ok(match (self, state) {
            (Function::Count, State::Nothing) => Value::Int(events),
            (Function::Count, State::Count(count)) => Value::Int(*count),
            (Function::DistinctCount, State::Tally(tally)) => Value::Int(tally.len() as i64),
            (Function::Mode, State::Tally(tally)) => most_frequent(tally).cloned().map_or(Value::Missing, Value::Key),
            (_, State::Moment(moment)) if moment.count == 0 => Value::Missing,
            (Function::Sum, State::Moment(moment)) => return sum(moment, column, &accumulator.scale),
            (Function::Avg, State::Moment(moment)) => float(average(moment, &accumulator.scale)),
            (Function::Spread { of_sample, is_root }, State::Moment(moment)) => {
                spread(moment, &accumulator.scale, i64::from(*of_sample), *is_root)
            }
            (Function::Collect, State::Values(values)) => Value::Keys(values.iter().collect()),
            (_, State::Values(values)) if values.is_empty() => Value::Missing,
            (Function::Min, State::Values(values)) => Value::Key(values.at(0)),
            (Function::Max, State::Values(values)) => values.last().map_or(Value::Missing, Value::Key),
            (Function::PercentileDisc(up, down), State::Values(values)) => {
                let place = (up * values.len() + down - 1) / down;
                Value::Key(values.at(usize::try_from(&place).unwrap_or(0).max(1) - 1))
            }
            (Function::PercentileCont(up, down), State::Values(values)) => {
                float(between(values, up, down, accumulator, column))
            }
            (Function::First, State::Starts(starts)) if !starts.is_empty() => Value::Key(starts.at(0).2.clone()),
            (Function::Last, State::Starts(starts)) => starts
                .last()
                .map_or(Value::Missing, |(_, _, key)| Value::Key(key.clone())),
            _ => Value::Missing,
        })
    }
}

fn float(value: f64) -> Value {
    Value::Float(canonical_float(value).to_bits())
}

/// The value that occurs most often; of several the first in order.
fn most_frequent(tally: &BTreeMap<Key, i64>) -> Option<&Key> {
    let most = tally.values().max()?;
    tally.iter().find(|(_, count)| *count == most).map(|(key, _)| key)
}

fn sum(moment: &Moment, column: &Column, scale: &Scale) -> Result<Value, Overflow> {
    match (&column.kind, &moment.total) {
        (Kind::Float(_), total) => {
            Ok(float(moment.special_sum().unwrap_or_else(|| {
                rounded_ratio(&(total.big() * &scale.up), &(&scale.down << moment.power))
            })))
        }
        (Kind::Decimal(_), Integer::Small(total)) if total.unsigned_abs() < 10_u128.pow(38) => {
            Ok(Value::Digits(*total))
        }
        (Kind::Int, Integer::Small(total)) => i64::try_from(*total).map(Value::Int).map_err(|_| Overflow),
        _ => Err(Overflow),
    }
}

fn average(moment: &Moment, scale: &Scale) -> f64 {
    moment.special_sum().unwrap_or_else(|| {
        rounded_ratio(
            &(moment.total.big() * &scale.up),
            &((&scale.down << moment.power) * moment.count),
        )
    })
}

/// A variance or its root: `n * sum of squares - sum^2` by `n * n` or `n * (n - 1)`.
fn spread(moment: &Moment, scale: &Scale, of_sample: i64, is_root: bool) -> Value {
    let count = moment.count;
    if count <= of_sample {
        return Value::Missing;
    }
    if moment.special_sum().is_some() {
        return float(NAN);
    }
    let total = moment.total.big();
    let up = (moment.squares.big() * count - &total * &total) * &scale.up * &scale.up;
    let down = ((&scale.down * &scale.down) << (2 * moment.power)) * count * (count - of_sample);
    float(if is_root {
        rounded_root(&up, &down)
    } else {
        rounded_ratio(&up, &down)
    })
}

/// The value at `up / down` of the way from the first to the last, on the line between its two neighbours.
fn between(values: &Values, up: &BigInt, down: &BigInt, accumulator: &Accumulator, column: &Column) -> f64 {
    let way = up * (values.len() - 1);
    let (place, rest) = (&way / down, &way % down);
    let place = usize::try_from(&place).expect("a place is below the length");
    let low = values.at(place);
    let high = if rest == BigInt::ZERO {
        low.clone()
    } else {
        values.at(place + 1)
    };
    if let Kind::Float(_) = column.kind {
        let (low, high) = (KeyForm::float(&low), KeyForm::float(&high));
        if !low.is_finite() || !high.is_finite() {
            return canonical_float(low + high);
        }
    }
    let scale = &accumulator.scale;
    let ((low, low_power), (high, high_power)) = (exact(&low, accumulator, column), exact(&high, accumulator, column));
    let power = low_power.max(high_power);
    let (low, high) = (low << (power - low_power), high << (power - high_power));
    rounded_ratio(
        &((&low * down + (high - &low) * rest) * &scale.up),
        &((&scale.down << power) * down),
    )
}

/// A finite value as an integer of its column's unit, over a power of two.
fn exact(key: &Key, accumulator: &Accumulator, column: &Column) -> (BigInt, u32) {
    match (&column.kind, key) {
        (Kind::Float(_), key) => {
            let scaled = accumulator.scale.of_float(KeyForm::float(key));
            (scaled.count.big(), scaled.power)
        }
        (_, Key::Number(number)) => (BigInt::from(*number), 0),
        (_, key) => {
            let array = accumulator.keys.array(std::iter::once(Some(key)));
            (BigInt::from(array.as_primitive::<Decimal128Type>().value(0)), 0)
        }
    }
}
