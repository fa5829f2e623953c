//! The messages that carry batches, as bytes: `PublishRequest` and `SubscribeResponse` of proto/lmerge/v1/lmerge.proto.
//!
//! This module handles only their batches. Python handles all other messages, which are small. Reading copies nothing:
//! the columns are parts of the message. Writing copies each byte once, from any number of batches into one message.

use bytes::{BufMut, Bytes};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use crate::columns::{Raw, View};
use crate::element::ADJUST;

/// `Batch`: the columns of a message, parts of its bytes.
#[derive(Clone, PartialEq, Message)]
pub struct Batch {
    #[prost(bytes = "bytes", tag = "1")]
    pub kinds: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub vs: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub ve: Bytes,
    #[prost(bytes = "bytes", tag = "4")]
    pub vold: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    pub ends: Bytes,
    #[prost(bytes = "bytes", tag = "6")]
    pub payloads: Bytes,
}

impl Batch {
    /// The columns, unchecked.
    pub fn raw(&self) -> Raw<'_> {
        Raw {
            kinds: &self.kinds,
            vs: &self.vs,
            ve: &self.ve,
            vold: &self.vold,
            ends: &self.ends,
            payloads: &self.payloads,
        }
    }
}

/// `PublishRequest.SequencedBatch`.
#[derive(Clone, PartialEq, Message)]
pub struct SequencedBatch {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(message, optional, tag = "2")]
    pub batch: Option<Batch>,
}

/// `PublishRequest`, if it carries a batch.
#[derive(Clone, PartialEq, Message)]
struct PublishRequest {
    #[prost(message, optional, tag = "2")]
    batch: Option<SequencedBatch>,
}

/// `SubscribeResponse`, if it carries a batch.
#[derive(Clone, PartialEq, Message)]
struct SubscribeResponse {
    #[prost(message, optional, tag = "2")]
    batch: Option<Batch>,
}

const BATCH_TAG: u32 = 2;
const SEQUENCE_TAG: u32 = 1;

/// The batch of a `PublishRequest`. None: it has another content, or is not written as [`Outgoing`] writes.
pub fn read_publish(message: Bytes) -> Option<SequencedBatch> {
    read::<PublishRequest>(message)?.batch
}

/// The batch of a `SubscribeResponse`. None: it has another content, or is not written as [`Outgoing`] writes.
pub fn read_subscribe(message: Bytes) -> Option<Batch> {
    read::<SubscribeResponse>(message)?.batch
}

/// Decode a message whose length is exactly that of the fields declared here, each of them once. Other messages are
/// left to protobuf: it decides which field of a `oneof` is valid, and about repeated and unknown fields.
fn read<M: Message + Default>(message: Bytes) -> Option<M> {
    let len = message.len();
    M::decode(message).ok().filter(|read| read.encoded_len() == len)
}

/// A message to be written. Its length is known in advance.
pub struct Outgoing<'a> {
    parts: &'a [View<'a>],
    /// None: a `SubscribeResponse`, which has no sequence.
    sequence: Option<u64>,
    elements: usize,
    payload_bytes: usize,
    has_events: bool,
    has_adjusts: bool,
}

impl<'a> Outgoing<'a> {
    /// `parts`: batches that become one, in order; at most 4 GiB of payloads together.
    pub fn new(parts: &'a [View<'a>], sequence: Option<u64>) -> Outgoing<'a> {
        let (mut elements, mut payload_bytes) = (0, 0);
        let (mut has_events, mut has_adjusts) = (false, false);
        for part in parts {
            let kinds = part.kinds();
            elements += kinds.len();
            payload_bytes += part.payload_bytes();
            has_events |= kinds.iter().any(|&kind| kind <= ADJUST);
            has_adjusts |= kinds.contains(&ADJUST);
        }
        Outgoing {
            parts,
            sequence,
            elements,
            payload_bytes,
            has_events,
            has_adjusts,
        }
    }

    /// Bytes of the message.
    pub fn encoded_len(&self) -> usize {
        let batch = self.batch_len();
        match self.sequence {
            None => field_len(batch),
            Some(_) => field_len(self.sequenced_len()),
        }
    }

    /// Write the message: exactly `encoded_len` bytes.
    pub fn write(&self, out: &mut impl BufMut) {
        if let Some(sequence) = self.sequence {
            open(BATCH_TAG, self.sequenced_len(), out);
            if sequence > 0 {
                encode_key(SEQUENCE_TAG, WireType::Varint, out);
                encode_varint(sequence, out);
            }
        }
        open(BATCH_TAG, self.batch_len(), out);
        let n = self.elements;
        open_bytes(1, n, out);
        self.parts.iter().for_each(|part| out.put_slice(part.kinds()));
        open_bytes(2, 8 * n, out);
        self.parts.iter().for_each(|part| out.put_slice(part.vs_bytes()));
        if self.has_events {
            open_bytes(3, 8 * n, out);
            self.parts
                .iter()
                .for_each(|part| put_times(part.ve_bytes(), part.len(), out));
        }
        if self.has_adjusts {
            open_bytes(4, 8 * n, out);
            self.parts
                .iter()
                .for_each(|part| put_times(part.vold_bytes(), part.len(), out));
        }
        if self.has_events {
            open_bytes(5, 4 * n, out);
            let mut before = 0;
            for part in self.parts {
                (0..part.len()).for_each(|at| out.put_u32_le((before + part.payload_end(at)) as u32));
                before += part.payload_bytes();
            }
            open_bytes(6, self.payload_bytes, out);
            self.parts.iter().for_each(|part| out.put_slice(part.payloads_bytes()));
        }
    }

    fn sequenced_len(&self) -> usize {
        let sequence = self.sequence.unwrap_or(0);
        let of_sequence = if sequence > 0 {
            1 + encoded_len_varint(sequence)
        } else {
            0
        };
        of_sequence + field_len(self.batch_len())
    }

    fn batch_len(&self) -> usize {
        let n = self.elements;
        let times = bytes_len(8 * n);
        let mut len = bytes_len(n) + times;
        if self.has_events {
            len += times + bytes_len(4 * n) + bytes_len(self.payload_bytes);
        }
        if self.has_adjusts {
            len += times;
        }
        len
    }
}

/// The length of a field: one byte of key, a length and `bytes` bytes.
fn field_len(bytes: usize) -> usize {
    1 + encoded_len_varint(bytes as u64) + bytes
}

/// The same for a column, which is left out if it is empty.
fn bytes_len(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { field_len(bytes) }
}

fn open(tag: u32, bytes: usize, out: &mut impl BufMut) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(bytes as u64, out);
}

fn open_bytes(tag: u32, bytes: usize, out: &mut impl BufMut) {
    if bytes > 0 {
        open(tag, bytes, out);
    }
}

/// Write a column of `n` times, or zeros where the part omits it.
fn put_times(column: &[u8], n: usize, out: &mut impl BufMut) {
    if column.is_empty() {
        out.put_bytes(0, 8 * n);
    } else {
        out.put_slice(column);
    }
}
