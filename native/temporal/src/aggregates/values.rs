//! The values of a window in order, each with a place.

use super::keys::Key;
use super::ranked::Ranked;

/// A sorted multiset of keys. Numbers, which most keys are, lie closer together.
#[derive(Clone, Debug)]
pub enum Values {
    Numbers(Ranked<i64>),
    Keys(Ranked<Key>),
}

impl Values {
    /// `are_numbers`: whether all keys are.
    pub fn new(are_numbers: bool) -> Values {
        if are_numbers {
            Values::Numbers(Ranked::default())
        } else {
            Values::Keys(Ranked::default())
        }
    }

    #[inline]
    pub fn add(&mut self, key: &Key) {
        match (self, key) {
            (Values::Numbers(numbers), Key::Number(number)) => numbers.add(*number),
            (Values::Keys(keys), key) => keys.add(key.clone()),
            (Values::Numbers(_), Key::Bytes(_)) => unreachable!("the keys of a column are of one kind"),
        }
    }

    /// Remove one copy of a key, which is there.
    #[inline]
    pub fn remove(&mut self, key: &Key) {
        match (self, key) {
            (Values::Numbers(numbers), Key::Number(number)) => numbers.remove(number),
            (Values::Keys(keys), key) => keys.remove(key),
            (Values::Numbers(_), Key::Bytes(_)) => unreachable!("the keys of a column are of one kind"),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Values::Numbers(numbers) => numbers.len(),
            Values::Keys(keys) => keys.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key at a place from 0.
    pub fn at(&self, place: usize) -> Key {
        match self {
            Values::Numbers(numbers) => Key::Number(*numbers.at(place)),
            Values::Keys(keys) => keys.at(place).clone(),
        }
    }

    pub fn last(&self) -> Option<Key> {
        match self {
            Values::Numbers(numbers) => numbers.last().copied().map(Key::Number),
            Values::Keys(keys) => keys.last().cloned(),
        }
    }

    pub fn iter(&self) -> Box<dyn Iterator<Item = Key> + '_> {
        match self {
            Values::Numbers(numbers) => Box::new(numbers.iter().copied().map(Key::Number)),
            Values::Keys(keys) => Box::new(keys.iter().cloned()),
        }
    }
}
