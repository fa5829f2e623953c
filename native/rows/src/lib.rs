//! Converts rows of a declared schema between Arrow and canonical payloads; `lmerge/wire/rows.py` is the definition.
//!
//! The crate converts what it supports with certainty, and refuses all other data by returning `None`. Then the codec
//! in Python gets the batch: it converts the rows, or raises the error for the wrong one. So this crate has no
//! messages, and only rules for valid rows. Data that is not refused gives the same bytes as in Python.
//!
//! | module | what |
//! |---|---|
//! | `schema` | the columns as publishers declare them |
//! | `pack`, `round`, `decimal` | the canonical forms of single values |
//! | `encode`, `cells` | record batches to payloads: each column to one of a few forms, then each row to bytes |
//! | `decode` | payloads to a record batch; trusts nothing |
//! | `elements` | rows of elements to batches, one for each shard, and back |
//! | `changes` | elements in columns, and the events of a stream as a sum of changes in order |
//! | `check` | whether payloads are rows, without decoding them; trusts nothing |

mod cells;
pub mod changes;
pub mod check;
pub mod decimal;
pub mod decode;
pub mod elements;
pub mod encode;
pub mod pack;
pub mod round;
pub mod schema;
