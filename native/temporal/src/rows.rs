//! Rows as bytes, by arrow-row: equal rows have equal bytes, and bytes are ordered as rows are (`values.py`): by column,
//! numbers by value with NaN last, text and bytes by their bytes, None last. The bytes of a row are those of its
//! columns one after the other, so the bytes of a pair of rows are those of both.

use std::sync::Arc;

use ahash::RandomState;
use arrow_array::{ArrayRef, new_null_array};
use arrow_row::{RowConverter, RowParser, Rows, SortField};
use arrow_schema::{ArrowError, SortOptions};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::arena::{Arena, Place};
use crate::{Column, RowSchema};

/// Converts between columns of one schema and rows as bytes.
#[derive(Debug)]
pub struct RowForm {
    columns: Vec<Column>,
    converter: RowConverter,
    parser: RowParser,
}

impl RowForm {
    pub fn new(schema: &RowSchema) -> RowForm {
        RowForm::of_columns(&schema.columns)
    }

    /// `columns`: at least one.
    pub fn of_columns(columns: &[Column]) -> RowForm {
        let options = SortOptions {
            descending: false,
            nulls_first: false,
        };
        let fields = columns
            .iter()
            .map(|column| SortField::new_with_options(column.data_type(), options));
        let converter = RowConverter::new(fields.collect()).expect("every type of a schema has an order");
        let parser = converter.parser();
        RowForm {
            columns: columns.to_vec(),
            converter,
            parser,
        }
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub fn encode(&self, columns: &[ArrayRef]) -> Rows {
        self.converter
            .convert_columns(columns)
            .expect("columns are those of the form")
    }

    /// The columns of rows that this form has encoded.
    pub fn decode<'a>(&self, rows: impl IntoIterator<Item = &'a [u8]>) -> Vec<ArrayRef> {
        let rows = rows.into_iter().map(|bytes| self.parser.parse(bytes));
        self.converter.convert_rows(rows).expect("rows are of this form")
    }

    /// The bytes of the row in which every column is missing.
    pub fn missing(&self) -> Result<Vec<u8>, ArrowError> {
        let columns: Vec<_> = self
            .columns
            .iter()
            .map(|column| new_null_array(&column.data_type(), 1))
            .collect();
        Ok(self.converter.convert_columns(&columns)?.row(0).data().to_vec())
    }
}

/// A form that several operators share.
pub type SharedForm = Arc<RowForm>;

/// Rows that state keeps, each once, by number. A number is that of its row until the last hold on it is released.
#[derive(Debug, Default)]
pub struct RowArena {
    bytes: Arena,
    places: Vec<Place>,
    holds: Vec<u32>,
    unused: Vec<u32>,
    numbers: HashTable<u32>,
    hashing: RandomState,
}

impl RowArena {
    /// The number of the row, with one hold more.
    pub fn hold(&mut self, row: &[u8]) -> u32 {
        let (bytes, places, hashing) = (&self.bytes, &self.places, &self.hashing);
        let of = |&id: &u32| bytes.get(places[id as usize]);
        let entry = self
            .numbers
            .entry(hashing.hash_one(row), |id| of(id) == row, |id| hashing.hash_one(of(id)));
        let vacant = match entry {
            Entry::Occupied(found) => {
                let id = *found.get();
                self.holds[id as usize] += 1;
                return id;
            }
            Entry::Vacant(vacant) => vacant,
        };
        let id = self.unused.pop().unwrap_or(self.places.len() as u32);
        vacant.insert(id);
        let place = self.bytes.add(id, row);
        if id as usize == self.places.len() {
            self.places.push(place);
            self.holds.push(1);
        } else {
            self.places[id as usize] = place;
            self.holds[id as usize] = 1;
        }
        id
    }

    /// Make room for so many rows more at once.
    pub fn reserve(&mut self, more: usize) {
        self.places.reserve(more);
        self.holds.reserve(more);
        let (bytes, places, hashing) = (&self.bytes, &self.places, &self.hashing);
        let hash = |&id: &u32| hashing.hash_one(bytes.get(places[id as usize]));
        self.numbers.reserve(more, hash);
    }

    /// Hold a row of this arena once more.
    pub fn hold_again(&mut self, id: u32) {
        self.holds[id as usize] += 1;
    }

    /// The number of a row, if it is held.
    pub fn find(&self, row: &[u8]) -> Option<u32> {
        let hash = self.hashing.hash_one(row);
        self.numbers.find(hash, |&id| self.get(id) == row).copied()
    }

    /// The bytes of a row that is held.
    #[inline]
    pub fn get(&self, id: u32) -> &[u8] {
        self.bytes.get(self.places[id as usize])
    }

    /// Release one hold. The row is dropped with the last one.
    pub fn release(&mut self, id: u32) {
        self.holds[id as usize] -= 1;
        if self.holds[id as usize] > 0 {
            return;
        }
        let hash = self.hashing.hash_one(self.get(id));
        if let Ok(entry) = self.numbers.find_entry(hash, |&other| other == id) {
            entry.remove();
        }
        self.bytes.remove(self.places[id as usize]);
        self.unused.push(id);
        let places = &mut self.places;
        self.bytes.evacuate(|id, place| places[id as usize] = place);
    }

    /// The numbers of all rows, in no useful order.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.numbers.iter().copied()
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Bytes of memory.
    pub fn held_bytes(&self) -> usize {
        self.bytes.held_bytes() + self.places.capacity() * size_of::<Place>() + self.numbers.capacity() * 5
    }

    /// Panic unless the parts fit together.
    pub fn check(&self) {
        self.bytes.check();
        assert_eq!(
            self.numbers.len() + self.unused.len(),
            self.places.len(),
            "numbers of an arena"
        );
        for &id in &self.numbers {
            assert!(self.holds[id as usize] > 0);
            assert_eq!(self.find(self.get(id)), Some(id));
        }
    }
}
