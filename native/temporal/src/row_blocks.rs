//! New events by group and window, as columns: for windows whose modules run in Python.
//!
//! `lmerge/temporal/windows/window_operator.py` puts them into windows. A block refers to rows of a batch. Columns are
//! taken from it when a module needs them, in the order of rows that every implementation has.

use std::sync::Arc;

use ahash::RandomState;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use arrow_select::concat::concat;
use hashbrown::HashMap;

use crate::batch::{Batch, taken};
use crate::rows::RowForm;
use crate::windows::Grid;
use crate::{Column, Kind};

/// Rows of a batch of new events, in the order of the batch.
#[derive(Clone, Debug)]
pub struct RowBlock {
    batch: Batch,
    /// None: all of the batch.
    places: Option<Arc<[u32]>>,
}

/// The new events of a group. `first`: the place of one of them in the batch.
#[derive(Debug)]
pub struct GroupBlocks {
    pub first: u32,
    /// By the starts of windows, in order.
    pub windows: Vec<(i64, RowBlock)>,
    /// The events that end at or behind a time.
    pub kept: RowBlock,
}

/// Places that are collected for a group.
#[derive(Debug, Default)]
struct Collected {
    windows: Vec<(i64, Vec<u32>)>,
    by_start: HashMap<i64, usize, RandomState>,
    last: usize,
    kept: Vec<u32>,
}

impl RowBlock {
    /// `places`: in ascending order.
    fn new(batch: &Batch, places: Vec<u32>) -> RowBlock {
        let count = places.len();
        let is_span = count > 0 && (places[count - 1] - places[0]) as usize == count - 1;
        match is_span {
            true => RowBlock {
                batch: batch.slice(places[0] as usize, count),
                places: None,
            },
            false => RowBlock {
                batch: batch.clone(),
                places: Some(places.into()),
            },
        }
    }

    pub fn len(&self) -> usize {
        self.places.as_ref().map_or(self.batch.len(), |places| places.len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The columns of the rows.
    pub fn schema(&self) -> &[Column] {
        &self.batch.schema.columns
    }

    /// The columns with these numbers.
    pub fn columns(&self, numbers: &[usize]) -> Vec<ArrayRef> {
        let columns: Vec<ArrayRef> = numbers.iter().map(|&at| self.batch.columns[at].clone()).collect();
        match &self.places {
            Some(places) => taken(&columns, places),
            None => columns,
        }
    }

    fn places(&self) -> impl Iterator<Item = u32> + '_ {
        let all = 0..if self.places.is_none() {
            self.batch.len() as u32
        } else {
            0
        };
        all.chain(self.places.iter().flat_map(|places| places.iter().copied()))
    }

    /// Start and end of each event.
    pub fn lifetimes(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.places()
            .map(|at| (self.batch.vs[at as usize], self.batch.new[at as usize]))
    }

    /// The events of which `is_wanted` is true, by start and end.
    pub fn filtered(&self, is_wanted: impl Fn(i64, i64) -> bool) -> RowBlock {
        let is_wanted = |&at: &u32| is_wanted(self.batch.vs[at as usize], self.batch.new[at as usize]);
        let places: Vec<u32> = self.places().filter(is_wanted).collect();
        if places.len() == self.len() {
            return self.clone();
        }
        RowBlock::new(&self.batch, places)
    }
}

/// The new events of a batch by group and window. Windows begin until `begun`. None: an event would open more than
/// `windows_max` windows, or it has no first one, or it is no new event.
///
/// `groups`: the number of each row's group, from 0 on; None: there is one group. `reach`: what ends there or later is
/// kept.
pub fn by_window(
    batch: &Batch,
    grid: &Grid,
    begun: i64,
    reach: i64,
    windows_max: i64,
    groups: Option<&[u32]>,
) -> Option<Vec<GroupBlocks>> {
    let until = begun.saturating_add(1);
    let mut found: Vec<(u32, Collected)> = Vec::new();
    for (at, ((&vs, &old), &new)) in (0..).zip(batch.vs.iter().zip(batch.old.iter()).zip(batch.new.iter())) {
        if old != vs || new <= vs || !grid.has_first(vs) {
            return None;
        }
        let (first, last) = (grid.first_over(vs), new.min(until));
        if grid.starts(first, last) > windows_max {
            return None;
        }
        let group = groups.map_or(0, |groups| groups[at as usize]) as usize;
        if group >= found.len() {
            found.resize_with(group + 1, || (at, Collected::default()));
        }
        let collected = &mut found[group].1;
        let mut start = first;
        while start < last {
            collected.add(start, at);
            start = start.saturating_add(grid.hop);
        }
        if new >= reach {
            collected.kept.push(at);
        }
    }
    Some(found.into_iter().map(|(first, one)| one.blocks(batch, first)).collect())
}

impl Collected {
    #[inline]
    fn add(&mut self, start: i64, at: u32) {
        if let Some((last, places)) = self.windows.get_mut(self.last)
            && *last == start
        {
            places.push(at);
            return;
        }
        self.last = *self.by_start.entry(start).or_insert_with(|| {
            self.windows.push((start, Vec::new()));
            self.windows.len() - 1
        });
        self.windows[self.last].1.push(at);
    }

