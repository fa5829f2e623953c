//! R0, R1 and R2 (IV.A-C): insert-only inputs in order of Vs. `lmerge/core/insert_only.py` says why each line is there.

use std::collections::{BTreeMap, HashMap, HashSet};

use ahash::RandomState;
use hashbrown::HashTable;

use crate::algorithm::{Algorithm, Checked, Shell, check_shell, observe, stable};
use crate::columns::{Indices, View};
use crate::element::{ADJUST, Element, INSERT, NEG_INF};
use crate::input::{Input, Said};
use crate::ties::{Slot, Step};
use crate::violation::{Code, Violation};

/// How elements with the largest Vs are distinguished.
#[derive(Clone, Debug)]
pub enum Ties {
    /// R0: there are none. The last element is kept for a downgrade, and because it may be no event.
    None(Said),
    /// R1: by their order; the elements of the output's current slot.
    Ordered(Slot),
    /// R2: by their payload, which is a key.
    Keyed(Payloads),
}

/// One of R0, R1, R2.
#[derive(Clone, Debug)]
pub struct InsertOnly {
    /// The paper's MaxVs; none before the first element.
    pub max_vs: Option<i64>,
    pub ties: Ties,
}

impl InsertOnly {
    pub fn r0() -> InsertOnly {
        InsertOnly {
            max_vs: None,
            ties: Ties::None(Said::default()),
        }
    }

    pub fn r1() -> InsertOnly {
        InsertOnly {
            max_vs: None,
            ties: Ties::Ordered(Slot::default()),
        }
    }

    pub fn r2() -> InsertOnly {
        InsertOnly {
            max_vs: None,
            ties: Ties::Keyed(Payloads::default()),
        }
    }

    #[inline]
    fn insert(&mut self, shell: &mut Shell, slot: usize, vs: i64, ve: i64, payload: &[u8]) -> Result<(), Code> {
        if self.deliver(shell, slot, vs, ve, payload)? {
            shell.emit_insert(vs, ve, payload);
        }
        Ok(())
    }

    /// The input in `slot` delivers an element: whether that must be output.
    #[inline]
    fn deliver(&mut self, shell: &mut Shell, slot: usize, vs: i64, ve: i64, payload: &[u8]) -> Result<bool, Code> {
        let max_stable = shell.max_stable;
        let mut input = shell.inputs.get_mut(slot);
        if vs < max_stable {
            input.late += 1;
        }
        let mut is_new = false;
        if Some(vs) >= self.max_vs {
            let step = self.step(input, slot, vs, ve, payload)?;
            is_new = matches!(step, Step::New);
            if let (Step::Out, Ties::Ordered(ties)) = (step, &mut self.ties) {
                is_new = ties.deliver(&mut shell.inputs, slot, vs, payload, ve)?;
                input = shell.inputs.get_mut(slot);
            }
            // The guard on MaxStable: see the head of insert_only.py.
            is_new = is_new && vs >= max_stable;
        }
        if Some(vs) != input.last_vs {
            input.last_vs = Some(vs);
            input.at_last_vs.clear();
        }
        input.at_last_vs.push(payload, ve);
        Ok(is_new)
    }

    /// Whether this insert, with `vs >= max_vs`, is new; under R1 that may need the other inputs.
    #[inline]
    fn step(&mut self, input: &mut Input, slot: usize, vs: i64, ve: i64, payload: &[u8]) -> Result<Step, Code> {
        let is_next_vs = Some(vs) > self.max_vs;
        self.max_vs = Some(vs);
        let is_new = match &mut self.ties {
            Ties::None(last) => {
                let is_new = is_next_vs || (ve > vs && !last.is_empty() && last.get(0).1 == vs);
                if is_new {
                    last.clear();
                    last.push(payload, ve);
                }
                is_new
            }
            Ties::Ordered(ties) => {
                if is_next_vs {
                    ties.clear();
                }
                if input.last_vs != Some(vs) {
                    input.tie_count = 0;
                    input.ties.clear();
                }
                return Ok(ties.step(input, payload, ve));
            }
            Ties::Keyed(payloads) => {
                if is_next_vs {
                    payloads.clear();
                }
                if ve == vs {
                    payloads.deliver_empty(payload, slot)
                } else {
                    payloads.deliver(payload, slot).ok_or(Code::DuplicateKey)?
                }
            }
        };
        Ok(if is_new { Step::New } else { Step::Known })
    }

