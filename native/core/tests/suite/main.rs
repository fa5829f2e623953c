//! The tests of the crate through its public interface: one test module for each module, then the paper, the laws, the
//! oracle and hostile bytes. They are one program, so that the crate is linked once.

mod admitted;
mod arena;
mod batches;
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
mod store;
mod switch;
mod tdb;
mod wheel;
