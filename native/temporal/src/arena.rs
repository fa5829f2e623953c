//! Stores the bytes of rows in chunks that are freed when they are empty.
//!
//! Rows go in any order, unlike the payloads of the core's arena, which are freed together.
//!
//! A payload is appended to the current chunk behind a header: its owner (a node's number) and its length. A chunk
//! whose payloads are all removed is freed at once. Events are removed roughly in the order in which they were added,
//! so almost all memory is freed in this way. A remaining payload keeps its chunk. When more than half of all memory is
//! such waste, the sparsest chunks are evacuated ([`Arena::evacuate`]); the owner in the header makes this possible. So
//! the arena holds at most about twice its live bytes, and the work is O(1) for each byte that is removed.

use lmerge_core::growth::make_room;

/// The place of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    chunk: u32,
    offset: u32,
}

impl Place {
    /// No place, for a node that is not in use.
    pub const NONE: Place = Place {
        chunk: u32::MAX,
        offset: u32::MAX,
    };
}

/// The size of a full chunk: large enough for a negligible cost per payload, small enough that one remaining payload,
/// or the empty part of the newest chunk, does not hold much memory.
const CHUNK_BYTES: usize = 32 * 1024;
/// The first chunk of a small merge.
const FIRST_CHUNK_BYTES: usize = 1024;
/// Larger payloads get their own chunk.
const SHARED_BYTES_MAX: usize = CHUNK_BYTES / 4;
/// The list of chunks grows by at least such a number.
const MORE_CHUNKS: usize = 16;
/// Less waste than this is never evacuated.
const WASTE_BYTES_FREE: usize = 4 * CHUNK_BYTES;

/// Bytes of a header: the owner in four bytes, the length in two.
const HEADER: usize = 6;
/// A length that means: to the end of the chunk, which has no other payload.
const WHOLE_CHUNK: u16 = u16::MAX;
const NO_OWNER: u32 = u32::MAX;

#[derive(Debug, Default)]
struct Chunk {
    data: Vec<u8>,
    live_bytes: usize,
}

/// See the head of this module.
#[derive(Debug, Default)]
pub struct Arena {
    chunks: Vec<Chunk>,
    unused: Vec<u32>,
    current: Option<u32>,
    /// Headers and payloads in use.
    live_bytes: usize,
    /// Capacity of all chunks.
    held_bytes: usize,
    payload_bytes: usize,
    /// Chunks that have become less than half full, oldest first; some of them may be freed since.
    sparse: Vec<u32>,
}

impl Arena {
    /// Store `payload` for `owner`.
    pub fn add(&mut self, owner: u32, payload: &[u8]) -> Place {
        let size = HEADER + payload.len();
        let at = self.room_for(size);
        let chunk = &mut self.chunks[at as usize];
        let offset = chunk.data.len() as u32;
        chunk.data.extend_from_slice(&owner.to_le_bytes());
        let len = if size > SHARED_BYTES_MAX {
            WHOLE_CHUNK
        } else {
            payload.len() as u16
        };
        chunk.data.extend_from_slice(&len.to_le_bytes());
        chunk.data.extend_from_slice(payload);
        chunk.live_bytes += size;
        self.live_bytes += size;
        self.payload_bytes += payload.len();
        Place { chunk: at, offset }
    }

    #[inline]
    pub fn get(&self, place: Place) -> &[u8] {
        let data = &self.chunks[place.chunk as usize].data;
        let at = place.offset as usize;
        let len = length(data, at);
        &data[at + HEADER..at + HEADER + len]
    }

    /// Remove a payload.
    pub fn remove(&mut self, place: Place) {
        let chunk = &mut self.chunks[place.chunk as usize];
        let at = place.offset as usize;
        let len = length(&chunk.data, at);
        let size = HEADER + len;
        chunk.data[at..at + 4].copy_from_slice(&NO_OWNER.to_le_bytes());
        let was_dense = 2 * chunk.live_bytes >= chunk.data.capacity();
        chunk.live_bytes -= size;
        self.live_bytes -= size;
        self.payload_bytes -= len;
        if chunk.live_bytes == 0 {
            if self.current == Some(place.chunk) {
                chunk.data.clear();
            } else {
                self.release(place.chunk);
            }
        } else if was_dense && 2 * chunk.live_bytes < chunk.data.capacity() {
            self.note_sparse(place.chunk);
        }
    }

