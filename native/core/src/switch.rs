//! Switches a running merge to a more general algorithm without loss (laws 2, 6 and 11 in docs/laws.md, IV.G). See
//! `lmerge/core/switch.py`.

use crate::algorithm::{Algorithm, Shell};
use crate::columns::Columns;
use crate::element::NEG_INF;
use crate::in3t::At;
use crate::indices::Indices;
use crate::input::{ElementsAtVs, Input, in_order};
use crate::insert_only::{InsertOnly, Ties};
use crate::merge::Running;
use crate::nodes::NONE;
use crate::payloads::Payloads;
use crate::r3::R3;
use crate::r4::R4;
use crate::store::Live;
use crate::ties::Slot;
use crate::violation::Violation;

/// Carry the state of `old` into the fresh `new`.
///
/// # Panics
/// If `new` is not more general than `old`; no caller does that.
pub fn switch(old: Running, new: &mut Running, shell: &mut Shell) {
    match (old, new) {
        (Running::InsertOnly(old), Running::InsertOnly(new)) => weaken_ties(&old, new, shell),
        (Running::InsertOnly(_), Running::R3(new)) => {
            let live = shell.live.take().expect("a switch needs the live output");
            r3_from_events(new, shell, &live);
            merge_waiting(new, shell);
        }
        (Running::InsertOnly(_), Running::R4(new)) => {
            let live = shell.live.take().expect("a switch needs the live output");
            r4_from_events(new, shell, &live);
            merge_waiting(new, shell);
        }
        (Running::R3(old), Running::R4(new)) => r4_from_r3(&old, new, shell),
        _ => panic!("cannot switch to an algorithm that is not more general"),
    }
}

/// Carry over the elements at MaxVs when the algorithm is downgraded among R0-R2. What each input has delivered there
/// is merged again. R0 takes one element at each Vs. Other elements that inputs delivered there are emitted now.
fn weaken_ties(old: &InsertOnly, new: &mut InsertOnly, shell: &mut Shell) {
    new.max_vs = old.max_vs;
    let shown = match &old.ties {
        Ties::None(last) => last,
        Ties::Ordered(ties) => &ties.elements,
        Ties::Unordered(_) => panic!("R2 is not more special than R0 or R1"),
    };
    let Some(vs) = old.max_vs else { return };
    let mut inputs = merged_inputs(shell);
    inputs.retain(|&slot| shell.inputs.get(slot).last_vs == Some(vs));
    let more = match &mut new.ties {
        Ties::Ordered(ties) => slot_of(ties, shown, &inputs, vs, shell),
        Ties::Unordered(payloads) => payloads_of(payloads, shown, &inputs, vs, shell),
        Ties::None(_) => panic!("R0 is not more general than any other"),
    };
    if vs >= shell.max_stable {
        for (payload, ve) in more {
            shell.emit_insert(vs, ve, &payload);
        }
    }
}

/// Enter in `ties` the elements shown at MaxVs and those that `inputs` have delivered there. Returns those not shown.
fn slot_of(ties: &mut Slot, shown: &ElementsAtVs, inputs: &[usize], vs: i64, shell: &mut Shell) -> Vec<(Vec<u8>, i64)> {
    let (mut elements, mut more) = (shown.clone(), Vec::new());
    for &slot in inputs {
        let delivered = &shell.inputs.get(slot).at_last_vs;
        for (payload, ve) in in_order(delivered) {
            if elements.count(&payload, ve) < delivered.count(&payload, ve) {
                elements.push(&payload, ve);
                more.push((payload, ve));
            }
        }
    }
    *ties = Slot::of(elements);
    ties.settle(&mut shell.inputs, Some(vs));
    more
}

/// Do the same as `slot_of` for R2. R1 checks no key: if a key comes twice in the slot, R2 counts copies.
fn payloads_of(
    payloads: &mut Payloads,
    shown: &ElementsAtVs,
    inputs: &[usize],
    vs: i64,
    shell: &Shell,
) -> Vec<(Vec<u8>, i64)> {
    let delivered = inputs.iter().map(|&slot| &shell.inputs.get(slot).at_last_vs);
    payloads.is_keyed &= !std::iter::once(shown).chain(delivered).any(|at_vs| {
        let mut keys: Vec<&[u8]> = at_vs
            .iter()
            .filter(|&(_, ve)| ve > vs)
            .map(|(payload, _)| payload)
            .collect();
        keys.sort_unstable();
        keys.windows(2).any(|pair| pair[0] == pair[1])
    });
    let shown = shown.iter().map(|(payload, ve)| (payload.to_vec(), ve)).collect();
    payloads.settle(shown, vs, shell)
}

