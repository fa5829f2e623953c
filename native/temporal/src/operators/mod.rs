//! Operators that are not windows, one module each, as in `lmerge/temporal/operators`.

pub mod lifetimes;
pub mod skipping;
pub mod union;
