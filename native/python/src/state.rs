//! The parsed fields of a snapshot, from Python's values to the core's.

use lmerge_core::element::{Element, NEG_INF};
use lmerge_core::merge::Kind;
use lmerge_core::node_block::{r3_rows, r4_rows};
use lmerge_core::state::{Counted, EndRow, InputState, State, Times, decode_payload};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

/// Vs, payload, the output's entry, then the inputs'.
type NodeRow<T> = (i64, Vec<u8>, Vec<Option<T>>);

/// The times of the merge and the state of the algorithm. Raises KeyError, TypeError or ValueError.
pub fn parse_state(kind: Kind, state: &Bound<'_, PyDict>) -> PyResult<(Times, State)> {
    let parsed = match kind {
        Kind::R0 => {
            let last = field(state, "last")?;
            let last = if last.is_none() {
                None
            } else {
                Some(element_row(&last)?)
            };
            State::R0 {
                max_vs: field(state, "max_vs")?.extract()?,
                last,
            }
        }
        Kind::R1 => {
            let out_of_step = state.get_item("out_of_step")?;
            State::R1 {
                max_vs: field(state, "max_vs")?.extract()?,
                slot: rows(state, "slot", element_row)?,
                out_of_step: out_of_step.map_or(Ok(false), |flag| flag.extract())?,
            }
        }
        Kind::R2 => {
            let hash = rows(state, "hash", |row| {
                Ok((payload(&row.get_item(0)?)?, slots_of(&row.get_item(1)?)?))
            })?;
            let empty = |row: &Bound<'_, PyAny>| Ok((payload(&row.get_item(0)?)?, row.get_item(1)?.extract()?));
            let copy = |row: &Bound<'_, PyAny>| {
                let (payload, ve) = element_row(row)?;
                Ok((payload, ve, row.get_item(2)?.extract()?))
            };
            let has = |name: &str| state.contains(name);
            let copies = if has("copies")? {
                Some(rows(state, "copies", copy)?)
            } else {
                None
            };
            State::R2 {
                max_vs: field(state, "max_vs")?.extract()?,
                hash,
                ends: if copies.is_none() {
                    field(state, "ends")?.extract()?
                } else {
                    Vec::new()
                },
                copies,
                empties: if has("empties")? {
                    rows(state, "empties", empty)?
                } else {
                    Vec::new()
                },
            }
        }
        Kind::R3 => State::R3 {
            slots: field(state, "slots")?.extract()?,
            nodes: match packed(state, r3_rows)? {
                Some(rows) => rows,
                None => nodes(state, |end| end.extract())?,
            },
            dues: optional(state, "due", end_rows)?.unwrap_or_default(),
        },
        Kind::R4 => State::R4 {
            slots: field(state, "slots")?.extract()?,
            nodes: match packed(state, r4_rows)? {
                Some(rows) => rows,
                None => nodes(state, |ends| ends.extract())?,
            },
            dues: optional(state, "due", end_rows)?.unwrap_or_default(),
        },
        Kind::R3Minus => {
            let indexes = field(state, "indexes")?;
            let index = |(slot, rows): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
                let slot = slot.extract::<String>()?.parse();
                Ok((
                    slot.map_err(|_| PyValueError::new_err("a slot is a number"))?,
                    end_rows(&rows)?,
                ))
            };
            let indexes: PyResult<_> = indexes.cast::<PyDict>()?.iter().map(index).collect();
            State::R3Minus {
                output: end_rows(&field(state, "output")?)?,
                indexes: indexes?,
            }
        }
    };
    let right_from = state.get_item("right_from")?;
    let times = Times {
        max_stable: field(state, "max_stable")?.extract()?,
        announced: field(state, "announced")?.extract()?,
        right_from: right_from.map_or(Ok(NEG_INF), |time| time.extract())?,
    };
    Ok((times, parsed))
}

/// The nodes in the block of a state; None: it has none.
fn packed<T>(state: &Bound<'_, PyDict>, read: impl Fn(&[u8], usize) -> Result<T, String>) -> PyResult<Option<T>> {
    let Some(block) = state.get_item("block")? else {
        return Ok(None);
    };
    let slots = field(state, "slots")?.extract()?;
    let rows = read(block.cast::<PyBytes>()?.as_bytes(), slots);
    rows.map(Some).map_err(PyValueError::new_err)
}

