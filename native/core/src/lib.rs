//! The merge of lmerge without Python: R0-R4 of "Physically Independent Stream Merging" (Chandramouli, Maier, Goldstein;
//! ICDE 2012) on whole batches of columns.
//!
//! `lmerge/core` is the definition; this crate does the same element by element, at the speed of the memory. The reasons
//! for each rule stand there; here stand those for the data structures.
//!
//! | module | what |
//! |---|---|
//! | `element`, `columns` | elements, and batches of them as the wire's columns |
//! | `policy`, `input`, `delivered`, `violation` | small values; what an input has delivered |
//! | `algorithm` | what all algorithms share: when a stable point moves the output |
//! | `insert_only`, `ties`, `r3`, `r4`, `in3t`, `ends`, `switch` | the algorithms, and from one to another |
//! | `arena`, `nodes`, `wheel`, `store`, `index` | payloads; nodes; due times; the three together; with look-up by key |
//! | `following` | which inputs the output follows, by the policy |
//! | `r3minus`, `cleanse` | what the paper compares R3 with |
//! | `limit` | what any merge by key must at least do, for the benchmark |
//! | `merge`, `sharded`, `state` | one running merge; the face, which can share it out; snapshots |
//! | `wire` | the messages that carry batches |
//! | `tdb` | the live events of one stream, for clients |
//! | `digests` | what one input has said, in numbers that can be compared |

pub mod algorithm;
pub mod arena;
pub mod cleanse;
pub mod columns;
pub mod delivered;
pub mod digests;
pub mod dues;
pub mod element;
pub mod ends;
pub mod following;
pub mod in3t;
pub mod index;
pub mod input;
pub mod insert_only;
pub mod limit;
pub mod merge;
pub mod nodes;
pub mod payloads;
pub mod policy;
pub mod r3;
pub mod r3minus;
pub mod r4;
pub mod retired;
pub mod sharded;
pub mod state;
pub mod store;
pub mod switch;
pub mod tdb;
pub mod ties;
pub mod violation;
pub mod wheel;
pub mod wire;
