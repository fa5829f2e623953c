//! Writes the fields of a snapshot (`lmerge/core/snapshot.py`) as JSON text, and loads them from parsed values.
//!
//! Equal merges give equal bytes: everything in hash order is sorted, and derived state (the wheel, due times that
//! follow from the entries) is left out. The caller writes the document around the fields.

use std::collections::HashMap;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::delivered::Delivered;
use crate::element::{Element, NEG_INF};
use crate::in3t::At;
use crate::index::{Index, Indexed, Spill};
use crate::input::{ElementsAtVs, Input, Inputs};
use crate::insert_only::{InsertOnly, Ties};
use crate::merge::{Merge, Running};
use crate::nodes::{NIL, NONE};
use crate::payloads::Payloads;
use crate::r3::R3;
use crate::r3minus::{Ends, R3Minus};
use crate::r4::R4;
use crate::store::Live;
use crate::ties;

/// (payload, Ve) with how often it occurs.
pub type Counted = Vec<(Vec<u8>, i64, u64)>;
/// A node of R3: Vs, payload, the output's end, then an end by slot.
pub type R3Row = (i64, Vec<u8>, Vec<Option<i64>>);
/// A node of R4: the same with lists of ends.
pub type R4Row = (i64, Vec<u8>, Vec<Option<Vec<i64>>>);
/// An entry of an index of R3-: Vs, payload and end. Of R3 and R4: Vs, payload and the due time.
pub type EndRow = (i64, Vec<u8>, i64);

/// The state of an algorithm, parsed.
#[derive(Debug)]
pub enum State {
    R0 {
        max_vs: i64,
        last: Option<(Vec<u8>, i64)>,
    },
    R1 {
        max_vs: i64,
        slot: Vec<(Vec<u8>, i64)>,
        out_of_step: bool,
    },
    /// Payloads with the slots that have delivered them, and their ends; or the counted events with their counts. Also
    /// the elements with an empty lifetime with their counts.
    R2 {
        max_vs: i64,
        hash: Vec<(Vec<u8>, Vec<usize>)>,
        ends: Vec<i64>,
        copies: Option<Vec<(Vec<u8>, i64, u32)>>,
        empties: Vec<(Vec<u8>, u32)>,
    },
    R3 {
        slots: usize,
        nodes: Vec<R3Row>,
        dues: Vec<EndRow>,
    },
    R4 {
        slots: usize,
        nodes: Vec<R4Row>,
        dues: Vec<EndRow>,
    },
    /// The index of the output, and of each input by slot.
    R3Minus {
        output: Vec<EndRow>,
        indexes: Vec<(usize, Vec<EndRow>)>,
    },
}

/// The times of a merge, parsed. `Shell` describes each of them.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub max_stable: i64,
    pub announced: i64,
    pub right_from: i64,
}

/// The state of an input, parsed.
#[derive(Clone, Debug)]
pub struct InputState {
    pub joined: bool,
    pub stable: i64,
    pub last_vs: Option<i64>,
    pub tie_count: usize,
    pub late: u64,
    pub at_last_vs: Counted,
    pub tie_order: Vec<u32>,
    pub tie_marks: Vec<(usize, u32)>,
    pub waiting: Vec<Element>,
    pub delivered: Option<Vec<EndRow>>,
}

/// Decode a payload from its text in a snapshot.
pub fn decode_payload(text: &str) -> Result<Vec<u8>, String> {
    STANDARD
        .decode(text)
        .map_err(|problem| format!("{problem} in {text:?}"))
}

/// A node of a snapshot: its key, and the row as JSON text.
pub(crate) type NodeText<'a> = (i64, &'a [u8], String);

