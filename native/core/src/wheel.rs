//! A calendar of due times: it gives the nodes to visit when the stable point moves to `t` (law 2, docs/laws.md).
//!
//! The hierarchical timing wheel of `lmerge/core/calendar.py`. A node due at `d` has an entry on the level of the
//! highest byte in which `d` and `now` differ, in the slot given by that byte of `d`. An entry is the node's number and
//! the lower half of its due time, in blocks of entries. Up to the fourth level it can be distributed again without a
//! look at the node, which would miss every cache when there are many nodes.
//!
//! When a node is entered again or removed, its old entry stays. It is recognised later because the node then has
//! another due time. Stale entries are bounded: when they outnumber the others, the wheel is built again
//! ([`Wheel::tidy`]).

use crate::element::{INF, NEG_INF};
use crate::growth::make_room;
use crate::nodes::{NIL, Nodes};

const LEVELS: usize = 8;
const SLOTS: usize = 256;
/// The first slot: due times of the other sign than `now`. They differ from it in the sign bit, above all bytes.
const OTHER_SIGN: usize = 0;
/// Levels whose due times differ from `now` in the lower half only.
const NEAR_LEVELS: usize = 4;

const BLOCK: usize = 15;
/// The list of blocks grows by at least such a number.
const MORE_BLOCKS: usize = 32;
/// A buffer of more entries is not kept.
const DEALT_KEPT: usize = 1024;
/// With fewer entries or blocks, tidying costs more than it saves.
const TIDY_MIN: usize = 4096;

/// Some entries of a slot; 128 bytes.
#[derive(Clone, Copy, Debug)]
struct Block {
    entries: [Entry; BLOCK],
    len: u32,
    /// The next block of the slot, or of the unused ones.
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u32,
    /// The lower half of the due time.
    low: u32,
}

/// Nodes by due time. Nothing is due before `now`; nodes that are never due (`INF`) are not entered.
#[derive(Debug)]
pub struct Wheel {
    now: i64,
    /// The first block of each slot, by level. Levels above the highest that was used are left out.
    heads: Vec<u32>,
    /// A bit for each slot that is not empty.
    occupied: [[u64; SLOTS / 64]; LEVELS],
    blocks: Vec<Block>,
    /// The first unused block.
    unused: u32,
    /// Number of entries, including stale ones.
    count: usize,
    /// A buffer for entries that are distributed again; kept to reuse its memory.
    dealt: Vec<Entry>,
}

impl Wheel {
    pub fn new(now: i64) -> Wheel {
        Wheel {
            now,
            heads: Vec::new(),
            occupied: [[0; SLOTS / 64]; LEVELS],
            blocks: Vec::new(),
            unused: NIL,
            count: 0,
            dealt: Vec::new(),
        }
    }

    pub fn now(&self) -> i64 {
        self.now
    }

    /// Move `now` to `t`, and remove and append to `popped` all nodes due before `t`, in no useful order. They have no
    /// due time until they are entered again. Amortised O(removed).
    pub fn pop_below(&mut self, nodes: &mut Nodes, t: i64, popped: &mut Vec<u32>) {
        let now = self.now;
        if t <= now {
            return;
        }
        self.now = t;
        let difference = t ^ now;
        // On the highest level that turns, the slot of `t` is distributed again; all levels below have passed.
        let (turned, own) = if difference < 0 {
            (LEVELS, OTHER_SIGN)
        } else {
            let top = level(difference);
            for slot in byte(now, top)..byte(t, top) {
                self.take(nodes, slot_at(top, slot), popped);
            }
            (top, slot_at(top, byte(t, top)))
        };
        for level in 0..turned {
            for word in 0..SLOTS / 64 {
                while self.occupied[level][word] != 0 {
                    let bit = self.occupied[level][word].trailing_zeros() as usize;
                    self.take(nodes, slot_at(level, word * 64 + bit), popped);
                }
            }
        }
        let mut dealt = std::mem::take(&mut self.dealt);
        self.empty(own, |entry| dealt.push(entry));
        let high = t & !i64::from(u32::MAX);
        for Entry { id, low } in dealt.drain(..) {
            let due = if turned < NEAR_LEVELS {
                high | i64::from(low)
            } else {
                nodes.due(id)
            };
            if due < t {
                pop(nodes, id, t, popped);
            } else {
                self.push(due, id);
            }
        }
        if dealt.capacity() <= DEALT_KEPT {
            self.dealt = dealt;
        }
    }

    /// Build the wheel again if stale entries outnumber the others, or most blocks are unused.
    pub fn tidy(&mut self, nodes: &Nodes) {
        let too_many = self.count > 2 * nodes.len() + TIDY_MIN;
        let too_empty = BLOCK * self.blocks.len() > 8 * self.count + 8 * TIDY_MIN;
        if too_many || too_empty {
            *self = Wheel::new(self.now);
            for id in nodes.ids() {
                self.push(nodes.due(id), id);
            }
        }
    }

