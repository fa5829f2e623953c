//! Operators that are not windows, one module each, as in `lmerge/temporal/operators`.

pub mod join;
pub mod join_side;
pub mod lifetimes;
pub mod skipping;
pub mod span;
pub mod union;
