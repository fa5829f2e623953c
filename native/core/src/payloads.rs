//! R2: the elements at MaxVs by their content. `R2` in `lmerge/core/insert_only.py` defines when keys or copies count.

use std::collections::HashSet;

use ahash::RandomState;
use hashbrown::HashTable;

use crate::algorithm::Shell;
use crate::input::{ElementsAtVs, in_order};
use crate::switch::merged_inputs;

/// A table larger than this is freed when its Vs has passed, because clearing takes time in proportion to its size.
const TABLE_KEPT: usize = 256;

/// The output of R2 at MaxVs.
#[derive(Clone, Debug)]
pub struct Payloads {
    /// While all inputs promise a key: one event of each payload is output.
    pub is_keyed: bool,
    /// The payloads. While not all promise a key: only those of the inputs that do.
    keys: Keys,
    /// The counted elements: all while the key does not decide, else those with an empty lifetime.
    copies: Copies,
}

/// The payloads of events, each with the inputs that have delivered it. This shows when an input breaks its key.
#[derive(Clone, Debug, Default)]
struct Keys {
    /// Payloads with their ends in the output.
    elements: ElementsAtVs,
    /// Inputs by slot, for slots that have a bit; the others are in `far`.
    bits: Vec<u64>,
    far: HashSet<(usize, usize)>,
    table: HashTable<(u64, u32)>,
    state: RandomState,
}

/// Elements, each with how often it was output, and how often each input has delivered it.
#[derive(Clone, Debug, Default)]
struct Copies {
    elements: ElementsAtVs,
    table: HashTable<(u64, u32)>,
    state: RandomState,
    output: Vec<u32>,
    /// By slot: the copies by place in `elements`, as far as the input has any. Valid while the input is at MaxVs.
    by_slot: Vec<Vec<u32>>,
}

impl Default for Payloads {
    fn default() -> Payloads {
        Payloads {
            is_keyed: true,
            keys: Keys::default(),
            copies: Copies::default(),
        }
    }
}

impl Payloads {
    pub fn clear(&mut self) {
        self.keys.clear();
        if !self.copies.elements.is_empty() {
            self.copies.clear();
        }
    }

    /// Note that the input in `slot` has reached MaxVs: what it delivered before does not count any more.
    #[inline]
    pub fn begin(&mut self, slot: usize) {
        if let Some(counts) = self.copies.by_slot.get_mut(slot) {
            counts.clear();
        }
    }

    /// Take an element that the input in `slot` delivers. Returns whether it is new; None if it breaks the promised
    /// key.
    #[inline]
    pub fn deliver(&mut self, slot: usize, promises: bool, is_event: bool, payload: &[u8], ve: i64) -> Option<bool> {
        if is_event && self.is_keyed {
            return self.keys.deliver(payload, ve, slot);
        }
        if is_event && promises {
            self.keys.deliver(payload, ve, slot)?;
        }
        Some(self.copies.deliver(slot, payload, ve))
    }

    /// Take `shown` as the output at MaxVs, which is `vs`, and merge again the elements that the inputs have delivered
    /// there. Returns the elements that were not output and must be, in order of attachment, then of the elements.
    /// O(slot).
    pub fn settle(&mut self, shown: Vec<(Vec<u8>, i64)>, vs: i64, shell: &Shell) -> Vec<(Vec<u8>, i64)> {
        self.clear();
        self.copies.by_slot.clear();
        for (payload, ve) in &shown {
            if self.is_keyed && *ve > vs {
                self.keys.enter(payload, *ve);
            } else {
                self.copies.add(payload, *ve, 1);
            }
        }
        let mut more = Vec::new();
        for slot in merged_inputs(shell) {
            let input = shell.inputs.get(slot);
            if input.last_vs != Some(vs) {
                continue;
            }
            for (payload, ve) in in_order(&input.at_last_vs) {
                let has_key = ve > vs && (self.is_keyed || input.demands.is_keyed());
                let is_first = has_key && {
                    let (at, is_first) = self.keys.enter(&payload, ve);
                    self.keys.mark(at, slot);
                    is_first
                };
                let is_new = match self.is_keyed && ve > vs {
                    true => is_first,
                    false => self.copies.deliver(slot, &payload, ve),
                };
                if is_new {
                    more.push((payload, ve));
                }
            }
        }
        more
    }

