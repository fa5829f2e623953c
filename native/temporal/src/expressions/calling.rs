//! Calls of users' functions, which the host makes: one for all rows of a batch that need it.

use arrow_array::{ArrayRef, BooleanArray, UInt32Array, new_null_array};
use arrow_buffer::BooleanBuffer;
use arrow_select::filter::filter;
use arrow_select::take::take;

use super::evaluating::{Evaluation, Node, Rows, without};
use super::spread;
use super::values::{Frame, Value};
use crate::failure::Failure;

/// Why a call has failed. `row`: the first row of the call for which it does.
#[derive(Debug)]
pub struct CallFailure {
    pub row: usize,
    pub failure: Failure,
}

impl Evaluation<'_> {
    /// The results for the rows that need them. From the first row on for which the function fails each has an error.
    pub(super) fn called(
        &mut self,
        node: &Node,
        function: usize,
        skips_nulls: bool,
        operands: &[Value],
        rows: &Rows,
    ) -> Value {
        let frame = Frame::new(operands, self.len);
        let is_scalar = operands.iter().all(|operand| operand.is_scalar);
        let mut open = without(rows.clone(), frame.errors());
        if let Some(nulls) = frame.nulls.as_ref().filter(|_| skips_nulls) {
            open = match is_scalar {
                true => Some(BooleanBuffer::new_unset(self.len)),
                false => without(open, Some(!nulls.inner())),
            };
        }
        let open = open.unwrap_or_else(|| BooleanBuffer::new_set(self.len));
        let count = open.count_set_bits();
        let absent = new_null_array(&node.column.data_type(), frame.len);
        if count == 0 {
            return frame.value(absent);
        }
        if is_scalar {
            let columns: Vec<ArrayRef> = operands.iter().map(|operand| operand.array.clone()).collect();
            return match self.host.call(function, &columns, 1) {
                Ok(results) => frame.value(results),
                Err(CallFailure { failure, .. }) => {
                    self.note(open.set_indices().next().expect("a row needs it"), failure);
                    frame.value_or_errors(absent, BooleanBuffer::new_set(1))
                }
            };
        }
        let is_all = count == self.len;
        let mask = BooleanArray::new(open.clone(), None);
        let column = |operand: &Value| match (operand.is_scalar, is_all) {
            (true, _) => spread(operand.clone(), count),
            (false, true) => operand.array.clone(),
            (false, false) => filter(&operand.array, &mask).expect("a filter has one bit for each row"),
        };
        let columns: Vec<ArrayRef> = operands.iter().map(column).collect();
        match self.host.call(function, &columns, count) {
            Ok(results) if is_all => frame.value(results),
            Ok(results) => frame.value(scattered(&results, &open)),
            Err(CallFailure { row, failure }) => {
                let first = open.set_indices().nth(row).expect("it is a row of the call");
                self.note(first, failure);
                let failed = BooleanBuffer::collect_bool(self.len, |row| row >= first && open.value(row));
                frame.value_or_errors(absent, failed)
            }
        }
    }

    fn note(&mut self, row: usize, failure: Failure) {
        if self.failed.as_ref().is_none_or(|(first, _)| row < *first) {
            self.failed = Some((row, failure));
        }
    }
}

/// The results at the rows of `open`, NULL at others.
fn scattered(results: &ArrayRef, open: &BooleanBuffer) -> ArrayRef {
    let mut next = 0..;
    let places: UInt32Array = open
        .iter()
        .map(|is_open| if is_open { next.next() } else { None })
        .collect();
    take(results, &places, None).expect("places are those of results")
}