    /// Move the remaining payloads of sparse chunks together, while too much is wasted. Calls `moved` with each owner
    /// and its new place.
    pub fn evacuate(&mut self, mut moved: impl FnMut(u32, Place)) {
        while self.held_bytes - self.live_bytes > self.live_bytes + WASTE_BYTES_FREE {
            let Some(from) = self.sparse.pop() else { return };
            if !self.is_sparse(from) {
                continue;
            }
            let data = std::mem::take(&mut self.chunks[from as usize].data);
            self.held_bytes -= data.capacity();
            self.live_bytes -= self.chunks[from as usize].live_bytes;
            self.chunks[from as usize].live_bytes = 0;
            self.unused.push(from);
            let mut at = 0;
            while at < data.len() {
                let len = length(&data, at);
                let owner = owner(&data, at);
                if owner != NO_OWNER {
                    self.payload_bytes -= len;
                    let place = self.add(owner, &data[at + HEADER..at + HEADER + len]);
                    moved(owner, place);
                }
                at += HEADER + len;
            }
        }
    }

    /// Bytes of memory that the chunks take.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes + self.chunks.capacity() * size_of::<Chunk>()
    }

    /// Bytes of the payloads stored.
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// The owner of the payload at `place`, for checks.
    pub fn owner(&self, place: Place) -> u32 {
        owner(&self.chunks[place.chunk as usize].data, place.offset as usize)
    }

    /// Assert that the counters equal the contents of the chunks.
    pub fn check(&self) {
        let live: usize = self.chunks.iter().map(|chunk| chunk.live_bytes).sum();
        let held: usize = self.chunks.iter().map(|chunk| chunk.data.capacity()).sum();
        assert_eq!(live, self.live_bytes, "live bytes of the arena");
        assert_eq!(held, self.held_bytes, "held bytes of the arena");
    }

    fn room_for(&mut self, size: usize) -> u32 {
        if size > SHARED_BYTES_MAX {
            return self.new_chunk(size);
        }
        if let Some(at) = self.current {
            let chunk = &self.chunks[at as usize];
            if chunk.data.capacity() - chunk.data.len() >= size {
                return at;
            }
        }
        let grown = self
            .current
            .map_or(FIRST_CHUNK_BYTES, |at| 2 * self.chunks[at as usize].data.capacity());
        if let Some(full) = self.current.take() {
            let chunk = &mut self.chunks[full as usize];
            if chunk.live_bytes == 0 {
                self.release(full);
            } else {
                // The rest of the chunk is too small for this payload.
                self.held_bytes -= chunk.data.capacity();
                chunk.data.shrink_to_fit();
                self.held_bytes += chunk.data.capacity();
                if self.is_sparse(full) {
                    self.note_sparse(full);
                }
            }
        }
        let at = self.new_chunk(grown.clamp(size, CHUNK_BYTES));
        self.current = Some(at);
        at
    }

    fn new_chunk(&mut self, bytes: usize) -> u32 {
        let data = Vec::with_capacity(bytes);
        self.held_bytes += data.capacity();
        let chunk = Chunk { data, live_bytes: 0 };
        if let Some(at) = self.unused.pop() {
            self.chunks[at as usize] = chunk;
            return at;
        }
        make_room(&mut self.chunks, MORE_CHUNKS);
        self.chunks.push(chunk);
        (self.chunks.len() - 1) as u32
    }

    fn is_sparse(&self, at: u32) -> bool {
        let chunk = &self.chunks[at as usize];
        self.current != Some(at) && chunk.live_bytes > 0 && 2 * chunk.live_bytes < chunk.data.capacity()
    }

    fn note_sparse(&mut self, at: u32) {
        if self.sparse.len() > 2 * self.chunks.len() {
            let sparse = std::mem::take(&mut self.sparse);
            self.sparse = sparse.into_iter().filter(|&chunk| self.is_sparse(chunk)).collect();
            self.sparse.sort_unstable();
            self.sparse.dedup();
        }
        self.sparse.push(at);
    }

    fn release(&mut self, at: u32) {
        let data = std::mem::take(&mut self.chunks[at as usize].data);
        self.held_bytes -= data.capacity();
        self.unused.push(at);
    }
}

fn owner(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(data[at..at + 4].try_into().expect("four bytes"))
}

#[inline]
fn length(data: &[u8], at: usize) -> usize {
    match u16::from_le_bytes(data[at + 4..at + HEADER].try_into().expect("two bytes")) {
        WHOLE_CHUNK => data.len() - HEADER,
        len => usize::from(len),
    }
}
