//! How two tables differ, and the order of an operator's output: the twins of `lmerge/temporal/changes.py`.
//!
//! A row is what the caller has for it: bytes, a number of an arena, a pair. It gives the order of rows.

use std::cmp::Ordering;

/// An event (row, vs) whose end moves from `old` to `new`; an end at `vs` is no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Change<R> {
    pub row: R,
    pub vs: i64,
    pub old: i64,
    pub new: i64,
}

/// An event of a table: a row with the lifetime `[vs, ve)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lifetime<R> {
    pub row: R,
    pub vs: i64,
    pub ve: i64,
}

impl<R> Change<R> {
    pub fn is_insert(&self) -> bool {
        self.old == self.vs
    }

    /// The earliest time at which the table changes (seed 000, II.A).
    pub fn sync_time(&self) -> i64 {
        self.old.min(self.new)
    }
}

/// The changes that an operator emits for `changes`: `ordered(merged(changes))` in Python. No event changes twice in
/// them; adjusts and removals are first, then inserts, each by start, row and ends.
pub fn settled<R: Copy>(changes: Vec<Change<R>>, order: impl Fn(&R, &R) -> Ordering) -> Vec<Change<R>> {
    let mut out = merged(changes, order);
    // Stable, so each half stays in the order of start and row.
    out.sort_by_key(Change::is_insert);
    out
}

/// The smallest changes that make `before` of it `after`, by start, row and ends: `differences` in Python.
pub fn differences<R: Copy>(
    before: impl IntoIterator<Item = Lifetime<R>>,
    after: impl IntoIterator<Item = Lifetime<R>>,
    order: impl Fn(&R, &R) -> Ordering,
) -> Vec<Change<R>> {
    let removed = before.into_iter().map(|Lifetime { row, vs, ve }| Change {
        row,
        vs,
        old: ve,
        new: vs,
    });
    let added = after.into_iter().map(|Lifetime { row, vs, ve }| Change {
        row,
        vs,
        old: vs,
        new: ve,
    });
    merged(removed.chain(added).collect(), order)
}

/// The changes with the same effect in which no event changes twice, by start, row and ends.
pub fn merged<R: Copy>(mut changes: Vec<Change<R>>, order: impl Fn(&R, &R) -> Ordering) -> Vec<Change<R>> {
    let by_event = |one: &Change<R>, other: &Change<R>| one.vs.cmp(&other.vs).then_with(|| order(&one.row, &other.row));
    if !changes.is_sorted_by(|one, other| by_event(one, other) != Ordering::Greater) {
        changes.sort_unstable_by(by_event);
    }
    let mut out = Vec::with_capacity(changes.len());
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for event in changes.chunk_by(|one, other| by_event(one, other) == Ordering::Equal) {
        if let [only] = event {
            if only.old != only.new {
                out.push(*only);
            }
            continue;
        }
        let Change { row, vs, .. } = event[0];
        let ends = event.iter().map(|change| (change.old, change.new));
        matched_ends(vs, ends, &mut old, &mut new, |old, new| {
            out.push(Change { row, vs, old, new })
        });
    }
    out
}

/// Give `each` change of the ends of one row and start, in order: the smallest old end goes with the smallest new one.
/// `old`, `new`: empty, for reuse.
pub fn matched_ends(
    vs: i64,
    ends: impl Iterator<Item = (i64, i64)>,
    old: &mut Vec<i64>,
    new: &mut Vec<i64>,
    mut each: impl FnMut(i64, i64),
) {
    for (before, after) in ends {
        if before > vs {
            old.push(before);
        }
        if after > vs {
            new.push(after);
        }
    }
    old.sort_unstable();
    new.sort_unstable();
    drop_common(old, new);
    let changed = old.len().max(new.len());
    old.resize(changed, vs);
    new.resize(changed, vs);
    let mut pairs: Vec<(i64, i64)> = old.drain(..).zip(new.drain(..)).collect();
    pairs.sort_unstable();
    pairs.into_iter().for_each(|(old, new)| each(old, new));
}

/// Remove from two sorted multisets what they have in common.
fn drop_common(one: &mut Vec<i64>, other: &mut Vec<i64>) {
    let (mut read, mut kept, mut other_read, mut other_kept) = (0, 0, 0, 0);
    while read < one.len() || other_read < other.len() {
        let order = match (one.get(read), other.get(other_read)) {
            (Some(left), Some(right)) => left.cmp(right),
            (Some(_), None) => Ordering::Less,
            _ => Ordering::Greater,
        };
        match order {
            Ordering::Equal => {
                read += 1;
                other_read += 1;
            }
            Ordering::Less => {
                one[kept] = one[read];
                kept += 1;
                read += 1;
            }
            Ordering::Greater => {
                other[other_kept] = other[other_read];
                other_kept += 1;
                other_read += 1;
            }
        }
    }
    one.truncate(kept);
    other.truncate(other_kept);
}
