//! When the output shows an event, and when it closes: `lmerge/core/policy.py` by numbers.

use crate::element::{INF, NEG_INF};

/// V.A, location 2: when an event appears in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    First,
    Quorum,
    Leading,
    HalfFrozen,
    Final,
}

/// An output policy. `reflects_adjusts`: location 1. `lag` in time units, not negative. `lead_max`: how far one input may be
/// ahead of the next, positive; None: any (`lmerge/core/lead.py`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    pub show: Show,
    pub reflects_adjusts: bool,
    pub quorum: usize,
    pub lag: i64,
    pub lead_max: Option<i64>,
}

/// The paper's: show an event at once, adjust it only when compatibility demands it.
pub const LAZY: Policy = Policy {
    show: Show::First,
    reflects_adjusts: false,
    quorum: 0,
    lag: 0,
    lead_max: None,
};

impl Policy {
    pub fn is_lazy(&self) -> bool {
        self.show == Show::First && !self.reflects_adjusts
    }

    /// The stable point that the output may say when an input says `t`.
    pub fn held_back(&self, t: i64) -> i64 {
        if t == INF || t == NEG_INF {
            t
        } else {
            t.saturating_sub(self.lag)
        }
    }
}

/// Law 5: how many joined inputs must have said stable(+inf). None: all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing(pub Option<usize>);

impl Closing {
    pub fn agreed(&self, closed: usize, joined: usize) -> bool {
        closed > 0 && closed >= self.0.map_or(joined, |needed| needed.min(joined))
    }
}
