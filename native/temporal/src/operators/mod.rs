//! Operators that are not windows, one module each, as in `lmerge/temporal/operators`.

pub mod as_of;
pub mod cleanse;
pub mod coalesce;
pub mod edges;
pub mod join;
mod join_predicate;
pub mod join_side;
pub mod lifetimes;
pub mod pairs;
pub mod presence;
pub mod row_keys;
pub mod samples;
pub mod skipping;
pub mod span;
pub mod union;
