//! What changes from one window to the next: the difference of two states.

use std::cmp::Ordering;

use super::{Module, State, Term};

/// Up to so many noted terms are searched for one that a new one takes back.
const SEARCHED_MAX: usize = 8;

/// A term of an accumulator that is not linear: the number of the accumulator, the term, and whether it enters.
type Noted = (u32, Term, bool);

/// What enters and leaves. Linear states are differences themselves; of others the terms are kept.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    /// The states of accumulators that are linear, if anything changes.
    linear: Option<Box<[State]>>,
    /// Of the others. Terms that take each other back can both be there, until there are many (`settle`).
    terms: Vec<Noted>,
    /// How many terms were left when they were settled.
    settled: u32,
}

impl Difference {
    /// Let an event enter here, or leave.
    #[inline]
    pub fn change(&mut self, module: &Module, terms: &[Term], is_added: bool) {
        if module.is_row_count() {
            return;
        }
        for (place, term) in terms.iter().enumerate() {
            if module.is_linear(place) {
                let states = self.linear.get_or_insert_with(|| module.begin_all());
                module.change_one(place, &mut states[place], term, is_added);
            } else if *term != Term::Nothing {
                // A missing value is in no state: a restored difference has none either.
                self.note(place, term.clone(), is_added);
            }
        }
    }

    /// Let all that is in the states of a window enter here, or leave.
    pub fn add(&mut self, module: &Module, states: &[State], is_added: bool) {
        if module.is_row_count() {
            return;
        }
        for (place, state) in states.iter().enumerate() {
            if module.is_linear(place) {
                let mine = self.linear.get_or_insert_with(|| module.begin_all());
                mine[place].merge(state, is_added);
            } else {
                state.each_term(|term| self.note(place, term, is_added));
            }
        }
    }

    /// Note a term. Among few it takes back one that is noted; among many that is left to `settle`.
    fn note(&mut self, place: usize, term: Term, is_added: bool) {
        let place = place as u32;
        if self.terms.len() <= SEARCHED_MAX {
            let takes_back = |(other, noted, is_noted_added): &Noted| {
                *other == place && *is_noted_added != is_added && *noted == term
            };
            if let Some(at) = self.terms.iter().rposition(takes_back) {
                self.terms.swap_remove(at);
                return;
            }
        } else if self.terms.len() >= 2 * SEARCHED_MAX.max(self.settled as usize) {
            self.settle();
        }
        self.terms.push((place, term, is_added));
    }

    /// Drop terms that take each other back.
    pub fn settle(&mut self) {
        self.terms.sort_unstable_by(by_term);
        let mut kept: Vec<Noted> = Vec::with_capacity(self.terms.len());
        for noted in self.terms.drain(..) {
            match kept.last() {
                Some(last) if by_term(last, &noted) == Ordering::Equal && last.2 != noted.2 => drop(kept.pop()),
                _ => kept.push(noted),
            }
        }
        self.settled = kept.len() as u32;
        self.terms = kept;
    }

    /// Add the difference to states.
    pub fn add_to(&self, module: &Module, states: &mut [State]) {
        for (state, difference) in states.iter_mut().zip(self.linear.as_deref().unwrap_or_default()) {
            state.merge(difference, true);
        }
        // What enters comes first: some of it may leave.
        for is_entering in [true, false] {
            for (place, term, is_added) in self.terms.iter().filter(|(.., is_added)| *is_added == is_entering) {
                module.change_one(*place as usize, &mut states[*place as usize], term, *is_added);
            }
        }
    }

    /// Whether nothing changes. Before `settle` many terms can still take each other back.
    #[inline]
    pub fn is_zero(&self) -> bool {
        self.terms.is_empty()
            && self
                .linear
                .as_ref()
                .is_none_or(|states| states.iter().all(State::is_zero))
    }
}

fn by_term(one: &Noted, other: &Noted) -> Ordering {
    one.0.cmp(&other.0).then_with(|| one.1.order(&other.1))
}
