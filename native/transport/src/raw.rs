//! A codec of tonic that leaves messages as they are.

use bytes::{Buf, BufMut, Bytes};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Read in pieces of this size, and give what was encoded to the connection at twice the size.
const PIECE_BYTES: usize = 64 << 10;

/// The codec, its encoder and its decoder.
#[derive(Clone, Copy, Default)]
pub(crate) struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(PIECE_BYTES, 2 * PIECE_BYTES)
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let all = from.remaining();
        Ok(Some(from.copy_to_bytes(all)))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(PIECE_BYTES, 2 * PIECE_BYTES)
    }
}
