//! Functions of text. Positions and lengths count characters, from 0.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, StringArray};
use arrow_buffer::{BooleanBuffer, Buffer};

use super::Host;
use super::values::{Frame, Texts, Value};
use crate::Kind;
use crate::failure::Failure;

/// Lower or upper case. The characters of ASCII have the same in every version of Unicode; the others are Python's.
pub fn cased(frame: Frame<'_>, host: &dyn Host, to_upper: bool) -> Result<Value, Failure> {
    let texts = frame.texts(0).array;
    let offsets = texts.offsets();
    let (first, last) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
    let bytes = &texts.value_data()[first..last];
    if bytes.is_ascii() {
        let cased = if to_upper {
            bytes.to_ascii_uppercase()
        } else {
            bytes.to_ascii_lowercase()
        };
        let offsets = offsets.iter().map(|&offset| offset - first as i32).collect::<Vec<_>>();
        let offsets = arrow_buffer::OffsetBuffer::new(offsets.into());
        let array = StringArray::new(offsets, Buffer::from_vec(cased), frame.nulls.clone());
        return Ok(frame.value(Arc::new(array)));
    }
    let others: Vec<&str> = present(&frame, texts).filter(|text| !text.is_ascii()).collect();
    let mut others = host.cased(&others, to_upper)?.into_iter();
    let mut out = StringBuilder::with_capacity(frame.len, bytes.len());
    for row in 0..frame.len {
        match texts.value(row) {
            _ if !frame.is_valid(row) => out.append_null(),
            text if !text.is_ascii() => out.append_value(others.next().expect("as many texts as were given")),
            text if to_upper => out.append_value(text.to_ascii_uppercase()),
            text => out.append_value(text.to_ascii_lowercase()),
        }
    }
    Ok(frame.value(Arc::new(out.finish())))
}

fn present<'a>(frame: &Frame<'_>, texts: &'a StringArray) -> impl Iterator<Item = &'a str> {
    let nulls = frame.nulls.clone();
    let is_valid = move |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    (0..texts.len())
        .filter(move |&row| is_valid(row))
        .map(|row| texts.value(row))
}

/// The number of characters of text, of bytes, or of elements of a list.
pub fn length(frame: Frame<'_>, of: &Kind) -> Value {
    let of_offsets = |offsets: &[i32]| offsets.windows(2).map(|pair| i64::from(pair[1] - pair[0])).collect();
    let array = &frame.operands[0].array;
    let values: Vec<i64> = match of {
        Kind::List(_) => of_offsets(array.as_list::<i32>().offsets()),
        Kind::Bytes => of_offsets(array.as_binary::<i32>().offsets()),
        _ => {
            let texts = frame.texts(0);
            (0..frame.len).map(|row| characters(texts.get(row)) as i64).collect()
        }
    };
    frame.of_ints(&Kind::Int, values, None)
}

fn characters(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.chars().count()
    }
}

pub fn joined(frame: Frame<'_>) -> Value {
    let parts: Vec<Texts<'_>> = (0..frame.operands.len()).map(|operand| frame.texts(operand)).collect();
    let mut joined = String::new();
    of_text(frame, |row, out| {
        joined.clear();
        parts.iter().for_each(|part| joined.push_str(part.get(row)));
        out.append_value(&joined);
    })
}

/// `length` characters from `start`, or all; `start` from the end if it is negative.
pub fn part(frame: Frame<'_>) -> Value {
    let (texts, starts) = (frame.texts(0), frame.ints(1));
    let lengths = (frame.operands.len() > 2).then(|| frame.ints(2));
    of_text(frame, |row, out| {
        let (text, start) = (texts.get(row), starts.get(row));
        let start = if start < 0 {
            (characters(text) as i64).saturating_add(start).max(0)
        } else {
            start
        };
        let length = lengths.map_or(i64::MAX, |lengths| lengths.get(row).max(0));
        let from = place(text, start);
        let rest = &text[from..];
        out.append_value(&rest[..place(rest, length)]);
    })
}

/// The byte at which a character begins; the end if there are not as many.
fn place(text: &str, character: i64) -> usize {
    let character = usize::try_from(character).unwrap_or(usize::MAX);
    if text.is_ascii() {
        return character.min(text.len());
    }
    text.char_indices().nth(character).map_or(text.len(), |(at, _)| at)
}

pub fn matches(frame: Frame<'_>, matches: impl Fn(&str, &str) -> bool) -> Value {
    let (texts, parts) = (frame.texts(0), frame.texts(1));
    let found = BooleanBuffer::collect_bool(frame.len, |row| matches(texts.get(row), parts.get(row)));
    frame.of_truths(found)
}

pub fn replaced(frame: Frame<'_>) -> Value {
    let (texts, old, new) = (frame.texts(0), frame.texts(1), frame.texts(2));
    of_text(frame, |row, out| match (texts.get(row), old.get(row)) {
        (text, "") => out.append_value(text),
        (text, old) => out.append_value(text.replace(old, new.get(row))),
    })
}

pub fn trimmed(frame: Frame<'_>, characters: &str) -> Value {
    let texts = frame.texts(0);
    of_text(frame, |row, out| {
        out.append_value(texts.get(row).trim_matches(|one| characters.contains(one)))
    })
}

/// The text that `write` appends for each row that is not NULL.
fn of_text(frame: Frame<'_>, mut write: impl FnMut(usize, &mut StringBuilder)) -> Value {
    let mut out = StringBuilder::with_capacity(frame.len, 16 * frame.len);
    for row in 0..frame.len {
        if frame.is_valid(row) {
            write(row, &mut out)
        } else {
            out.append_null()
        }
    }
    frame.value(Arc::new(out.finish()))
}