    /// The output at MaxVs, while the key decides.
    pub fn shown(&self) -> Vec<(Vec<u8>, i64)> {
        let copies = (0..self.copies.elements.len()).flat_map(|at| {
            let times = self.copies.output[at] as usize;
            std::iter::repeat_n(self.copies.elements.get(at), times)
        });
        let events = self.keys.elements.iter();
        events
            .chain(copies)
            .map(|(payload, ve)| (payload.to_vec(), ve))
            .collect()
    }

    pub fn forget(&mut self, slot: usize) {
        self.keys.forget(slot);
        self.begin(slot);
    }

    pub fn is_empty(&self) -> bool {
        self.keys.elements.is_empty() && self.copies.elements.is_empty()
    }

    /// Load a payload of a snapshot, with its end in the output and the inputs that have delivered it.
    pub fn load_key(&mut self, payload: &[u8], ve: i64, slots: &[usize]) {
        let (at, _) = self.keys.enter(payload, ve);
        slots.iter().for_each(|&slot| self.keys.mark(at, slot));
    }

    /// Load an element of a snapshot that was output `copies` times.
    pub fn load_copies(&mut self, payload: &[u8], ve: i64, copies: u32) {
        self.copies.add(payload, ve, copies);
    }

    /// Load the elements that the input in `slot` has delivered at MaxVs, which is `vs`.
    pub fn load_input(&mut self, slot: usize, elements: &ElementsAtVs, vs: i64) {
        for (payload, ve) in elements.iter().filter(|&(_, ve)| ve == vs || !self.is_keyed) {
            let at = self.copies.enter(payload, ve);
            *self.copies.count(slot, at) += 1;
        }
    }

    /// Payloads in order, each with its end and the slots that have delivered it.
    pub fn keys(&self) -> Vec<(&[u8], i64, Vec<usize>)> {
        let mut keys: Vec<_> = (0..self.keys.elements.len())
            .map(|at| {
                let (payload, ve) = self.keys.elements.get(at);
                (payload, ve, self.keys.slots(at))
            })
            .collect();
        keys.sort();
        keys
    }

    /// The counted elements in order, each with how often it was output.
    pub fn copies(&self) -> Vec<(&[u8], i64, u32)> {
        let output = self.copies.elements.iter().zip(&self.copies.output);
        let mut copies: Vec<_> = output.map(|((payload, ve), &copies)| (payload, ve, copies)).collect();
        copies.sort_unstable();
        copies
    }

    /// Assert every invariant of the inputs at `vs`, which is MaxVs.
    pub fn check(&self, shell: &Shell, vs: i64) {
        for slot in merged_inputs(shell) {
            let input = shell.inputs.get(slot);
            if input.last_vs != Some(vs) {
                continue;
            }
            for (payload, ve) in input.at_last_vs.iter() {
                if ve > vs && (self.is_keyed || input.demands.is_keyed()) {
                    let at = self.keys.find(payload).expect("a payload that was noted");
                    assert!(
                        self.keys.has(at, slot),
                        "the input that delivered a payload was not noted"
                    );
                }
                if ve == vs || !self.is_keyed {
                    let at = self.copies.find(payload, ve).expect("an element that was counted");
                    let counted = u64::from(self.copies.by_slot[slot][at]);
                    assert_eq!(
                        counted,
                        input.at_last_vs.count(payload, ve),
                        "an element was not counted"
                    );
                    assert!(
                        counted <= u64::from(self.copies.output[at]),
                        "an element was not output"
                    );
                }
            }
        }
    }
}

impl Keys {
    fn clear(&mut self) {
        self.elements.clear();
        self.bits.clear();
        self.far.clear();
        clear_table(&mut self.table);
    }

    /// Take `payload` from an input. Returns whether it is new; None if the input has delivered it before.
    #[inline]
    fn deliver(&mut self, payload: &[u8], ve: i64, slot: usize) -> Option<bool> {
        let (at, is_new) = self.enter(payload, ve);
        if self.has(at, slot) {
            return None;
        }
        self.mark(at, slot);
        Some(is_new)
    }

