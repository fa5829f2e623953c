//! The index of R4 (Figure 1, in3t): an entry of a node is a sorted list of ends.
//!
//! Almost always it has one end, and the inputs agree on it. Then the end is in the node itself, as in R3.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::slice::from_ref;

use crate::ends::{exceeds, from, minus, put};
use crate::index::{Index, Spill};
use crate::nodes::{BITS, NIL, NONE};

/// For at most this many ends of one node, a scan costs less than a heap.
const SCANNED_MAX: usize = 16;

/// The sorted ends of a node with several ends, or with inputs that do not agree.
#[derive(Debug, Default)]
pub struct Lists {
    out: Vec<i64>,
    ins: Vec<Vec<i64>>,
    lacked: Vec<Lacked>,
}

/// A heap of every end that the output has more often than the input in `slot`. It may contain other ends too.
#[derive(Debug)]
struct Lacked {
    slot: usize,
    heap: BinaryHeap<Reverse<i64>>,
}

impl Spill for Lists {
    fn clear(&mut self) {
        self.out.clear();
        self.ins.iter_mut().for_each(Vec::clear);
        self.lacked.clear();
    }

    fn held_bytes(&self) -> usize {
        let lists = self
            .ins
            .iter()
            .map(|ends| ends.capacity() * size_of::<i64>())
            .sum::<usize>();
        let heaps = self
            .lacked
            .iter()
            .map(|lacked| lacked.heap.capacity() * size_of::<i64>() + size_of::<Lacked>())
            .sum::<usize>();
        lists + heaps + self.out.capacity() * size_of::<i64>() + self.ins.capacity() * size_of::<Vec<i64>>()
    }
}

/// The entry of the output or of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Out,
    In(usize),
}

impl Index<Lists> {
    /// The ends of an entry, ascending.
    #[inline]
    pub fn ends(&self, id: u32, at: At) -> &[i64] {
        let node = self.store.nodes.get(id);
        if node.spill() == NIL {
            return match at {
                At::Out if node.out != NONE => from_ref(&node.out),
                At::In(slot) if node.agrees(slot) => from_ref(&node.common),
                _ => &[],
            };
        }
        let lists = &self.spills[node.spill() as usize];
        match at {
            At::Out => &lists.out,
            At::In(slot) => lists.ins.get(slot).map_or(&[], Vec::as_slice),
        }
    }

    /// Add an end to an entry.
    #[inline]
    pub fn add(&mut self, id: u32, at: At, ve: i64) {
        let node = self.store.nodes.get_mut(id);
        if node.spill() == NIL {
            match at {
                At::Out if node.out == NONE => {
                    node.out = ve;
                    return;
                }
                At::In(slot) if slot < BITS && node.has >> slot & 1 == 0 && (node.has == 0 || node.common == ve) => {
                    node.has |= 1 << slot;
                    node.common = ve;
                    return;
                }
                _ => {}
            }
        }
        put(self.list(id, at), ve);
        if at == At::Out {
            self.note_lacked(id, at, ve);
        }
    }

    /// Remove one `ve` from an entry; false if there is none.
    #[inline]
    pub fn remove(&mut self, id: u32, at: At, ve: i64) -> bool {
        let Ok(place) = self.ends(id, at).binary_search(&ve) else {
            return false;
        };
        let node = self.store.nodes.get_mut(id);
        if node.spill() == NIL {
            match at {
                At::Out => node.out = NONE,
                At::In(slot) => node.has &= !(1 << slot),
            }
            return true;
        }
        self.list(id, at).remove(place);
        if at != At::Out {
            self.note_lacked(id, at, ve);
        }
        self.reunite(id);
        true
    }

    /// Replace an entry by `ends`.
    pub fn set(&mut self, id: u32, at: At, ends: &[i64]) {
        if self.ends(id, at) == ends {
            return;
        }
        let node = self.store.nodes.get_mut(id);
        if node.spill() == NIL && ends.is_empty() {
            match at {
                At::Out => node.out = NONE,
                At::In(slot) => node.has &= !(1 << slot),
            }
            return;
        }
        if node.spill() == NIL && ends.len() == 1 && at == At::Out {
            node.out = ends[0];
            return;
        }
        let list = self.list(id, at);
        list.clear();
        list.extend_from_slice(ends);
        self.spills[self.store.nodes.get(id).spill() as usize].lacked.clear();
        self.reunite(id);
    }