    /// Be as `kept` was. The input that has delivered since then is about to be removed.
    fn go_back(&mut self, kept: InsertOnly) {
        self.max_vs = kept.max_vs;
        match (&mut self.ties, kept.ties) {
            (Ties::Ordered(ties), Ties::Ordered(kept)) => ties.go_back(kept),
            (ties, kept) => *ties = kept,
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
        input.last_vs = Some(vs);
    }
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

    fn admit_waiting(&mut self, shell: &mut Shell, slot: usize) -> bool {
        let input = shell.inputs.get_mut(slot);
        let waiting = std::mem::take(&mut input.waiting);
        input.last_vs = None;
        let kept = self.clone();
        let mut new = Vec::new();
        for element in &waiting {
            match self.deliver(shell, slot, element.vs, element.ve, &element.payload) {
                Ok(is_new) => new.push(is_new),
                Err(code) => {
                    self.go_back(kept);
                    let input = shell.inputs.get_mut(slot);
                    (input.stable, input.last_vs) = (NEG_INF, None);
                    input.at_last_vs.clear();
                    let (detail, strictly, ends) = (0, false, None);
                    shell.broken.push(Violation {
                        code,
                        slot,
                        index: 0,
                        element: element.clone(),
                        detail,
                        strictly,
                        ends,
                    });
                    return false;
                }
            }
        }
        for (element, is_new) in waiting.iter().zip(new) {
            if is_new {
                shell.emit_insert(element.vs, element.ve, &element.payload);
            }
        }
        true
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
        if let (Ties::Ordered(ties), Some(max_vs)) = (&self.ties, self.max_vs) {
            ties.check(&shell.inputs, max_vs);
        }
    }
}

/// R2: the payloads at MaxVs, each with the inputs that have delivered it, so that one that breaks the key is found out.
/// Elements that are no events have no key: their copies are counted.
#[derive(Clone, Debug, Default)]
pub struct Payloads {
    said: Said,
    /// Inputs by slot, for slots that have a bit; the others stand in `far`.
    bits: Vec<u64>,
    far: HashSet<(usize, usize)>,
    table: HashTable<(u64, u32)>,
    state: RandomState,
    /// How often each element with an empty lifetime was output, and how often each input has delivered it.
    empties: BTreeMap<Vec<u8>, u64>,
    empties_by_slot: HashMap<(usize, Vec<u8>), u64>,
}

/// A table larger than this is given back when its Vs has passed: clearing costs its size.
const TABLE_KEPT: usize = 256;

impl Payloads {
    fn clear(&mut self) {
        self.said.clear();
        self.bits.clear();
        self.far.clear();
        if !self.empties.is_empty() {
            self.empties.clear();
            self.empties_by_slot.clear();
        }
        if self.table.capacity() > TABLE_KEPT {
            self.table = HashTable::new();
        } else {
            self.table.clear();
        }
    }

    /// The input delivers `payload`: whether that is new. None: it has done so before.
    #[inline]
    pub fn deliver(&mut self, payload: &[u8], slot: usize) -> Option<bool> {
        let (at, is_new) = self.enter(payload);
        if self.has(at, slot) {
            return None;
        }
        self.mark(at, slot);
        Some(is_new)
    }

    /// The input delivers an element with an empty lifetime: whether it has done so more often than the output.
    pub fn deliver_empty(&mut self, payload: &[u8], slot: usize) -> bool {
        let by_slot = self.empties_by_slot.entry((slot, payload.to_vec())).or_default();
        *by_slot += 1;
        let copies = self.empties.entry(payload.to_vec()).or_default();
        let is_new = *by_slot > *copies;
        *copies += u64::from(is_new);
        is_new
    }

    /// `payload` was output so many times more with an empty lifetime.
    pub fn enter_empty(&mut self, payload: &[u8], copies: u64) {
        *self.empties.entry(payload.to_vec()).or_default() += copies;
    }

    /// The input in `slot` has delivered these at MaxVs, which is `vs`; those with an empty lifetime are counted.
    pub fn count_empties(&mut self, slot: usize, said: &Said, vs: i64) {
        for (payload, _) in said.iter().filter(|&(_, ve)| ve == vs) {
            *self.empties_by_slot.entry((slot, payload.to_vec())).or_default() += 1;
        }
    }

    /// Payloads in order, each with how often it was output with an empty lifetime.
    pub fn empties(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.empties.iter().map(|(payload, &copies)| (&payload[..], copies))
    }

    pub fn is_empty(&self) -> bool {
        self.said.is_empty() && self.empties.is_empty()
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
        self.empties_by_slot.retain(|(other, _), _| *other != slot);
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
