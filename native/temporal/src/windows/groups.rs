//! Groups by their keys, with numbers that are used again.

use arrow_array::ArrayRef;
use arrow_row::Rows;

use crate::Column;
use crate::plain::Plain;
use crate::plain_rows::plain_rows;
use crate::rows::{RowArena, RowForm};

/// All groups are ranked to sort things of one group in so many.
const RANKED_SHARE: usize = 8;

/// The groups that have something in them. A group is dropped when nothing uses it any more (`drop_idle`).
#[derive(Debug)]
pub struct Groups {
    /// None: there is one group, for all rows.
    form: Option<RowForm>,
    keys: RowArena,
    uses: Vec<u32>,
    is_listed: Vec<bool>,
    idle: Vec<u32>,
    /// The place of each group in the order of keys, by number; empty when groups have come or gone since.
    ranks: Vec<u32>,
}

impl Groups {
    /// `columns`: of keys.
    pub fn new(columns: &[Column]) -> Groups {
        let form = (!columns.is_empty()).then(|| RowForm::of_columns(columns));
        let ungrouped = usize::from(form.is_none());
        Groups {
            form,
            keys: RowArena::default(),
            uses: vec![0; ungrouped],
            is_listed: vec![false; ungrouped],
            idle: Vec::new(),
            ranks: Vec::new(),
        }
    }

    /// The keys of a batch; None without groups.
    pub fn encode(&self, keys: &[ArrayRef]) -> Option<Rows> {
        self.form.as_ref().map(|form| form.encode(keys))
    }

    /// The number of a group, which is made if it is not there.
    #[inline]
    pub fn number(&mut self, keys: Option<&Rows>, at: usize) -> u32 {
        let Some(keys) = keys else { return 0 };
        let row = keys.row(at);
        match self.keys.find(row.data()) {
            Some(number) => number,
            None => self.added(row.data()),
        }
    }

    fn added(&mut self, key: &[u8]) -> u32 {
        self.ranks.clear();
        let number = self.keys.hold(key);
        let at = number as usize;
        if at >= self.uses.len() {
            self.uses.resize(at + 1, 0);
            self.is_listed.resize(at + 1, false);
        }
        self.uses[at] = 0;
        self.list(number);
        number
    }

    fn list(&mut self, group: u32) {
        if self.form.is_some() && !std::mem::replace(&mut self.is_listed[group as usize], true) {
            self.idle.push(group);
        }
    }

    /// Note that one thing more is in a group.
    #[inline]
    pub fn enter(&mut self, group: u32) {
        self.uses[group as usize] += 1;
    }

    /// Note that one thing less is in a group.
    #[inline]
    pub fn leave(&mut self, group: u32) {
        self.uses[group as usize] -= 1;
        if self.uses[group as usize] == 0 {
            self.list(group);
        }
    }

    /// Sort what belongs to groups by their keys. `group_of`: the number of its group.
    pub fn sort(&mut self, items: &mut [u32], group_of: impl Fn(u32) -> u32) {
        if self.form.is_none() || items.len() < 2 {
            return;
        }
        if self.ranks.is_empty() && items.len() * RANKED_SHARE >= self.keys.len() {
            let mut numbers: Vec<u32> = self.keys.numbers().collect();
            numbers.sort_unstable_by(|&one, &other| self.keys.get(one).cmp(self.keys.get(other)));
            self.ranks.resize(self.uses.len(), 0);
            for (rank, number) in (0..).zip(numbers) {
                self.ranks[number as usize] = rank;
            }
        }
        if self.ranks.is_empty() {
            let key = |item| self.keys.get(group_of(item));
            items.sort_unstable_by(|&one, &other| key(one).cmp(key(other)));
        } else {
            items.sort_unstable_by_key(|&item| self.ranks[group_of(item) as usize]);
        }
    }

    /// Drop the groups that nothing uses. `dropped` gets their numbers.
    pub fn drop_idle(&mut self, mut dropped: impl FnMut(u32)) {
        for group in std::mem::take(&mut self.idle) {
            self.is_listed[group as usize] = false;
            if self.uses[group as usize] == 0 {
                self.keys.release(group);
                self.ranks.clear();
                dropped(group);
            }
        }
    }

    /// The columns of the keys of groups.
    pub fn columns(&self, groups: impl Iterator<Item = u32>) -> Vec<ArrayRef> {
        self.form
            .as_ref()
            .map_or_else(Vec::new, |form| form.decode(groups.map(|group| self.keys.get(group))))
    }

    /// The keys of groups as plain rows.
    pub fn plain(&self, groups: &[u32]) -> Vec<Plain> {
        match &self.form {
            Some(form) => plain_rows(form.columns(), &self.columns(groups.iter().copied()), groups.len()),
            None => vec![Plain::List(Vec::new()); groups.len()],
        }
    }

    /// The number of groups.
    pub fn count(&self) -> usize {
        if self.form.is_some() {
            self.keys.len()
        } else {
            usize::from(self.uses[0] > 0)
        }
    }

    /// The bytes of a group's key: they give the order of groups.
    pub fn key(&self, group: u32) -> &[u8] {
        if self.form.is_some() { self.keys.get(group) } else { &[] }
    }

    /// The number of a group that is restored. `keys`: as `encode` has returned.
    pub fn restored(&mut self, keys: Option<&Rows>, at: usize) -> u32 {
        self.number(keys, at)
    }

    pub fn columns_of_keys(&self) -> &[Column] {
        self.form.as_ref().map_or(&[], RowForm::columns)
    }

    /// Panic unless groups are counted.
    pub fn check(&self) {
        self.keys.check();
        assert!(self.idle.is_empty());
    }
}