/// The algorithm's fields of a snapshot, each as JSON text. `shards`: the shards of one merge. `with_nodes`: with the
/// nodes of an index, which `node_block` writes as well.
pub(crate) fn fields(shards: &[Merge], with_nodes: bool) -> Vec<(&'static str, String)> {
    let shell = &shards[0].shell;
    let announced = shards.iter().map(Merge::announced).min().expect("a merge has a shard");
    let mut fields = vec![
        ("max_stable", shell.max_stable.to_string()),
        ("announced", announced.to_string()),
    ];
    if shell.right_from > shell.max_stable {
        fields.push(("right_from", shell.right_from.to_string()));
    }
    let slots = match &shards[0].running {
        Running::InsertOnly(running) => {
            fields.extend(insert_only_state(running));
            return fields;
        }
        Running::R3Minus(running) => {
            fields.extend(r3minus_state(running));
            return fields;
        }
        Running::R3(running) => running.index.slots,
        Running::R4(running) => running.index.slots,
    };
    let written = if with_nodes { shards } else { &[] };
    let mut nodes: Vec<NodeText<'_>> = written.iter().flat_map(Merge::node_texts).collect();
    nodes.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    fields.extend([
        ("slots", slots.to_string()),
        ("nodes", list(nodes.into_iter().map(|node| node.2))),
    ]);
    let mut dues: Vec<NodeText<'_>> = shards.iter().flat_map(Merge::due_texts).collect();
    if !dues.is_empty() {
        dues.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        fields.push(("due", list(dues.into_iter().map(|due| due.2))));
    }
    fields
}

/// Live events as the snapshot has them: sorted [vs, payload, ve].
pub(crate) fn live_field(live: &Live) -> String {
    let row = |(vs, payload, ve): (i64, &[u8], i64)| format!("[{vs},{},{ve}]", text(payload));
    list(live.events().into_iter().map(row))
}

