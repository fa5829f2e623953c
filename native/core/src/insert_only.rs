//! R0, R1 and R2 (IV.A-C): insert-only inputs in order of Vs. `lmerge/core/insert_only.py` says why each line is there.

use std::collections::HashSet;

use ahash::RandomState;
use hashbrown::HashTable;

use crate::algorithm::{Algorithm, Checked, Shell, check_shell, observe, stable};
use crate::columns::{Indices, View};
use crate::element::{ADJUST, Element, INSERT, NEG_INF};
use crate::input::{Input, Said};
use crate::violation::{Code, Violation};

/// How elements with the largest Vs are told apart.
#[derive(Debug)]
pub enum Ties {
    /// R0: there are none. The last element is kept for a downgrade.
    None(Said),
    /// R1: by their order; the elements of the output's current slot.
    Ordered(Said),
    /// R2: by their payload, which is a key.
    Keyed(Payloads),
}

/// One of R0, R1, R2.
#[derive(Debug)]
pub struct InsertOnly {
    /// The paper's MaxVs.
    pub max_vs: i64,
    pub ties: Ties,
}

impl InsertOnly {
    pub fn r0() -> InsertOnly {
        InsertOnly {
            max_vs: NEG_INF,
            ties: Ties::None(Said::default()),
        }
    }

    pub fn r1() -> InsertOnly {
        InsertOnly {
            max_vs: NEG_INF,
            ties: Ties::Ordered(Said::default()),
        }
    }

    pub fn r2() -> InsertOnly {
        InsertOnly {
            max_vs: NEG_INF,
            ties: Ties::Keyed(Payloads::default()),
        }
    }

    /// How many of `copies` equal output events the input has delivered; what it missed before counts as well.
    pub fn delivered(input: &Input, vs: i64, payload: &[u8], ve: i64, copies: u64) -> u64 {
        if vs == input.last_vs {
            return copies.min(input.at_last_vs.count(payload, ve));
        }
        if vs < input.last_vs { copies } else { 0 }
    }

    #[inline]
    fn insert(&mut self, shell: &mut Shell, slot: usize, vs: i64, ve: i64, payload: &[u8]) -> Result<(), Code> {
        let input = shell.inputs.get_mut(slot);
        if vs < shell.max_stable {
            input.late += 1;
        }
        let mut is_new = false;
        if vs >= self.max_vs {
            // The guard on MaxStable: see the head of insert_only.py.
            is_new = self.is_new(input, slot, vs, ve, payload)? && vs >= shell.max_stable;
        }
        if vs != input.last_vs {
            input.last_vs = vs;
            input.at_last_vs.clear();
        }
        input.at_last_vs.push(payload, ve);
        if is_new {
            shell.emit_insert(vs, ve, payload);
        }
        Ok(())
    }

    /// Whether this insert, with `vs >= max_vs`, must be output.
    #[inline]
    fn is_new(&mut self, input: &mut Input, slot: usize, vs: i64, ve: i64, payload: &[u8]) -> Result<bool, Code> {
        let is_next_vs = vs > self.max_vs;
        self.max_vs = vs;
        match &mut self.ties {
            Ties::None(last) => {
                if is_next_vs {
                    last.clear();
                    last.push(payload, ve);
                }
                Ok(is_next_vs)
            }
            Ties::Ordered(said) => {
                if is_next_vs {
                    said.clear();
                }
                if input.last_vs != vs {
                    input.tie_count = 0;
                    input.passed_over.clear();
                }
                let position = input.tie_count;
                if position < said.len() && said.get(position) == (payload, ve) {
                    input.tie_count += 1;
                    return Ok(false);
                }
                realign(said, input, payload, ve)
            }
            Ties::Keyed(payloads) => {
                if is_next_vs {
                    payloads.clear();
                }
                payloads.deliver(payload, slot).ok_or(Code::DuplicateKey)
            }
        }
    }

    fn wait(&self, shell: &mut Shell, slot: usize, batch: &View<'_>, index: usize) {
        let max_stable = shell.max_stable;
        let input = shell.inputs.get_mut(slot);
        let count = input.waiting.len();
        if count >= 1024 && count.is_power_of_two() {
            input.waiting.retain(|old| old.vs >= max_stable); // now and then drop what is past
        }
        let (vs, ve, payload) = (batch.vs(index), batch.ve(index), batch.payload(index).to_vec());
        input.waiting.push(Element {
            kind: INSERT,
            vs,
            ve,
            vold: 0,
            payload,
        });
        input.last_vs = vs;
    }
}

/// R1: the element is not the next of the slot: it is further on, or was passed over, or is new.
fn realign(said: &mut Said, input: &mut Input, payload: &[u8], ve: i64) -> Result<bool, Code> {
    let position = input.tie_count;
    for ahead in position + 1..said.len() {
        if said.get(ahead) == (payload, ve) {
            for at in position..ahead {
                let (payload, ve) = said.get(at);
                *input.passed_over.entry((payload.to_vec(), ve)).or_default() += 1;
            }
            input.tie_count = ahead + 1;
            return Ok(false);
        }
    }
    if !input.passed_over.is_empty() && input.passed_over.contains_key(&(payload.to_vec(), ve)) {
        return Err(Code::TiesDiffer);
    }
    if position == said.len() {
        input.tie_count += 1;
    }
    said.push(payload, ve);
    Ok(true)
}

