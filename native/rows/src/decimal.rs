//! Decimals as whole numbers of 10^-scale, and their canonical text: `scale` digits after the point, no plus, no
//! leading zeros, no minus before zero.

use arrow_buffer::i256;

use crate::schema::DECIMAL_DIGITS_MAX;

const UNSCALED_END: i128 = 10_i128.pow(DECIMAL_DIGITS_MAX as u32);
/// The length of a sign, a zero, a point and the digits.
const TEXT_MAX: usize = DECIMAL_DIGITS_MAX as usize + 3;

/// A conversion from one scale to another. It never drops digits: None if digits would be lost, or more than 38 are
/// needed.
#[derive(Clone, Copy, Debug)]
pub struct Rescale {
    /// The number of additional digits.
    shift: i32,
    /// 10^|shift|; None where only 0 can be converted.
    power: Option<i128>,
}

impl Rescale {
    pub fn new(from: i32, to: i32) -> Rescale {
        let shift = to - from;
        let power = 10_i128.checked_pow(shift.unsigned_abs());
        Rescale { shift, power }
    }

    #[inline]
    pub fn narrow(&self, value: i128) -> Option<i128> {
        if value == 0 {
            return Some(0);
        }
        let scaled = match self.shift {
            0 => value,
            1.. => value.checked_mul(self.power?)?,
            _ => {
                let power = self.power?;
                (value % power == 0).then(|| value / power)?
            }
        };
        (-UNSCALED_END < scaled && scaled < UNSCALED_END).then_some(scaled)
    }

    pub fn wide(&self, value: i256) -> Option<i128> {
        if let Some(value) = value.to_i128() {
            return self.narrow(value);
        }
        if self.shift >= 0 {
            return None;
        }
        let power = i256::from_i128(10).checked_pow(self.shift.unsigned_abs())?;
        let whole = value.checked_rem(power)? == i256::ZERO;
        let scaled = whole.then(|| value.checked_div(power))??.to_i128()?;
        (-UNSCALED_END < scaled && scaled < UNSCALED_END).then_some(scaled)
    }
}

/// The text of `unscaled` * 10^-scale, in the last bytes of `buffer`.
pub fn text(unscaled: i128, scale: u8, buffer: &mut [u8; TEXT_MAX]) -> &[u8] {
    let mut rest = unscaled.unsigned_abs();
    let (mut at, mut written) = (TEXT_MAX, 0);
    let mut put = |byte| {
        at -= 1;
        buffer[at] = byte;
    };
    while rest > 0 || written <= scale {
        if written == scale && scale > 0 {
            put(b'.');
        }
        // Division of 128 bits is a call.
        let digit = match u64::try_from(rest) {
            Ok(small) => {
                rest = u128::from(small / 10);
                small % 10
            }
            Err(_) => {
                let digit = (rest % 10) as u64;
                rest /= 10;
                digit
            }
        };
        put(b'0' + digit as u8);
        written += 1;
    }
    if unscaled < 0 {
        put(b'-');
    }
    &buffer[at..]
}

/// A buffer for `text`.
pub fn buffer() -> [u8; TEXT_MAX] {
    [0; TEXT_MAX]
}

/// The reverse of `text`. None if the text is not the canonical text of a decimal with that scale.
pub fn parse(text: &str, scale: u8) -> Option<i128> {
    let Parts { negative, whole, after } = parts(text, scale)?;
    let mut unscaled: i128 = 0;
    for &byte in whole.iter().chain(after) {
        unscaled = 10 * unscaled + i128::from(byte - b'0'); // at most 38 digits, and a zero before them
    }
    Some(if negative { -unscaled } else { unscaled })
}

/// Whether `text` is the canonical text of a decimal with that scale: what `parse` accepts, without arithmetic.
pub fn is_canonical(text: &str, scale: u8) -> bool {
    parts(text, scale).is_some()
}

/// Digits before and after the point.
struct Parts<'a> {
    negative: bool,
    whole: &'a [u8],
    after: &'a [u8],
}

fn parts(text: &str, scale: u8) -> Option<Parts<'_>> {
    let scale = usize::from(scale);
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    let negative = digits.len() < text.len();
    let (whole, after) = match scale {
        0 => (digits, &digits[..0]),
        _ => {
            let (whole, after) = digits.split_at_checked(digits.len().checked_sub(scale + 1)?)?;
            (whole, after.strip_prefix(b".")?)
        }
    };
    let all = || whole.iter().chain(after);
    let significant = match whole {
        [] | [b'0', _, ..] => return None,
        b"0" => scale,
        _ => whole.len() + scale,
    };
    if significant > usize::from(DECIMAL_DIGITS_MAX) || !all().all(u8::is_ascii_digit) {
        return None;
    }
    let is_minus_zero = negative && all().all(|&digit| digit == b'0');
    (!is_minus_zero).then_some(Parts { negative, whole, after })
}
