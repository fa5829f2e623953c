//! What changes from one window to the next: the difference of two states.

use super::{Key, Module, State, Term};

/// Up to so many noted terms are settled to see whether anything is left of them.
const FEW: usize = 8;

/// From so many on they are settled whenever they have doubled.
const MANY: usize = 64;

/// A term of an accumulator that is not linear: the number of the accumulator, whether the term enters, and the term.
#[derive(Clone, Debug)]
struct Noted<T> {
    place: u32,
    is_added: bool,
    term: T,
}

/// What enters and leaves. Linear states are differences themselves; of others the terms are kept.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    /// The states of accumulators that are linear, if anything changes.
    linear: Option<Box<[State]>>,
    /// Of the others: keys, which are small, and all other terms.
    keys: Notes<Key>,
    terms: Notes<Term>,
}

/// Terms as they came. Some can take each other back, until there are many (`settle`).
#[derive(Clone, Debug)]
struct Notes<T> {
    noted: Vec<Noted<T>>,
    /// How many were left when they were settled.
    settled: u32,
}

impl<T> Default for Notes<T> {
    fn default() -> Notes<T> {
        Notes {
            noted: Vec::new(),
            settled: 0,
        }
    }
}

impl<T: Ord> Notes<T> {
    #[inline]
    fn note(&mut self, place: usize, term: T, is_added: bool) {
        if self.noted.len() >= MANY.max(2 * self.settled as usize) {
            self.settle();
        }
        let place = place as u32;
        self.noted.push(Noted { place, is_added, term });
    }

    /// Drop terms that take each other back.
    fn settle(&mut self) {
        let by_term = |one: &Noted<T>, other: &Noted<T>| (one.place, &one.term).cmp(&(other.place, &other.term));
        self.noted.sort_unstable_by(by_term);
        let mut kept: Vec<Noted<T>> = Vec::with_capacity(self.noted.len());
        for noted in self.noted.drain(..) {
            match kept.last() {
                Some(last) if by_term(last, &noted).is_eq() && last.is_added != noted.is_added => drop(kept.pop()),
                _ => kept.push(noted),
            }
        }
        self.settled = kept.len() as u32;
        self.noted = kept;
    }

    fn settle_few(&mut self) {
        if (1..=FEW).contains(&self.noted.len()) {
            self.settle();
        }
    }

    /// Visit the terms that enter, or those that leave.
    fn each(&self, is_added: bool, mut visit: impl FnMut(usize, &T)) {
        let chosen = self.noted.iter().filter(|noted| noted.is_added == is_added);
        chosen.for_each(|noted| visit(noted.place as usize, &noted.term));
    }
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
            } else {
                self.note(place, term, is_added);
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
                state.each_term(|term| self.note(place, &term, is_added));
            }
        }
    }

    #[inline]
    fn note(&mut self, place: usize, term: &Term, is_added: bool) {
        match term {
            Term::Key(key) => self.keys.note(place, key.clone(), is_added),
            // A missing value is in no state: a restored difference has none either.
            Term::Nothing => {}
            term => self.terms.note(place, term.clone(), is_added),
        }
    }

    /// Drop terms that take each other back.
    pub fn settle(&mut self) {
        self.keys.settle();
        self.terms.settle();
    }

    /// Add the difference to states.
    pub fn add_to(&self, module: &Module, states: &mut [State]) {
        for (state, difference) in states.iter_mut().zip(self.linear.as_deref().unwrap_or_default()) {
            state.merge(difference, true);
        }
        // What enters comes first: some of it may leave.
        for is_added in [true, false] {
            self.keys
                .each(is_added, |place, key| states[place].change_key(key, is_added));
            self.terms.each(is_added, |place, term| {
                module.change_one(place, &mut states[place], term, is_added);
            });
        }
    }

    /// Whether nothing changes. Before `settle` many terms can still take each other back.
    #[inline]
    pub fn is_zero(&self) -> bool {
        self.keys.noted.is_empty()
            && self.terms.noted.is_empty()
            && self
                .linear
                .as_ref()
                .is_none_or(|states| states.iter().all(State::is_zero))
    }

    /// Whether nothing changes, as far as that can be seen at little cost.
    pub fn is_seen_to_be_zero(&mut self) -> bool {
        self.keys.settle_few();
        self.terms.settle_few();
        self.is_zero()
    }
}
