//! R3- (VI.A): the simpler algorithm for case R3, kept for comparison: `lmerge/core/comparison/r3minus.py`.
//!
//! One index per input and one for the output. Each is an ordered tree by (Vs, payload) that owns its copy of the
//! payload. The purpose is to measure this cost against in2t, so no payload is shared. A key is copied only to be
//! stored. Lazy policy only.

use std::collections::BTreeMap;

use crate::algorithm::{Algorithm, Checked, Shell, check_shell, observe, stable};
use crate::columns::View;
use crate::element::{ADJUST, INSERT};
use crate::indices::Indices;
use crate::violation::{Code, Violation};

/// Vs and payload.
pub type Key = (i64, Vec<u8>);
/// The end of the event with a key.
pub type Ends = BTreeMap<Key, i64>;

/// One index per input and one for the output.
#[derive(Debug, Default)]
pub struct R3Minus {
    pub output: Ends,
    /// By slot, from an input's first element on.
    pub indexes: BTreeMap<usize, Ends>,
    /// A buffer for the key of a look-up; kept to reuse its memory.
    sought: Key,
}

impl R3Minus {
    /// An estimate of the bytes that the trees hold, and the bytes of the payloads in them. The standard library does
    /// not report how full its nodes are; insertion in random order fills them to two thirds.
    pub fn memory(&self) -> (usize, usize) {
        let (mut held, mut payload) = (0, 0);
        for ends in self.indexes.values().chain([&self.output]) {
            held += ends.len() * size_of::<(Key, i64)>() * 3 / 2;
            held += ends.keys().map(|(_, payload)| payload.capacity()).sum::<usize>();
            payload += ends.keys().map(|(_, payload)| payload.len()).sum::<usize>();
        }
        (held, payload)
    }

    fn insert(&mut self, shell: &mut Shell, slot: usize, batch: &View<'_>, index: usize) -> Checked {
        let (vs, ve, payload) = (batch.vs(index), batch.ve(index), batch.payload(index));
        if shell.inputs.get(slot).is_below_floor(vs) || ve < vs {
            return Err(shell.inputs.get(slot).refuse_insert(slot, batch, index));
        }
        let input = shell.inputs.get_mut(slot);
        input.last_vs = Some(vs);
        self.seek(vs, payload);
        let mine = self.indexes.entry(slot).or_default();
        if mine.contains_key(&self.sought) {
            return Err(Violation::of(Code::DuplicateKey, slot, batch, index));
        }
        let is_shown = self.output.contains_key(&self.sought);
        if vs < shell.max_stable && !is_shown {
            input.late += 1;
        } else if ve > vs {
            mine.insert(self.sought.clone(), ve);
            if !is_shown {
                self.output.insert(self.sought.clone(), ve);
                shell.emit_insert(vs, ve, payload);
            }
        }
        Ok(())
    }

    fn adjust(&mut self, shell: &mut Shell, slot: usize, batch: &View<'_>, index: usize) -> Checked {
        shell.inputs.get(slot).check_adjust(slot, batch, index)?;
        let (vs, ve) = (batch.vs(index), batch.ve(index));
        self.seek(vs, batch.payload(index));
        let mine = self.indexes.entry(slot).or_default();
        if vs < shell.max_stable && !self.output.contains_key(&self.sought) {
            shell.inputs.get_mut(slot).late += 1;
            return Ok(());
        }
        match mine.get_mut(&self.sought) {
            Some(end) if *end == batch.vold(index) => {
                if ve > vs {
                    *end = ve;
                } else {
                    mine.remove(&self.sought);
                }
                Ok(())
            }
            _ => Err(Violation::of(Code::UnknownEvent, slot, batch, index)),
        }
    }

    fn seek(&mut self, vs: i64, payload: &[u8]) {
        self.sought.0 = vs;
        self.sought.1.clear();
        self.sought.1.extend_from_slice(payload);
    }

    /// The end of the event on the witness: the joined input with the largest stable point that has the event alive,
    /// with an end by `latest`.
    fn witness(&self, shell: &Shell, key: &Key, latest: i64) -> Option<i64> {
        let mut best = None;
        for (slot, input) in shell.inputs.counting() {
            let input_end = self.indexes.get(&slot).and_then(|ends| ends.get(key)).copied();
            let Some(ve) = input_end.filter(|&ve| shell.max_stable <= ve && ve <= latest) else {
                continue;
            };
            if best.is_none_or(|(stable, _)| input.stable > stable) {
                best = Some((input.stable, ve));
            }
        }
        best.map(|(_, ve)| ve)
    }
}

impl Algorithm for R3Minus {
    fn apply(&mut self, shell: &mut Shell, slot: usize, batch: &View<'_>, indices: Indices<'_>) -> Checked {
        if shell.inputs.get(slot).observes {
            return observe(self, shell, slot, batch, indices);
        }
        self.indexes.entry(slot).or_default();
        for index in indices {
            match batch.kind(index) {
                INSERT => self.insert(shell, slot, batch, index)?,
                ADJUST => self.adjust(shell, slot, batch, index)?,
                _ => stable(self, shell, slot, batch, index)?,
            }
        }
        Ok(())
    }

    fn freeze(&mut self, shell: &mut Shell, slot: usize, t: i64) {
        self.indexes.entry(slot).or_default();
        let mut output = std::mem::take(&mut self.output);
        let mut done = Vec::new();
        let latest = shell.latest_lacked(slot);
        for (key, shown) in output.range_mut(..(t, Vec::new())) {
            let (vs, payload) = key;
            let mut input_end = self.indexes[&slot].get(key).copied();
            if *vs < shell.max_stable && input_end.is_none_or(|input_end| input_end < shell.max_stable) {
                let is_over = *shown > latest && t > latest;
                let otherwise = if is_over { shell.max_stable } else { *shown }; // no input has another end
                input_end = self.witness(shell, key, latest).or(Some(otherwise));
            }
            let Some(input_end) = input_end else {
                shell.emit_adjust(*vs, *shown, *vs, payload);
                done.push(key.clone());
                continue;
            };
            if input_end != *shown && (input_end < t || *shown < t) {
                shell.emit_adjust(*vs, *shown, input_end, payload);
                *shown = input_end;
            }
            if input_end < t {
                done.push(key.clone());
            }
        }
        for key in done {
            output.remove(&key);
            for ends in self.indexes.values_mut() {
                ends.remove(&key);
            }
        }
        self.output = output;
    }

    fn forget(&mut self, slot: usize) {
        self.indexes.remove(&slot);
    }

    fn check(&self, shell: &Shell) {
        check_shell(shell);
        for ends in self.indexes.values().chain([&self.output]) {
            for ((vs, _), ve) in ends {
                assert!(ve > vs, "an event with an empty lifetime");
            }
        }
        for slot in self.indexes.keys() {
            assert!(shell.inputs.is_attached(*slot), "an index of an input that has left");
        }
    }
}
