//! The MessagePack of canonical payloads: the smallest form of each value, except floats, which always have 64 bits.

/// The byte of a missing value.
pub const NIL: u8 = 0xc0;

pub fn bool(out: &mut Vec<u8>, value: bool) {
    out.push(0xc2 + u8::from(value));
}

#[inline]
pub fn int(out: &mut Vec<u8>, value: i64) {
    match value {
        -0x20..=0x7f => out.push(value as u8),
        0x80..=0xff => out.extend_from_slice(&[0xcc, value as u8]),
        0x100..=0xffff => tagged(out, 0xcd, (value as u16).to_be_bytes()),
        0x1_0000..=0xffff_ffff => tagged(out, 0xce, (value as u32).to_be_bytes()),
        0x1_0000_0000.. => tagged(out, 0xcf, value.to_be_bytes()),
        -0x80.. => out.extend_from_slice(&[0xd0, value as u8]),
        -0x8000.. => tagged(out, 0xd1, (value as i16).to_be_bytes()),
        -0x8000_0000.. => tagged(out, 0xd2, (value as i32).to_be_bytes()),
        _ => tagged(out, 0xd3, value.to_be_bytes()),
    }
}

#[inline]
pub fn float(out: &mut Vec<u8>, value: f64) {
    tagged(out, 0xcb, value.to_be_bytes());
}

/// Append `text`, which is UTF-8. None above 4 GiB, which no form can represent; the same below.
#[inline]
pub fn string(out: &mut Vec<u8>, text: &[u8]) -> Option<()> {
    match text.len() {
        len @ ..0x20 => out.push(0xa0 | len as u8),
        len @ ..0x100 => out.extend_from_slice(&[0xd9, len as u8]),
        len @ ..0x1_0000 => tagged(out, 0xda, (len as u16).to_be_bytes()),
        len => tagged(out, 0xdb, u32::try_from(len).ok()?.to_be_bytes()),
    }
    out.extend_from_slice(text);
    Some(())
}

#[inline]
pub fn bytes(out: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    match bytes.len() {
        len @ ..0x100 => out.extend_from_slice(&[0xc4, len as u8]),
        len @ ..0x1_0000 => tagged(out, 0xc5, (len as u16).to_be_bytes()),
        len => tagged(out, 0xc6, u32::try_from(len).ok()?.to_be_bytes()),
    }
    out.extend_from_slice(bytes);
    Some(())
}

/// Append the head of an array; `len` values follow.
#[inline]
pub fn array(out: &mut Vec<u8>, len: usize) -> Option<()> {
    match len {
        ..0x10 => out.push(0x90 | len as u8),
        0x10..0x1_0000 => tagged(out, 0xdc, (len as u16).to_be_bytes()),
        _ => tagged(out, 0xdd, u32::try_from(len).ok()?.to_be_bytes()),
    }
    Some(())
}

/// Append with one write, so that the capacity is checked once.
#[inline]
fn tagged<const N: usize>(out: &mut Vec<u8>, tag: u8, value: [u8; N]) {
    let mut both = [0; 9];
    both[0] = tag;
    both[1..=N].copy_from_slice(&value);
    out.extend_from_slice(&both[..=N]);
}

/// Reads the values of a payload. Every method returns None if the next value is of another kind, or the bytes end.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the next value is nil. Reads it if so.
    #[inline]
    pub fn nil(&mut self) -> bool {
        let found = self.0.first() == Some(&NIL);
        if found {
            self.0 = &self.0[1..];
        }
        found
    }

    #[inline]
    pub fn bool(&mut self) -> Option<bool> {
        match self.tag()? {
            0xc2 => Some(false),
            0xc3 => Some(true),
            _ => None,
        }
    }

    /// Read an integer in any of its forms, as Python's codec accepts it.
    #[inline]
    pub fn int(&mut self) -> Option<i64> {
        Some(match self.tag()? {
            tag @ 0x00..=0x7f => i64::from(tag),
            tag @ 0xe0..=0xff => i64::from(tag as i8),
            0xcc => i64::from(self.tag()?),
            0xcd => i64::from(u16::from_be_bytes(self.fixed()?)),
            0xce => i64::from(u32::from_be_bytes(self.fixed()?)),
            0xcf => i64::try_from(u64::from_be_bytes(self.fixed()?)).ok()?,
            0xd0 => i64::from(self.tag()? as i8),
            0xd1 => i64::from(i16::from_be_bytes(self.fixed()?)),
            0xd2 => i64::from(i32::from_be_bytes(self.fixed()?)),
            0xd3 => i64::from_be_bytes(self.fixed()?),
            _ => return None,
        })
    }

    #[inline]
    pub fn float(&mut self) -> Option<f64> {
        match self.tag()? {
            0xcb => Some(f64::from_be_bytes(self.fixed()?)),
            _ => None,
        }
    }

    /// Skip a float of 32 or 64 bits.
    pub fn any_float(&mut self) -> Option<()> {
        match self.tag()? {
            0xca => self.fixed::<4>().map(drop),
            0xcb => self.fixed::<8>().map(drop),
            _ => None,
        }
    }

    #[inline]
    pub fn string(&mut self) -> Option<&'a str> {
        let len = match self.tag()? {
            tag @ 0xa0..=0xbf => usize::from(tag & 0x1f),
            0xd9 => usize::from(self.tag()?),
            0xda => usize::from(u16::from_be_bytes(self.fixed()?)),
            0xdb => u32::from_be_bytes(self.fixed()?) as usize,
            _ => return None,
        };
        str::from_utf8(self.take(len)?).ok()
    }

    #[inline]
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = match self.tag()? {
            0xc4 => usize::from(self.tag()?),
            0xc5 => usize::from(u16::from_be_bytes(self.fixed()?)),
            0xc6 => u32::from_be_bytes(self.fixed()?) as usize,
            _ => return None,
        };
        self.take(len)
    }

    /// Read the head of an array: the number of values that follow.
    #[inline]
    pub fn array(&mut self) -> Option<usize> {
        match self.tag()? {
            tag @ 0x90..=0x9f => Some(usize::from(tag & 0x0f)),
            0xdc => Some(usize::from(u16::from_be_bytes(self.fixed()?))),
            0xdd => Some(u32::from_be_bytes(self.fixed()?) as usize),
            _ => None,
        }
    }

    #[inline]
    fn tag(&mut self) -> Option<u8> {
        let (&tag, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(tag)
    }

    #[inline]
    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (value, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*value)
    }

    #[inline]
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (value, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(value)
    }
}
