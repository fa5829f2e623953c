//! Divides the nodes of a store into slices by Vs, each with its own table, pages and payloads.
//!
//! Events end roughly in the order in which they start. So the nodes of a slice die within a short time, and nothing is
//! removed one by one: a dead node is counted, and the slice is freed as a whole with its last node. A look-up touches
//! only the table of its slice, so the tables in use are those near the stable point, and they stay in the caches
//! however many events are alive.
//!
//! The slices divide the times without gaps: the first begins at the smallest time, each goes on until the next begins,
//! and the last has no end. When the last one is full, the next insert above all its Vs begins another. `store` handles
//! the two cases that this does not: a slice with many nodes more than it should have is split, and slices that are
//! mostly dead are folded together.

use hashbrown::HashTable;

use crate::arena::{Arena, ChunkList};
use crate::element::NEG_INF;
use crate::nodes::{Nodes, PAGE};

/// Places of the smallest and of the largest table, both powers of two.
const PLACES_MIN: usize = 256;
const PLACES_MAX: usize = 2048;
/// A slice should have at most this part of all nodes: what is dead in it is held for so long.
const PART: usize = 32;
/// Tables that wait to be used again.
const SPARE_TABLES: usize = 1;

/// An entry of a table: the hash and the node. That of a dead node stays; its node has no payload, so it is not found.
pub type Table = HashTable<(u32, u32)>;

/// Nodes of one stretch of time.
#[derive(Debug, Default)]
pub struct Slice {
    /// The largest Vs of a node that was added.
    pub max_vs: i64,
    pub pages: Vec<u32>,
    /// Nodes that were added, and those of them that are alive.
    pub used: usize,
    pub live: usize,
    /// With more nodes, another slice begins.
    pub full: usize,
    pub table: Table,
    pub chunks: ChunkList,
    /// Bytes of the payloads that were added, and of those whose nodes are alive.
    pub used_bytes: usize,
    pub live_bytes: usize,
}

impl Slice {
    /// The page and the place in it for another node.
    #[inline]
    pub fn place(&mut self, nodes: &mut Nodes, number: u32) -> (u32, usize) {
        let within = self.used % PAGE;
        if within == 0 {
            self.pages.push(nodes.new_page(number));
        }
        (*self.pages.last().expect("a page with room"), within)
    }

    /// Whether more than half of the nodes or of their payloads are dead.
    pub fn is_sparse(&self) -> bool {
        2 * self.live < self.used || 2 * self.live_bytes < self.used_bytes
    }

    /// Whether so few nodes are alive that the slice can be folded together with another.
    pub fn is_small(&self) -> bool {
        self.live < PLACES_MAX / 4
    }

    /// Whether there are so many nodes that the slice should be split.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.used >= 2 * self.full
    }
}

/// All slices of a store.
#[derive(Debug, Default)]
pub struct Slices {
    slices: Vec<Slice>,
    /// Numbers of slices that are not in use.
    unused: Vec<u32>,
    /// The starts, ascending, and the numbers of the slices in that order.
    starts: Vec<i64>,
    order: Vec<u32>,
    /// The last of both.
    last: Option<(i64, u32)>,
    /// Empty tables with their memory.
    spare: Vec<Table>,
    /// Sums over all slices, as [`Slice`] has them.
    pub used: usize,
    pub used_bytes: usize,
    /// A slice may be crowded.
    pub has_crowded: bool,
}

impl Slices {
    /// The number of the slice for `vs`.
    #[inline]
    pub fn at(&self, vs: i64) -> Option<u32> {
        self.with_range(vs).map(|(number, _, _)| number)
    }

    /// The slice for `vs` with the times from and up to which it is that for others too.
    #[inline]
    pub fn with_range(&self, vs: i64) -> Option<(u32, i64, i64)> {
        let (last_start, last) = self.last?;
        if vs >= last_start {
            return Some((last, last_start, i64::MAX));
        }
        let next = self.starts.partition_point(|&start| start <= vs);
        Some((self.order[next - 1], self.starts[next - 1], self.starts[next]))
    }

    /// The number of the slice for a new node at `vs`. Begins a slice if the last one is full.
    #[inline]
    pub fn for_new(&mut self, vs: i64, live: usize, arena: &mut Arena) -> u32 {
        match self.last {
            Some((start, number)) if vs >= start => {
                let slice = &self.slices[number as usize];
                if slice.used < slice.full || vs <= slice.max_vs {
                    return number;
                }
                let start = slice.max_vs + 1; // not above vs
                arena.finish(&mut self.slices[number as usize].chunks);
                self.push(start, live, arena)
            }
            Some(_) => self.at(vs).expect("there are slices"),
            None => self.push(NEG_INF, live, arena),
        }
    }

    fn push(&mut self, start: i64, live: usize, arena: &Arena) -> u32 {
        let number = self.make(start, live, arena);
        self.starts.push(start);
        self.order.push(number);
        self.last = Some((start, number));
        number
    }

    /// How many nodes a slice should have in a store with `live` nodes.
    pub fn full_for(live: usize) -> usize {
        let places = (live / PART).next_power_of_two().clamp(PLACES_MIN, PLACES_MAX);
        places / 5 * 4 // the table has place for a little more before it doubles
    }

