//! The nodes of an index: 48 bytes each, in pages that are freed when they are empty.
//!
//! A node holds the entries of the output and of all inputs for one (Vs, payload). Inputs with the same end share it:
//! the *common* end, with a bit for each input that has the event. So a node does not grow with the number of inputs,
//! and an input that repeats an event only sets a bit. Where the ends of inputs differ, or an input has several ends
//! (R4), or a slot has no bit, the node's entries are *spilled* to a separate place until they agree again.

use crate::arena::Place;
use crate::element::{INF, NEG_INF};

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
    /// The end of all inputs in `has`. Of a spilled node: the place of its entries. Of an unused one: the next unused
    /// node of its page.
    pub common: i64,
    /// Inputs by slot that have the event.
    pub has: u64,
    pub place: Place,
}

impl Node {
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

const PAGE_BITS: u32 = 8;
pub const PAGE: usize = 1 << PAGE_BITS;

#[derive(Debug)]
struct Page {
    nodes: Box<[Node; PAGE]>,
    /// The first unused node, as a number within the page.
    unused: u32,
    used: u32,
}

/// The nodes by number.
#[derive(Debug, Default)]
pub struct Nodes {
    pages: Vec<Option<Page>>,
    /// Pages with room, and numbers of absent pages. The lowest is used first, so that the upper pages become empty.
    room: std::collections::BTreeSet<u32>,
    absent: std::collections::BTreeSet<u32>,
    /// The first page with room, if there is one.
    lowest: Option<u32>,
    count: usize,
}

impl Nodes {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// A new node at `vs`, due then.
    pub fn add(&mut self, vs: i64) -> u32 {
        let number = match self.lowest {
            Some(number) => number,
            None => self.new_page(),
        };
        let page = self.pages[number as usize].as_mut().expect("a page with room is there");
        let within = page.unused;
        let node = &mut page.nodes[within as usize];
        page.unused = node.common as u32;
        page.used += 1;
        *node = Node { vs, due: vs, ..UNUSED };
        self.count += 1;
        if page.unused == NIL {
            self.room.remove(&number);
            self.find_lowest();
        }
        number << PAGE_BITS | within
    }

    pub fn remove(&mut self, id: u32) {
        let number = id >> PAGE_BITS;
        let page = self.pages[number as usize].as_mut().expect("a node's page is there");
        let within = id & (PAGE as u32 - 1);
        page.nodes[within as usize] = Node {
            common: i64::from(page.unused),
            ..UNUSED
        };
        let was_full = page.unused == NIL;
        page.unused = within;
        page.used -= 1;
        self.count -= 1;
        let is_empty = page.used == 0;
        if was_full {
            self.room.insert(number);
            self.find_lowest();
        }
        if is_empty && self.room.len() > 1 {
            self.pages[number as usize] = None;
            self.absent.insert(number);
            self.room.remove(&number);
            self.find_lowest();
        }
    }

    fn find_lowest(&mut self) {
        self.lowest = self.room.first().copied();
    }

    #[inline]
    pub fn get(&self, id: u32) -> &Node {
        &self.pages[(id >> PAGE_BITS) as usize]
            .as_ref()
            .expect("a node's page is there")
            .nodes[id as usize & (PAGE - 1)]
    }

    #[inline]
    pub fn get_mut(&mut self, id: u32) -> &mut Node {
        let page = self.pages[(id >> PAGE_BITS) as usize]
            .as_mut()
            .expect("a node's page is there");
        &mut page.nodes[id as usize & (PAGE - 1)]
    }

    /// When the node is due; INF if it is not in use.
    #[inline]
    pub fn due(&self, id: u32) -> i64 {
        match &self.pages[(id >> PAGE_BITS) as usize] {
            Some(page) => page.nodes[id as usize & (PAGE - 1)].due,
            None => INF,
        }
    }

    /// Whether `id` is a node in use.
    pub fn is_used(&self, id: u32) -> bool {
        match self.pages.get((id >> PAGE_BITS) as usize) {
            Some(Some(page)) => page.nodes[id as usize & (PAGE - 1)].place != Place::NONE,
            _ => false,
        }
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
        let Some(page) = &self.pages[number] else { return };
        for (within, node) in page.nodes.iter().enumerate() {
            if node.place != Place::NONE {
                ids.push((number << PAGE_BITS | within) as u32);
            }
        }
    }

    /// Bytes of memory that the pages take.
    pub fn held_bytes(&self) -> usize {
        let pages = self.pages.iter().flatten().count();
        pages * PAGE * size_of::<Node>() + self.pages.capacity() * size_of::<Option<Page>>()
    }

    fn new_page(&mut self) -> u32 {
        let mut nodes = vec![
            Node {
                common: i64::from(NIL),
                ..UNUSED
            };
            PAGE
        ]
        .into_boxed_slice();
        for (next, node) in (1..PAGE as u32).zip(nodes.iter_mut()) {
            node.common = i64::from(next);
        }
        let page = Some(Page {
            nodes: nodes.try_into().expect("as many nodes as a page has"),
            unused: 0,
            used: 0,
        });
        let number = match self.absent.pop_first() {
            Some(number) => {
                self.pages[number as usize] = page;
                number
            }
            None => {
                self.pages.push(page);
                (self.pages.len() - 1) as u32
            }
        };
        assert!(number < (1 << (32 - PAGE_BITS)) - 1, "more than 4 billion live events");
        self.room.insert(number);
        self.find_lowest();
        number
    }
}
