//! R0, R1 and R2 (IV.A-C): insert-only inputs in order of Vs. `lmerge/core/insert_only.py` gives the reasons.

use crate::algorithm::{Algorithm, Checked, Shell, check_shell, observe, stable};
use crate::columns::{Indices, View};
use crate::element::{ADJUST, Element, INSERT, NEG_INF};
use crate::input::{ElementsAtVs, Input};
use crate::payloads::Payloads;
use crate::ties::{Slot, Step};
use crate::violation::{Code, Violation};

/// How elements with the largest Vs are distinguished.
#[derive(Clone, Debug)]
pub enum Ties {
    /// R0: there is only one. It is kept for a downgrade, and because it may have an empty lifetime.
    None(ElementsAtVs),
    /// R1: by their order. The elements of the output's current slot.
    Ordered(Slot),
    /// R2: by their content.
    Unordered(Box<Payloads>),
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
            ties: Ties::None(ElementsAtVs::default()),
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
            ties: Ties::Unordered(Box::default()),
        }
    }

    #[inline]
    fn insert(&mut self, shell: &mut Shell, slot: usize, vs: i64, ve: i64, payload: &[u8]) -> Result<(), Code> {
        if self.deliver(shell, slot, vs, ve, payload)? {
            shell.emit_insert(vs, ve, payload);
        }
        Ok(())
    }

    /// Take an element that the input in `slot` delivers. Returns whether it must be output.
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

    /// Whether this insert, with `vs >= max_vs`, is new. Under R1 this may need the other inputs.
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
            Ties::Unordered(payloads) => {
                if is_next_vs {
                    payloads.clear();
                }
                if input.last_vs != Some(vs) {
                    payloads.begin(slot);
                }
                payloads
                    .deliver(slot, input.demands.is_keyed(), ve > vs, payload, ve)
                    .ok_or(Code::DuplicateKey)?
            }
        };
        Ok(if is_new { Step::New } else { Step::Known })
    }

    /// Adapt to new demands on the inputs: an input has attached, or a promise is not demanded any more.
    pub fn demand(&mut self, shell: &mut Shell) {
        let Ties::Unordered(payloads) = &mut self.ties else {
            return;
        };
        let is_keyed = shell.inputs.all_promise_a_key();
        let Some(vs) = self.max_vs else {
            payloads.is_keyed = is_keyed;
            return;
        };
        if is_keyed || !payloads.is_keyed {
            return;
        }
        let shown = payloads.shown();
        payloads.is_keyed = false;
        let more = payloads.settle(shown, vs, shell);
        if vs >= shell.max_stable {
            for (payload, ve) in more {
                shell.emit_insert(vs, ve, &payload);
            }
        }
    }

    /// Restore the state `kept`. The input that has delivered since then is about to be removed.
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
            input.waiting.retain(|old| old.vs >= max_stable); // at powers of two: drop past inserts
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
        if let Ties::Unordered(payloads) = &mut self.ties {
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
        match (&self.ties, self.max_vs) {
            (Ties::Ordered(ties), Some(max_vs)) => ties.check(&shell.inputs, max_vs),
            (Ties::Unordered(payloads), Some(max_vs)) => payloads.check(shell, max_vs),
            _ => {}
        }
    }
}
