//! State as MessagePack, as `msgpack` in Python packs the same plain values: a checkpoint has it as it is.

use rmp::Marker;
use rmp::decode::{RmpRead, read_marker};
use rmp::encode;

use crate::failure::Failure;
use crate::plain::Plain;

/// States are flat. What is nested more deeply was not written here.
const DEPTH_MAX: usize = 64;

/// The bytes of a value. Fails for an integer beyond 64 bits, which no state has.
pub fn packed(value: &Plain) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    write(value, &mut bytes)?;
    Ok(bytes)
}

fn write(value: &Plain, bytes: &mut Vec<u8>) -> Result<(), Failure> {
    let too_long = |_| Failure::Usage("a state is longer than MessagePack counts".to_owned());
    let length = |length: usize| u32::try_from(length).map_err(too_long);
    let written = match value {
        Plain::None => encode::write_nil(bytes).is_ok(),
        Plain::Bool(value) => encode::write_bool(bytes, *value).is_ok(),
        Plain::Int(value) => encode::write_sint(bytes, *value).is_ok(),
        Plain::Big(digits) => return Err(Failure::Usage(format!("{digits:.40} is no integer of a state"))),
        Plain::Float(value) => encode::write_f64(bytes, *value).is_ok(),
        Plain::Text(value) => encode::write_str(bytes, value).is_ok(),
        Plain::Bytes(value) => encode::write_bin(bytes, value).is_ok(),
        Plain::List(values) => {
            let written = encode::write_array_len(bytes, length(values.len())?).is_ok();
            values.iter().try_for_each(|value| write(value, bytes))?;
            written
        }
        Plain::Map(entries) => {
            let written = encode::write_map_len(bytes, length(entries.len())?).is_ok();
            for (key, value) in entries {
                encode::write_str(bytes, key).map_err(|_| Failure::Usage(format!("a state has the key {key:?}")))?;
                write(value, bytes)?;
            }
            written
        }
    };
    debug_assert!(written, "memory takes what is written");
    Ok(())
}

/// The value of bytes. Fails for bytes that `packed` does not write.
pub fn unpacked(mut bytes: &[u8]) -> Result<Plain, Failure> {
    let value = read(&mut bytes, 0)?;
    if bytes.is_empty() { Ok(value) } else { Err(damaged()) }
}

fn damaged() -> Failure {
    Failure::Usage("the state of an operator is no MessagePack of plain values".to_owned())
}

fn read(bytes: &mut &[u8], depth: usize) -> Result<Plain, Failure> {
    macro_rules! number {
        ($read:ident) => {
            bytes.$read().map_err(|_| damaged())?
        };
    }
    if depth > DEPTH_MAX {
        return Err(damaged());
    }
    Ok(match read_marker(bytes).map_err(|_| damaged())? {
        Marker::Null => Plain::None,
        Marker::True => Plain::Bool(true),
        Marker::False => Plain::Bool(false),
        Marker::FixPos(value) => Plain::Int(value.into()),
        Marker::FixNeg(value) => Plain::Int(value.into()),
        Marker::U8 => Plain::Int(number!(read_data_u8).into()),
        Marker::U16 => Plain::Int(number!(read_data_u16).into()),
        Marker::U32 => Plain::Int(number!(read_data_u32).into()),
        Marker::U64 => match i64::try_from(number!(read_data_u64)) {
            Ok(value) => Plain::Int(value),
            Err(_) => return Err(damaged()),
        },
        Marker::I8 => Plain::Int(number!(read_data_i8).into()),
        Marker::I16 => Plain::Int(number!(read_data_i16).into()),
        Marker::I32 => Plain::Int(number!(read_data_i32).into()),
        Marker::I64 => Plain::Int(number!(read_data_i64)),
        Marker::F64 => Plain::Float(number!(read_data_f64)),
        Marker::FixStr(length) => text(bytes, length.into())?,
        Marker::Str8 => {
            let length = number!(read_data_u8);
            text(bytes, length.into())?
        }
        Marker::Str16 => {
            let length = number!(read_data_u16);
            text(bytes, length.into())?
        }
        Marker::Str32 => {
            let length = number!(read_data_u32);
            text(bytes, length)?
        }
        Marker::Bin8 => {
            let length = number!(read_data_u8);
            Plain::Bytes(taken(bytes, length.into())?.to_vec())
        }
        Marker::Bin16 => {
            let length = number!(read_data_u16);
            Plain::Bytes(taken(bytes, length.into())?.to_vec())
        }
        Marker::Bin32 => {
            let length = number!(read_data_u32);
            Plain::Bytes(taken(bytes, length)?.to_vec())
        }
        Marker::FixArray(length) => list(bytes, length.into(), depth)?,
        Marker::Array16 => {
            let length = number!(read_data_u16);
            list(bytes, length.into(), depth)?
        }
        Marker::Array32 => {
            let length = number!(read_data_u32);
            list(bytes, length, depth)?
        }
        Marker::FixMap(length) => map(bytes, length.into(), depth)?,
        Marker::Map16 => {
            let length = number!(read_data_u16);
            map(bytes, length.into(), depth)?
        }
        Marker::Map32 => {
            let length = number!(read_data_u32);
            map(bytes, length, depth)?
        }
        _ => return Err(damaged()),
    })
}

