//! Batches of a result as the elements that a publisher sends: `ElementWriter` of `lmerge/temporal/runs/results.py`.

use lmerge_core::columns::Columns;
use lmerge_core::element::{ADJUST, INSERT, STABLE};
use lmerge_rows::encode::Payloads;

use crate::batch::Batch;
use crate::{Column, Kind, RowSchema};

/// Writes rows of one schema as payloads.
#[derive(Debug)]
pub struct ElementForm(RowSchema);

impl ElementForm {
    /// The rows of a plan have been rounded where they came in, and are written as they are.
    pub fn new(schema: &RowSchema) -> ElementForm {
        ElementForm(RowSchema {
            columns: schema.columns.iter().map(unrounded).collect(),
        })
    }

    /// The elements of batches in their order. None for what only Python writes: a date outside its years, or more than
    /// 4 GiB of payloads.
    pub fn elements(&self, batches: &[Batch]) -> Option<Columns> {
        let count = batches.iter().map(|batch| batch.len() + 1).sum();
        let (mut payloads, mut kinds) = (Payloads::default(), Vec::with_capacity(count));
        let times = || Vec::with_capacity(8 * count);
        let (mut vs, mut ve, mut vold) = (times(), times(), times());
        for batch in batches {
            self.0.append_columns(&batch.columns, batch.len(), &mut payloads)?;
            batch
                .vs
                .iter()
                .for_each(|time| vs.extend_from_slice(&time.to_le_bytes()));
            batch
                .new
                .iter()
                .for_each(|time| ve.extend_from_slice(&time.to_le_bytes()));
            for (&old, &start) in batch.old.iter().zip(batch.vs.iter()) {
                let is_insert = old == start;
                kinds.push(if is_insert { INSERT } else { ADJUST });
                vold.extend_from_slice(&(if is_insert { 0 } else { old }).to_le_bytes());
            }
            if let Some(stable) = batch.stable {
                kinds.push(STABLE);
                vs.extend_from_slice(&stable.to_le_bytes());
                ve.extend_from_slice(&[0; 8]);
                vold.extend_from_slice(&[0; 8]);
                payloads.end_here()?;
            }
        }
        Some(Columns {
            kinds,
            vs,
            ve,
            vold,
            ends: payloads.ends,
            payloads: payloads.bytes,
        })
    }
}

fn unrounded(column: &Column) -> Column {
    let kind = match &column.kind {
        Kind::Float(_) => Kind::Float(None),
        Kind::List(element) => Kind::List(Box::new(unrounded(element))),
        Kind::Struct(fields) => Kind::Struct(fields.iter().map(unrounded).collect()),
        other => other.clone(),
    };
    Column { kind, ..column.clone() }
}
