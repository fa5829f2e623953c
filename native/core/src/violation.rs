//! Broken promises of an input, as numbers; `lmerge/core/violations.py` has the messages.

use crate::columns::View;
use crate::element::Element;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    EndBeforeStart,
    InsertBelowStable,
    AdjustBelowStable,
    UnknownEvent,
    DuplicateKey,
    OutOfOrder,
    AdjustNotPromised,
    TiesDiffer,
    StableBackwards,
}

impl Code {
    /// The stable name that metrics, tests and alerts rely on.
    pub fn name(self) -> &'static str {
        match self {
            Code::EndBeforeStart => "end-before-start",
            Code::InsertBelowStable => "insert-below-stable",
            Code::AdjustBelowStable => "adjust-below-stable",
            Code::UnknownEvent => "unknown-event",
            Code::DuplicateKey => "duplicate-key",
            Code::OutOfOrder => "out-of-order",
            Code::AdjustNotPromised => "adjust-not-promised",
            Code::TiesDiffer => "ties-differ",
            Code::StableBackwards => "stable-backwards",
        }
    }
}

/// A broken promise: the code, the input and the element.
///
/// `detail`: the Vs before for `OutOfOrder`, the input's stable point for the codes about it. `ends`: the ends that the
/// input has instead of an unknown event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub code: Code,
    pub slot: usize,
    pub index: usize,
    pub element: Element,
    pub detail: i64,
    pub strictly: bool,
    pub ends: Option<Vec<i64>>,
}

impl Violation {
    /// The violation of the element at `index` of `batch`.
    pub fn of(code: Code, slot: usize, batch: &View<'_>, index: usize) -> Box<Violation> {
        let element = Element {
            kind: batch.kind(index),
            vs: batch.vs(index),
            ve: batch.ve(index),
            vold: batch.vold(index),
            payload: batch.payload(index).to_vec(),
        };
        Box::new(Violation {
            code,
            slot,
            index,
            element,
            detail: 0,
            strictly: false,
            ends: None,
        })
    }

    pub fn detail(mut self: Box<Self>, detail: i64) -> Box<Self> {
        self.detail = detail;
        self
    }

    pub fn ends(mut self: Box<Self>, ends: &[i64]) -> Box<Self> {
        self.ends = (!ends.is_empty()).then(|| ends.to_vec());
        self
    }
}
