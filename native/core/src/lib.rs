//! The merge of lmerge without Python: R0-R4 of "Physically Independent Stream Merging" (Chandramouli, Maier,
//! Goldstein; ICDE 2012) on whole batches of columns.
//!
//! `lmerge/core` is the definition. This crate does the same for each element, at the speed of the memory. The reasons
//! for the rules are in `lmerge/core`; here are the reasons for the data structures.
//!
//! | module | what |
//! |---|---|
//! | `element`, `columns`, `indices` | elements, batches of them as the wire's columns, and parts of batches |
//! | `policy`, `input`, `delivered`, `violation` | small values; what an input has delivered |
//! | `algorithm` | what all algorithms share: when a stable point moves the output |
//! | `insert_only`, `ties`, `r3`, `r4`, `in3t`, `ends`, `switch` | the algorithms, and from one to another |
//! | `arena`, `nodes`, `slices` | payloads; nodes; both divided by Vs, with tables of keys |
//! | `growth` | how lists grow |
//! | `wheel`, `store`, `index`, `run` | due times; all of these together; with the entries of inputs; look-ups |
//! | `usual` | what R3 and R4 do while inputs agree |
//! | `following` | which inputs the output follows, by the policy |
//! | `r3minus`, `cleanse` | the algorithms that the paper compares R3 with |
//! | `limit` | the minimal work of any merge by key, for the benchmark |
//! | `merge`, `sharded`, `state` | one running merge; the interface, which can divide it into shards; snapshots |
//! | `wire` | the messages that carry batches |
//! | `tdb` | the live events of one stream, for clients |
//! | `digests` | counts and sums of one input's events, for comparison with other inputs |

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
pub mod growth;
mod hash;
pub mod in3t;
pub mod index;
pub mod indices;
pub mod input;
pub mod insert_only;
pub mod limit;
pub mod merge;
pub mod node_block;
pub mod nodes;
pub mod payloads;
pub mod policy;
pub mod r3;
pub mod r3minus;
pub mod r4;
pub mod retired;
pub mod run;
pub mod sharded;
pub mod slices;
pub mod state;
pub mod store;
pub mod switch;
pub mod tdb;
pub mod ties;
pub mod usual;
pub mod violation;
pub mod wheel;
pub mod wire;
