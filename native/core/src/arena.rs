//! Stores payloads, each once, in chunks.
//!
//! A payload is appended to the newest chunk of a [`ChunkList`]. All payloads of a list live about equally long (see
//! `slices`). A chunk is freed with its last payload, and its number with its list. A full-sized chunk that is freed is
//! used again first, while it is in the caches. A large payload has memory of its own.

use crate::growth::make_room;

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
pub const CHUNK_BYTES: usize = 64 * 1024;
/// The first chunk of a list that is small, and of one that is closed.
const FIRST_CHUNK_BYTES: usize = 1024;
/// A list begins with a chunk of at most this part of the arena.
const FIRST_PART: usize = 64;
/// Larger payloads get their own chunk.
const SHARED_BYTES_MAX: usize = CHUNK_BYTES / 8;
/// A length that means: the whole chunk, which has no other payload.
const OWN_CHUNK: u16 = u16::MAX;
/// Payloads up to this length are compared in place.
const INLINE_BYTES_MAX: usize = 32;
/// The largest shared chunk of a list that is closed: few payloads follow.
const CLOSED_CHUNK_BYTES: usize = 4 * 1024;
/// Full chunks that wait to be used again, at most.
const SPARE_CHUNKS: usize = 1;
/// The list of chunks grows by at least such a number.
const MORE_CHUNKS: usize = 16;
/// An unused end of a chunk that is a larger part of it is given back. Long payloads leave one in every chunk.
const UNUSED_PART: usize = 256;

/// Chunks that are freed together.
#[derive(Debug, Default)]
pub struct ChunkList {
    chunks: Vec<u32>,
    /// The size of the next chunk, and of the largest.
    next_bytes: usize,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Chunk {
    data: Vec<u8>,
    /// How many payloads in it are needed.
    live: u32,
}

/// See the head of this module.
#[derive(Debug, Default)]
pub struct Arena {
    chunks: Vec<Chunk>,
    /// Numbers without a chunk.
    unused: Vec<u32>,
    /// Chunks of full size, or of a little less after a trim, empty.
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
            bytes_max: CHUNK_BYTES,
        }
    }

    /// Store `payload` in `list`.
    #[inline]
    pub fn add(&mut self, list: &mut ChunkList, payload: &[u8]) -> Place {
        self.payload_bytes += payload.len();
        if let Some(&number) = list.chunks.last() {
            let chunk = &mut self.chunks[number as usize];
            let room = (chunk.data.capacity() - chunk.data.len()).min(SHARED_BYTES_MAX);
            if payload.len() <= room {
                return append(chunk, number, payload);
            }
        }
        self.add_to_new_chunk(list, payload)
    }

    #[cold]
    fn add_to_new_chunk(&mut self, list: &mut ChunkList, payload: &[u8]) -> Place {
        if payload.len() > SHARED_BYTES_MAX {
            self.held_bytes += payload.len();
            let chunk = self.number(Chunk {
                data: payload.to_vec(),
                live: 1,
            });
            return Place {
                chunk,
                offset: 0,
                len: OWN_CHUNK,
            };
        }
        self.trim(list);
        let bytes = list.next_bytes.max(payload.len());
        list.next_bytes = (2 * bytes).min(list.bytes_max);
        let spare = if bytes == CHUNK_BYTES { self.spare.pop() } else { None };
        let data = spare.unwrap_or_else(|| {
            self.held_bytes += bytes;
            Vec::with_capacity(bytes)
        });
        let number = self.number(Chunk { data, live: 0 });
        list.chunks.push(number);
        append(&mut self.chunks[number as usize], number, payload)
    }

    /// Give the end of the newest chunk back if it is large.
    fn trim(&mut self, list: &mut ChunkList) {
        if let Some(&number) = list.chunks.last() {
            let chunk = &mut self.chunks[number as usize];
            let before = chunk.data.capacity();
            if UNUSED_PART * (before - chunk.data.len()) > before {
                chunk.data.shrink_to_fit();
                self.held_bytes -= before - chunk.data.capacity();
            }
        }
    }

    /// Close a list: let the chunks that follow be small.
    pub fn finish(&mut self, list: &mut ChunkList) {
        self.trim(list);
        (list.next_bytes, list.bytes_max) = (FIRST_CHUNK_BYTES, CLOSED_CHUNK_BYTES);
    }

    #[inline]
    pub fn get(&self, place: Place) -> &[u8] {
        let data = &self.chunks[place.chunk as usize].data;
        if place.len == OWN_CHUNK {
            return data;
        }
        let start = place.offset as usize;
        &data[start..start + place.len as usize]
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
            self.chunks[place.chunk as usize].data.len()
        } else {
            place.len as usize
        }
    }

    /// Note that a payload is not needed any more. Returns its length.
    #[inline]
    pub fn remove(&mut self, place: Place) -> usize {
        let len = self.len(place);
        self.payload_bytes -= len;
        let chunk = &mut self.chunks[place.chunk as usize];
        chunk.live -= 1;
        if chunk.live == 0 {
            self.free(place.chunk);
            if place.len == OWN_CHUNK {
                self.unused.push(place.chunk); // it is in no list
            }
        }
        len
    }

    /// Move a payload to another list. A large one stays where it is.
    pub fn move_to(&mut self, list: &mut ChunkList, place: Place) -> Place {
        if place.len == OWN_CHUNK {
            return place;
        }
        let payload = self.get(place).to_vec();
        self.remove(place);
        self.add(list, &payload)
    }

    /// Free a list, whose payloads have all been removed or moved.
    pub fn release(&mut self, list: ChunkList) {
        self.unused.extend(list.chunks.into_iter().rev());
    }

    /// Bytes of memory that the chunks take.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes + self.chunks.capacity() * size_of::<Chunk>() + self.unused.capacity() * size_of::<u32>()
    }

    /// Bytes of the payloads stored.
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Assert that the counters equal the contents of the chunks.
    pub fn check(&self) {
        let all = self.chunks.iter().map(|chunk| &chunk.data).chain(&self.spare);
        let held: usize = all.map(Vec::capacity).sum();
        assert_eq!(held, self.held_bytes, "held bytes of the arena");
        assert!(self.payload_bytes <= held, "payload bytes of the arena");
    }

    fn free(&mut self, number: u32) {
        let mut chunk = std::mem::take(&mut self.chunks[number as usize].data);
        let is_full = (CHUNK_BYTES - SHARED_BYTES_MAX..=CHUNK_BYTES).contains(&chunk.capacity());
        if is_full && self.spare.len() < SPARE_CHUNKS {
            chunk.clear();
            self.spare.push(chunk);
        } else {
            self.held_bytes -= chunk.capacity();
        }
    }

    /// A number for a chunk of a list, or for one with a payload of its own.
    fn number(&mut self, chunk: Chunk) -> u32 {
        if let Some(number) = self.unused.pop() {
            self.chunks[number as usize] = chunk;
            return number;
        }
        make_room(&mut self.chunks, MORE_CHUNKS);
        self.chunks.push(chunk);
        (self.chunks.len() - 1) as u32
    }
}

#[inline]
fn append(chunk: &mut Chunk, number: u32, payload: &[u8]) -> Place {
    let offset = chunk.data.len() as u16;
    chunk.data.extend_from_slice(payload);
    chunk.live += 1;
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
