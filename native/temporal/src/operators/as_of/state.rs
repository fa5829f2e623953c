//! The state of an as-of join as plain values.

use super::{AsOf, LeftEvents, Side};
use crate::failure::Failure;
use crate::operators::samples::Samples;
use crate::plain::Plain;
use crate::plain_rows::{columns_of_plain, plain_rows};

impl AsOf {
    /// What a new operator must know to go on.
    pub(super) fn kept(&self) -> Plain {
        let mut kept: Vec<(u32, &Samples)> = self
            .of_keys
            .iter()
            .map(|(&key, of_key)| (key, &of_key.samples))
            .collect();
        kept.retain(|(_, samples)| !samples.is_empty());
        kept.sort_unstable_by_key(|(_, samples)| samples.order(&self.right.rows));
        let keys = self.right.key.plain(kept.iter().map(|&(key, _)| self.keys.get(key)));
        let of = |(key, (_, samples)): (Plain, (u32, &Samples))| {
            Plain::List(vec![key, samples.state(&self.right.form, &self.right.rows)])
        };
        self.progress.state().and([
            ("skips", Plain::List(vec![self.skip.state(), Plain::None])),
            ("stables", Plain::ints(self.stables)),
            ("lefts", self.lefts()),
            ("samples", Plain::List(keys.into_iter().zip(kept).map(of).collect())),
        ])
    }

    /// Take what another one has kept.
    pub(super) fn take_kept(&mut self, state: &Plain) -> Result<(), Failure> {
        self.progress.restore(state)?;
        let [skip, _] = state.get("skips")?.tuple()?;
        self.skip.restore(skip)?;
        let [left, right] = state.get("stables")?.tuple()?;
        self.stables = [left.int()?, right.int()?];
        let kept = state.get("samples")?.list()?;
        let kept: Vec<&[Plain; 2]> = kept.iter().map(Plain::tuple).collect::<Result<_, _>>()?;
        let keys: Vec<&Plain> = kept.iter().map(|[key, _]| key).collect();
        let keys = self.right.key.of_plain(&keys)?;
        for (at, [_, samples]) in kept.into_iter().enumerate() {
            let samples = Samples::of_state(samples, &self.right.form, &mut self.right.rows)?;
            let key = self.hold_key(keys.any(at));
            samples.times().for_each(|t| self.by_both.add(t, key));
            self.of_keys.get_mut(&key).expect("a key that is held").samples = samples;
        }
        self.restore_lefts(state.get("lefts")?)
    }

    /// The left events by start, row and end, with how many there are and the sample that they have.
    fn lefts(&self) -> Plain {
        let mut lefts = Vec::new();
        for of_key in self.of_keys.values() {
            for (&vs, entry) in &of_key.lefts {
                lefts.extend(
                    entry
                        .events
                        .iter()
                        .map(|(&(row, end), &count)| (vs, row, end, count, entry.sample)),
                );
            }
        }
        lefts.sort_unstable_by(|one, other| {
            let rows = || self.left.rows.get(one.1).cmp(self.left.rows.get(other.1));
            one.0.cmp(&other.0).then_with(rows).then(one.2.cmp(&other.2))
        });
        let rows = plain_of(&self.left, lefts.iter().map(|left| left.1).collect());
        let samples = plain_of(&self.right, lefts.iter().filter_map(|left| left.4).collect());
        let mut samples = samples.into_iter();
        let of = |(row, (vs, _, end, count, sample)): (Plain, (i64, u32, i64, u32, Option<u32>))| {
            let sample = sample.and_then(|_| samples.next()).unwrap_or(Plain::None);
            Plain::List(vec![
                Plain::Int(vs),
                row,
                Plain::Int(end),
                Plain::Int(count.into()),
                sample,
            ])
        };
        Plain::List(rows.into_iter().zip(lefts).map(of).collect())
    }

    fn restore_lefts(&mut self, lefts: &Plain) -> Result<(), Failure> {
        let lefts: Vec<&[Plain; 5]> = lefts.list()?.iter().map(Plain::tuple).collect::<Result<_, _>>()?;
        let plain: Vec<&Plain> = lefts.iter().map(|left| &left[1]).collect();
        let columns = columns_of_plain(self.left.form.columns(), &plain)?;
        let rows = self.left.form.encode(&columns);
        let keys = self.left.key.keys(&columns, lefts.len());
        if let Some(failure) = keys.failure {
            return Err(failure);
        }
        let plain: Vec<&Plain> = lefts
            .iter()
            .map(|left| &left[4])
            .filter(|&sample| *sample != Plain::None)
            .collect();
        let samples = self
            .right
            .form
            .encode(&columns_of_plain(self.right.form.columns(), &plain)?);
        let mut samples = samples.iter();
        for (at, [vs, _, end, count, sample]) in lefts.into_iter().enumerate() {
            let (vs, end, count) = (vs.int()?, end.int()?, count.int()? as u32);
            let sample = if *sample == Plain::None { None } else { samples.next() };
            let key = keys
                .present(at)
                .ok_or_else(|| Failure::Usage("a row that matches none was kept".into()))?;
            let key = self.hold_key(key);
            let of_key = self.of_keys.get_mut(&key).expect("a key that is held");
            let entry = of_key.lefts.entry(vs).or_insert_with(|| LeftEvents {
                sample: sample.map(|sample| self.right.rows.hold(sample.data())),
                ..LeftEvents::default()
            });
            entry
                .events
                .insert((self.left.rows.hold(rows.row(at).data()), end), count);
            self.by_left.add(end, (key, vs));
        }
        Ok(())
    }
}

/// Rows of a side as plain values.
fn plain_of(side: &Side, rows: Vec<u32>) -> Vec<Plain> {
    let columns = side.form.decode(rows.iter().map(|&row| side.rows.get(row)));
    plain_rows(side.form.columns(), &columns, rows.len())
}