    /// Every node that is entered, ascending, for checks.
    pub fn entries(&self, nodes: &Nodes) -> Vec<u32> {
        let mut ids = Vec::new();
        for (slot, &head) in self.heads.iter().enumerate() {
            let mut at = head;
            while at != NIL {
                let block = self.block(at);
                for entry in &block.entries[..block.len as usize] {
                    let due = nodes.due(entry.id);
                    if due < INF && self.slot(due) == slot && due as u32 == entry.low {
                        ids.push(entry.id);
                    }
                }
                at = block.next;
            }
        }
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    pub fn held_bytes(&self) -> usize {
        let blocks = self.blocks.capacity() * size_of::<Block>() + self.dealt.capacity() * size_of::<Entry>();
        blocks + self.heads.capacity() * size_of::<u32>() + size_of::<Wheel>()
    }

    #[inline]
    fn slot(&self, due: i64) -> usize {
        let difference = due ^ self.now;
        if difference < 0 {
            return OTHER_SIGN;
        }
        let level = level(difference);
        slot_at(level, byte(due, level))
    }

    /// Enter a node that is due at `due`, which is not before `now`. One that is never due is not entered.
    #[inline]
    pub fn push(&mut self, due: i64, id: u32) {
        if due == INF {
            return;
        }
        let slot = self.slot(due);
        let entry = Entry { id, low: due as u32 };
        self.count += 1;
        let head = self.heads.get(slot).copied().unwrap_or(NIL);
        if head != NIL {
            let block = self.block_mut(head);
            let len = block.len as usize;
            if len < BLOCK {
                block.entries[len] = entry;
                block.len += 1;
                return;
            }
        }
        self.push_block(slot, entry);
    }

    fn push_block(&mut self, slot: usize, entry: Entry) {
        if slot >= self.heads.len() {
            self.add_levels(slot);
        }
        let block = Block {
            entries: [entry; BLOCK],
            len: 1,
            next: self.heads[slot],
        };
        if self.unused == NIL {
            make_room(&mut self.blocks, MORE_BLOCKS);
            self.heads[slot] = self.blocks.len() as u32;
            self.blocks.push(block);
        } else {
            self.heads[slot] = self.unused;
            let unused = &mut self.blocks[self.unused as usize];
            self.unused = unused.next;
            *unused = block;
        }
        if slot != OTHER_SIGN {
            let (word, bit) = self.occupied_bit(slot);
            *word |= bit;
        }
    }

    /// Make room for the levels up to that of a slot.
    fn add_levels(&mut self, slot: usize) {
        let slots = 1 + slot.div_ceil(SLOTS) * SLOTS;
        self.heads.reserve_exact(slots - self.heads.len());
        self.heads.resize(slots, NIL);
    }

    #[inline]
    fn block(&self, at: u32) -> &Block {
        &self.blocks[at as usize]
    }

    #[inline]
    fn block_mut(&mut self, at: u32) -> &mut Block {
        &mut self.blocks[at as usize]
    }

    /// Pop the due nodes of a slot that has passed.
    fn take(&mut self, nodes: &mut Nodes, slot: usize, popped: &mut Vec<u32>) {
        let t = self.now;
        self.empty(slot, |entry| pop(nodes, entry.id, t, popped));
    }

    fn empty(&mut self, slot: usize, mut each: impl FnMut(Entry)) {
        let Some(head) = self.heads.get_mut(slot) else {
            return;
        };
        let mut at = std::mem::replace(head, NIL);
        while at != NIL {
            let unused = self.unused;
            let block = self.block_mut(at);
            block.entries[..block.len as usize]
                .iter()
                .for_each(|&entry| each(entry));
            let (next, len) = (block.next, block.len as usize);
            block.next = unused;
            self.count -= len;
            self.unused = at;
            at = next;
        }
        if slot != OTHER_SIGN {
            let (word, bit) = self.occupied_bit(slot);
            *word &= !bit;
        }
    }

    /// The bit of a slot, and what holds it.
    #[inline]
    fn occupied_bit(&mut self, slot: usize) -> (&mut u64, u64) {
        let at = slot - 1;
        (&mut self.occupied[at / SLOTS][at % SLOTS / 64], 1 << (at % 64))
    }
}

impl Default for Wheel {
    fn default() -> Wheel {
        Wheel::new(NEG_INF)
    }
}

/// Pop the node unless the entry is stale.
#[inline]
fn pop(nodes: &mut Nodes, id: u32, t: i64, popped: &mut Vec<u32>) {
    if nodes.due(id) < t {
        nodes.get_mut(id).due = INF;
        popped.push(id);
    }
}

/// The slot of a byte on a level.
#[inline]
fn slot_at(level: usize, byte: usize) -> usize {
    1 + level * SLOTS + byte
}

/// The highest byte in which two times of one sign differ.
#[inline]
fn level(difference: i64) -> usize {
    if difference == 0 {
        0
    } else {
        (63 - difference.leading_zeros() as usize) / 8
    }
}

#[inline]
fn byte(t: i64, level: usize) -> usize {
    (t >> (8 * level)) as usize & (SLOTS - 1)
}