impl Merge {
    fn node_texts(&self) -> Vec<NodeText<'_>> {
        match &self.running {
            Running::InsertOnly(_) | Running::R3Minus(_) => Vec::new(),
            Running::R3(running) => {
                let store = &running.index.store;
                let columns = self.shell.inputs.columns(running.index.slots);
                let row = |id: u32| {
                    let (vs, payload) = store.key(id);
                    let mut row = format!("[{vs},{}", text(payload));
                    let ends = columns
                        .iter()
                        .map(|slot| slot.map_or(NONE, |slot| running.end(id, slot)));
                    for ve in std::iter::once(store.nodes.get(id).out).chain(ends) {
                        if ve == NONE {
                            row.push_str(",null")
                        } else {
                            write_item(&mut row, ve)
                        }
                    }
                    (vs, payload, row + "]")
                };
                store.nodes.ids().into_iter().map(row).collect()
            }
            Running::R4(running) => {
                let store = &running.index.store;
                let columns = self.shell.inputs.columns(running.index.slots);
                let row = |id: u32| {
                    let (vs, payload) = store.key(id);
                    let mut row = format!("[{vs},{}", text(payload));
                    let places = columns.iter().map(|slot| slot.map(At::In));
                    for at in std::iter::once(Some(At::Out)).chain(places) {
                        match at.map_or(&[][..], |at| running.index.ends(id, at)) {
                            [] => row.push_str(",null"),
                            ends => write_item(&mut row, list(ends.iter().map(i64::to_string))),
                        }
                    }
                    (vs, payload, row + "]")
                };
                store.nodes.ids().into_iter().map(row).collect()
            }
        }
    }

    fn due_texts(&self) -> Vec<NodeText<'_>> {
        let at = self.shell.max_stable;
        let (store, early) = match &self.running {
            Running::InsertOnly(_) | Running::R3Minus(_) => return Vec::new(),
            Running::R3(running) => {
                let early = running.index.early(at, |index, id| R3::next_due(index, id, at));
                (&running.index.store, early)
            }
            Running::R4(running) => {
                let early = running.index.early(at, |index, id| R4::next_due(index, id, at));
                (&running.index.store, early)
            }
        };
        let row = |id: u32| {
            let (vs, payload) = store.key(id);
            let due = store.nodes.get(id).due;
            (vs, payload, format!("[{vs},{},{due}]", text(payload)))
        };
        early.into_iter().map(row).collect()
    }

    /// The state of an input beside its plain fields, each field as JSON text.
    pub fn input_state(&self, slot: usize) -> Vec<(&'static str, String)> {
        let input = self.shell.inputs.get(slot);
        let mut at_last_vs: HashMap<(Vec<u8>, i64), u64> = HashMap::new();
        for (payload, ve) in input.at_last_vs.iter() {
            *at_last_vs.entry((payload.to_vec(), ve)).or_default() += 1;
        }
        let waiting = input.waiting.iter().map(|element| {
            let Element {
                kind,
                vs,
                ve,
                vold,
                payload,
            } = element;
            format!("[{kind},{vs},{ve},{vold},{}]", text(payload))
        });
        let mut fields = vec![
            ("at_last_vs", counter(&at_last_vs)),
            ("passed_over", list([])), // earlier versions require it
            ("waiting", list(waiting)),
        ];
        let (order, marks) = (input.ties.order(), input.ties.marks());
        if !order.is_empty() {
            fields.push(("tie_order", list(order.iter().map(u32::to_string))));
        }
        if !marks.is_empty() {
            let mark = |(slot, place): &(usize, u32)| format!("[{slot},{place}]");
            fields.push(("tie_marks", list(marks.iter().map(mark))));
        }
        if let Some(delivered) = &input.delivered {
            let row = |(vs, payload, ve): (i64, &[u8], i64)| format!("[{vs},{},{ve}]", text(payload));
            let kept = delivered.since(input.stable.min(self.shell.max_stable));
            fields.push(("delivered", list(kept.map(row))));
        }
        fields
    }

    /// Load what `fields` and `live_field` returned. The inputs are attached already, and the algorithm is the one that
    /// wrote the state. After an error the state of the merge is undefined: drop it.
    pub fn load(&mut self, times: Times, state: State, live: Option<Vec<(i64, Vec<u8>, i64)>>) -> Result<(), String> {
        let Times {
            max_stable,
            announced,
            right_from,
        } = times;
        (self.shell.max_stable, self.shell.announced, self.shell.right_from) = (max_stable, announced, right_from);
        match (&mut self.running, state) {
            (Running::InsertOnly(running), state) => load_insert_only(running, state, &mut self.shell.inputs)?,
            (Running::R3(running), State::R3 { slots, nodes, dues }) => {
                running.index.slots = slots;
                for (vs, payload, ends) in nodes {
                    let id = running.index.adopt(vs, &payload);
                    for (at, ve) in row_entries(vs, slots, &ends)? {
                        legal(vs, ve)?;
                        match at {
                            At::Out => running.index.store.nodes.get_mut(id).out = ve,
                            At::In(slot) => running.set_end(id, slot, ve),
                        }
                    }
                }
                legal_dues(&running.index, &dues, max_stable)?;
                running.rebuild(max_stable, &dues);
                running.count_unfrozen(&mut self.shell);
            }
            (Running::R4(running), State::R4 { slots, nodes, dues }) => {
                running.index.slots = slots;
                for (vs, payload, ends) in nodes {
                    let id = running.index.adopt(vs, &payload);
                    for (at, ends) in row_entries(vs, slots, &ends)? {
                        for ve in ends {
                            legal(vs, ve)?;
                            running.index.add(id, at, ve);
                        }
                    }
                }
                legal_dues(&running.index, &dues, max_stable)?;
                running.rebuild(max_stable, &dues);
                running.count_unfrozen(&mut self.shell);
            }
            (Running::R3Minus(running), State::R3Minus { output, indexes }) => {
                running.output = loaded_ends(output)?;
                for (slot, rows) in indexes {
                    running.indexes.insert(slot, loaded_ends(rows)?);
                }
            }
            _ => return Err("the state is of another algorithm".to_string()),
        }
        self.shell.inputs.mark_held(max_stable, &self.shell.policy);
        self.shell.live = None;
        if let Some(events) = live {
            let mut tracked = Live::new(announced);
            for (vs, payload, ve) in events {
                if ve < announced {
                    return Err(format!(
                        "a live event that ends at {ve}, below the stable point {announced}"
                    ));
                }
                tracked.insert(vs, ve, &payload);
            }
            self.shell.live = Some(tracked);
        }
        Ok(())
    }

    /// Load what `input_state` returned, and the plain fields.
    pub fn load_input(&mut self, slot: usize, state: InputState) {
        let input: &mut Input = self.shell.inputs.get_mut(slot);
        input.joined = state.joined;
        input.stable = state.stable;
        input.last_vs = state.last_vs;
        input.tie_count = state.tie_count;
        input.late = state.late;
        for (payload, ve, count) in state.at_last_vs {
            (0..count).for_each(|_| input.at_last_vs.push(&payload, ve));
        }
        input.ties = ties::Delivered::of(state.tie_order, state.tie_marks);
        input.waiting = state.waiting;
        input.delivered = state.delivered.map(|events| {
            let mut delivered = Delivered::default();
            events
                .iter()
                .for_each(|(vs, payload, ve)| delivered.push(*vs, payload, *ve));
            delivered
        });
    }
}

