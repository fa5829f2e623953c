//! Algorithm R4 (IV.E) on in3t: no restrictions, the TDB is a multiset. `lmerge/core/r4.py` lists the invariants and
//! the choices that the paper leaves open.

use crate::algorithm::{Algorithm, Checked, Shell, check_shell};
use crate::columns::View;
use crate::element::{INF, INSERT, NEG_INF};
use crate::ends::{by, drop_doubtful, exceeds, from, minus, put, take};
use crate::following::{follows, quorum, should_show};
use crate::in3t::{At, Lists};
use crate::index::{Index, Indexed, furthest};
use crate::indices::Indices;
use crate::nodes::{BITS, NIL};
use crate::policy::{Leader, Show};
use crate::retired::retire;
use crate::run::{Run, apply_runs};
use crate::state::EndRow;
use crate::violation::{Code, Violation};

/// IV.E with in3t.
#[derive(Debug)]
pub struct R4 {
    pub index: Index<Lists>,
    // Buffers for the entries of a node that a stable visits; kept to reuse their memory.
    input_ends: Vec<i64>,
    shown: Vec<i64>,
}

impl R4 {
    pub fn new(final_only: bool) -> R4 {
        R4 {
            index: Index::new(final_only),
            input_ends: Vec::new(),
            shown: Vec::new(),
        }
    }

    /// Enter all adopted nodes at their due times. These follow from the entries, except for those in `dues`.
    pub fn rebuild(&mut self, max_stable: i64, dues: &[EndRow]) {
        self.index
            .rebuild(max_stable, dues, |index, id| R4::next_due(index, id, max_stable));
    }

    /// Enter an event that an input delivered before a switch. True: the output had fewer events, and shows it now.
    pub fn adopt_delivered(&mut self, slot: usize, vs: i64, payload: &[u8], ve: i64, max_stable: i64) -> bool {
        let is_known = self.index.find(self.index.hash(vs, payload), vs, payload) != NIL;
        if vs < max_stable && !is_known {
            return false;
        }
        let id = self.index.adopt(vs, payload);
        self.index.add(id, At::In(slot), ve);
        let is_new = vs >= max_stable && self.index.ends(id, At::In(slot)).len() > self.index.ends(id, At::Out).len();
        if is_new {
            self.index.add(id, At::Out, ve);
        }
        is_new
    }

    /// Enter that the input has one more event with the end `ve` (None: one event less); the output may follow. Lines 8
    /// and 15. `vold`: the former end of the event where it was adjusted.
    fn note_change(
        &mut self,
        shell: &mut Shell,
        id: u32,
        slot: usize,
        ve: Option<i64>,
        vold: Option<i64>,
        payload: &[u8],
    ) {
        if let Some(ve) = ve {
            self.index.add(id, At::In(slot), ve);
            self.index.fall_due(id, ve, shell.max_stable);
        }
        let vs = self.index.store.nodes.get(id).vs;
        let unfrozen = vs >= shell.max_stable;
        if unfrozen && shell.policy.leads_by(Leader::Unfrozen) {
            let input = shell.inputs.get_mut(slot);
            input.unfrozen = input.unfrozen + usize::from(ve.is_some()) - usize::from(vold.is_some());
        }
        match (ve, vold) {
            (Some(ve), None) if unfrozen && self.should_show_another(shell, id, slot) => {
                self.index.add(id, At::Out, ve); // lines 9-11
                shell.emit_insert(vs, ve, payload);
            }
            _ if follows(shell, slot) => {
                self.reflect(shell, id, slot, ve, vold, payload);
            }
            _ => {}
        }
    }

    /// V.A: whether the output shows one more event now. It never has more events than any single input.
    fn should_show_another(&self, shell: &Shell, id: u32, slot: usize) -> bool {
        let shown = self.index.ends(id, At::Out).len();
        if self.index.ends(id, At::In(slot)).len() <= shown {
            return false;
        }
        should_show(shell, slot, || self.support(shell, id, shown))
    }

    /// Quorum: whether enough inputs have one more event with the end `ve` than the output; None: whether too few
    /// inputs have as many events as the output.
    fn agreed(&self, shell: &Shell, id: u32, ve: Option<i64>) -> bool {
        if shell.policy.show != Show::Quorum {
            return true;
        }
        let shown = self.index.ends(id, At::Out);
        let Some(ve) = ve else {
            return self.support(shell, id, shown.len() - 1) < quorum(shell);
        };
        let agrees = |&(other, _): &(usize, _)| exceeds(self.index.ends(id, At::In(other)), shown, ve);
        shell.inputs.counting().filter(agrees).count() >= quorum(shell)
    }

