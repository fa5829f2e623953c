//! The tests of the crate by its public parts: one module for each of its own, then the paper, the laws, the oracle and
//! hostile bytes. One program, so that the crate is linked once.

mod admitted;
mod arena;
mod columns;
mod generate;
mod hostile;
mod index;
mod input;
mod laws;
mod lead;
mod many_ends;
mod nodes;
mod oracle;
mod paper;
mod policy;
mod property;
mod run;
mod session;
mod sharded;
mod state;
mod switch;
mod tdb;
mod wheel;
