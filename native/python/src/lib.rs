//! `lmerge._native`: the crates `lmerge-core`, `lmerge-rows`, `lmerge-temporal` and `lmerge-transport` for Python.
//! `lmerge/_native.pyi` describes the interface.
//!
//! One call takes a whole batch and returns a whole batch. Columns are passed as bytes. The GIL is released while the
//! core works. A panic of the core is a bug; it becomes an AssertionError, and the process continues.

mod channel;
mod cleanse;
mod columns;
mod core;
mod digests;
mod elements;
mod limit;
mod metadata;
mod rows;
mod state;
mod tdb;
mod temporal;
mod transport;
mod wire;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use super::channel::{Channel, ClientCall, ClientTls};
    #[pymodule_export]
    use super::cleanse::Cleanse;
    #[pymodule_export]
    use super::columns::{Columns, DecodeError};
    #[pymodule_export]
    use super::core::{Core, Violation};
    #[pymodule_export]
    use super::digests::Digests;
    #[pymodule_export]
    use super::elements::{
        divide, element_columns, element_rows, event_changes, in_order, pack_elements, without_stables,
    };
    #[pymodule_export]
    use super::limit::{CountLimit, Limit};
    #[pymodule_export]
    use super::rows::{ArrowBatch, Rows};
    #[pymodule_export]
    use super::tdb::Tdb;
    #[pymodule_export]
    use super::temporal::{
        ColumnBatch, ColumnEntrance, ColumnForm, ColumnTable, Expressions, RowBlock, TemporalOperator, block_arrays,
        block_values,
    };
    #[pymodule_export]
    use super::transport::{Call, Message, Transport};
    #[pymodule_export]
    use super::wire::{Received, encode_publish, encode_subscribe, read_publish, read_subscribe};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