fn insert_only_state(running: &InsertOnly) -> Vec<(&'static str, String)> {
    let texts = |elements: &ElementsAtVs| -> Vec<String> {
        elements
            .iter()
            .map(|(payload, ve)| format!("[{},{ve}]", text(payload)))
            .collect()
    };
    let mut fields = vec![("max_vs", running.max_vs.unwrap_or(NEG_INF).to_string())];
    let ties = match &running.ties {
        Ties::None(last) => ("last", texts(last).pop().unwrap_or_else(|| "null".to_string())),
        Ties::Ordered(ties) => {
            if !ties.is_in_step() {
                fields.push(("out_of_step", "true".to_string()));
            }
            ("slot", list(texts(&ties.elements)))
        }
        Ties::Unordered(payloads) => {
            let is_empty = |ve| Some(ve) == running.max_vs;
            let (empties, events): (Vec<_>, Vec<_>) = payloads.copies().into_iter().partition(|row| is_empty(row.1));
            if !empties.is_empty() {
                let row = |(payload, _, copies): (&[u8], i64, u32)| format!("[{},{copies}]", text(payload));
                fields.push(("empties", list(empties.into_iter().map(row))));
            }
            let keys = payloads.keys();
            if payloads.is_keyed {
                fields.push(("ends", list(keys.iter().map(|key| key.1.to_string()))));
            } else {
                let row = |(payload, ve, copies): (&[u8], i64, u32)| format!("[{},{ve},{copies}]", text(payload));
                fields.push(("copies", list(events.into_iter().map(row))));
            }
            let row =
                |(payload, _, slots): (&[u8], i64, Vec<usize>)| format!("[{},{}]", text(payload), bit_set(&slots));
            ("hash", list(keys.into_iter().map(row)))
        }
    };
    fields.push(ties);
    fields
}

fn r3minus_state(running: &R3Minus) -> Vec<(&'static str, String)> {
    let row = |((vs, payload), ve): (&(i64, Vec<u8>), &i64)| format!("[{vs},{},{ve}]", text(payload));
    let rows = |ends: &Ends| list(ends.iter().map(row));
    let index = |(slot, ends): (&usize, &Ends)| format!("\"{slot}\":{}", rows(ends));
    let mut indexes: Vec<String> = running.indexes.iter().map(index).collect();
    indexes.sort(); // as texts, like the keys of every object in a snapshot
    let indexes = format!("{{{}}}", indexes.join(","));
    vec![("output", rows(&running.output)), ("indexes", indexes)]
}

fn loaded_ends(rows: Vec<EndRow>) -> Result<Ends, String> {
    rows.iter().try_for_each(|&(vs, _, ve)| legal(vs, ve))?;
    Ok(rows.into_iter().map(|(vs, payload, ve)| ((vs, payload), ve)).collect())
}