    /// Eager: adjust one output event that the input does not have to the end that the input has just delivered.
    fn reflect(&mut self, shell: &mut Shell, id: u32, slot: usize, ve: Option<i64>, vold: Option<i64>, payload: &[u8]) {
        let vs = self.index.store.nodes.get(id).vs;
        let unfrozen = vs >= shell.max_stable;
        let low = if unfrozen { NEG_INF } else { shell.max_stable };
        let (input_ends, shown) = (self.index.ends(id, At::In(slot)), self.index.ends(id, At::Out));
        let Some(ve) = ve else {
            let gone = vold.filter(|&vold| unfrozen && exceeds(shown, input_ends, vold));
            if let Some(vold) = gone.filter(|_| self.agreed(shell, id, None)) {
                self.index.remove(id, At::Out, vold);
                shell.emit_adjust(vs, vold, vs, payload);
            }
            return;
        };
        let is_news = ve >= low && exceeds(input_ends, shown, ve);
        let old = if is_news {
            self.index.lacked_by(id, slot, low, vold)
        } else {
            None
        };
        if let Some(old) = old {
            if self.agreed(shell, id, Some(ve)) {
                self.index.remove(id, At::Out, old);
                self.index.add(id, At::Out, ve);
                shell.emit_adjust(vs, old, ve, payload);
            }
        } else if vold.is_some() && unfrozen && self.should_show_another(shell, id, slot) {
            self.index.add(id, At::Out, ve); // the output removed it before
            shell.emit_insert(vs, ve, payload);
        }
    }

    fn settle_final(&mut self, id: u32, t: i64, input_ends: &[i64], half_frozen: bool) -> bool {
        let live = if t == INF { 0 } else { from(input_ends, t).len() };
        for &ve in &input_ends[..input_ends.len() - live] {
            self.index.push_insert(id, ve);
        }
        if live == 0 {
            return true;
        }
        if !half_frozen {
            self.index.hold(id);
        }
        false
    }

    fn settle_lists(
        &mut self,
        shell: &Shell,
        id: u32,
        slot: usize,
        t: i64,
        input_ends: &mut Vec<i64>,
        shown: &mut Vec<i64>,
    ) -> bool {
        let half_frozen = self.index.store.nodes.get(id).vs < shell.max_stable;
        let low = if half_frozen { shell.max_stable } else { NEG_INF };
        input_ends.extend_from_slice(from(self.index.ends(id, At::In(slot)), low));
        shown.extend_from_slice(from(self.index.ends(id, At::Out), low));
        let latest = if half_frozen { shell.latest_lacked(slot) } else { INF };
        if half_frozen && input_ends.is_empty() {
            if let Some(other) = self.witness(shell, id, latest) {
                input_ends.extend_from_slice(by(from(self.index.ends(id, At::In(other)), low), latest));
            }
            if input_ends.is_empty() && !self.index.final_only && t <= latest {
                let kept = from(shown, t); // no input has other ends: the output keeps its own
                self.index.set(id, At::Out, kept);
                return kept.is_empty();
            }
        }
        if self.index.final_only {
            return self.settle_final(id, t, input_ends, half_frozen);
        }
        if latest < INF {
            drop_doubtful(input_ends, shown, shell.right_from);
        }
        if !half_frozen {
            self.adjust_output_count(id, input_ends, shown);
        }
        self.adjust_output(id, t, input_ends, shown);
        if t > latest {
            self.end_lacked(id, latest, low, input_ends, shown);
        }
        // Fully frozen ends are removed from the output's entry and from that of the input that froze them.
        let kept = from(shown, t);
        self.index.set(id, At::Out, kept);
        let mine = from(self.index.ends(id, At::In(slot)), t).to_vec();
        self.index.set(id, At::In(slot), &mine);
        kept.is_empty() // line 27: with equal counts, the same as GetMaxVe(s) < t
    }

