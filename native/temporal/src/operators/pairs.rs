//! Rows of an output that are pairs: a left row and a right row of two arenas, by their numbers.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::RowSchema;
use crate::batch::Batch;
use crate::changes::{Change, settled};
use crate::rows::{RowArena, RowForm};

/// The number of no row: the columns are missing.
pub const MISSING: u32 = u32::MAX;

/// The numbers of the left and the right row.
pub type Pair = (u32, u32);

/// The pair of a row of side `at` with one of the other side.
pub fn paired(at: usize, row: u32, other: u32) -> Pair {
    if at == 0 { (row, other) } else { (other, row) }
}

/// The rows of one side. `missing`: the bytes of a row whose columns are missing.
#[derive(Clone, Copy)]
pub struct PairSide<'a> {
    pub form: &'a RowForm,
    pub rows: &'a RowArena,
    pub missing: &'a [u8],
}

impl<'a> PairSide<'a> {
    fn bytes(&self, row: u32) -> &'a [u8] {
        if row == MISSING {
            self.missing
        } else {
            self.rows.get(row)
        }
    }

    fn compare(&self, one: u32, other: u32) -> Ordering {
        if one == other {
            Ordering::Equal
        } else {
            self.bytes(one).cmp(self.bytes(other))
        }
    }
}

/// The changes as the batch of an output, without a stable point. `sides`: one or both.
pub fn pair_batch(schema: Arc<RowSchema>, sides: &[PairSide<'_>], changes: Vec<Change<Pair>>) -> Batch {
    let of = |at: usize, pair: &Pair| if at == 0 { pair.0 } else { pair.1 };
    let order = |one: &Pair, other: &Pair| {
        let mut orders = sides
            .iter()
            .enumerate()
            .map(|(at, side)| side.compare(of(at, one), of(at, other)));
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    let changes = settled(changes, order);
    let columns = sides.iter().enumerate().flat_map(|(at, side)| {
        let rows = changes.iter().map(|change| side.bytes(of(at, &change.row)));
        side.form.decode(rows)
    });
    Batch {
        columns: columns.collect(),
        schema,
        vs: changes.iter().map(|change| change.vs).collect(),
        old: changes.iter().map(|change| change.old).collect(),
        new: changes.iter().map(|change| change.new).collect(),
        stable: None,
        mark: None,
    }
}
