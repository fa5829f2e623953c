//! The temporal algebra on columns, without Python: the operators of `lmerge/temporal`, which is the definition.
//!
//! One call takes a batch of each input and returns a batch. At the same batches an operator gives the same changes in
//! the same order, the same errors and the same state as the one in Python. The reasons for the rules are there; here
//! are the reasons for the data structures.
//!
//! | module | what |
//! |---|---|
//! | `batch` | changes of events in columns, with the stable point and the watermark behind them |
//! | `rows`, `arena` | rows as bytes: their identity and their order; rows that state keeps, each once; where they are |
//! | `changes` | changes of rows in any form: how two tables differ, and the order of an output |
//! | `settle` | an output's changes in their order, where they are columns |
//! | `operator`, `operators` | what every operator is; those that are not windows |
//! | `entrance`, `open_events` | where a stream enters a plan: checked, with its stable points and live events |
//! | `history`, `elements` | a table of events as batches, and batches as a table or as elements of the wire |
//! | `plain`, `plain_rows`, `packed`, `failure` | state as plain values, rows in it, and its bytes; what ends a step |
//! | `calendar`, `sorted` | what is due at a stable; sorted multisets |
//! | `row_blocks` | new events by group and window, for windows whose modules run in Python |
//! | `windows`, `aggregates` | windows of every kind, and what is computed in them |
//! | `expressions` | scalar expressions over columns |
//! | `limit` | the least work of a count by key, for the bench |

pub mod aggregates;
pub mod arena;
pub mod batch;
pub mod calendar;
pub mod changes;
pub mod elements;
pub mod entrance;
pub mod expressions;
pub mod failure;
pub mod history;
pub mod limit;
pub mod open_events;
pub mod operator;
pub mod operators;
pub mod packed;
pub mod plain;
pub mod plain_rows;
pub mod row_blocks;
pub mod rows;
pub mod settle;
pub mod sorted;
pub mod windows;

pub use lmerge_core::element::{INF, NEG_INF};
pub use lmerge_rows::schema::{Column, Kind, Schema as RowSchema};
