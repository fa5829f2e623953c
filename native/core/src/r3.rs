//! Algorithm R3 (IV.D) on in2t: (Vs, payload) is a key, so an input has at most one end for a node. `lmerge/core/r3.py`
//! maps the lines of the listing to the code.

use crate::algorithm::{Algorithm, Checked, Shell, check_shell};
use crate::columns::View;
use crate::element::{INF, INSERT};
use crate::following::{follows, quorum, should_show};
use crate::index::{Index, Indexed, Spill, furthest};
use crate::indices::Indices;
use crate::nodes::{BITS, NIL, NONE};
use crate::policy::{Leader, Show};
use crate::retired::retire;
use crate::run::{Run, apply_runs};
use crate::state::EndRow;
use crate::violation::{Code, Violation};

/// The ends of inputs that do not agree, by slot.
pub type Ends = Vec<i64>;

impl Spill for Ends {
    fn clear(&mut self) {
        Vec::clear(self);
    }

    fn held_bytes(&self) -> usize {
        self.capacity() * size_of::<i64>()
    }
}

/// IV.D with in2t.
#[derive(Debug)]
pub struct R3 {
    pub index: Index<Ends>,
}

impl R3 {
    pub fn new(final_only: bool) -> R3 {
        R3 {
            index: Index::new(final_only),
        }
    }

    /// Enter all adopted nodes at their due times. These follow from the entries, except for those in `dues`.
    pub fn rebuild(&mut self, max_stable: i64, dues: &[EndRow]) {
        self.index
            .rebuild(max_stable, dues, |index, id| R3::next_due(index, id, max_stable));
    }

    /// Enter an event that an input delivered before a switch. True: the output had not shown it, and shows it now.
    pub fn adopt_delivered(&mut self, slot: usize, vs: i64, payload: &[u8], ve: i64, max_stable: i64) -> bool {
        let mut id = self.index.find(self.index.hash(vs, payload), vs, payload);
        let is_new = id == NIL;
        if is_new {
            if vs < max_stable {
                return false;
            }
            id = self.index.adopt(vs, payload);
            self.index.store.nodes.get_mut(id).out = ve;
        }
        self.set_end(id, slot, ve);
        is_new
    }

    /// The end of the event on an input, or NONE.
    #[inline]
    pub fn end(&self, id: u32, slot: usize) -> i64 {
        end(&self.index, id, slot)
    }

    /// Set the end of the event on the input in `slot`. NONE: it has no event.
    #[inline]
    pub fn set_end(&mut self, id: u32, slot: usize, ve: i64) {
        let node = self.index.store.nodes.get_mut(id);
        if node.spill() == NIL && slot < BITS {
            let bit = 1 << slot;
            if ve == NONE {
                node.has &= !bit;
                return;
            }
            if node.has & !bit == 0 || node.common == ve {
                node.has |= bit;
                node.common = ve;
                return;
            }
        }
        self.set_spilled(id, slot, ve);
    }

    #[cold]
    fn set_spilled(&mut self, id: u32, slot: usize, ve: i64) {
        let node = self.index.store.nodes.get(id);
        let (common, has) = (node.common, node.has);
        if node.spill() == NIL {
            if ve == NONE {
                return; // a slot without a bit, and without an event
            }
            let ends = self.index.spill(id);
            ends.extend(
                (0..64 - has.leading_zeros() as usize).map(|at| if has >> at & 1 == 1 { common } else { NONE }),
            );
        }
        let node = self.index.store.nodes.get(id);
        let ends = &mut self.index.spills[node.spill() as usize];
        if ends.len() <= slot {
            ends.resize(slot + 1, NONE);
        }
        ends[slot] = ve;
        let mut common = NONE;
        let mut has = 0;
        for (slot, &end) in ends.iter().enumerate() {
            if end == NONE {
                continue;
            }
            if (common != NONE && common != end) || slot >= BITS {
                return; // they do not agree
            }
            common = end;
            has |= 1 << slot;
        }
        self.index.unspill(id);
        let node = self.index.store.nodes.get_mut(id);
        (node.common, node.has) = (common, has);
    }

    #[inline]
    fn first_insert(&mut self, shell: &mut Shell, slot: usize, hash: u32, vs: i64, ve: i64, payload: &[u8]) {
        let id = self.index.enter(hash, vs, payload);
        self.set_end(id, slot, ve);
        if shell.policy.is_lazy() {
            self.index.store.nodes.get_mut(id).out = ve;
            shell.emit_insert(vs, ve, payload);
        } else {
            self.follow(shell, id, slot, false, payload);
        }
    }

