//! The state of the inputs: `lmerge/core/inputs.py` by slot numbers.

use crate::algorithm::Checked;
use crate::columns::View;
use crate::delivered::Delivered;
use crate::element::{Element, INF, NEG_INF};
use crate::policy::Policy;
use crate::ties;
use crate::violation::{Code, Violation};

/// Elements with one Vs as (payload, Ve), in order of delivery. Clearing keeps the memory, so a new Vs does not
/// allocate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElementsAtVs {
    payloads: Vec<u8>,
    items: Vec<(usize, i64)>,
}

impl ElementsAtVs {
    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn clear(&mut self) {
        self.payloads.clear();
        self.items.clear();
    }

    #[inline]
    pub fn push(&mut self, payload: &[u8], ve: i64) {
        self.payloads.extend_from_slice(payload);
        self.items.push((self.payloads.len(), ve));
    }

    #[inline]
    pub fn get(&self, at: usize) -> (&[u8], i64) {
        let (end, ve) = self.items[at];
        let start = if at == 0 { 0 } else { self.items[at - 1].0 };
        (&self.payloads[start..end], ve)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], i64)> {
        (0..self.len()).map(|at| self.get(at))
    }

    /// How often `(payload, ve)` occurs.
    pub fn count(&self, payload: &[u8], ve: i64) -> u64 {
        self.iter().filter(|&at_vs| at_vs == (payload, ve)).count() as u64
    }
}

/// The elements as (payload, Ve), sorted.
pub fn in_order(at_vs: &ElementsAtVs) -> Vec<(Vec<u8>, i64)> {
    let mut elements: Vec<(Vec<u8>, i64)> = at_vs.iter().map(|(payload, ve)| (payload.to_vec(), ve)).collect();
    elements.sort();
    elements
}

/// The properties that an input must keep, as they were demanded; `strict` implies order and key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demands {
    pub insert_only: bool,
    /// Vs does not decrease.
    pub ordered: bool,
    /// Vs increases.
    pub strict: bool,
    pub keyed: bool,
}

impl Demands {
    /// Bits: 1 insert-only, 2 ordered, 4 strictly-ordered, 8 deterministic-ties, 16 key.
    pub fn from_bits(bits: u32) -> Demands {
        Demands {
            insert_only: bits & 1 != 0,
            ordered: bits & 2 != 0,
            strict: bits & 4 != 0,
            keyed: bits & 16 != 0,
        }
    }

    pub fn is_ordered(&self) -> bool {
        self.ordered || self.strict
    }

    pub fn is_keyed(&self) -> bool {
        self.keyed || self.strict
    }
}

/// One life of one input.
#[derive(Clone, Debug)]
pub struct Input {
    pub demands: Demands,
    pub join_at: Option<i64>,
    pub observes: bool,
    pub joined: bool,
    /// Its own stable point.
    pub stable: i64,
    /// Vs of its last insert, if there was one. If it promises no order and the highest insert leads: the largest Vs.
    pub last_vs: Option<i64>,
    /// Number of events that can still be removed, if the input with the most of them leads.
    pub unfrozen: usize,
    /// Inserts and adjusts that came below the output's stable point, too late to have an effect.
    pub late: u64,
    /// R0-R2: its elements with that Vs, in order.
    pub at_last_vs: ElementsAtVs,
    /// R1: how many elements of the output's current Vs slot it has delivered, if `last_vs` is there.
    pub tie_count: usize,
    /// R1: these elements, while that slot is out of step.
    pub ties: ties::Delivered,
    /// R0-R2: inserts that came while it was joining.
    pub waiting: Vec<Element>,
    /// Its stable point is too far ahead of the others'; computed from other fields.
    pub held: bool,
    /// The others' lead is not measured by it until it has a new stable point.
    pub excused: bool,
    /// R0-R2: all events that it has inserted; None if they are not kept.
    pub delivered: Option<Delivered>,
}

impl Input {
    pub fn new(demands: Demands, join_at: Option<i64>, observes: bool, joined: bool) -> Input {
        Input {
            demands,
            join_at,
            observes,
            joined,
            stable: NEG_INF,
            last_vs: None,
            unfrozen: 0,
            late: 0,
            at_last_vs: ElementsAtVs::default(),
            tie_count: 0,
            ties: ties::Delivered::default(),
            waiting: Vec::new(),
            held: false,
            excused: false,
            delivered: None,
        }
    }

    /// V.B: whether its stable points move the output: it is joined, active and not held.
    pub fn counts(&self) -> bool {
        self.leads() && !self.held
    }

    /// Whether it is joined and active.
    fn leads(&self) -> bool {
        self.joined && !self.observes
    }

    /// Whether the lead of others is measured by it.
    fn is_awaited(&self, max_stable: i64, lead_max: i64) -> bool {
        !self.excused && self.stable >= max_stable.saturating_sub(lead_max)
    }

    /// Whether its stable point or its order forbids an insert at `vs`.
    #[inline]
    pub fn is_below_floor(&self, vs: i64) -> bool {
        vs < self.stable
            || (self.demands.is_ordered()
                && (Some(vs) < self.last_vs || (self.demands.strict && Some(vs) == self.last_vs)))
    }

    // Checks of every algorithm.

    /// The violation of an insert that is below the input's floor or ends before it starts.
    pub fn refuse_insert(&self, slot: usize, batch: &View<'_>, index: usize) -> Box<Violation> {
        let (vs, ve) = (batch.vs(index), batch.ve(index));
        if ve < vs {
            return Violation::of(Code::EndBeforeStart, slot, batch, index);
        }
        if vs < self.stable {
            return Violation::of(Code::InsertBelowStable, slot, batch, index).detail(self.stable);
        }
        let mut violation = Violation::of(Code::OutOfOrder, slot, batch, index).detail(self.last_vs.unwrap_or(NEG_INF));
        // An equal Vs breaks only the strict promise: the input is still ordered.
        violation.strictly = self.demands.strict && (Some(vs) == self.last_vs || !self.demands.ordered);
        violation
    }

