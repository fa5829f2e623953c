//! The predicate of a join: evaluated for the pairs of many changes together, once a step for each pair of rows.

use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::join_side::JoinSide;
use super::pairs::Pair;
use crate::expressions::Expressions;
use crate::failure::Failure;

/// Pairs of many changes that it sees together: enough for its cost a call, and little memory.
const AHEAD_MAX: usize = 1 << 16;

/// The predicate, if there is one.
#[derive(Debug)]
pub struct JoinPredicate {
    expressions: Option<Arc<Expressions>>,
    /// The pairs that the step has had, and whether they match.
    matched: HashMap<Pair, bool, ahash::RandomState>,
}

impl JoinPredicate {
    /// `expressions`: of the columns of both inputs.
    pub fn new(expressions: Option<Arc<Expressions>>) -> JoinPredicate {
        JoinPredicate {
            expressions,
            matched: HashMap::default(),
        }
    }

    #[inline]
    pub fn is_some(&self) -> bool {
        self.expressions.is_some()
    }

    /// Forget the pairs of the step.
    pub fn clear(&mut self) {
        self.matched.clear();
    }

    /// Whether a pair matches for which it has been evaluated.
    #[inline]
    pub fn is_true(&self, pair: Pair) -> bool {
        self.matched[&pair]
    }

    /// Evaluate it for the pairs that this step has not had yet.
    pub fn evaluate(&mut self, pairs: impl Iterator<Item = Pair>, sides: &[JoinSide; 2]) -> Result<(), Failure> {
        let mut open = Vec::new();
        self.open(pairs, &mut open);
        self.evaluate_open(&open, sides)
    }

    /// Evaluate it for the pairs of many changes together. Where one fails, nothing has happened: the change whose turn
    /// it is will fail.
    pub fn evaluate_ahead<Pairs>(&mut self, changes: impl Iterator<Item = Pairs>, sides: &[JoinSide; 2])
    where
        Pairs: Iterator<Item = Pair>,
    {
        let mut open = Vec::new();
        for pairs in changes {
            self.open(pairs, &mut open);
            if open.len() >= AHEAD_MAX {
                break;
            }
        }
        if self.evaluate_open(&open, sides).is_err() {
            for pair in open {
                self.matched.remove(&pair);
            }
        }
    }

    /// Enter pairs that are not there yet.
    fn open(&mut self, pairs: impl Iterator<Item = Pair>, open: &mut Vec<Pair>) {
        for pair in pairs {
            if let Entry::Vacant(place) = self.matched.entry(pair) {
                place.insert(false);
                open.push(pair);
            }
        }
    }

    /// Note for which pairs it is true.
    fn evaluate_open(&mut self, pairs: &[Pair], [left, right]: &[JoinSide; 2]) -> Result<(), Failure> {
        let Some(expressions) = self.expressions.as_ref().filter(|_| !pairs.is_empty()) else {
            return Ok(());
        };
        let mut columns = left.given.form.decode(pairs.iter().map(|pair| left.rows.get(pair.0)));
        columns.extend(right.given.form.decode(pairs.iter().map(|pair| right.rows.get(pair.1))));
        let kept = expressions.kept(&columns, pairs.len()).map_err(|error| error.failure)?;
        self.matched.extend(pairs.iter().copied().zip(kept.iter()));
        Ok(())
    }
}