/// Live output events as (vs, payload, ve).
pub fn parse_live(rows: &Bound<'_, PyList>) -> PyResult<Vec<EndRow>> {
    end_rows(rows)
}

/// The state of an input.
pub fn parse_input(fields: &Bound<'_, PyDict>) -> PyResult<InputState> {
    let element = |row: &Bound<'_, PyAny>| {
        let time = |at: usize| row.get_item(at)?.extract::<i64>();
        let (kind, payload) = (row.get_item(0)?.extract()?, payload(&row.get_item(4)?)?);
        Ok(Element {
            kind,
            vs: time(1)?,
            ve: time(2)?,
            vold: time(3)?,
            payload,
        })
    };
    let mark = |row: &Bound<'_, PyAny>| Ok((row.get_item(0)?.extract()?, row.get_item(1)?.extract()?));
    Ok(InputState {
        joined: field(fields, "joined")?.extract()?,
        stable: field(fields, "stable")?.extract()?,
        last_vs: field(fields, "last_vs")?.extract()?,
        tie_count: field(fields, "tie_count")?.extract()?,
        late: field(fields, "late")?.extract()?,
        at_last_vs: counted(fields, "at_last_vs")?,
        tie_order: field(fields, "tie_order")?.extract()?,
        tie_marks: rows(fields, "tie_marks", mark)?,
        waiting: rows(fields, "waiting", element)?,
        delivered: optional(fields, "delivered", end_rows)?,
    })
}

/// A list of rows, each read by `parse`.
fn rows<T>(
    fields: &Bound<'_, PyDict>,
    name: &str,
    parse: impl Fn(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    field(fields, name)?.try_iter()?.map(|row| parse(&row?)).collect()
}

/// [vs, payload, ve], each.
fn end_rows(rows: &Bound<'_, PyAny>) -> PyResult<Vec<EndRow>> {
    let event = |row: Bound<'_, PyAny>| {
        Ok((
            row.get_item(0)?.extract()?,
            payload(&row.get_item(1)?)?,
            row.get_item(2)?.extract()?,
        ))
    };
    rows.try_iter()?.map(|row| event(row?)).collect()
}

/// [payload, ve].
fn element_row(row: &Bound<'_, PyAny>) -> PyResult<(Vec<u8>, i64)> {
    Ok((payload(&row.get_item(0)?)?, row.get_item(1)?.extract()?))
}

/// [vs, payload, the output's entry, then the inputs'].
fn nodes<T>(state: &Bound<'_, PyDict>, entry: impl Fn(&Bound<'_, PyAny>) -> PyResult<T>) -> PyResult<Vec<NodeRow<T>>> {
    rows(state, "nodes", |row| {
        let row = row.cast::<PyList>()?;
        let entry = |end: Bound<'_, PyAny>| if end.is_none() { Ok(None) } else { entry(&end).map(Some) };
        let entries: PyResult<_> = row.iter().skip(2).map(entry).collect();
        Ok((row.get_item(0)?.extract()?, payload(&row.get_item(1)?)?, entries?))
    })
}

/// [payload, ve, count].
fn counted(fields: &Bound<'_, PyDict>, name: &str) -> PyResult<Counted> {
    rows(fields, name, |row| {
        Ok((
            payload(&row.get_item(0)?)?,
            row.get_item(1)?.extract()?,
            row.get_item(2)?.extract()?,
        ))
    })
}

/// The places of the bits that are set in an integer of any size.
fn slots_of(bits: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    let text: String = bits.call_method1("__format__", ("b",))?.extract()?;
    if text.starts_with('-') {
        return Err(PyValueError::new_err("a negative set of inputs"));
    }
    Ok(text
        .bytes()
        .rev()
        .enumerate()
        .filter(|&(_, digit)| digit == b'1')
        .map(|(slot, _)| slot)
        .collect())
}

fn field<'py>(fields: &Bound<'py, PyDict>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    fields
        .get_item(name)?
        .ok_or_else(|| PyKeyError::new_err(name.to_string()))
}

/// A field that snapshots contain only where it is needed.
fn optional<T>(
    fields: &Bound<'_, PyDict>,
    name: &str,
    parse: impl Fn(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<Option<T>> {
    fields.get_item(name)?.map(|value| parse(&value)).transpose()
}

fn payload(text: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    decode_payload(&text.extract::<String>()?).map_err(PyValueError::new_err)
}