    /// Check an adjust as far as no look at the index is needed.
    pub fn check_adjust(&self, slot: usize, batch: &View<'_>, index: usize) -> Checked {
        let (vs, ve, vold) = (batch.vs(index), batch.ve(index), batch.vold(index));
        if ve < vs {
            return Err(Violation::of(Code::EndBeforeStart, slot, batch, index));
        }
        if ve < self.stable || vold < self.stable {
            return Err(Violation::of(Code::AdjustBelowStable, slot, batch, index).detail(self.stable));
        }
        if self.demands.insert_only {
            return Err(Violation::of(Code::AdjustNotPromised, slot, batch, index));
        }
        Ok(())
    }
}

/// The attached inputs, by slot and in order of attachment.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    by_slot: Vec<Option<Input>>,
    order: Vec<usize>,
    /// By slot: the column of the input in a snapshot.
    places: Vec<usize>,
}

impl Inputs {
    /// Add an input. `place`: its column in a snapshot, the first that no other has.
    pub fn add(&mut self, slot: usize, place: usize, input: Input) {
        if self.by_slot.len() <= slot {
            self.by_slot.resize_with(slot + 1, || None);
            self.places.resize(slot + 1, 0);
        }
        self.places[slot] = place;
        assert!(self.by_slot[slot].is_none(), "two inputs in one slot");
        self.by_slot[slot] = Some(input);
        self.order.push(slot);
    }

    pub fn remove(&mut self, slot: usize) {
        self.by_slot[slot] = None;
        for other in self.by_slot.iter_mut().flatten() {
            other.ties.forget(slot);
        }
        self.order.retain(|&other| other != slot);
    }

    /// Drop the ties of all inputs: another algorithm runs from here on.
    pub fn forget_ties(&mut self) {
        self.by_slot.iter_mut().flatten().for_each(|input| input.ties.clear());
    }

    /// The slots in use, in order of attachment.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    #[inline]
    pub fn get(&self, slot: usize) -> &Input {
        self.by_slot[slot].as_ref().expect("an attached input")
    }

    #[inline]
    pub fn get_mut(&mut self, slot: usize) -> &mut Input {
        self.by_slot[slot].as_mut().expect("an attached input")
    }

    pub fn is_attached(&self, slot: usize) -> bool {
        matches!(self.by_slot.get(slot), Some(Some(_)))
    }

    /// The inputs that count, with their slots, in order of attachment.
    pub fn counting(&self) -> impl Iterator<Item = (usize, &Input)> {
        self.order
            .iter()
            .map(|&slot| (slot, self.get(slot)))
            .filter(|(_, input)| input.counts())
    }

    /// Whether every input that is merged promises a key.
    pub fn all_promise_a_key(&self) -> bool {
        let mut inputs = self.order.iter().map(|&slot| self.get(slot));
        inputs.all(|input| input.demands.is_keyed() || input.observes)
    }

    /// The slots of joined active inputs, furthest first; of equals the longest attached first.
    pub fn by_lead(&self) -> Vec<usize> {
        let mut ranked: Vec<usize> = self
            .order
            .iter()
            .copied()
            .filter(|&slot| self.get(slot).leads())
            .collect();
        ranked.sort_by_key(|&slot| std::cmp::Reverse(self.get(slot).stable));
        ranked
    }

    /// Set `held` of all inputs: `lmerge/core/lead.py`.
    pub fn mark_held(&mut self, max_stable: i64, policy: &Policy) -> bool {
        let Some(lead_max) = policy.lead_max else {
            return false;
        };
        let ranked = self.by_lead();
        let is_awaited = |input: &Input| input.is_awaited(max_stable, lead_max);
        let mut may_hold = true;
        let mut changed = false;
        for (at, &slot) in ranked.iter().enumerate() {
            let following = ranked[at + 1..]
                .iter()
                .map(|&slot| self.get(slot))
                .find(|&input| is_awaited(input));
            let input = self.get(slot);
            let leads = following.is_some_and(|next| input.stable > next.stable.saturating_add(lead_max));
            let held = may_hold && leads && policy.held_back(input.stable) > max_stable;
            may_hold &= leads || input.stable == INF;
            changed |= held != input.held;
            self.get_mut(slot).held = held;
        }
        changed
    }

    /// The slot of the input whose events the output takes when it follows the stable of `slot`: `lmerge/core/lead.py`.
    pub fn decider(&self, slot: usize, max_stable: i64, policy: &Policy) -> usize {
        let Some(lead_max) = policy.lead_max else {
            return slot;
        };
        let ranked = self.by_lead();
        let ended = self.get(ranked[0]);
        if self.get(slot).stable == INF || ended.stable < INF || !ended.counts() {
            return slot;
        }
        let mut below = ranked.iter().skip_while(|&&other| other != slot).skip(1);
        let is_confirmed = below.any(|&other| self.get(other).is_awaited(max_stable, lead_max));
        if is_confirmed { slot } else { ranked[0] }
    }

    /// One more than the largest place in use.
    pub fn width(&self) -> usize {
        self.order.iter().map(|&slot| self.places[slot] + 1).max().unwrap_or(0)
    }

    /// The slot of the input in each of the first `width` places.
    pub fn columns(&self, width: usize) -> Vec<Option<usize>> {
        let mut columns = vec![None; width];
        for &slot in &self.order {
            columns[self.places[slot]] = Some(slot);
        }
        columns
    }
}