impl Algorithm for InsertOnly {
    fn apply(&mut self, shell: &mut Shell, slot: usize, batch: &View<'_>, indices: Indices<'_>) -> Checked {
        if shell.inputs.get(slot).observes {
            return observe(self, shell, slot, batch, indices);
        }
        for index in indices {
            match batch.kind(index) {
                INSERT => {
                    let (vs, ve) = (batch.vs(index), batch.ve(index));
                    let input = shell.inputs.get(slot);
                    if ve < vs || input.is_below_floor(vs) {
                        return Err(shell.inputs.get(slot).refuse_insert(slot, batch, index));
                    }
                    if input.joined {
                        self.insert(shell, slot, vs, ve, batch.payload(index))
                            .map_err(|code| Violation::of(code, slot, batch, index))?;
                    } else {
                        self.wait(shell, slot, batch, index);
                    }
                }
                ADJUST => {
                    shell.inputs.get(slot).check_adjust(slot, batch, index)?;
                    return Err(Violation::of(Code::AdjustNotPromised, slot, batch, index));
                }
                _ => stable(self, shell, slot, batch, index)?,
            }
        }
        Ok(())
    }

    fn admit_waiting(&mut self, shell: &mut Shell, slot: usize) {
        let input = shell.inputs.get_mut(slot);
        let waiting = std::mem::take(&mut input.waiting);
        input.last_vs = NEG_INF;
        for element in waiting {
            let said = self.insert(shell, slot, element.vs, element.ve, &element.payload);
            if let Err(code) = said {
                // It was another input's element that let this one join.
                let (detail, strictly, ends) = (0, false, None);
                shell.broken.push(Violation {
                    code,
                    slot,
                    index: 0,
                    element,
                    detail,
                    strictly,
                    ends,
                });
                return;
            }
        }
    }

    fn forget(&mut self, slot: usize) {
        if let Ties::Keyed(payloads) = &mut self.ties {
            payloads.forget(slot);
        }
    }

    fn check(&self, shell: &Shell) {
        check_shell(shell);
        for &slot in shell.inputs.order() {
            let input = shell.inputs.get(slot);
            assert!(
                !input.joined || input.waiting.is_empty(),
                "an input has joined and something of it still waits"
            );
            assert!(
                !input.counts() || input.last_vs <= self.max_vs,
                "an insert was not noticed"
            );
        }
    }
}

/// R2: the payloads at MaxVs, each with the inputs that have delivered it, so that one that breaks the key is found out.
#[derive(Debug, Default)]
pub struct Payloads {
    said: Said,
    /// Inputs by slot, for slots that have a bit; the others stand in `far`.
    bits: Vec<u64>,
    far: HashSet<(usize, usize)>,
    table: HashTable<(u64, u32)>,
    state: RandomState,
}

/// A table larger than this is given back when its Vs has passed: clearing costs its size.
const TABLE_KEPT: usize = 256;

impl Payloads {
    fn clear(&mut self) {
        self.said.clear();
        self.bits.clear();
        self.far.clear();
        if self.table.capacity() > TABLE_KEPT {
            self.table = HashTable::new();
        } else {
            self.table.clear();
        }
    }

    /// The input delivers `payload`: whether that is new. None: it has done so before.
    #[inline]
    fn deliver(&mut self, payload: &[u8], slot: usize) -> Option<bool> {
        let (at, is_new) = self.enter(payload);
        if self.has(at, slot) {
            return None;
        }
        self.mark(at, slot);
        Some(is_new)
    }

    /// The place of `payload`, and whether it had none.
    pub fn enter(&mut self, payload: &[u8]) -> (usize, bool) {
        let hash = self.state.hash_one(payload);
        let said = &self.said;
        let found = self
            .table
            .find(hash, |&(other, at)| other == hash && said.get(at as usize).0 == payload);
        if let Some(&(_, at)) = found {
            return (at as usize, false);
        }
        let at = self.said.len();
        self.said.push(payload, 0);
        self.bits.push(0);
        self.table.insert_unique(hash, (hash, at as u32), |&(hash, _)| hash);
        (at, true)
    }

    pub fn mark(&mut self, at: usize, slot: usize) {
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

    /// Payloads in order, each with the slots that have delivered it.
    pub fn rows(&self) -> Vec<(&[u8], Vec<usize>)> {
        let slots = |at: usize| {
            let mut slots: Vec<usize> = (0..64).filter(|slot| self.bits[at] >> slot & 1 == 1).collect();
            slots.extend(self.far.iter().filter(|(other, _)| *other == at).map(|(_, slot)| slot));
            slots.sort_unstable();
            slots
        };
        let mut rows: Vec<_> = (0..self.said.len())
            .map(|at| (self.said.get(at).0, slots(at)))
            .collect();
        rows.sort();
        rows
    }
}