    fn blocks(mut self, batch: &Batch, first: u32) -> GroupBlocks {
        self.windows.sort_unstable_by_key(|(start, _)| *start);
        let block = |(start, places)| (start, RowBlock::new(batch, places));
        GroupBlocks {
            first,
            windows: self.windows.into_iter().map(block).collect(),
            kept: RowBlock::new(batch, self.kept),
        }
    }
}

/// The number of the group of each row: rows of equal keys have one, in the order in which the first of them come.
pub fn group_numbers(columns: &[Column], keys: &[ArrayRef]) -> Vec<u32> {
    if let ([column], [keys]) = (columns, keys)
        && column.kind == Kind::Int
        && keys.null_count() == 0
    {
        return numbered(keys.as_primitive::<Int64Type>().values().iter().copied());
    }
    let rows = RowForm::of_columns(columns).encode(keys);
    numbered(rows.iter().map(|row| row.data().to_vec()))
}

fn numbered<T: std::hash::Hash + Eq>(keys: impl Iterator<Item = T>) -> Vec<u32> {
    let mut numbers: HashMap<T, u32, RandomState> = HashMap::default();
    keys.map(|key| {
        let next = numbers.len() as u32;
        *numbers.entry(key).or_insert(next)
    })
    .collect()
}

/// The columns with these numbers of all rows of several blocks, in the order of rows of these columns.
pub fn in_order(blocks: &[&RowBlock], numbers: &[usize]) -> Vec<ArrayRef> {
    let Some(first) = blocks.first() else {
        return Vec::new();
    };
    let schema: Vec<Column> = numbers.iter().map(|&at| first.schema()[at].clone()).collect();
    let parts: Vec<Vec<ArrayRef>> = blocks.iter().map(|block| block.columns(numbers)).collect();
    let column = |at: usize| {
        let parts: Vec<&dyn Array> = parts.iter().map(|part| &*part[at]).collect();
        match parts.len() {
            1 => parts[0].slice(0, parts[0].len()),
            _ => concat(&parts).expect("the blocks have the same columns"),
        }
    };
    let columns: Vec<ArrayRef> = (0..numbers.len()).map(column).collect();
    let order = order_of(&schema, &columns);
    taken(&columns, &order)
}

/// The places of rows in their order.
fn order_of(schema: &[Column], columns: &[ArrayRef]) -> Vec<u32> {
    let count = columns.first().map_or(0, |column| column.len());
    let Some(leading) = numeric_keys(&schema[0], &columns[0]) else {
        let rows = RowForm::of_columns(schema).encode(columns);
        let mut order: Vec<u32> = (0..count as u32).collect();
        order.sort_unstable_by(|&one, &other| rows.row(one as usize).cmp(&rows.row(other as usize)));
        return order;
    };
    let mut keyed: Vec<(u64, u32)> = leading.into_iter().zip(0..).collect();
    keyed.sort_unstable();
    let mut order: Vec<u32> = keyed.iter().map(|&(_, at)| at).collect();
    if schema.len() > 1 && keyed.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        let rest = RowForm::of_columns(&schema[1..]).encode(&columns[1..]);
        for run in runs_of(&keyed) {
            order[run].sort_unstable_by(|&one, &other| rest.row(one as usize).cmp(&rest.row(other as usize)));
        }
    }
    order
}

