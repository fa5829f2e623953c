//! R1: the order of elements with one Vs. `R1` in `lmerge/core/insert_only.py` describes how the order is used.

use std::collections::HashMap;

use ahash::RandomState;
use hashbrown::HashTable;

use crate::input::{ElementsAtVs, Input, Inputs};
use crate::violation::Code;

/// No rank, or no mark.
const NONE: u32 = u32::MAX;

/// The elements at MaxVs, in order of output.
#[derive(Clone, Debug, Default)]
pub struct Slot {
    pub elements: ElementsAtVs,
    /// Present while not every input has delivered a prefix of it.
    places: Option<Box<Places>>,
}

/// The place of each element, which is its first index in the slot, by content; and how often it was output, by place.
#[derive(Clone, Debug, Default)]
struct Places {
    table: HashTable<(u64, u32)>,
    copies: Vec<u32>,
    state: RandomState,
}

/// What one input has delivered of a slot that is out of step.
#[derive(Clone, Debug, Default)]
pub struct Delivered {
    /// By place.
    ties: HashMap<u32, Tie, RandomState>,
    ranked: u32,
    /// By the slot of another input, the latest place that both have delivered, in order.
    marks: Vec<(usize, u32)>,
    /// Elements that were delivered and have no place, because they were not output.
    others: HashMap<(Vec<u8>, i64), u32>,
}

#[derive(Clone, Copy, Debug)]
struct Tie {
    copies: u32,
    /// The rank of its first copy among the elements of this input; `NONE` if it is not known.
    rank: u32,
}

/// The result of a look at an element's position alone.
pub enum Step {
    Known,
    New,
    /// The slot is out of step, now or since earlier: `Slot::deliver` decides.
    Out,
}

impl Delivered {
    pub fn clear(&mut self) {
        if !self.is_empty() {
            *self = Delivered::default();
        }
    }

    fn is_empty(&self) -> bool {
        self.ties.is_empty() && self.marks.is_empty() && self.others.is_empty()
    }

    /// The places that have a rank, in order of rank.
    pub fn order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = self.ties.keys().copied().collect();
        order.retain(|&place| self.rank(place) != NONE);
        order.sort_unstable_by_key(|&place| self.rank(place));
        order
    }

    pub fn marks(&self) -> &[(usize, u32)] {
        &self.marks
    }

    /// The state of a snapshot; `Slot::load` adds how often each place was delivered.
    pub fn of(order: Vec<u32>, marks: Vec<(usize, u32)>) -> Delivered {
        let mut delivered = Delivered {
            marks,
            ..Delivered::default()
        };
        delivered.marks.sort_unstable();
        order.into_iter().for_each(|place| delivered.rank_next(place));
        delivered
    }

    fn rank(&self, place: u32) -> u32 {
        self.ties.get(&place).map_or(NONE, |tie| tie.rank)
    }

    fn tie(&mut self, place: u32) -> &mut Tie {
        self.ties.entry(place).or_insert(Tie { copies: 0, rank: NONE })
    }

    fn rank_next(&mut self, place: u32) {
        self.tie(place).rank = self.ranked;
        self.ranked += 1;
    }

    fn mark(&self, slot: usize) -> u32 {
        let at = self.marks.binary_search_by_key(&slot, |mark| mark.0);
        at.map_or(NONE, |at| self.marks[at].1)
    }

    fn set_mark(&mut self, slot: usize, place: u32) {
        match self.marks.binary_search_by_key(&slot, |mark| mark.0) {
            Ok(at) => self.marks[at].1 = place,
            Err(at) => self.marks.insert(at, (slot, place)),
        }
    }

    /// Drop the marks of the input in `slot`, which has left.
    pub fn forget(&mut self, slot: usize) {
        self.marks.retain(|mark| mark.0 != slot);
    }
}

impl Places {
    fn of(elements: &ElementsAtVs) -> Places {
        let mut places = Places::default();
        for at in 0..elements.len() {
            let (payload, ve) = elements.get(at);
            let (place, _) = places.enter(elements, payload, ve, at);
            places.add(place);
        }
        places
    }

    fn find(&self, elements: &ElementsAtVs, payload: &[u8], ve: i64) -> Option<u32> {
        let hash = self.state.hash_one((payload, ve));
        let is_it = |&(other, at): &(u64, u32)| other == hash && elements.get(at as usize) == (payload, ve);
        self.table.find(hash, is_it).map(|&(_, at)| at)
    }

