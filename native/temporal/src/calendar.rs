//! What is due when the stable point moves to `t`: the hierarchical timing wheel of `lmerge/core/calendar.py`, for
//! entries of any kind. (`lmerge_core::wheel` holds nodes of the merge.)
//!
//! An entry is on the level of the highest byte in which its due time and `now` differ, in the slot of that byte. So it
//! moves at most once per level, and the cost of a stable does not depend on how many entries are not due. An entry is
//! not removed before it is due; who takes it looks whether it still holds.

use crate::NEG_INF;

const LEVELS: usize = 8;
const SLOTS: usize = 256;

/// Entries by due time. Nothing is due before `now`, which only moves forward.
#[derive(Clone, Debug)]
pub struct Calendar<T> {
    now: i64,
    /// By level and slot; a level without entries has no slots.
    levels: [Vec<Vec<(i64, T)>>; LEVELS],
    /// Due times of the other sign than `now`: they differ from it in the sign bit, above all bytes.
    other_sign: Vec<(i64, T)>,
    count: usize,
}

impl<T> Default for Calendar<T> {
    fn default() -> Calendar<T> {
        Calendar {
            now: NEG_INF,
            levels: Default::default(),
            other_sign: Vec::new(),
            count: 0,
        }
    }
}

impl<T: Copy> Calendar<T> {
    /// Enter `entry`. What is due before `now` comes with the next move.
    pub fn add(&mut self, due: i64, entry: T) {
        self.count += 1;
        let (due, place) = (due, due.max(self.now));
        let difference = place ^ self.now;
        if difference < 0 {
            self.other_sign.push((due, entry));
            return;
        }
        let level = level_of(difference);
        let slots = &mut self.levels[level];
        if slots.is_empty() {
            slots.resize_with(SLOTS, Vec::new);
        }
        slots[slot_of(place, level)].push((due, entry));
    }

    /// Move `now` to `t`, and remove the entries due before it; they are appended to `popped` in no useful order.
    pub fn pop_below(&mut self, t: i64, popped: &mut Vec<T>) {
        let now = self.now;
        if t <= now {
            return;
        }
        self.now = t;
        if self.count == 0 {
            return;
        }
        let before = popped.len();
        let difference = t ^ now;
        let again = if difference < 0 {
            self.levels.iter_mut().for_each(|slots| take_all(slots, popped));
            std::mem::take(&mut self.other_sign)
        } else {
            let top = level_of(difference);
            self.levels[..top].iter_mut().for_each(|slots| take_all(slots, popped));
            self.take_passed(top, now, t, popped)
        };
        self.count -= popped.len() - before;
        self.count -= again.len();
        for (due, entry) in again {
            if due < t {
                popped.push(entry);
            } else {
                self.add(due, entry);
            }
        }
    }

    /// Remove the slots from `now` to `t` of a level. Returns the slot of `t`, to be distributed again.
    fn take_passed(&mut self, level: usize, now: i64, t: i64, popped: &mut Vec<T>) -> Vec<(i64, T)> {
        let slots = &mut self.levels[level];
        if slots.is_empty() {
            return Vec::new();
        }
        let last = slot_of(t, level);
        for slot in &mut slots[slot_of(now, level)..last] {
            popped.extend(slot.drain(..).map(|(_, entry)| entry));
        }
        std::mem::take(&mut slots[last])
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn clear(&mut self) {
        *self = Calendar {
            now: self.now,
            ..Calendar::default()
        };
    }

    /// Panic unless every entry is counted, and in a slot that time has not passed.
    pub fn check(&self) {
        let mut count = self.other_sign.len();
        for (level, slots) in self.levels.iter().enumerate() {
            for (slot, entries) in slots.iter().enumerate() {
                count += entries.len();
                assert!(
                    entries.is_empty() || slot >= slot_of(self.now, level),
                    "a passed slot has entries"
                );
            }
        }
        assert_eq!(count, self.count, "entries of a calendar");
    }
}

fn level_of(difference: i64) -> usize {
    ((63 - (difference | 1).leading_zeros()) >> 3) as usize
}

fn slot_of(t: i64, level: usize) -> usize {
    (t >> (level << 3)) as u8 as usize
}

fn take_all<T>(slots: &mut [Vec<(i64, T)>], popped: &mut Vec<T>) {
    slots
        .iter_mut()
        .for_each(|slot| popped.extend(slot.drain(..).map(|(_, entry)| entry)));
}
