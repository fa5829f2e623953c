//! R0, R1 and R2 (IV.A-C): insert-only inputs in order of Vs. `lmerge/core/insert_only.py` gives the reasons.

use std::ops::Range;

use crate::algorithm::{Algorithm, Checked, Shell, check_shell, observe, stable};
use crate::columns::View;
use crate::element::{ADJUST, Element, INSERT, NEG_INF};
use crate::indices::Indices;
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

    /// Take an element that the input in `slot` delivers. Returns whether it must be output. `is_passed`: the input
    /// delivers an insert with a larger Vs next, so this one is not looked at again.
    #[inline]
    fn deliver(
        &mut self,
        shell: &mut Shell,
        slot: usize,
        (vs, ve, payload): (i64, i64, &[u8]),
        is_passed: bool,
    ) -> Result<bool, Code> {
        let max_stable = shell.max_stable;
        let mut input = shell.inputs.get_mut(slot);
        if vs < max_stable {
            input.late += 1;
        }
        let mut is_new = false;
        if Some(vs) >= self.max_vs {
            let step = self.step(input, slot, (vs, ve, payload), is_passed)?;
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
        if !is_passed {
            input.at_last_vs.push(payload, ve);
        }
        Ok(is_new)
    }

    /// Whether this insert, with `vs >= max_vs`, is new. Under R1 this may need the other inputs.
    #[inline]
    fn step(
        &mut self,
        input: &mut Input,
        slot: usize,
        (vs, ve, payload): (i64, i64, &[u8]),
        is_passed: bool,
    ) -> Result<Step, Code> {
        let is_next_vs = Some(vs) > self.max_vs;
        self.max_vs = Some(vs);
        let is_new = match &mut self.ties {
            Ties::None(last) => {
                let is_new = is_next_vs || (ve > vs && !last.is_empty() && last.get(0).1 == vs);
                if is_new {
                    last.clear();
                    if !is_passed {
                        last.push(payload, ve);
                    }
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

    /// Take inserts from the first in `range` on while each is alone at its Vs, and the input goes on with a larger one.
    /// They are known, or under R0 new. Returns the index of the first that is not so, or the last one.
    fn pass(
        &mut self,
        shell: &mut Shell,
        slot: usize,
        batch: &View<'_>,
        range: Range<usize>,
        shown: &mut Range<usize>,
    ) -> usize {
        let (max_stable, max_vs) = (shell.max_stable, self.max_vs.unwrap_or(NEG_INF));
        let is_r0 = matches!(self.ties, Ties::None(_)) && self.max_vs.is_some();
        let input = shell.inputs.get_mut(slot);
        if !input.joined {
            return range.start;
        }
        let (stable, mut last, mut late) = (input.stable, input.last_vs, 0);
        let is_valid = |index: usize| batch.kind(index) == INSERT && batch.ve(index) >= batch.vs(index);
        let mut index = range.start;
        let mut news = 0;
        while index + 1 < range.end && is_valid(index) && is_valid(index + 1) {
            let vs = batch.vs(index);
            if vs < stable || Some(vs) <= last || batch.vs(index + 1) <= vs {
                break;
            }
            if vs < max_vs {
                late += u64::from(vs < max_stable);
            } else if is_r0 && vs > max_vs && vs >= max_stable {
                news += 1; // from here on all are new: they are in order
            } else {
                break;
            }
            last = Some(vs);
            index += 1;
        }
        if index > range.start {
            input.late += late;
            input.last_vs = last;
            input.at_last_vs.clear();
        }
        if let (true, Ties::None(at_max_vs)) = (news > 0, &mut self.ties) {
            self.max_vs = last;
            at_max_vs.clear(); // the next element is there
            shell.show_inserts(batch, shown, index - news..index);
        }
        index
    }

    /// Merge the elements at `indices`. `shown`: inserts that are to be emitted.
    fn merge(
        &mut self,
        shell: &mut Shell,
        slot: usize,
        batch: &View<'_>,
        mut indices: Indices<'_>,
        shown: &mut Range<usize>,
    ) -> Checked {
        let mut following = indices.next();
        while let Some(mut index) = following {
            if let Some(stop) = indices.whole() {
                index = self.pass(shell, slot, batch, index..stop, shown);
                indices.skip_to(index + 1);
            }
            following = indices.next();
            match batch.kind(index) {
                INSERT => {
                    let (vs, ve) = (batch.vs(index), batch.ve(index));
                    let input = shell.inputs.get(slot);
                    if ve < vs || input.is_below_floor(vs) {
                        return Err(input.refuse_insert(slot, batch, index));
                    }
                    if !input.joined {
                        self.wait(shell, slot, batch, index);
                        continue;
                    }
                    // Not below the input's stable point either: `vs` is not.
                    let is_passed = following.is_some_and(|next| {
                        batch.kind(next) == INSERT && batch.vs(next) > vs && batch.ve(next) >= batch.vs(next)
                    });
                    let is_new = self
                        .deliver(shell, slot, (vs, ve, batch.payload(index)), is_passed)
                        .map_err(|code| Violation::of(code, slot, batch, index))?;
                    if is_new {
                        shell.show_inserts(batch, shown, index..index + 1);
                    }
                }
                ADJUST => {
                    shell.inputs.get(slot).check_adjust(slot, batch, index)?;
                    return Err(Violation::of(Code::AdjustNotPromised, slot, batch, index));
                }
                _ => {
                    shell.emit_inserts(batch, shown);
                    stable(self, shell, slot, batch, index)?;
                }
            }
        }
        Ok(())
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
        let mut shown = 0..0;
        let merged = self.merge(shell, slot, batch, indices, &mut shown);
        shell.emit_inserts(batch, &mut shown);
        merged
    }

    fn admit_waiting(&mut self, shell: &mut Shell, slot: usize) -> bool {
        let input = shell.inputs.get_mut(slot);
        let waiting = std::mem::take(&mut input.waiting);
        input.last_vs = None;
        let kept = self.clone();
        let mut new = Vec::new();
        for element in &waiting {
            match self.deliver(shell, slot, (element.vs, element.ve, &element.payload), false) {
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