    /// The place of an element, and whether it is a new place. A new place is `at`.
    fn enter(&mut self, elements: &ElementsAtVs, payload: &[u8], ve: i64, at: usize) -> (u32, bool) {
        if let Some(place) = self.find(elements, payload, ve) {
            return (place, false);
        }
        let hash = self.state.hash_one((payload, ve));
        self.table.insert_unique(hash, (hash, at as u32), |&(hash, _)| hash);
        (at as u32, true)
    }

    fn copies(&self, place: u32) -> u32 {
        self.copies.get(place as usize).copied().unwrap_or(0)
    }

    fn add(&mut self, place: u32) {
        let at = place as usize;
        if self.copies.len() <= at {
            self.copies.resize(at + 1, 0);
        }
        self.copies[at] += 1;
    }
}

impl Slot {
    pub fn of(elements: ElementsAtVs) -> Slot {
        Slot { elements, places: None }
    }

    pub fn clear(&mut self) {
        self.elements.clear();
        self.places = None;
    }

    pub fn is_in_step(&self) -> bool {
        self.places.is_none()
    }

    /// Compare an element with the one at its position, while the slot is in step.
    #[inline]
    pub fn step(&mut self, input: &mut Input, payload: &[u8], ve: i64) -> Step {
        let position = input.tie_count;
        if self.places.is_some() {
            return Step::Out;
        }
        if position == self.elements.len() {
            self.elements.push(payload, ve);
            input.tie_count += 1;
            return Step::New;
        }
        if self.elements.get(position) == (payload, ve) {
            input.tie_count += 1;
            return Step::Known;
        }
        Step::Out
    }

    /// Take an element that the input in `slot` delivers while the slot is out of step. Returns whether it is new.
    pub fn deliver(
        &mut self,
        inputs: &mut Inputs,
        slot: usize,
        vs: i64,
        payload: &[u8],
        ve: i64,
    ) -> Result<bool, Code> {
        if self.places.is_none() {
            self.leave_step(inputs, vs);
        }
        let places = self.places.as_mut().expect("a slot out of step");
        let (place, _) = places.enter(&self.elements, payload, ve, self.elements.len());
        let delivered = &mut inputs.get_mut(slot).ties;
        if !delivered.others.is_empty()
            && let Some(copies) = delivered.others.remove(&(payload.to_vec(), ve))
        {
            delivered.tie(place).copies += copies;
        }
        let (before, copies) = (delivered.tie(place).copies, places.copies(place));
        if before == 0 {
            if copies == 1 {
                places.check_order(inputs, slot, vs, place)?;
            }
            inputs.get_mut(slot).ties.rank_next(place);
        }
        let input = inputs.get_mut(slot);
        input.ties.tie(place).copies += 1;
        input.tie_count += 1;
        if before < copies {
            return Ok(false);
        }
        self.elements.push(payload, ve);
        places.add(place);
        Ok(true)
    }

    /// Replace the positions of the inputs in the slot by places, ranks and marks. O(slot), once for each slot.
    fn leave_step(&mut self, inputs: &mut Inputs, vs: i64) {
        let places = Places::of(&self.elements);
        let place_of = |at: usize| {
            let (payload, ve) = self.elements.get(at);
            places.find(&self.elements, payload, ve).expect("a place")
        };
        let ids: Vec<u32> = (0..self.elements.len()).map(place_of).collect();
        // By the length of a prefix of the slot: its last element that came once.
        let mut latest = vec![NONE];
        for &place in &ids {
            let before = latest[latest.len() - 1];
            latest.push(if places.copies(place) == 1 { place } else { before });
        }
        let standing: Vec<(usize, usize)> = standing(inputs, vs)
            .map(|(slot, input)| (slot, input.tie_count))
            .collect();
        for &(slot, count) in &standing {
            let mut delivered = Delivered::default();
            for &place in &ids[..count.min(ids.len())] {
                if delivered.rank(place) == NONE {
                    delivered.rank_next(place);
                }
                delivered.tie(place).copies += 1;
            }
            for &(other, end) in &standing {
                let mark = latest[count.min(end).min(ids.len())];
                if other != slot && mark != NONE {
                    delivered.set_mark(other, mark);
                }
            }
            inputs.get_mut(slot).ties = delivered;
        }
        self.places = Some(Box::new(places));
    }

