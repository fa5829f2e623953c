//! What a source must not do: the promises of its stream, and the errors that name the change.

use arrow_row::Rows;

use crate::batch::Batch;
use crate::failure::{Failure, Violation};
use crate::open_events::Breach;
use crate::operator::show_time;
use crate::plain::Plain;
use crate::plain_rows::plain_rows;

use super::{StreamEntrance, Times, encoded, times_of};

impl StreamEntrance {
    pub(super) fn check_promises(&mut self, input: &Batch, at: usize) -> Result<(), Failure> {
        let (vs, old, new) = times_of(input, at);
        let promises = self.promises;
        if promises.has_points && new != vs && vs.checked_add(1) != Some(new) {
            let came = format!("this one has [{}, {})", show_time(vs), show_time(new));
            let breach = ("no-point", "events of one unit of time".to_owned(), came);
            return Err(self.violation(breach, input, at, (vs, old, new)));
        }
        if old != vs {
            if promises.insert_only {
                let promised = "only inserts and stables (insert-only)".to_owned();
                let breach = ("adjust-not-promised", promised, "an adjust came".to_owned());
                return Err(self.broken(breach, input, at, "insert-only"));
            }
            return Ok(());
        }
        if promises.ordered {
            let strictly = promises.strictly_ordered;
            if let Some(last) = self.last_start.filter(|&last| vs < last || (strictly && vs == last)) {
                let (rule, promise) = if strictly {
                    ("increases", "strictly-ordered")
                } else {
                    ("does not decrease", "ordered")
                };
                let came = format!("Vs is {} after {}", show_time(vs), show_time(last));
                let breach = ("out-of-order", format!("that Vs {rule} ({promise})"), came);
                return Err(self.broken(breach, input, at, promise));
            }
            self.last_start = Some(vs);
        }
        Ok(())
    }

    pub(super) fn check_key(&self, input: &Batch, at: usize, rows: &mut Option<Rows>) -> Result<(), Failure> {
        let (vs, old, _) = times_of(input, at);
        if old != vs || !self.live.has(encoded(&self.live, rows, input, at), vs) {
            return Ok(());
        }
        let promised = "that row and Vs are a key (key)".to_owned();
        let came = "it already has an event with this row and Vs".to_owned();
        Err(self.broken(("duplicate-key", promised, came), input, at, "key"))
    }

    pub(super) fn too_late(&self, input: &Batch, at: usize) -> Failure {
        let (vs, old, new) = times_of(input, at);
        let promised = format!(
            "no change before stable({}), by its rule of progress",
            show_time(self.stable)
        );
        let came = format!("it changes the table at {}", show_time(old.min(new)));
        self.violation(("late", promised, came), input, at, (vs, old, new))
    }

    fn broken(&self, breach: Breach, input: &Batch, at: usize, promise: &'static str) -> Failure {
        match self.violation(breach, input, at, times_of(input, at)) {
            Failure::Input(violation) => Failure::Input(Box::new(Violation {
                promise: Some(promise),
                ..*violation
            })),
            other => other,
        }
    }

    pub(super) fn violation(&self, breach: Breach, input: &Batch, at: usize, (vs, old, new): Times) -> Failure {
        let (code, promised, came) = breach;
        let row: Vec<_> = input.columns.iter().map(|column| column.slice(at, 1)).collect();
        Failure::Input(Box::new(Violation {
            code,
            input: self.name.clone(),
            row: plain_rows(&self.schema.columns, &row, 1).pop().unwrap_or(Plain::None),
            times: [vs, old, new],
            promised,
            came,
            promise: None,
        }))
    }
}