    /// The entry as a list. Spills the node if it is not spilled.
    #[cold]
    fn list(&mut self, id: u32, at: At) -> &mut Vec<i64> {
        let node = self.store.nodes.get(id);
        if node.spill() == NIL {
            let (out, common, has) = (node.out, node.common, node.has);
            let lists = self.spill(id);
            if out != NONE {
                lists.out.push(out);
            }
            for slot in 0..64 - has.leading_zeros() as usize {
                if lists.ins.len() <= slot {
                    lists.ins.push(Vec::new());
                }
                if has >> slot & 1 == 1 {
                    lists.ins[slot].push(common);
                }
            }
        }
        let lists = &mut self.spills[self.store.nodes.get(id).spill() as usize];
        match at {
            At::Out => &mut lists.out,
            At::In(slot) => {
                if lists.ins.len() <= slot {
                    lists.ins.resize_with(slot + 1, Vec::new);
                }
                &mut lists.ins[slot]
            }
        }
    }

    /// Put the entries back into the node if they have one end each and the inputs agree.
    fn reunite(&mut self, id: u32) {
        let lists = &self.spills[self.store.nodes.get(id).spill() as usize];
        if lists.out.len() > 1 {
            return;
        }
        let (mut common, mut has) = (NONE, 0);
        for (slot, ends) in lists.ins.iter().enumerate() {
            match ends[..] {
                [] => {}
                [ve] if slot < BITS && (has == 0 || ve == common) => {
                    common = ve;
                    has |= 1 << slot;
                }
                _ => return,
            }
        }
        let out = lists.out.first().copied().unwrap_or(NONE);
        self.unspill(id);
        let node = self.store.nodes.get_mut(id);
        (node.out, node.common, node.has) = (out, common, has);
    }

    /// The entries of the attached inputs of a node that is spilled.
    pub fn spilled(&self, id: u32) -> impl Iterator<Item = &[i64]> {
        let lists = &self.spills[self.store.nodes.get(id).spill() as usize];
        let attached = |(slot, _): &(usize, &Vec<i64>)| !self.retired.has(*slot);
        lists
            .ins
            .iter()
            .enumerate()
            .filter(attached)
            .map(|(_, ends)| ends.as_slice())
    }

    /// Note that the output has one `ve` more, or an input one less.
    #[inline]
    fn note_lacked(&mut self, id: u32, at: At, ve: i64) {
        let lists = &mut self.spills[self.store.nodes.get(id).spill() as usize];
        if !lists.lacked.is_empty() {
            lists.note_lacked(at, ve);
        }
    }

    /// An end from `low` on that the output has more often than the input: `vold` if it is, or the first.
    ///
    /// Amortised O(log n) of n ends: a heap is built again after as many changes as it has ends.
    pub fn lacked_by(&mut self, id: u32, slot: usize, low: i64, vold: Option<i64>) -> Option<i64> {
        let (input_ends, shown) = (self.ends(id, At::In(slot)), self.ends(id, At::Out));
        if let Some(vold) = vold.filter(|&vold| vold >= low && exceeds(shown, input_ends, vold)) {
            return Some(vold);
        }
        if shown.len() <= SCANNED_MAX {
            return minus(from(shown, low), input_ends).first().copied();
        }
        let lists = &mut self.spills[self.store.nodes.get(id).spill() as usize];
        let input_ends = lists.ins.get(slot).map_or(&[][..], Vec::as_slice);
        if lists.lacked.iter().all(|lacked| lacked.slot != slot) {
            let heap = minus(from(&lists.out, low), input_ends)
                .into_iter()
                .map(Reverse)
                .collect();
            lists.lacked.push(Lacked { slot, heap });
        }
        let lacked = lists.lacked.iter_mut().find(|lacked| lacked.slot == slot);
        let heap = &mut lacked.expect("a heap").heap;
        while let Some(&Reverse(ve)) = heap.peek() {
            if ve >= low && exceeds(&lists.out, input_ends, ve) {
                return Some(ve);
            }
            heap.pop();
        }
        None
    }
}

impl Lists {
    /// Note that the output has one `ve` more, or the input in `slot` one less.
    fn note_lacked(&mut self, at: At, ve: i64) {
        let held_max = 2 * self.out.len() + SCANNED_MAX;
        self.lacked.retain_mut(|lacked| {
            if at == At::Out || at == At::In(lacked.slot) {
                lacked.heap.push(Reverse(ve));
            }
            lacked.heap.len() <= held_max
        });
    }
}
