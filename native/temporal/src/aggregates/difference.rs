//! What changes from one window to the next: the difference of two states.

use super::{Module, State, Term};

/// What enters and leaves. Linear states are differences themselves; of others the terms are kept.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    /// The states of accumulators that are linear, if anything changes.
    linear: Option<Box<[State]>>,
    /// For the others: the number of the accumulator, its term, and whether it enters.
    terms: Vec<(usize, Term, bool)>,
}

impl Difference {
    /// Let an event enter here, or leave.
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

    /// Note a term, unless it takes back one that is noted.
    fn note(&mut self, place: usize, term: Term, is_added: bool) {
        let takes_back = |(other, noted, is_noted_added): &(usize, Term, bool)| {
            *other == place && *is_noted_added != is_added && *noted == term
        };
        match self.terms.iter().rposition(takes_back) {
            Some(at) => drop(self.terms.swap_remove(at)),
            None => self.terms.push((place, term, is_added)),
        }
    }

    /// Add the difference to states.
    pub fn add_to(&self, module: &Module, states: &mut [State]) {
        for (state, difference) in states.iter_mut().zip(self.linear.as_deref().unwrap_or_default()) {
            state.merge(difference, true);
        }
        // What enters comes first: some of it may leave.
        for is_entering in [true, false] {
            for (place, term, is_added) in self.terms.iter().filter(|(.., is_added)| *is_added == is_entering) {
                module.change_one(*place, &mut states[*place], term, *is_added);
            }
        }
    }

    /// Whether nothing changes.
    pub fn is_zero(&self) -> bool {
        self.terms.is_empty()
            && self
                .linear
                .as_ref()
                .is_none_or(|states| states.iter().all(State::is_zero))
    }
}
