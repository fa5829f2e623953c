//! A calendar of due times: who must be looked at when the stable point moves to `t` (law 2).
//!
//! The hierarchical timing wheel of `lmerge/core/calendar.py`, with the entries chained through the nodes themselves. A node
//! due at `d` lies at the level of the highest byte in which `d` and `now` differ, in the slot named by that byte of `d`.
//! That stays true while `now` moves towards `d` below that byte, so where a node lies follows from its due time, and it
//! can be taken out at any time in O(1): there are no stale entries.

use crate::element::{INF, NEG_INF};
use crate::nodes::{NIL, Nodes};

const LEVELS: usize = 8;
const SLOTS: usize = 256;
/// Due times of the other sign than `now`: they differ from it in the sign bit, above all bytes.
const OTHER_SIGN: usize = LEVELS * SLOTS;

/// Nodes by due time. Nothing is due before `now`; nodes that are never due (`INF`) are not entered.
#[derive(Debug)]
pub struct Wheel {
    now: i64,
    heads: Box<[u32]>,
    /// A bit for each slot that is not empty.
    occupied: [[u64; SLOTS / 64]; LEVELS],
}

impl Wheel {
    pub fn new(now: i64) -> Wheel {
        let heads = vec![NIL; OTHER_SIGN + 1].into_boxed_slice();
        Wheel {
            now,
            heads,
            occupied: [[0; SLOTS / 64]; LEVELS],
        }
    }

    pub fn now(&self) -> i64 {
        self.now
    }

    /// Enter a node at its due time, which is not before `now`.
    #[inline]
    pub fn add(&mut self, nodes: &mut Nodes, id: u32) {
        let due = nodes.get(id).due;
        if due == INF {
            return;
        }
        let slot = self.slot(due);
        let head = self.heads[slot];
        let node = nodes.get_mut(id);
        node.next = head;
        node.prev = NIL;
        if head != NIL {
            nodes.get_mut(head).prev = id;
        } else if slot < OTHER_SIGN {
            self.occupied[slot / SLOTS][slot % SLOTS / 64] |= 1 << (slot % 64);
        }
        self.heads[slot] = id;
    }

    /// Take a node out; its due time is still the one with which it was entered.
    #[inline]
    pub fn remove(&mut self, nodes: &mut Nodes, id: u32) {
        let node = nodes.get(id);
        let (due, next, prev) = (node.due, node.next, node.prev);
        if due == INF {
            return;
        }
        if next != NIL {
            nodes.get_mut(next).prev = prev;
        }
        if prev != NIL {
            nodes.get_mut(prev).next = next;
        } else {
            let slot = self.slot(due);
            self.heads[slot] = next;
            if next == NIL {
                self.clear_bit(slot);
            }
        }
    }

    /// Move `now` to `t` and take out all nodes due before `t`, in no useful order. Amortised O(taken out).
    pub fn pop_below(&mut self, nodes: &mut Nodes, t: i64, popped: &mut Vec<u32>) {
        let now = self.now;
        if t <= now {
            return;
        }
        self.now = t;
        let difference = t ^ now;
        // `t`'s own slot at the highest level that turns is dealt out again; all below it has passed.
        let (turned, own) = if difference < 0 {
            (LEVELS, OTHER_SIGN)
        } else {
            let top = level(difference);
            for slot in byte(now, top)..byte(t, top) {
                self.take(nodes, top * SLOTS + slot, popped);
            }
            (top, top * SLOTS + byte(t, top))
        };
        for level in 0..turned {
            self.take_level(nodes, level, popped);
        }
        let mut again = std::mem::replace(&mut self.heads[own], NIL);
        self.clear_bit(own);
        while again != NIL {
            let node = nodes.get(again);
            let next = node.next;
            if node.due < t {
                popped.push(again);
            } else {
                self.add(nodes, again);
            }
            again = next;
        }
    }

    /// Every node that is entered, for checks.
    pub fn entries(&self, nodes: &Nodes) -> Vec<u32> {
        let mut entries = Vec::new();
        for (slot, &head) in self.heads.iter().enumerate() {
            let mut id = head;
            while id != NIL {
                assert_eq!(
                    self.slot(nodes.get(id).due),
                    slot,
                    "a node in a slot where it is not looked for"
                );
                entries.push(id);
                id = nodes.get(id).next;
            }
        }
        entries
    }

    pub fn held_bytes(&self) -> usize {
        self.heads.len() * size_of::<u32>() + size_of::<Wheel>()
    }

    #[inline]
    fn slot(&self, due: i64) -> usize {
        let difference = due ^ self.now;
        if difference < 0 {
            return OTHER_SIGN;
        }
        let level = level(difference);
        level * SLOTS + byte(due, level)
    }

    fn take_level(&mut self, nodes: &Nodes, level: usize, popped: &mut Vec<u32>) {
        for word in 0..SLOTS / 64 {
            while self.occupied[level][word] != 0 {
                let bit = self.occupied[level][word].trailing_zeros() as usize;
                self.take(nodes, level * SLOTS + word * 64 + bit, popped);
            }
        }
    }

    fn take(&mut self, nodes: &Nodes, slot: usize, popped: &mut Vec<u32>) {
        let mut id = self.heads[slot];
        if id == NIL {
            return;
        }
        while id != NIL {
            popped.push(id);
            id = nodes.get(id).next;
        }
        self.heads[slot] = NIL;
        self.clear_bit(slot);
    }

    fn clear_bit(&mut self, slot: usize) {
        if slot < OTHER_SIGN {
            self.occupied[slot / SLOTS][slot % SLOTS / 64] &= !(1 << (slot % 64));
        }
    }
}

impl Default for Wheel {
    fn default() -> Wheel {
        Wheel::new(NEG_INF)
    }
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
