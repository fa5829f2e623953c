//! Decides when the output shows an event, and when it closes: `lmerge/core/policy.py` by numbers.

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

/// V.A: which of the joined inputs leads; of equals the longest attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leader {
    Stable,
    Insert,
    Unfrozen,
}

/// An output policy. `reflects_adjusts`: location 1. `lag` in time units, not negative. `quorum_percent`: 0 where
/// `quorum` counts inputs. `lead_max`: by how much one input may be ahead of the next, positive; None: no bound
/// (`lmerge/core/lead.py`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    pub show: Show,
    pub reflects_adjusts: bool,
    pub quorum: usize,
    pub lag: i64,
    pub quorum_percent: usize,
    pub leader: Leader,
    pub lead_max: Option<i64>,
}

/// The paper's policy: show an event at once, adjust it only when compatibility requires it.
pub const LAZY: Policy = Policy {
    show: Show::First,
    reflects_adjusts: false,
    quorum: 0,
    lag: 0,
    quorum_percent: 0,
    leader: Leader::Stable,
    lead_max: None,
};

impl Policy {
    pub fn is_lazy(&self) -> bool {
        self.show == Show::First && !self.reflects_adjusts
    }

    /// Whether the policy shows the leading input, and this measure decides which input leads.
    #[inline]
    pub fn leads_by(&self, leader: Leader) -> bool {
        self.show == Show::Leading && self.leader == leader
    }

    /// The number of `joined` inputs that make a quorum: at least one, at most all.
    pub fn enough(&self, joined: usize) -> usize {
        let needed = if self.quorum_percent > 0 {
            (self.quorum_percent * joined).div_ceil(100)
        } else {
            self.quorum.min(joined)
        };
        needed.max(1)
    }

    /// The stable point that the output may have when an input has delivered stable(`t`).
    pub fn held_back(&self, t: i64) -> i64 {
        if t == INF || t == NEG_INF {
            t
        } else {
            t.saturating_sub(self.lag)
        }
    }
}

/// How many joined inputs must have delivered stable(+inf) (law 5, docs/laws.md). None: all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing(pub Option<usize>);

impl Closing {
    pub fn agreed(&self, closed: usize, joined: usize) -> bool {
        closed > 0 && closed >= self.0.map_or(joined, |needed| needed.min(joined))
    }
}
