//! The nodes of an index as bytes: for a snapshot that only lmerge reads, several times as fast as JSON.
//!
//! For each node, in no order: Vs (8 bytes, little-endian as all numbers), the length of the payload (4), the payload, and
//! an entry for the output and for each slot. R3: the end, [`NONE`] if there is none (8). R4: how many ends (4), and each
//! of them (8). `lmerge/core/node_block.py` reads the same.

use crate::in3t::At;
use crate::merge::{Merge, Running};
use crate::nodes::NONE;
use crate::state::{R3Row, R4Row};

/// The nodes of all shards of one merge; None if its algorithm has no index of nodes.
pub(crate) fn block(shards: &[Merge]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for shard in shards {
        shard.append_nodes(&mut out)?;
    }
    Some(out)
}

impl Merge {
    fn append_nodes(&self, out: &mut Vec<u8>) -> Option<()> {
        match &self.running {
            Running::InsertOnly(_) | Running::R3Minus(_) => return None,
            Running::R3(running) => {
                let store = &running.index.store;
                let columns = self.shell.inputs.columns(running.index.slots);
                for id in store.nodes.ids() {
                    key(out, store.key(id));
                    number(out, store.nodes.get(id).out);
                    for slot in &columns {
                        number(out, slot.map_or(NONE, |slot| running.end(id, slot)));
                    }
                }
            }
            Running::R4(running) => {
                let store = &running.index.store;
                let columns = self.shell.inputs.columns(running.index.slots);
                for id in store.nodes.ids() {
                    key(out, store.key(id));
                    for at in std::iter::once(Some(At::Out)).chain(columns.iter().map(|slot| slot.map(At::In))) {
                        let ends = at.map_or(&[][..], |at| running.index.ends(id, at));
                        length(out, ends.len());
                        ends.iter().for_each(|&end| number(out, end));
                    }
                }
            }
        }
        Some(())
    }
}

/// The nodes of R3 in a block, with entries for the output and `slots` inputs.
pub fn r3_rows(block: &[u8], slots: usize) -> Result<Vec<R3Row>, String> {
    let mut reader = Reader(block);
    let mut rows = Vec::new();
    while !reader.0.is_empty() {
        let (vs, payload) = reader.key()?;
        let ends = (0..=slots).map(|_| reader.number().map(|end| (end != NONE).then_some(end)));
        rows.push((vs, payload, ends.collect::<Result<_, _>>()?));
    }
    Ok(rows)
}

/// The nodes of R4 in a block.
pub fn r4_rows(block: &[u8], slots: usize) -> Result<Vec<R4Row>, String> {
    let mut reader = Reader(block);
    let mut rows = Vec::new();
    while !reader.0.is_empty() {
        let (vs, payload) = reader.key()?;
        let mut entries = Vec::with_capacity(slots + 1);
        for _ in 0..=slots {
            let count = reader.length()?;
            let ends: Result<Vec<i64>, String> = (0..count).map(|_| reader.number()).collect();
            entries.push(Some(ends?).filter(|ends| !ends.is_empty()));
        }
        rows.push((vs, payload, entries));
    }
    Ok(rows)
}

fn key(out: &mut Vec<u8>, (vs, payload): (i64, &[u8])) {
    number(out, vs);
    length(out, payload.len());
    out.extend_from_slice(payload);
}

fn number(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn length(out: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).expect("a payload has less than 4 GiB, a node less than 2^32 ends");
    out.extend_from_slice(&length.to_le_bytes());
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (bytes, rest) = self
            .0
            .split_at_checked(count)
            .ok_or("a block of nodes ends inside one")?;
        self.0 = rest;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<i64, String> {
        Ok(i64::from_le_bytes(self.bytes(8)?.try_into().expect("eight bytes")))
    }

    fn length(&mut self) -> Result<usize, String> {
        Ok(u32::from_le_bytes(self.bytes(4)?.try_into().expect("four bytes")) as usize)
    }

    fn key(&mut self) -> Result<(i64, Vec<u8>), String> {
        let (vs, length) = (self.number()?, self.length()?);
        Ok((vs, self.bytes(length)?.to_vec()))
    }
}