    /// Find each input's place in the slot from what it has delivered there.
    pub fn settle(&mut self, inputs: &mut Inputs, vs: Option<i64>) {
        let Some(vs) = vs else { return };
        let slots: Vec<usize> = standing(inputs, vs).map(|(slot, _)| slot).collect();
        let mut behind = Vec::new();
        for &slot in &slots {
            let input = inputs.get_mut(slot);
            input.tie_count = input.at_last_vs.len();
            if !self.begins_with(&input.at_last_vs) {
                behind.push(slot);
            }
        }
        if behind.is_empty() {
            return;
        }
        self.leave_step(inputs, vs);
        for &slot in &behind {
            inputs.get_mut(slot).ties = Delivered::default();
            slots.iter().for_each(|&other| inputs.get_mut(other).ties.forget(slot));
        }
        self.count_delivered(inputs, &behind);
    }

    /// Continue out of step, with inputs whose ranks and marks are known.
    pub fn load_out_of_step(&mut self, inputs: &mut Inputs, vs: Option<i64>) {
        self.places = Some(Box::new(Places::of(&self.elements)));
        let slots: Vec<usize> = vs.map_or(Vec::new(), |vs| standing(inputs, vs).map(|(slot, _)| slot).collect());
        self.count_delivered(inputs, &slots);
    }

    /// Restore `kept`; out of step if the slot has left step since then.
    pub fn go_back(&mut self, kept: Slot) {
        let is_in_step = self.is_in_step() && kept.is_in_step();
        *self = Slot::of(kept.elements);
        if !is_in_step {
            self.places = Some(Box::new(Places::of(&self.elements)));
        }
    }

    fn count_delivered(&self, inputs: &mut Inputs, slots: &[usize]) {
        let places = self.places.as_ref().expect("a slot out of step");
        for &slot in slots {
            let input = inputs.get_mut(slot);
            for (payload, ve) in input.at_last_vs.iter() {
                match places.find(&self.elements, payload, ve) {
                    Some(place) => input.ties.tie(place).copies += 1,
                    None => *input.ties.others.entry((payload.to_vec(), ve)).or_default() += 1,
                }
            }
        }
    }

    /// Whether these are the first elements, in any order.
    fn begins_with(&self, elements: &ElementsAtVs) -> bool {
        if elements.len() > self.elements.len() {
            return false;
        }
        let (mut mine, mut its): (Vec<_>, Vec<_>) = (
            self.elements.iter().take(elements.len()).collect(),
            elements.iter().collect(),
        );
        mine.sort_unstable();
        its.sort_unstable();
        mine == its
    }

    /// Assert every invariant of the inputs at `vs`.
    pub fn check(&self, inputs: &Inputs, vs: i64) {
        for (_, input) in standing(inputs, vs) {
            assert_eq!(input.tie_count, input.at_last_vs.len(), "an element was not counted");
            let delivered = &input.ties;
            match &self.places {
                None => assert!(self.begins_with(&input.at_last_vs), "an input is not in step"),
                Some(_) => {
                    assert_eq!(delivered.order().len(), delivered.ranked as usize);
                    let placed: u64 = delivered.ties.values().map(|tie| u64::from(tie.copies)).sum();
                    let others: u64 = delivered.others.values().map(|&copies| u64::from(copies)).sum();
                    assert_eq!(placed + others, input.at_last_vs.len() as u64);
                }
            }
        }
        if let Some(places) = &self.places {
            let copies: u64 = places.copies.iter().map(|&copies| u64::from(copies)).sum();
            assert_eq!(copies, self.elements.len() as u64);
        }
    }
}

impl Places {
    /// Check the order of an element that the input in `slot` delivers for the first time and that was output once.
    fn check_order(&self, inputs: &mut Inputs, slot: usize, vs: i64, place: u32) -> Result<(), Code> {
        let mine = &inputs.get(slot).ties;
        let mut others = Vec::new();
        for (other, input) in standing(inputs, vs) {
            if input.ties.rank(place) == NONE {
                continue;
            }
            let mark = mine.mark(other);
            if mark != NONE && self.copies(mark) == 1 {
                let rank = input.ties.rank(mark);
                if rank != NONE && rank > input.ties.rank(place) {
                    return Err(Code::TiesDiffer);
                }
            }
            others.push(other);
        }
        for other in others {
            inputs.get_mut(slot).ties.set_mark(other, place);
            inputs.get_mut(other).ties.set_mark(slot, place);
        }
        Ok(())
    }
}

/// The inputs that have delivered elements at `vs`, which is MaxVs.
fn standing(inputs: &Inputs, vs: i64) -> impl Iterator<Item = (usize, &Input)> {
    inputs.counting().filter(move |(_, input)| input.last_vs == Some(vs))
}