/// Where keys are equal, as ranges of more than one place.
fn runs_of(keyed: &[(u64, u32)]) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
    let mut from = 0;
    keyed.chunk_by(|one, other| one.0 == other.0).filter_map(move |run| {
        let range = from..from + run.len();
        from = range.end;
        (run.len() > 1).then_some(range)
    })
}

/// Numbers whose order is that of a column's values; None if they are not all numbers, or one is missing.
fn numeric_keys(column: &Column, values: &ArrayRef) -> Option<Vec<u64>> {
    const SIGN: u64 = 1 << 63;
    if values.null_count() > 0 {
        return None;
    }
    match column.kind {
        Kind::Int => {
            let values = values.as_primitive::<Int64Type>().values();
            Some(values.iter().map(|&value| value as u64 ^ SIGN).collect())
        }
        // Canonical floats have one NaN, which is positive and so behind all numbers.
        Kind::Float(_) => {
            let values = values.as_primitive::<Float64Type>().values();
            let key = |value: &f64| match value.to_bits() {
                bits if bits & SIGN == 0 => bits | SIGN,
                bits => !bits,
            };
            Some(values.iter().map(key).collect())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RowSchema;
    use arrow_array::{Float64Array, Int64Array};

    fn block(xs: &[f64], ks: &[i64]) -> RowBlock {
        let column = |name: &str, kind| Column {
            name: name.to_owned(),
            kind,
            nullable: false,
        };
        let schema = Arc::new(RowSchema {
            columns: vec![column("x", Kind::Float(None)), column("k", Kind::Int)],
        });
        let starts: Vec<i64> = (0..xs.len() as i64).collect();
        let batch = Batch {
            columns: vec![
                Arc::new(Float64Array::from(xs.to_vec())),
                Arc::new(Int64Array::from(ks.to_vec())),
            ],
            vs: starts.clone().into(),
            old: starts.clone().into(),
            new: starts.iter().map(|t| t + 2).collect(),
            ..Batch::empty(schema)
        };
        let places = (0..xs.len() as u32).collect();
        RowBlock::new(&batch, places)
    }

    #[test]
    fn rows_of_several_blocks_come_in_one_order() {
        let one = block(&[2.0, f64::NAN, -1.5], &[1, 1, 1]);
        let other = block(&[-1.5, f64::NEG_INFINITY, 2.0], &[0, 7, -3]);
        let columns = in_order(&[&one, &other], &[0, 1]);
        let ks: Vec<i64> = columns[1].as_primitive::<Int64Type>().values().to_vec();
        assert_eq!(ks, vec![7, 0, 1, -3, 1, 1]);
        let xs: Vec<f64> = columns[0].as_primitive::<Float64Type>().values().to_vec();
        assert!(xs[5].is_nan() && xs[0] == f64::NEG_INFINITY);
        let by_k = in_order(&[&one, &other], &[1]);
        assert_eq!(
            by_k[0].as_primitive::<Int64Type>().values().to_vec(),
            vec![-3, 0, 1, 1, 1, 7]
        );
    }

    #[test]
    fn events_are_in_each_window_that_they_overlap() {
        let grid = Grid {
            size: 4,
            hop: 2,
            offset: 0,
            since: None,
            shown: String::new(),
        };
        let batch = block(&[0.0; 4], &[0; 4]).batch;
        let groups = by_window(&batch, &grid, 3, 4, 100, Some(&[0, 1, 0, 1])).unwrap();
        let windows = |at: usize| -> Vec<(i64, Vec<u32>)> {
            let of = |(start, block): &(i64, RowBlock)| (*start, block.lifetimes().map(|(vs, _)| vs as u32).collect());
            groups[at].windows.iter().map(of).collect()
        };
        assert_eq!(windows(0), vec![(-2, vec![0]), (0, vec![0, 2]), (2, vec![2])]);
        assert_eq!(windows(1), vec![(-2, vec![1]), (0, vec![1, 3]), (2, vec![1, 3])]);
        assert_eq!(groups[0].kept.lifetimes().collect::<Vec<_>>(), vec![(2, 4)]);
        assert!(
            by_window(&batch, &grid, 3, 4, 2, None).is_none(),
            "three windows of one event"
        );
    }
}