    /// A new slice that is not in the order yet, for a store with `live` nodes.
    fn make(&mut self, start: i64, live: usize, arena: &Arena) -> u32 {
        let number = self.unused.pop().unwrap_or_else(|| {
            self.slices.push(Slice::default());
            (self.slices.len() - 1) as u32
        });
        let slice = &mut self.slices[number as usize];
        slice.max_vs = start;
        slice.full = Slices::full_for(live);
        slice.chunks = arena.list();
        number
    }

    /// Prepare the table of a slice that gets its first node.
    #[cold]
    pub fn begin_table(&mut self, number: u32) {
        let slice = &mut self.slices[number as usize];
        let capacity = slice.full / 4 * 5 / 8 * 7;
        let fits = |table: &Table| (capacity..2 * capacity).contains(&table.capacity());
        slice.table = match self.spare.iter().position(fits) {
            Some(at) => self.spare.swap_remove(at),
            None => Table::with_capacity(capacity),
        };
    }

    #[inline]
    pub fn get(&self, number: u32) -> &Slice {
        &self.slices[number as usize]
    }

    #[inline]
    pub fn get_mut(&mut self, number: u32) -> &mut Slice {
        &mut self.slices[number as usize]
    }

    /// The starts of the slices in use, ascending.
    pub fn starts(&self) -> &[i64] {
        &self.starts
    }

    /// The numbers of the slices in use, in order of time.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// Put new slices with these starts in place of those at `from..to` in the order. Returns the old ones.
    pub fn replace(&mut self, from: usize, to: usize, starts: &[i64], live: usize, arena: &Arena) -> Vec<u32> {
        let new: Vec<u32> = starts.iter().map(|&start| self.make(start, live, arena)).collect();
        self.starts.splice(from..to, starts.iter().copied());
        let old = self.order.splice(from..to, new).collect();
        self.find_last();
        old
    }

    /// Remove a slice from the order. The one before it goes on in its place, or the first begins earlier.
    pub fn remove(&mut self, number: u32) {
        let place = self
            .order
            .iter()
            .position(|&other| other == number)
            .expect("a slice in use");
        self.order.remove(place);
        self.starts.remove(place);
        if let (0, Some(first)) = (place, self.starts.first_mut()) {
            *first = NEG_INF;
        }
        self.find_last();
    }

    fn find_last(&mut self) {
        self.last = self.starts.last().copied().zip(self.order.last().copied());
    }

    /// Free the memory of a slice without nodes that is not in the order.
    pub fn free(&mut self, number: u32, nodes: &mut Nodes, arena: &mut Arena) {
        let slice = std::mem::take(&mut self.slices[number as usize]);
        self.used -= slice.used;
        self.used_bytes -= slice.used_bytes;
        slice.pages.into_iter().rev().for_each(|page| nodes.free_page(page));
        arena.release(slice.chunks);
        let mut table = slice.table;
        if (1..4 * Slices::full_for(nodes.len())).contains(&table.capacity()) {
            self.spare.truncate(SPARE_TABLES - 1);
            table.clear();
            self.spare.insert(0, table);
        }
        self.unused.push(number);
    }

    pub fn held_bytes(&self) -> usize {
        let slices = self.slices.iter();
        let of_slice = |slice: &Slice| slice.table.allocation_size() + slice.pages.capacity() * size_of::<u32>();
        slices.map(of_slice).sum::<usize>()
            + self.spare.iter().map(Table::allocation_size).sum::<usize>()
            + self.slices.capacity() * size_of::<Slice>()
            + (self.order.capacity() + self.unused.capacity()) * size_of::<u32>()
            + self.starts.capacity() * size_of::<i64>()
    }

    /// Assert that the slices divide the times, and that the sums are right.
    pub fn check(&self, nodes: &Nodes) {
        assert!(self.starts.first().is_none_or(|&start| start == NEG_INF));
        assert!(self.starts.is_sorted_by(|a, b| a < b), "starts of slices");
        assert_eq!(self.order.len() + self.unused.len(), self.slices.len(), "slices in use");
        let (mut used, mut live, mut bytes) = (0, 0, 0);
        for &number in &self.order {
            let slice = self.get(number);
            assert!(slice.live > 0 && slice.live <= slice.used, "live nodes of a slice");
            assert!(slice.live_bytes <= slice.used_bytes, "live bytes of a slice");
            assert_eq!(slice.pages.len(), slice.used.div_ceil(PAGE), "pages of a slice");
            let mut ids = Vec::new();
            slice
                .pages
                .iter()
                .for_each(|&page| nodes.ids_of_page(page as usize, &mut ids));
            assert_eq!(ids.len(), slice.live, "live nodes of a slice");
            assert!(
                ids.iter().all(|&id| nodes.slice(id) == number),
                "a node of another slice"
            );
            (used, live, bytes) = (used + slice.used, live + slice.live, bytes + slice.used_bytes);
        }
        assert_eq!(
            (used, live, bytes),
            (self.used, nodes.len(), self.used_bytes),
            "sums of slices"
        );
    }
}