    /// Let the output follow an entry that an input has changed, if the policy shows the change at once (V.A). `had`:
    /// whether the input had an event here before.
    fn follow(&mut self, shell: &mut Shell, id: u32, slot: usize, had: bool, payload: &[u8]) {
        let input_end = self.end(id, slot);
        let node = self.index.store.nodes.get(id);
        let (vs, shown) = (node.vs, node.out);
        let unfrozen = vs >= shell.max_stable;
        if unfrozen && shell.policy.leads_by(Leader::Unfrozen) {
            let input = shell.inputs.get_mut(slot);
            input.unfrozen = input.unfrozen + usize::from(input_end != NONE) - usize::from(had);
        }
        if shown == NONE {
            if input_end != NONE && unfrozen && self.should_show(shell, id, slot) {
                self.index.store.nodes.get_mut(id).out = input_end;
                shell.emit_insert(vs, input_end, payload);
            }
        } else if input_end != shown && follows(shell, slot) && self.agreed(shell, id, input_end) {
            if input_end == NONE {
                if unfrozen {
                    self.index.store.nodes.get_mut(id).out = NONE;
                    shell.emit_adjust(vs, shown, vs, payload);
                }
            } else if unfrozen || input_end >= shell.max_stable {
                self.index.store.nodes.get_mut(id).out = input_end;
                shell.emit_adjust(vs, shown, input_end, payload);
            }
        }
    }

    fn should_show(&self, shell: &Shell, id: u32, slot: usize) -> bool {
        should_show(shell, slot, || self.support(shell, id, 0))
    }

    /// Quorum: whether enough inputs have the end `input_end`; NONE: whether too few have the event.
    fn agreed(&self, shell: &Shell, id: u32, input_end: i64) -> bool {
        if shell.policy.show != Show::Quorum {
            return true;
        }
        if input_end == NONE {
            return self.support(shell, id, 0) < quorum(shell);
        }
        let agrees = |&(other, _): &(usize, _)| self.end(id, other) == input_end;
        shell.inputs.counting().filter(agrees).count() >= quorum(shell)
    }

    fn settle_final(&mut self, id: u32, t: i64, input_end: i64, half_frozen: bool) -> bool {
        if input_end == NONE {
            return true;
        }
        if input_end < t || t == INF {
            self.index.push_insert(id, input_end);
            return true;
        }
        if !half_frozen {
            self.index.hold(id);
        }
        false
    }
}

#[inline]
fn end(index: &Index<Ends>, id: u32, slot: usize) -> i64 {
    let node = index.store.nodes.get(id);
    if node.spill() == NIL {
        return if node.agrees(slot) { node.common } else { NONE };
    }
    index.spills[node.spill() as usize].get(slot).copied().unwrap_or(NONE)
}

impl Indexed for R3 {
    type Entries = Ends;

    fn index(&mut self) -> &mut Index<Ends> {
        &mut self.index
    }

