//! The kinds of windows and the choices for them: `lmerge/temporal/windows/kinds.py` and `policies.py`.

use crate::failure::Failure;
use crate::{INF, NEG_INF};

/// A window of `size` every `hop`, one of them beginning at `offset`; none begins before `since`.
#[derive(Clone, Debug)]
pub struct Grid {
    pub size: i64,
    pub hop: i64,
    pub offset: i64,
    pub since: Option<i64>,
    /// The grid as text, for messages.
    pub shown: String,
}

/// How time is divided.
#[derive(Clone, Debug)]
pub enum WindowKind {
    Hopping(Grid),
    Snapshots,
    /// From each distinct start, or end, to the n-th from there.
    Count {
        count: usize,
        by_ends: bool,
    },
    /// Runs of events with at most this gap between them.
    Sessions {
        gap: i64,
    },
}

/// When a result is emitted, and whether it is revised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Final,
    Settled,
    Watermark,
    Eager,
}

impl Form {
    /// The form of a text of a plan. None if there is no such form.
    pub fn of(text: &str) -> Option<Form> {
        Some(match text {
            "final" => Form::Final,
            "settled" => Form::Settled,
            "watermark" => Form::Watermark,
            "eager" => Form::Eager,
            _ => return None,
        })
    }

    /// Whether results are emitted when the watermark says so.
    pub fn is_by_mark(self) -> bool {
        matches!(self, Form::Watermark | Form::Eager)
    }
}

impl Grid {
    /// The smallest start of a window above `t`, which is not beyond the end of all time.
    #[inline]
    pub fn start_above(&self, t: i64) -> i64 {
        let t = match self.since {
            Some(since) if t < since => since - 1,
            _ => t,
        };
        const NEAR: i64 = 1 << 61;
        if (-NEAR..NEAR).contains(&t) && (-NEAR..NEAR).contains(&self.offset) && self.hop < NEAR {
            return self.offset + self.hop * ((t - self.offset).div_euclid(self.hop) + 1);
        }
        let (t, offset, hop) = (i128::from(t), i128::from(self.offset), i128::from(self.hop));
        let start = offset + hop * ((t - offset).div_euclid(hop) + 1);
        start.clamp(NEG_INF.into(), INF.into()) as i64
    }

    /// The largest start of a window that ends at `t` or before. At the end of all time every window has ended, those
    /// too that would go on behind it.
    pub fn last_ended(&self, t: i64) -> i64 {
        if t == INF { INF } else { t.saturating_sub(self.size) }
    }

    /// The smallest start of a window that ends after `vs`.
    #[inline]
    pub fn first_over(&self, vs: i64) -> i64 {
        match vs.checked_sub(self.size) {
            Some(before) => self.start_above(before),
            None => self.start_above(NEG_INF),
        }
    }

    /// Whether an event that starts at `vs` has a first window: one that starts behind the beginning of all time.
    #[inline]
    pub fn has_first(&self, vs: i64) -> bool {
        if self.since.is_some() || vs.checked_sub(self.size).is_some() {
            return true;
        }
        let (offset, hop) = (i128::from(self.offset), i128::from(self.hop));
        let before = i128::from(vs) - i128::from(self.size);
        offset + hop * ((before - offset).div_euclid(hop) + 1) > NEG_INF.into()
    }

    /// The end of the window from `start`.
    #[inline]
    pub fn end(&self, start: i64) -> i64 {
        start.saturating_add(self.size)
    }

    /// The number of starts from `first` to below `until`.
    pub fn starts(&self, first: i64, until: i64) -> i64 {
        if until <= first {
            return 0;
        }
        let (first, until, hop) = (i128::from(first), i128::from(until), i128::from(self.hop));
        ((until - first + hop - 1) / hop) as i64
    }
    /// The smallest start of a window that is at least `t`: where an event that ends at `t` is left behind.
    #[inline]
    pub fn first_from(&self, t: i64) -> i64 {
        self.start_above(t.saturating_sub(1))
    }

    /// Fail if a step opens more than `windows_max` windows of one group, from `first` to below `until`.
    #[inline]
    pub fn check_count(&self, first: i64, until: i64, windows_max: i64) -> Result<(), Failure> {
        if until.saturating_sub(first) <= windows_max.saturating_mul(self.hop).min(INF - 1) {
            return Ok(());
        }
        let count = self.starts(first, until);
        if count <= windows_max {
            return Ok(());
        }
        Err(Failure::Limit(format!(
            "a step would open {count} windows of {} in one group, more than {windows_max} (windows_max)",
            self.shown
        )))
    }
    /// How far the output is stable at a stable point of the input: an event can still come into the first window that
    /// ends behind it.
    pub fn output_stable(&self, is_point: bool, stable: i64) -> i64 {
        let first = self.first_over(stable);
        if is_point {
            first.saturating_add(self.size - 1)
        } else {
            first
        }
    }
}

/// The last answer of `Grid::first_over`, and from where to below where it holds: times that come are near each other.
#[derive(Clone, Copy, Debug, Default)]
pub struct NearStart {
    from: i64,
    until: i64,
    first: i64,
}

impl NearStart {
    /// The smallest start of a window that ends after `vs`.
    #[inline]
    pub fn first_over(&mut self, grid: &Grid, vs: i64) -> i64 {
        if vs < self.from || vs >= self.until {
            let first = grid.first_over(vs);
            // The window before this one ends at `vs` or before, this one behind it.
            let ends = first.checked_add(grid.size).filter(|&end| end < INF);
            let from = ends
                .and_then(|end| end.checked_sub(grid.hop))
                .filter(|&from| from <= vs);
            (self.from, self.until) = from.zip(ends).unwrap_or((0, 0));
            self.first = first;
        }
        self.first
    }
}
