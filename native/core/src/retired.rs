//! Entries of inputs that have left. Forgetting them all at once would take as long as there are live events, so a slot is
//! *retired*: nobody reads its entries any more, and it belongs to no other input until they are gone.
//!
//! They go by and by. A batch sweeps some pages of nodes, a fixed number and as many nodes as it has elements; a stable
//! cleans what it visits. So a node that no stable has visited since keeps an entry that its due time accounts for, as
//! it does for those of attached inputs, and one that was visited has none. New nodes have none either: a pass over the
//! pages that were there when it began finds all.

use crate::index::Indexed;
use crate::nodes::{BITS, NIL, PAGE};

/// Pages of nodes that a batch sweeps beside those for its elements: about 30 microseconds of work.
pub const SWEPT_PAGES: usize = 4;

/// Slots by bit.
#[derive(Debug, Default)]
pub struct Retired {
    /// Those that can still have entries.
    slots: u64,
    /// Those of which a pass forgets the entries, and the page at which it is; 0: none is under way.
    passing: u64,
    page: usize,
    /// Nodes that passes have looked at.
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

    /// Those of `has` that are of attached inputs.
    #[inline]
    pub fn without(&self, has: u64) -> u64 {
        has & !self.slots
    }
}

/// The input in `slot` has left.
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

/// Forget what inputs that have left have at a node.
#[inline]
pub fn clean<A: Indexed + ?Sized>(algorithm: &mut A, id: u32) {
    let slots = algorithm.index().retired.slots;
    if slots != 0 {
        forget_slots(algorithm, id, slots);
    }
}

/// The part of the work that a batch of so many elements does.
#[inline]
pub fn sweep<A: Indexed>(algorithm: &mut A, elements: usize) {
    if !algorithm.index().retired.is_empty() {
        sweep_pages(algorithm, SWEPT_PAGES + elements / PAGE);
    }
}

/// All of it: every slot without an input can be used.
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
            return; // a slot that was retired meanwhile waits for the next batch
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