fn taken<'a>(bytes: &mut &'a [u8], length: u32) -> Result<&'a [u8], Failure> {
    let (found, rest) = bytes.split_at_checked(length as usize).ok_or_else(damaged)?;
    *bytes = rest;
    Ok(found)
}

fn text(bytes: &mut &[u8], length: u32) -> Result<Plain, Failure> {
    let found = std::str::from_utf8(taken(bytes, length)?).map_err(|_| damaged())?;
    Ok(Plain::Text(found.to_owned()))
}

/// Each value has a byte at least, so a length that was damaged makes no room for more.
fn room(bytes: &[u8], length: u32) -> Result<usize, Failure> {
    let length = length as usize;
    if length <= bytes.len() {
        Ok(length)
    } else {
        Err(damaged())
    }
}

fn list(bytes: &mut &[u8], length: u32, depth: usize) -> Result<Plain, Failure> {
    let mut values = Vec::with_capacity(room(bytes, length)?);
    for _ in 0..length {
        values.push(read(bytes, depth + 1)?);
    }
    Ok(Plain::List(values))
}

fn map(bytes: &mut &[u8], length: u32, depth: usize) -> Result<Plain, Failure> {
    let mut entries = Vec::with_capacity(room(bytes, length)?);
    for _ in 0..length {
        let Plain::Text(key) = read(bytes, depth + 1)? else {
            return Err(damaged());
        };
        entries.push((key, read(bytes, depth + 1)?));
    }
    Ok(Plain::Map(entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_state() -> Plain {
        let numbers = [
            0,
            1,
            -1,
            127,
            128,
            -32,
            -33,
            255,
            256,
            -129,
            65_535,
            65_536,
            i64::MAX,
            i64::MIN,
        ];
        let row = Plain::List(vec![
            Plain::Text("a".repeat(40)),
            Plain::Float(-0.5),
            Plain::None,
            Plain::Bytes(vec![7; 300]),
        ]);
        Plain::map([
            ("times", Plain::ints(numbers)),
            ("rows", Plain::List(vec![row; 20])),
            ("is_marked", Plain::Bool(true)),
            ("none", Plain::Map(Vec::new())),
        ])
    }

    #[test]
    fn a_state_is_what_its_bytes_are_read_as() {
        let state = some_state();
        assert_eq!(unpacked(&packed(&state).unwrap()).unwrap(), state);
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let bytes = packed(&some_state()).unwrap();
        for length in 0..bytes.len() {
            assert!(unpacked(&bytes[..length]).is_err());
        }
        assert!(unpacked(&[bytes, vec![0]].concat()).is_err());
        let deep = [vec![0x91; 100_000], vec![0xc0]].concat();
        for hostile in [
            &[0xdd, 0xff, 0xff, 0xff, 0xff, 0xc0][..],
            &[0x81, 0x01, 0x01],
            &[0xc1],
            &deep,
        ] {
            assert!(unpacked(hostile).is_err());
        }
    }
}
