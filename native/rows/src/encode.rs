//! Encodes record batches to payloads, and to the batch of inserts that carries them.

use arrow_array::{Array, ArrayRef, StructArray};
use lmerge_core::columns::Columns;
use lmerge_core::element::{INF, INSERT};

use crate::cells::{Cells, positions, times};
use crate::pack;
use crate::schema::Schema;

/// Concatenated payloads. `ends` in the form of the wire: four little-endian bytes each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payloads {
    pub ends: Vec<u8>,
    pub bytes: Vec<u8>,
}

impl Payloads {
    pub fn len(&self) -> usize {
        self.ends.len() / 4
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// End a payload, which has the bytes since the end before. None if they are too many.
    #[inline]
    pub fn end_here(&mut self) -> Option<()> {
        let end = u32::try_from(self.bytes.len()).ok()?; // the wire's ends have 32 bits
        self.ends.extend_from_slice(&end.to_le_bytes());
        Some(())
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self
            .ends
            .as_chunks()
            .0
            .iter()
            .map(|&end| u32::from_le_bytes(end) as usize);
        let mut start = 0;
        ends.map(move |end| &self.bytes[std::mem::replace(&mut start, end)..end])
    }
}

impl Schema {
    /// The payloads of all rows. Columns are found by name. Only the columns in `others` are allowed beside them.
    pub fn payloads(&self, batches: &[StructArray], others: &[&str]) -> Option<Payloads> {
        let mut out = Payloads::default();
        for batch in batches {
            self.append(batch, others, &mut out)?;
        }
        Some(out)
    }

    /// One insert per row. `vs` and `ve` name columns of times; without `ve` events do not end.
    pub fn inserts(&self, batches: &[StructArray], vs: &str, ve: Option<&str>) -> Option<Columns> {
        let Payloads { ends, bytes } = self.payloads(batches, &[vs, ve.unwrap_or(vs)])?;
        let count = ends.len() / 4;
        let of_ve = match ve {
            Some(ve) => column_of_times(batches, ve)?,
            None => INF.to_le_bytes().repeat(count),
        };
        Some(Columns {
            kinds: vec![INSERT; count],
            vs: column_of_times(batches, vs)?,
            ve: of_ve,
            vold: vec![0; 8 * count],
            ends,
            payloads: bytes,
        })
    }

    fn append(&self, batch: &StructArray, others: &[&str], out: &mut Payloads) -> Option<()> {
        if batch.null_count() > 0 {
            return None; // a row that is null itself: this is no record batch
        }
        let at = positions(&self.columns, batch.fields(), others)?;
        let columns: Option<Vec<_>> = at.into_iter().map(|at| Some(batch.column(at?).clone())).collect();
        self.append_columns(&columns?, batch.len(), out)
    }

    /// Append the payloads of `count` rows, whose columns are those of the schema, in its order.
    pub fn append_columns(&self, columns: &[ArrayRef], count: usize, out: &mut Payloads) -> Option<()> {
        let cells = |(column, array)| Cells::of(column, array, false);
        let cells: Option<Vec<Cells>> = self.columns.iter().zip(columns).map(cells).collect();
        let cells = cells?;
        out.ends.reserve(4 * count);
        for row in 0..count {
            pack::array(&mut out.bytes, cells.len())?;
            for cells in &cells {
                cells.write(row, &mut out.bytes)?;
            }
            out.end_here()?;
        }
        Some(())
    }
}

/// A column of times in the form of the wire: eight little-endian bytes each.
fn column_of_times(batches: &[StructArray], name: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for batch in batches {
        let times = times(batch.column_by_name(name)?)?;
        out.reserve(8 * times.len());
        times.iter().for_each(|time| out.extend_from_slice(&time.to_le_bytes()));
    }
    Some(out)
}
