//! Integers of any size: most of them fit into 128 bits.

use num_bigint::BigInt;

/// An integer; `Big` only if it does not fit into `Small`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Integer {
    Small(i128),
    Big(Box<BigInt>),
}

use Integer::{Big, Small};

impl Default for Integer {
    fn default() -> Integer {
        Small(0)
    }
}

impl From<BigInt> for Integer {
    fn from(value: BigInt) -> Integer {
        match i128::try_from(&value) {
            Ok(small) => Small(small),
            Err(_) => Big(Box::new(value)),
        }
    }
}

impl Integer {
    pub fn is_zero(&self) -> bool {
        *self == Small(0)
    }

    pub fn big(&self) -> BigInt {
        match self {
            Small(value) => BigInt::from(*value),
            Big(value) => (**value).clone(),
        }
    }

    /// Add `other`, or subtract it.
    #[inline]
    pub fn add(&mut self, other: &Integer, is_added: bool) {
        if let (Small(one), Small(two)) = (&*self, other) {
            let sum = if is_added {
                one.checked_add(*two)
            } else {
                one.checked_sub(*two)
            };
            if let Some(sum) = sum {
                *self = Small(sum);
                return;
            }
        }
        let (one, two) = (self.big(), other.big());
        *self = Integer::from(if is_added { one + two } else { one - two });
    }

    pub fn square(&self) -> Integer {
        if let Small(value) = self
            && let Some(square) = value.checked_mul(*value)
        {
            return Small(square);
        }
        let value = self.big();
        Integer::from(&value * &value)
    }

    /// `self * 2^bits`.
    pub fn shifted_left(&self, bits: u32) -> Integer {
        match self {
            Small(0) => Small(0),
            Small(value) if bits < value.unsigned_abs().leading_zeros() && bits < 127 => Small(value << bits),
            other => Integer::from(other.big() << bits),
        }
    }

    /// `self / 2^bits`, without a rest.
    pub fn shifted_right(&self, bits: u32) -> Integer {
        match self {
            Small(value) => Small(value >> bits.min(127)),
            Big(value) => Integer::from(&**value >> bits),
        }
    }

    /// How often 2 divides it, at most `most`, which is the answer for 0.
    pub fn twos(&self, most: u32) -> u32 {
        match self {
            Small(0) => most,
            Small(value) => value.trailing_zeros().min(most),
            Big(value) => value
                .trailing_zeros()
                .map_or(most, |twos| twos.min(u64::from(most)) as u32),
        }
    }

    /// As text of a state: hexadecimal digits.
    pub fn text(&self) -> String {
        match self {
            Small(value) if *value < 0 => format!("-{:x}", value.unsigned_abs()),
            Small(value) => format!("{value:x}"),
            Big(value) => value.to_str_radix(16),
        }
    }

    /// The integer of a text that `text` has made. None for another text.
    pub fn of_text(text: &str) -> Option<Integer> {
        BigInt::parse_bytes(text.as_bytes(), 16).map(Integer::from)
    }
}
