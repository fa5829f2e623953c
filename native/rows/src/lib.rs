//! Rows of a declared schema between Arrow and canonical payloads; `lmerge/wire/rows.py` is the definition.
//!
//! The crate takes what it is sure of and refuses all the rest in one way, `None`. Then the codec in Python has the
//! batch: it knows the rows after all, or it has the words for the one that is wrong. So no message stands here, and a
//! rule only for rows that keep it. What is not refused gives the bytes that Python gives.
//!
//! | module | what |
//! |---|---|
//! | `schema` | the columns as publishers declare them |
//! | `pack`, `round`, `decimal` | the canonical forms of single values |
//! | `encode`, `cells` | record batches to payloads: a column at a time to few forms, then a row at a time to bytes |
//! | `decode` | payloads to a record batch; trusts nothing |
//! | `check` | whether payloads are rows, without decoding them; trusts nothing |

mod cells;
pub mod check;
pub mod decimal;
pub mod decode;
pub mod encode;
pub mod pack;
pub mod round;
pub mod schema;