fn load_insert_only(running: &mut InsertOnly, state: State, inputs: &mut Inputs) -> Result<(), String> {
    // In a snapshot, -inf also means no element.
    let time = |max_vs: i64, has_output: bool| (has_output || max_vs > NEG_INF).then_some(max_vs);
    match (&mut running.ties, state) {
        (Ties::None(elements), State::R0 { max_vs, last }) => {
            running.max_vs = time(max_vs, last.is_some());
            last.iter().for_each(|(payload, ve)| elements.push(payload, *ve));
        }
        (
            Ties::Ordered(ties),
            State::R1 {
                max_vs,
                slot,
                out_of_step,
            },
        ) => {
            running.max_vs = time(max_vs, !slot.is_empty());
            slot.iter().for_each(|(payload, ve)| ties.elements.push(payload, *ve));
            if out_of_step {
                ties.load_out_of_step(inputs, running.max_vs);
            } else {
                ties.settle(inputs, running.max_vs);
            }
        }
        (
            Ties::Unordered(payloads),
            State::R2 {
                max_vs,
                hash,
                mut ends,
                copies,
                empties,
            },
        ) => {
            **payloads = Payloads::default();
            payloads.is_keyed = copies.is_none();
            if !payloads.is_keyed {
                ends = vec![max_vs; hash.len()]; // they are not used
            }
            if ends.len() != hash.len() {
                return Err(format!("{} payloads have {} ends", hash.len(), ends.len()));
            }
            for ((payload, slots), ve) in hash.iter().zip(ends) {
                payloads.load_key(payload, ve, slots);
            }
            for (payload, copies) in empties {
                payloads.load_copies(&payload, max_vs, copies);
            }
            for (payload, ve, copies) in copies.unwrap_or_default() {
                payloads.load_copies(&payload, ve, copies);
            }
            running.max_vs = time(max_vs, !payloads.is_empty());
            for &slot in inputs.order() {
                let input = inputs.get(slot);
                if input.joined && input.last_vs == Some(max_vs) {
                    payloads.load_input(slot, &input.at_last_vs, max_vs);
                }
            }
        }
        _ => return Err("the state is of another algorithm".to_string()),
    }
    Ok(())
}

/// The entries of a node's row that are not empty, with their places.
fn row_entries<T: Clone>(vs: i64, slots: usize, ends: &[Option<T>]) -> Result<Vec<(At, T)>, String> {
    if ends.len() != slots + 1 {
        return Err(format!(
            "a node at {vs} has {} entries where {} are due",
            ends.len(),
            slots + 1
        ));
    }
    let places = std::iter::once(At::Out).chain((0..slots).map(At::In));
    Ok(places
        .zip(ends)
        .filter_map(|(at, end)| end.clone().map(|end| (at, end)))
        .collect())
}

fn legal_dues<S: Spill>(index: &Index<S>, dues: &[EndRow], max_stable: i64) -> Result<(), String> {
    let is_wrong =
        |(vs, payload, due): &&EndRow| *due < max_stable || index.find(index.hash(*vs, payload), *vs, payload) == NIL;
    match dues.iter().find(is_wrong) {
        Some((vs, _, due)) => Err(format!("a node at {vs} is due at {due}")),
        None => Ok(()),
    }
}

fn legal(vs: i64, ve: i64) -> Result<(), String> {
    if ve > vs {
        Ok(())
    } else {
        Err(format!("a node at {vs} has an event that ends at {ve}"))
    }
}

/// Sorted [payload, ve, count].
fn counter(counted: &HashMap<(Vec<u8>, i64), u64>) -> String {
    let mut rows: Vec<(String, i64, u64)> = counted
        .iter()
        .map(|((payload, ve), &count)| (text(payload), *ve, count))
        .collect();
    rows.sort();
    list(
        rows.into_iter()
            .map(|(payload, ve, count)| format!("[{payload},{ve},{count}]")),
    )
}

/// A set of slots as an integer with one bit for each, in decimal.
fn bit_set(slots: &[usize]) -> String {
    let mut digits = vec![0u8]; // the least significant first
    for bit in (0..slots.last().map_or(0, |slot| slot + 1)).rev() {
        let mut carry = u8::from(slots.contains(&bit));
        for digit in &mut digits {
            let doubled = 2 * *digit + carry;
            (*digit, carry) = (doubled % 10, doubled / 10);
        }
        if carry > 0 {
            digits.push(carry);
        }
    }
    digits.iter().rev().map(|digit| char::from(b'0' + digit)).collect()
}

fn text(payload: &[u8]) -> String {
    format!("\"{}\"", STANDARD.encode(payload))
}

fn write_item(row: &mut String, item: impl std::fmt::Display) {
    write!(row, ",{item}").expect("a string takes everything");
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    let mut text = String::from("[");
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        text.push_str(&item);
    }
    text + "]"
}