    /// Give the output as many events as the freezing input has (AdjustOutputCount).
    fn adjust_output_count(&mut self, id: u32, input_ends: &[i64], shown: &mut Vec<i64>) {
        if shown.len() == input_ends.len() {
            return;
        }
        let vs = self.index.store.nodes.get(id).vs;
        let (mut surplus, missing) = (minus(shown, input_ends), minus(input_ends, shown));
        while shown.len() > input_ends.len() {
            let old = surplus.pop().expect("the output has more events than the input");
            take(shown, old);
            self.index.push_adjust(id, old, vs);
        }
        for &ve in &missing[..input_ends.len() - shown.len()] {
            put(shown, ve);
            self.index.push_insert(id, ve);
        }
    }

    /// Give the output as many events as the freezing input for every end below `t` (AdjustOutput). If the inputs
    /// contradict each other, the counts can differ. Then the output events without a match stay as they are.
    fn adjust_output(&mut self, id: u32, t: i64, input_ends: &[i64], shown: &mut Vec<i64>) {
        let (at_input, at_shown) = (
            input_ends.partition_point(|&ve| ve < t),
            shown.partition_point(|&ve| ve < t),
        );
        if input_ends[..at_input] == shown[..at_shown] {
            return;
        }
        let mut missing = minus(&input_ends[..at_input], &shown[..at_shown]);
        let mut surplus = minus(&shown[..at_shown], &input_ends[..at_input]);
        if missing.len() > surplus.len() {
            surplus.extend(minus(&shown[at_shown..], &input_ends[at_input..])); // case (1): larger ends come down
        } else if missing.len() < surplus.len() {
            missing.extend(minus(&input_ends[at_input..], &shown[at_shown..])); // case (2): an input's end above t
        }
        for (&old, &ve) in surplus.iter().zip(&missing) {
            take(shown, old);
            put(shown, ve);
            self.index.push_adjust(id, old, ve);
        }
    }

    /// Adjust output events that end after `latest` and that the freezing input lacks: they end at `low`.
    fn end_lacked(&mut self, id: u32, latest: i64, low: i64, input_ends: &[i64], shown: &mut Vec<i64>) {
        let count = shown.len().saturating_sub(input_ends.len());
        let lacked = minus(shown, input_ends)
            .into_iter()
            .filter(|&ve| ve > latest)
            .take(count);
        for old in lacked {
            take(shown, old);
            put(shown, low);
            self.index.push_adjust(id, old, low);
        }
    }
}

impl Indexed for R4 {
    type Entries = Lists;

    fn index(&mut self) -> &mut Index<Lists> {
        &mut self.index
    }

    #[inline]
    fn merge(&mut self, shell: &mut Shell, slot: usize, batch: &View<'_>, run: &mut Run, number: usize) -> Checked {
        let (index, hash) = run.element(number);
        let (vs, ve, payload) = (batch.vs(index), batch.ve(index), batch.payload(index));
        let by_insert = shell.policy.leads_by(Leader::Insert);
        if batch.kind(index) == INSERT {
            let input = shell.inputs.get_mut(slot);
            if input.is_below_floor(vs) || ve < vs {
                return Err(input.refuse_insert(slot, batch, index));
            }
            if input.demands.is_ordered() {
                input.last_vs = Some(vs);
            } else if by_insert {
                input.last_vs = input.last_vs.max(Some(vs));
            }
            let is_keyed = input.demands.is_keyed();
            let mut id = self.index.found(run, number, batch);
            if id == NIL {
                if vs < shell.max_stable {
                    input.late += 1; // line 6
                    return Ok(());
                }
                if ve == vs {
                    return Ok(());
                }
                run.note_made(hash);
                id = self.index.enter(hash, vs, payload);
            } else if is_keyed && !self.index.ends(id, At::In(slot)).is_empty() {
                return Err(Violation::of(Code::DuplicateKey, slot, batch, index));
            }
            if ve > vs {
                self.note_change(shell, id, slot, Some(ve), None, payload);
            }
        } else {
            shell.inputs.get(slot).check_adjust(slot, batch, index)?;
            let vold = batch.vold(index);
            let id = self.index.found(run, number, batch);
            if id == NIL && vs < shell.max_stable {
                shell.inputs.get_mut(slot).late += 1; // line 14
                return Ok(());
            }
            if id == NIL || !self.index.remove(id, At::In(slot), vold) {
                let known = if id == NIL {
                    &[][..]
                } else {
                    self.index.ends(id, At::In(slot))
                };
                return Err(Violation::of(Code::UnknownEvent, slot, batch, index).ends(known));
            }
            self.note_change(shell, id, slot, (ve > vs).then_some(ve), Some(vold), payload);
        }
        Ok(())
    }

