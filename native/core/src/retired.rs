//! Entries of inputs that have left. To remove them all at once would take time in proportion to the live events. So a
//! slot is *retired*: its entries are not read any more, and no other input gets the slot until they are removed.
//!
//! They are removed in steps. A batch sweeps a fixed number of pages of nodes, and as many nodes as it has elements. A
//! stable cleans the nodes that it visits. So a node that no stable has visited since keeps the entry, and its due time
//! includes it like those of attached inputs; a visited node has no such entry. New nodes have none either. So a pass
//! over the pages that existed when it began finds all entries.

use crate::index::Indexed;
use crate::nodes::{BITS, NIL, PAGE};

/// Pages of nodes that a batch sweeps beside those for its elements: about 30 microseconds of work.
pub const SWEPT_PAGES: usize = 32;

/// Slots by bit.
#[derive(Debug, Default)]
pub struct Retired {
    /// The slots that can still have entries.
    slots: u64,
    /// The slots whose entries the current pass removes, and the page at which it is; 0: there is no pass.
    passing: u64,
    page: usize,
    /// Number of nodes that passes have visited.
    pub swept: u64,
}

impl Retired {
    /// Whether the slot can still have entries of an input that has left.
    #[inline]
    pub fn has(&self, slot: usize) -> bool {
        slot < BITS && self.slots >> slot & 1 == 1
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots == 0
    }

    /// The bits of `has` that belong to attached inputs.
    #[inline]
    pub fn without(&self, has: u64) -> u64 {
        has & !self.slots
    }
}

/// Retire the slot of an input that has left.
pub fn retire<A: Indexed>(algorithm: &mut A, slot: usize) {
    let index = algorithm.index();
    if slot < BITS && !index.store.nodes.is_empty() {
        index.retired.slots |= 1 << slot;
        return;
    }
    for id in index.store.nodes.ids() {
        algorithm.forget_entry(id, slot);
    }
}

/// Remove the entries of retired slots from a node.
#[inline]
pub fn clean<A: Indexed + ?Sized>(algorithm: &mut A, id: u32) {
    let slots = algorithm.index().retired.slots;
    if slots != 0 {
        forget_slots(algorithm, id, slots);
    }
}

/// Do the part of the sweep that a batch of `elements` elements pays for.
#[inline]
pub fn sweep<A: Indexed>(algorithm: &mut A, elements: usize) {
    if !algorithm.index().retired.is_empty() {
        sweep_pages(algorithm, SWEPT_PAGES + elements / PAGE);
    }
}

/// Finish the sweep: every slot without an input can be used then.
pub fn finish<A: Indexed>(algorithm: &mut A) {
    while !algorithm.index().retired.is_empty() {
        sweep_pages(algorithm, usize::MAX);
    }
}

fn sweep_pages<A: Indexed>(algorithm: &mut A, pages: usize) {
    let mut ids = Vec::new();
    for _ in 0..pages {
        let index = algorithm.index();
        let (nodes, retired) = (&index.store.nodes, &mut index.retired);
        if retired.passing == 0 {
            (retired.passing, retired.page) = (retired.slots, 0);
        }
        let slots = retired.passing;
        if nodes.is_empty() || retired.page >= nodes.pages() {
            retired.slots &= !slots;
            retired.passing = 0;
            return; // a slot that was retired during the pass waits for the next batch
        }
        nodes.ids_of_page(retired.page, &mut ids);
        retired.page += 1;
        retired.swept += ids.len() as u64;
        ids.drain(..).for_each(|id| forget_slots(algorithm, id, slots));
    }
}

fn forget_slots<A: Indexed + ?Sized>(algorithm: &mut A, id: u32, slots: u64) {
    let node = algorithm.index().store.nodes.get_mut(id);
    if node.spill() == NIL {
        node.has &= !slots;
        return;
    }
    for slot in (0..BITS).filter(|slot| slots >> slot & 1 == 1) {
        algorithm.forget_entry(id, slot);
    }
}
