//! Other lifetimes for events, by the lifetime alone: `lmerge/temporal/operators/lifetimes.py`.

use crate::operator::plus;
use crate::{INF, NEG_INF};

/// A function from lifetimes to lifetimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alteration {
    Shift(i64),
    SetDuration(i64),
    ClipDuration(i64),
    Extend(i64),
    AtEnd(i64),
}

use Alteration::{AtEnd, ClipDuration, Extend, SetDuration, Shift};

impl Alteration {
    /// The alteration of a `LifetimeNode`. None if there is no such one.
    pub fn of(name: &str, amount: i64) -> Option<Alteration> {
        Some(match name {
            "shift" => Shift(amount),
            "set_duration" => SetDuration(amount),
            "clip_duration" => ClipDuration(amount),
            "extend" => Extend(amount),
            "at_end" => AtEnd(amount),
            _ => return None,
        })
    }

    /// The lifetime for `[vs, ve)`; it is empty if its end is not behind its start.
    #[inline]
    pub fn altered(self, vs: i64, ve: i64) -> (i64, i64) {
        match self {
            Shift(d) => (plus(vs, d), plus(ve, d)),
            SetDuration(d) => (vs, plus(vs, d)),
            ClipDuration(d) => (vs, ve.min(plus(vs, d))),
            Extend(d) => (vs, plus(ve, d)),
            AtEnd(d) => (ve, plus(ve, d)),
        }
    }

    /// The output's stable point.
    pub fn stable(self, c: i64) -> i64 {
        if let Shift(d) = self { plus(c, d) } else { c }
    }

    /// The time before which an event of the input can end without a trace in the output from `t` on.
    pub fn needed(self, t: i64) -> i64 {
        match self {
            Shift(d) => (i128::from(t) - i128::from(d)).clamp(NEG_INF.into(), INF.into()) as i64,
            // Needed is vs + d >= t. The shortest such event ends one unit behind its start.
            SetDuration(d) => (i128::from(t) - i128::from(d) + 1).max(NEG_INF.into()) as i64,
            ClipDuration(_) => t,
            Extend(d) | AtEnd(d) => t.saturating_sub(d),
        }
    }
}

/// Alterations one behind the other.
#[derive(Clone, Debug, Default)]
pub struct Alterations(pub Vec<Alteration>);

impl Alterations {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lifetime for `[vs, ve)`; an empty one ends where it starts.
    #[inline]
    pub fn altered(&self, mut vs: i64, mut ve: i64) -> (i64, i64) {
        for part in &self.0 {
            if ve > vs {
                (vs, ve) = part.altered(vs, ve);
            }
        }
        (vs, ve.max(vs))
    }

    pub fn stable(&self, c: i64) -> i64 {
        self.0.iter().fold(c, |c, part| part.stable(c))
    }

    pub fn needed(&self, t: i64) -> i64 {
        self.0
            .iter()
            .rev()
            .fold(t, |t, part| if t > NEG_INF { part.needed(t) } else { t })
    }

    /// What a change becomes as (start, end before, end after), at most two; none if the result stays as it is.
    #[inline]
    pub fn moved(&self, vs: i64, old: i64, new: i64, mut each: impl FnMut(i64, i64, i64)) {
        let (start, before) = if old > vs { self.altered(vs, old) } else { (vs, vs) };
        let (later, after) = if new > vs { self.altered(vs, new) } else { (vs, vs) };
        if start == later {
            if before != after {
                each(start, before, after);
            }
            return;
        }
        if before > start {
            each(start, before, start);
        }
        if after > later {
            each(later, later, after);
        }
    }
}
