//! Stores payloads, each once, in chunks.
//!
//! A payload is appended to the newest chunk of a [`ChunkList`]. All payloads of a list live about equally long (see
//! `slices`), so nothing is counted by chunk: a list is freed as a whole. A full-sized chunk that is freed is used again
//! first, while it is in the caches. A large payload has memory of its own, which is freed with it.

/// The place of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    chunk: u32,
    offset: u16,
    len: u16,
}

impl Place {
    /// No place, for a node that is not in use. Its length is that of no payload.
    pub const NONE: Place = Place {
        chunk: u32::MAX,
        offset: u16::MAX,
        len: OWN_CHUNK - 1,
    };
}

/// The size of a full chunk: large enough for a negligible cost per payload, small enough for offsets of 16 bits.
pub const CHUNK_BYTES: usize = 32 * 1024;
/// The first chunk of a list that is small, and of one that is closed.
const FIRST_CHUNK_BYTES: usize = 1024;
/// A list begins with a chunk of at most this part of the arena.
const FIRST_PART: usize = 16;
/// Larger payloads get their own chunk.
const SHARED_BYTES_MAX: usize = CHUNK_BYTES / 4;
/// A length that means: the whole chunk, which has no other payload.
const OWN_CHUNK: u16 = u16::MAX;
/// Payloads up to this length are compared in place.
const INLINE_BYTES_MAX: usize = 32;
/// Chunks that wait to be used again, at most, beside a share of those in use.
const SPARE_CHUNKS: usize = 4;
const SPARE_PART: usize = 8;

/// Chunks that are freed together.
#[derive(Debug, Default)]
pub struct ChunkList {
    chunks: Vec<u32>,
    /// The size of the next chunk.
    next_bytes: usize,
}

/// See the head of this module.
#[derive(Debug, Default)]
pub struct Arena {
    chunks: Vec<Vec<u8>>,
    /// Numbers without a chunk.
    unused: Vec<u32>,
    /// Chunks of full size, empty.
    spare: Vec<Vec<u8>>,
    /// Capacity of all chunks, spare ones too.
    held_bytes: usize,
    payload_bytes: usize,
}

impl Arena {
    /// An empty list.
    pub fn list(&self) -> ChunkList {
        let part = (self.payload_bytes / FIRST_PART).next_power_of_two();
        ChunkList {
            chunks: Vec::new(),
            next_bytes: part.clamp(FIRST_CHUNK_BYTES, CHUNK_BYTES),
        }
    }

    /// Store `payload` in `list`.
    #[inline]
    pub fn add(&mut self, list: &mut ChunkList, payload: &[u8]) -> Place {
        self.payload_bytes += payload.len();
        if let Some(&number) = list.chunks.last() {
            let chunk = &mut self.chunks[number as usize];
            let room = (chunk.capacity() - chunk.len()).min(SHARED_BYTES_MAX);
            if payload.len() <= room {
                return append(chunk, number, payload);
            }
        }
        self.add_to_new_chunk(list, payload)
    }

    #[cold]
    fn add_to_new_chunk(&mut self, list: &mut ChunkList, payload: &[u8]) -> Place {
        if payload.len() > SHARED_BYTES_MAX {
            let chunk = self.number(payload.to_vec());
            self.held_bytes += payload.len();
            return Place {
                chunk,
                offset: 0,
                len: OWN_CHUNK,
            };
        }
        self.close(list);
        let bytes = list.next_bytes.max(payload.len());
        list.next_bytes = (2 * bytes).min(CHUNK_BYTES);
        let spare = if bytes == CHUNK_BYTES { self.spare.pop() } else { None };
        let chunk = spare.unwrap_or_else(|| {
            self.held_bytes += bytes;
            Vec::with_capacity(bytes)
        });
        let number = self.number(chunk);
        list.chunks.push(number);
        append(&mut self.chunks[number as usize], number, payload)
    }

    /// Give the end of the newest chunk back if it is large: little more is stored in this list.
    pub fn close(&mut self, list: &mut ChunkList) {
        if let Some(&number) = list.chunks.last() {
            let chunk = &mut self.chunks[number as usize];
            let before = chunk.capacity();
            if 8 * (before - chunk.len()) > before {
                chunk.shrink_to_fit();
                self.held_bytes -= before - chunk.capacity();
            }
        }
    }