    fn settle(&mut self, shell: &Shell, id: u32, slot: usize, t: i64) -> bool {
        let (mut input_ends, mut shown) = (std::mem::take(&mut self.input_ends), std::mem::take(&mut self.shown));
        let done = self.settle_lists(shell, id, slot, t, &mut input_ends, &mut shown);
        input_ends.clear();
        shown.clear();
        (self.input_ends, self.shown) = (input_ends, shown);
        done
    }

    fn forget_entry(&mut self, id: u32, slot: usize) {
        self.index.set(id, At::In(slot), &[]);
    }

    fn next_due(index: &Index<Lists>, id: u32, t: i64) -> i64 {
        let first = |ends: &[i64]| from(ends, t).first().copied().unwrap_or(INF);
        let node = index.store.nodes.get(id);
        let out = first(index.ends(id, At::Out));
        if node.spill() == NIL {
            return if index.retired.without(node.has) != 0 && node.common >= t {
                out.min(node.common)
            } else {
                out
            };
        }
        index.spilled(id).map(first).fold(out, i64::min)
    }

    fn copies(&self, id: u32, slot: usize) -> usize {
        self.index.ends(id, At::In(slot)).len()
    }

    fn show_agreed(&mut self, shell: &mut Shell, id: u32) {
        loop {
            let shown = self.index.ends(id, At::Out).len();
            if self.support(shell, id, shown) < quorum(shell) {
                return;
            }
            let best = furthest(shell, |slot| self.copies(id, slot) > shown).expect("a quorum is of one at least");
            let ve = minus(self.index.ends(id, At::In(best)), self.index.ends(id, At::Out))[0];
            self.index.add(id, At::Out, ve);
            let (vs, payload) = self.index.store.key(id);
            shell.emit_insert(vs, ve, payload);
        }
    }

    fn has_live_entry(&self, id: u32, slot: usize, max_stable: i64, latest: i64) -> bool {
        !by(from(self.index.ends(id, At::In(slot)), max_stable), latest).is_empty()
    }
}

impl Algorithm for R4 {
    fn apply(&mut self, shell: &mut Shell, slot: usize, batch: &View<'_>, indices: Indices<'_>) -> Checked {
        apply_runs(self, shell, slot, batch, indices)
    }

    fn freeze(&mut self, shell: &mut Shell, slot: usize, t: i64) {
        self.freeze_nodes(shell, slot, t);
    }

    fn reconsider(&mut self, shell: &mut Shell) {
        self.reconsider_nodes(shell);
    }

    fn stable_to_emit(&mut self, _shell: &Shell, t: i64) -> i64 {
        self.index.stable_to_emit(t)
    }

    fn forget(&mut self, slot: usize) {
        retire(self, slot);
    }

    fn widen(&mut self, slots: usize) {
        self.index.slots = self.index.slots.max(slots);
    }

    fn check(&self, shell: &Shell) {
        check_shell(shell);
        self.index
            .check(shell.max_stable, |index, id| R4::next_due(index, id, shell.max_stable));
        self.index.check_unfrozen(shell, |id, slot| self.copies(id, slot));
        let final_only = shell.policy.show == Show::Final;
        for id in self.index.store.nodes.ids() {
            let vs = self.index.store.nodes.get(id).vs;
            let is_list = |ends: &[i64]| ends.is_sorted() && ends.iter().all(|&ve| ve > vs);
            for slot in 0..self.index.slots.max(BITS) {
                let ends = self.index.ends(id, At::In(slot));
                assert!(is_list(ends), "ends out of order");
                assert!(
                    ends.is_empty() || shell.inputs.is_attached(slot) || self.index.retired.has(slot),
                    "an entry of an input that has left"
                );
            }
            let shown = self.index.ends(id, At::Out);
            assert!(is_list(shown), "ends out of order");
            if final_only {
                assert!(shown.is_empty(), "final-only has shown an event that can still change");
            } else if vs < shell.max_stable {
                let first = shown.first().expect("a half-frozen node has output");
                assert!(*first >= shell.max_stable, "a fully frozen end is still in the index");
            }
        }
    }
}