    #[inline]
    fn merge(&mut self, shell: &mut Shell, slot: usize, batch: &View<'_>, run: &mut Run, number: usize) -> Checked {
        let (index, hash) = run.element(number);
        let (vs, ve, payload) = (batch.vs(index), batch.ve(index), batch.payload(index));
        let is_lazy = shell.policy.is_lazy();
        let by_insert = shell.policy.leads_by(Leader::Insert);
        let id;
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
            id = self.index.found(run, number, batch);
            if id == NIL {
                if vs < shell.max_stable {
                    input.late += 1; // IV.D line 6
                } else if ve > vs {
                    run.note_made(hash);
                    self.first_insert(shell, slot, hash, vs, ve, payload);
                }
                return Ok(());
            }
            if self.end(id, slot) != NONE {
                return Err(Violation::of(Code::DuplicateKey, slot, batch, index));
            }
            if ve == vs {
                return Ok(());
            }
        } else {
            shell.inputs.get(slot).check_adjust(slot, batch, index)?;
            id = self.index.found(run, number, batch);
            if id == NIL && vs < shell.max_stable {
                shell.inputs.get_mut(slot).late += 1; // line 13
                return Ok(());
            }
            let known = if id == NIL { NONE } else { self.end(id, slot) };
            if known == NONE || known != batch.vold(index) {
                let ends = if known == NONE { &[][..] } else { &[known] };
                return Err(Violation::of(Code::UnknownEvent, slot, batch, index).ends(ends));
            }
        }
        self.set_end(id, slot, if ve > vs { ve } else { NONE }); // line 11, line 14
        self.index.fall_due(id, ve, shell.max_stable);
        if !is_lazy {
            self.follow(shell, id, slot, batch.kind(index) != INSERT, payload);
        }
        Ok(())
    }

    fn settle(&mut self, shell: &Shell, id: u32, slot: usize, t: i64) -> bool {
        let node = self.index.store.nodes.get(id);
        let (vs, shown) = (node.vs, node.out);
        let half_frozen = vs < shell.max_stable;
        let mut input_end = self.end(id, slot);
        if half_frozen && input_end < shell.max_stable {
            let latest = shell.latest_lacked(slot);
            input_end = self
                .witness(shell, id, latest)
                .map_or(NONE, |other| self.end(id, other));
            if input_end == NONE && shown > latest && t > latest {
                input_end = shell.max_stable;
            }
        }
        if self.index.final_only {
            return self.settle_final(id, t, input_end, half_frozen);
        }
        if half_frozen && input_end == NONE {
            return shown < t; // no input has another end: the output keeps its own
        }
        if input_end == NONE {
            if shown != NONE {
                self.index.push_adjust(id, shown, vs); // lines 20-25: InVe = Vs, the event is removed
            }
            return true;
        }
        if shown == NONE {
            self.index.push_insert(id, input_end);
            self.index.store.nodes.get_mut(id).out = input_end;
        } else if input_end != shown && (input_end < t || shown < t) {
            self.index.push_adjust(id, shown, input_end); // lines 22-25
            self.index.store.nodes.get_mut(id).out = input_end;
        }
        input_end < t // line 26
    }

    fn forget_entry(&mut self, id: u32, slot: usize) {
        self.set_end(id, slot, NONE);
    }

    fn next_due(index: &Index<Ends>, id: u32, t: i64) -> i64 {
        let node = index.store.nodes.get(id);
        let mut due = if node.out >= t { node.out } else { INF };
        let mut consider = |ve: i64| {
            if t <= ve && ve < due {
                due = ve;
            }
        };
        if node.spill() != NIL {
            let ends = index.spills[node.spill() as usize].iter().enumerate();
            ends.filter(|&(slot, _)| !index.retired.has(slot))
                .for_each(|(_, &ve)| consider(ve));
        } else if index.retired.without(node.has) != 0 {
            consider(node.common);
        }
        due
    }

    fn copies(&self, id: u32, slot: usize) -> usize {
        usize::from(self.end(id, slot) != NONE)
    }

    fn show_agreed(&mut self, shell: &mut Shell, id: u32) {
        if self.index.store.nodes.get(id).out != NONE || self.support(shell, id, 0) < quorum(shell) {
            return;
        }
        let best = furthest(shell, |slot| self.copies(id, slot) > 0).expect("a quorum is of one at least");
        let ve = self.end(id, best);
        self.index.store.nodes.get_mut(id).out = ve;
        let (vs, payload) = self.index.store.key(id);
        shell.emit_insert(vs, ve, payload);
    }

    fn has_live_entry(&self, id: u32, slot: usize, max_stable: i64, latest: i64) -> bool {
        let ve = self.end(id, slot);
        ve != NONE && max_stable <= ve && ve <= latest
    }
}

impl Algorithm for R3 {
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
            .check(shell.max_stable, |index, id| R3::next_due(index, id, shell.max_stable));
        self.index.check_unfrozen(shell, |id, slot| self.copies(id, slot));
        let final_only = shell.policy.show == Show::Final;
        for id in self.index.store.nodes.ids() {
            let node = self.index.store.nodes.get(id);
            for slot in 0..self.index.slots.max(BITS) {
                let ve = self.end(id, slot);
                assert!(ve == NONE || ve > node.vs, "an entry with an empty lifetime");
                assert!(
                    ve == NONE || shell.inputs.is_attached(slot) || self.index.retired.has(slot),
                    "an entry of an input that has left"
                );
            }
            assert!(
                node.out == NONE || node.out > node.vs,
                "an output event with an empty lifetime"
            );
            if final_only {
                assert!(node.out == NONE, "final-only has shown an event that can still change");
            } else if node.vs < shell.max_stable {
                assert!(node.out != NONE, "a half-frozen event is not in the output");
                assert!(
                    node.out >= shell.max_stable,
                    "a fully frozen event is still in the index"
                );
            }
        }
    }
}