    /// Let the next chunk of a list be small.
    pub fn finish(&mut self, list: &mut ChunkList) {
        self.close(list);
        list.next_bytes = FIRST_CHUNK_BYTES;
    }

    #[inline]
    pub fn get(&self, place: Place) -> &[u8] {
        let chunk = &self.chunks[place.chunk as usize];
        if place.len == OWN_CHUNK {
            return chunk;
        }
        let start = place.offset as usize;
        &chunk[start..start + place.len as usize]
    }

    /// Whether `payload` is the one at `place`. False for [`Place::NONE`].
    #[inline]
    pub fn is_at(&self, place: Place, payload: &[u8]) -> bool {
        let len = if payload.len() > SHARED_BYTES_MAX {
            OWN_CHUNK
        } else {
            payload.len() as u16
        };
        place.len == len && is_equal(self.get(place), payload)
    }

    /// The length of the payload at `place`.
    #[inline]
    pub fn len(&self, place: Place) -> usize {
        if place.len == OWN_CHUNK {
            self.chunks[place.chunk as usize].len()
        } else {
            place.len as usize
        }
    }

    /// Note that a payload is not needed any more. Returns its length. Its memory is freed with its list, or now if it
    /// is large.
    #[inline]
    pub fn remove(&mut self, place: Place) -> usize {
        let len = self.len(place);
        self.payload_bytes -= len;
        if place.len == OWN_CHUNK {
            self.free(place.chunk);
        }
        len
    }

    /// Move a payload to another list. A large one stays where it is.
    pub fn move_to(&mut self, list: &mut ChunkList, place: Place) -> Place {
        if place.len == OWN_CHUNK {
            return place;
        }
        let payload = self.get(place).to_vec();
        self.payload_bytes -= payload.len();
        self.add(list, &payload)
    }

    /// Free a list, whose payloads have all been removed or moved.
    pub fn release(&mut self, list: ChunkList) {
        list.chunks.into_iter().rev().for_each(|number| self.free(number));
        let spare_max = SPARE_CHUNKS + (self.chunks.len() - self.unused.len()) / SPARE_PART;
        while self.spare.len() > spare_max {
            self.spare.pop();
            self.held_bytes -= CHUNK_BYTES;
        }
    }

    /// Bytes of memory that the chunks take.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes + self.chunks.capacity() * size_of::<Vec<u8>>() + self.unused.capacity() * size_of::<u32>()
    }

    /// Bytes of the payloads stored.
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Assert that the counters equal the contents of the chunks.
    pub fn check(&self) {
        let held: usize = self.chunks.iter().chain(&self.spare).map(Vec::capacity).sum();
        assert_eq!(held, self.held_bytes, "held bytes of the arena");
        assert!(self.payload_bytes <= held, "payload bytes of the arena");
    }

    fn free(&mut self, number: u32) {
        let mut chunk = std::mem::take(&mut self.chunks[number as usize]);
        self.unused.push(number);
        if chunk.capacity() == CHUNK_BYTES {
            chunk.clear();
            self.spare.push(chunk);
        } else {
            self.held_bytes -= chunk.capacity();
        }
    }

    /// A number for a chunk.
    fn number(&mut self, chunk: Vec<u8>) -> u32 {
        if let Some(number) = self.unused.pop() {
            self.chunks[number as usize] = chunk;
            return number;
        }
        if self.chunks.len() == self.chunks.capacity() {
            self.chunks.reserve_exact(16 + self.chunks.len() / 8); // doubling would hold one or two bytes per payload
        }
        self.chunks.push(chunk);
        (self.chunks.len() - 1) as u32
    }
}

#[inline]
fn append(chunk: &mut Vec<u8>, number: u32, payload: &[u8]) -> Place {
    let offset = chunk.len() as u16;
    chunk.extend_from_slice(payload);
    Place {
        chunk: number,
        offset,
        len: payload.len() as u16,
    }
}

/// Whether two payloads of one length are equal. Short ones without a call.
#[inline]
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() > INLINE_BYTES_MAX {
        return a == b;
    }
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let differ = |(a, b): (&[u8; 8], &[u8; 8])| u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(*b);
    let rest = a_rest.iter().zip(b_rest).fold(0, |bits, (a, b)| bits | (a ^ b));
    a.iter().zip(b).map(differ).fold(0, |bits, more| bits | more) == 0 && rest == 0
}
