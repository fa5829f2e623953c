//! The state of an entrance as plain values: the same as in Python.

use crate::failure::Failure;
use crate::plain::Plain;
use crate::plain_rows::plain_rows;

use super::{Became, Claimed, Span, StreamEntrance};

impl StreamEntrance {
    /// What the entrance has to know to go on.
    pub fn state(&mut self) -> Plain {
        let live = self.live.state();
        let mut others: Vec<_> = self.other.iter().collect();
        let row = |id: u32| self.live.rows.get(id);
        others.sort_unstable_by(|((one, vs, ve), _), ((other, start, end), _)| {
            vs.cmp(start)
                .then_with(|| row(*one).cmp(row(*other)))
                .then_with(|| ve.cmp(end))
        });
        let columns = self.live.form.decode(others.iter().map(|((id, _, _), _)| row(*id)));
        let rows = plain_rows(self.live.form.columns(), &columns, others.len());
        let event = |row: &Plain, (vs, ve): Span| Plain::List(vec![row.clone(), Plain::Int(vs), Plain::Int(ve)]);
        let other = |(row, ((_, vs, ve), actuals)): (Plain, (&Claimed, &Became))| {
            let became = |actual: &Option<Span>| actual.map_or(Plain::None, |actual| event(&row, actual));
            Plain::List(vec![
                event(&row, (*vs, *ve)),
                Plain::List(actuals.iter().map(became).collect()),
            ])
        };
        let others = rows.into_iter().zip(others).map(other).collect();
        Plain::map([
            ("live", live),
            ("latest", Plain::Int(self.latest)),
            ("last_start", self.last_start.map_or(Plain::None, Plain::Int)),
            ("since_stable", Plain::Int(self.since_stable)),
            ("late", Plain::ints([self.dropped as i64, self.moved as i64])),
            ("other", Plain::List(others)),
        ])
    }

    /// Take what `state` has returned, here or in Python. The entrance is a new one with the same settings.
    pub fn restore(&mut self, state: &Plain) -> Result<(), Failure> {
        self.live.restore(state.get("live")?)?;
        self.stable = self.live.stable;
        self.latest = state.get("latest")?.int()?;
        self.since_stable = state.get("since_stable")?.int()?;
        self.last_start = match state.get("last_start")? {
            Plain::None => None,
            start => Some(start.int()?),
        };
        let [dropped, moved] = state.get("late")?.tuple()?;
        (self.dropped, self.moved) = (dropped.int()? as u64, moved.int()? as u64);
        for kept in state.get("other")?.list()? {
            let [claimed, actuals] = kept.tuple()?;
            let [row, vs, ve] = claimed.tuple()?;
            let row = self.live.rows.hold(self.live.encoded(&[row])?.row(0).data());
            let actual = |plain: &Plain| match plain {
                Plain::None => Ok(None),
                event => event.tuple().and_then(|[_, vs, ve]| Ok(Some((vs.int()?, ve.int()?)))),
            };
            let actuals = actuals.list()?.iter().map(actual).collect::<Result<_, Failure>>()?;
            self.other.insert((row, vs.int()?, ve.int()?), actuals);
        }
        Ok(())
    }
}