/// Merge the elements of joining inputs that waited under R0-R2. With an index they do not wait. They are not checked
/// against a stable point that the input delivered after them.
fn merge_waiting<A: Algorithm>(new: &mut A, shell: &mut Shell) {
    for slot in shell.inputs.order().to_vec() {
        let input = shell.inputs.get_mut(slot);
        let mut batch = Columns::default();
        for element in std::mem::take(&mut input.waiting) {
            batch.insert(element.vs, element.ve, &element.payload);
        }
        let floor = (input.stable, input.last_vs);
        (input.stable, input.last_vs) = (NEG_INF, None);
        let merged = new.apply(shell, slot, &batch.view(), Indices::all(0, batch.len()));
        let input = shell.inputs.get_mut(slot);
        (input.stable, input.last_vs) = floor;
        if let Err(violation) = merged {
            // Another input has caused the switch.
            shell.broken.push(Violation { index: 0, ..*violation });
        }
    }
}

/// The inputs whose elements R0-R2 have merged: not those that are joining or about to be removed.
pub(crate) fn merged_inputs(shell: &Shell) -> Vec<usize> {
    let ends = |slot| shell.broken.iter().any(|violation| violation.slot == slot);
    let slots = shell.inputs.counting().map(|(slot, _)| slot);
    slots.filter(|&slot| !ends(slot)).collect()
}

/// What the input has delivered for certain: all events that can still change, or those at its last Vs.
fn certain(input: &Input, max_stable: i64) -> Vec<(i64, &[u8], i64)> {
    match &input.delivered {
        Some(delivered) => delivered.since(input.stable.min(max_stable)).collect(), // the same after any forgetting
        None => {
            let Some(vs) = input.last_vs else { return Vec::new() };
            let events = input.at_last_vs.iter().filter(|&(_, ve)| ve > vs);
            events.map(|(payload, ve)| (vs, payload, ve)).collect()
        }
    }
}

/// Whether R3 cannot hold what a switch would carry over: two events of one (Vs, payload).
pub fn repeats_a_key(shell: &Shell, live: &Live) -> bool {
    let repeats = |mut events: Vec<(i64, &[u8], i64)>| {
        events.sort_unstable();
        events
            .windows(2)
            .any(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1))
    };
    repeats(live.events())
        || merged_inputs(shell)
            .into_iter()
            .any(|slot| repeats(certain(shell.inputs.get(slot), shell.max_stable)))
}

/// What the input in `slot` has delivered, as (vs, payload, ve) in order. See the head of `switch.py`.
fn delivered(shell: &Shell, slot: usize, live: &Live) -> Vec<(i64, Vec<u8>, i64)> {
    let input = shell.inputs.get(slot);
    let mut events = certain(input, shell.max_stable);
    if input.delivered.is_none() {
        // No promise is broken, so the other events follow from the order of its stream.
        events.extend(live.events().into_iter().filter(|event| Some(event.0) < input.last_vs));
    }
    events.sort_unstable();
    events
        .into_iter()
        .map(|(vs, payload, ve)| (vs, payload.to_vec(), ve))
        .collect()
}

fn r3_from_events(new: &mut R3, shell: &mut Shell, live: &Live) {
    for (vs, payload, ve) in live.events() {
        let id = new.index.adopt(vs, payload);
        new.index.store.nodes.get_mut(id).out = ve;
    }
    for slot in merged_inputs(shell) {
        for (vs, payload, ve) in delivered(shell, slot, live) {
            if new.adopt_delivered(slot, vs, &payload, ve, shell.max_stable) {
                shell.emit_insert(vs, ve, &payload);
            }
        }
    }
    new.rebuild(shell.max_stable, &[]);
}

fn r4_from_events(new: &mut R4, shell: &mut Shell, live: &Live) {
    for (vs, payload, ve) in live.events() {
        let id = new.index.adopt(vs, payload);
        new.index.add(id, At::Out, ve);
    }
    for slot in merged_inputs(shell) {
        for (vs, payload, ve) in delivered(shell, slot, live) {
            if new.adopt_delivered(slot, vs, &payload, ve, shell.max_stable) {
                shell.emit_insert(vs, ve, &payload);
            }
        }
    }
    new.rebuild(shell.max_stable, &[]);
}

fn r4_from_r3(old: &R3, new: &mut R4, shell: &Shell) {
    for id in old.index.store.nodes.ids() {
        let (vs, payload) = old.index.store.key(id);
        let out = old.index.store.nodes.get(id).out;
        let ends = shell.inputs.order().iter().map(|&slot| (slot, old.end(id, slot)));
        let ends: Vec<(usize, i64)> = ends.filter(|&(_, ve)| ve != NONE).collect();
        // Final-only: others may still deliver the half-frozen event of an input that has left.
        if out == NONE && ends.is_empty() && vs >= shell.max_stable {
            continue;
        }
        let copy = new.index.adopt(vs, payload);
        if out != NONE {
            new.index.add(copy, At::Out, out);
        }
        for (slot, ve) in ends {
            new.index.add(copy, At::In(slot), ve);
        }
    }
    new.rebuild(shell.max_stable, &[]);
}
