//! The nodes of an index: 48 bytes each, in pages. A page belongs to a slice (`slices`) and is freed with it.
//!
//! A node holds the entries of the output and of all inputs for one (Vs, payload). Inputs with the same end share it:
//! the *common* end, with a bit for each input that has the event. So a node does not grow with the number of inputs,
//! and an input that repeats an event only sets a bit. Where the ends of inputs differ, or an input has several ends
//! (R4), or a slot has no bit, the node's entries are *spilled* to a separate place until they agree again.

use crate::arena::Place;
use crate::element::{INF, NEG_INF};
use crate::growth::make_room;

/// No end: of an output or an input that does not have the event. A stored end is larger than its Vs, so it is never
/// the smallest integer.
pub const NONE: i64 = NEG_INF;
/// No node.
pub const NIL: u32 = u32::MAX;
/// Slots that have a bit.
pub const BITS: usize = 63;
/// In the place of the bits: the entries are spilled.
const SPILLED: u64 = 1 << BITS;

/// One (Vs, payload).
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Node {
    pub vs: i64,
    /// The time at which a stable must visit the node; `INF`: never, and it is not in the wheel.
    pub due: i64,
    /// The output's end, or NONE. In R4, of a spilled node, meaningless.
    pub out: i64,
    /// The end of all inputs in `has`. Of a spilled node: the place of its entries.
    pub common: i64,
    /// Inputs by slot that have the event.
    pub has: u64,
    pub place: Place,
}

impl Node {
    /// A node without entries, and without a payload yet.
    #[inline]
    pub fn new(vs: i64, due: i64) -> Node {
        Node { vs, due, ..UNUSED }
    }

    /// The place of the spilled entries, or NIL.
    #[inline]
    pub fn spill(&self) -> u32 {
        if self.has == SPILLED { self.common as u32 } else { NIL }
    }

    pub fn set_spill(&mut self, at: u32) {
        (self.common, self.has) = (i64::from(at), SPILLED);
    }

    /// Whether the input has the event, with the common end.
    #[inline]
    pub fn agrees(&self, slot: usize) -> bool {
        slot < BITS && self.has >> slot & 1 == 1
    }
}

const UNUSED: Node = Node {
    vs: 0,
    due: INF,
    out: NONE,
    common: NONE,
    has: 0,
    place: Place::NONE,
};

const PAGE_BITS: u32 = 5;
pub const PAGE: usize = 1 << PAGE_BITS;
/// Empty pages that wait to be used again, at most, beside a share of those in use.
const SPARE_PAGES: usize = 4;
const SPARE_PART: usize = 128;
/// The list of pages grows by at least such a number.
const MORE_PAGES: usize = 16;

#[derive(Debug, Default)]
struct Page {
    /// Empty if the page is absent.
    nodes: Box<[Node]>,
    /// The slice that has the page: see `slices`.
    slice: u32,
}

/// The nodes by number. A number is used again when its page is, and a page is freed as a whole.
#[derive(Debug, Default)]
pub struct Nodes {
    pages: Vec<Page>,
    /// Numbers of absent pages; the last one freed is used first.
    absent: Vec<u32>,
    /// The memory of pages that were freed, with no node in use.
    spare: Vec<Box<[Node]>>,
    count: usize,
}

impl Nodes {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Put a new node in a place where none was since its page was made.
    #[inline]
    pub fn add(&mut self, page: u32, within: usize, node: Node) -> u32 {
        self.pages[page as usize].nodes[within & (PAGE - 1)] = node;
        self.count += 1;
        page << PAGE_BITS | within as u32
    }

    /// Remove a node. Returns the place of its payload, and the slice that it was in.
    #[inline]
    pub fn remove(&mut self, id: u32) -> (Place, u32) {
        let page = &mut self.pages[(id >> PAGE_BITS) as usize];
        let node = &mut page.nodes[id as usize & (PAGE - 1)];
        self.count -= 1;
        node.due = INF;
        (std::mem::replace(&mut node.place, Place::NONE), page.slice)
    }

    #[inline]
    pub fn get(&self, id: u32) -> &Node {
        &self.pages[(id >> PAGE_BITS) as usize].nodes[id as usize & (PAGE - 1)]
    }

    #[inline]
    pub fn get_mut(&mut self, id: u32) -> &mut Node {
        &mut self.pages[(id >> PAGE_BITS) as usize].nodes[id as usize & (PAGE - 1)]
    }

    /// When the node is due; INF if it is not in use.
    #[inline]
    pub fn due(&self, id: u32) -> i64 {
        let page = &self.pages[(id >> PAGE_BITS) as usize];
        page.nodes.get(id as usize & (PAGE - 1)).map_or(INF, |node| node.due)
    }

    /// The slice that the node is in.
    pub fn slice(&self, id: u32) -> u32 {
        self.pages[(id >> PAGE_BITS) as usize].slice
    }

    /// Whether `id` is a node in use.
    pub fn is_used(&self, id: u32) -> bool {
        let page = self.pages.get((id >> PAGE_BITS) as usize);
        let node = page.and_then(|page| page.nodes.get(id as usize & (PAGE - 1)));
        node.is_some_and(|node| node.place != Place::NONE)
    }

    /// The numbers of all nodes in use, ascending.
    pub fn ids(&self) -> Vec<u32> {
        let mut ids = Vec::with_capacity(self.count);
        for number in 0..self.pages() {
            self.ids_of_page(number, &mut ids);
        }
        ids
    }

    /// One more than the largest number of a page.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Append the numbers of the nodes in use of a page.
    pub fn ids_of_page(&self, number: usize, ids: &mut Vec<u32>) {
        for (within, node) in self.pages[number].nodes.iter().enumerate() {
            if node.place != Place::NONE {
                ids.push((number << PAGE_BITS | within) as u32);
            }
        }
    }

    /// Bytes of memory that the pages take.
    pub fn held_bytes(&self) -> usize {
        let pages = self.pages.len() - self.absent.len() + self.spare.len();
        pages * PAGE * size_of::<Node>()
            + self.pages.capacity() * size_of::<Page>()
            + self.absent.capacity() * size_of::<u32>()
    }

    /// Make a page of a slice.
    ///
    /// # Panics
    /// If there are 4 billion nodes.
    pub fn new_page(&mut self, slice: u32) -> u32 {
        let unused = || vec![UNUSED; PAGE].into_boxed_slice();
        let nodes = self.spare.pop().unwrap_or_else(unused);
        let page = Page { nodes, slice };
        if let Some(number) = self.absent.pop() {
            self.pages[number as usize] = page;
            return number;
        }
        assert!(
            self.pages.len() < (1 << (32 - PAGE_BITS)) - 1,
            "more than 4 billion live events"
        );
        make_room(&mut self.pages, MORE_PAGES);
        self.pages.push(page);
        (self.pages.len() - 1) as u32
    }

    /// Free a page without nodes.
    pub fn free_page(&mut self, number: u32) {
        let nodes = std::mem::take(&mut self.pages[number as usize].nodes);
        self.absent.push(number);
        self.spare.push(nodes);
        let used = self.pages.len() - self.absent.len();
        self.spare.truncate(SPARE_PAGES + used / SPARE_PART);
    }
}
