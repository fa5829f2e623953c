//! `lmerge-temporal` for Python: batches as columns, and operators that take and give them.

mod batch;
mod blocks;
mod calls;
mod entrance;
mod expressions;
mod failure;
mod operator;
mod plain;
mod values;
mod windows;

pub use batch::{ColumnBatch, ColumnForm, ColumnTable};
pub use blocks::{RowBlock, block_arrays, block_values};
pub use entrance::ColumnEntrance;
pub use expressions::Expressions;
pub use operator::TemporalOperator;
