//! Fuzzes the decoder of batches with any bytes, the operations on what it accepts, and the merge of it.
//!
//! The property is that of the test `native/core/tests/suite/property.rs`; here coverage guides the search.
//!
//!     cd native && cargo +nightly fuzz run batch -- -max_total_time=300

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../core/tests/suite/property.rs"]
mod property;
#[allow(dead_code)] // made for the tests as well
#[path = "../../core/tests/suite/tdb.rs"]
mod tdb;

fuzz_target!(|data: &[u8]| property::holds_for(data));