    fn find(&self, payload: &[u8]) -> Option<usize> {
        let hash = self.state.hash_one(payload);
        let is_it = |&(other, at): &(u64, u32)| other == hash && self.elements.get(at as usize).0 == payload;
        self.table.find(hash, is_it).map(|&(_, at)| at as usize)
    }

    /// The place of `payload`, and whether it is a new place. A new one has the end `ve`.
    fn enter(&mut self, payload: &[u8], ve: i64) -> (usize, bool) {
        let hash = self.state.hash_one(payload);
        let elements = &self.elements;
        let found = self.table.find(hash, |&(other, at)| {
            other == hash && elements.get(at as usize).0 == payload
        });
        if let Some(&(_, at)) = found {
            return (at as usize, false);
        }
        let at = self.elements.len();
        self.elements.push(payload, ve);
        self.bits.push(0);
        self.table.insert_unique(hash, (hash, at as u32), |&(hash, _)| hash);
        (at, true)
    }

    fn mark(&mut self, at: usize, slot: usize) {
        if slot < 64 {
            self.bits[at] |= 1 << slot;
        } else {
            self.far.insert((at, slot));
        }
    }

    fn has(&self, at: usize, slot: usize) -> bool {
        if slot < 64 {
            self.bits[at] >> slot & 1 == 1
        } else {
            self.far.contains(&(at, slot))
        }
    }

    fn forget(&mut self, slot: usize) {
        if slot < 64 {
            self.bits.iter_mut().for_each(|bits| *bits &= !(1 << slot));
        } else {
            self.far.retain(|&(_, other)| other != slot);
        }
    }

    fn slots(&self, at: usize) -> Vec<usize> {
        let mut slots: Vec<usize> = (0..64).filter(|slot| self.bits[at] >> slot & 1 == 1).collect();
        slots.extend(self.far.iter().filter(|(other, _)| *other == at).map(|(_, slot)| slot));
        slots.sort_unstable();
        slots
    }
}

impl Copies {
    fn clear(&mut self) {
        self.elements.clear();
        self.output.clear();
        clear_table(&mut self.table);
    }

    /// Take an element that the input in `slot` delivers. Returns whether the input has it more often than the output.
    fn deliver(&mut self, slot: usize, payload: &[u8], ve: i64) -> bool {
        let at = self.enter(payload, ve);
        let count = self.count(slot, at);
        *count += 1;
        let is_new = *count > self.output[at];
        self.output[at] += u32::from(is_new);
        is_new
    }

    /// How often the input in `slot` has delivered the element in place `at`.
    fn count(&mut self, slot: usize, at: usize) -> &mut u32 {
        if self.by_slot.len() <= slot {
            self.by_slot.resize_with(slot + 1, Default::default);
        }
        let counts = &mut self.by_slot[slot];
        if counts.len() <= at {
            counts.resize(at + 1, 0);
        }
        &mut counts[at]
    }

    fn add(&mut self, payload: &[u8], ve: i64, copies: u32) {
        let at = self.enter(payload, ve);
        self.output[at] += copies;
    }

    fn find(&self, payload: &[u8], ve: i64) -> Option<usize> {
        let hash = self.state.hash_one((payload, ve));
        let is_it = |&(other, at): &(u64, u32)| other == hash && self.elements.get(at as usize) == (payload, ve);
        self.table.find(hash, is_it).map(|&(_, at)| at as usize)
    }

    /// The place of an element.
    fn enter(&mut self, payload: &[u8], ve: i64) -> usize {
        let hash = self.state.hash_one((payload, ve));
        let elements = &self.elements;
        let is_it = |&(other, at): &(u64, u32)| other == hash && elements.get(at as usize) == (payload, ve);
        if let Some(&(_, at)) = self.table.find(hash, is_it) {
            return at as usize;
        }
        let at = self.elements.len();
        self.elements.push(payload, ve);
        self.output.push(0);
        self.table.insert_unique(hash, (hash, at as u32), |&(hash, _)| hash);
        at
    }
}

fn clear_table(table: &mut HashTable<(u64, u32)>) {
    if table.capacity() > TABLE_KEPT {
        *table = HashTable::new();
    } else {
        table.clear();
    }
}
