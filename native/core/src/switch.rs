//! Switching a running merge to a more general algorithm without loss (laws 2 and 6, IV.G). `lmerge/core/switch.py`.

use crate::algorithm::{Algorithm, Shell};
use crate::columns::{Columns, Indices};
use crate::element::NEG_INF;
use crate::insert_only::{InsertOnly, Ties};
use crate::merge::Running;
use crate::nodes::NONE;
use crate::r3::R3;
use crate::r4::{At, R4};
use crate::store::Live;
use crate::ties::Slot;
use crate::violation::Violation;

/// Carry the state of `old` into the fresh `new`.
///
/// # Panics
/// If `new` is not more general than `old`, which nobody asks for.
pub fn switch(old: Running, new: &mut Running, shell: &mut Shell) {
    match (old, new) {
        (Running::InsertOnly(old), Running::InsertOnly(new)) => weaken_ties(&old, new, shell),
        (Running::InsertOnly(old), Running::R3(new)) => {
            let live = shell.live.take().expect("a switch needs the live output");
            r3_from_events(&old, new, shell, &live);
            merge_waiting(new, shell);
        }
        (Running::InsertOnly(old), Running::R4(new)) => {
            let live = shell.live.take().expect("a switch needs the live output");
            r4_from_events(&old, new, shell, &live);
            merge_waiting(new, shell);
        }
        (Running::R3(old), Running::R4(new)) => r4_from_r3(&old, new, shell),
        _ => panic!("cannot switch to something that is not more general"),
    }
}

/// The elements at MaxVs, when the algorithm is downgraded among R0-R2.
fn weaken_ties(old: &InsertOnly, new: &mut InsertOnly, shell: &mut Shell) {
    new.max_vs = old.max_vs;
    let said = match &old.ties {
        Ties::None(last) => last,
        Ties::Ordered(ties) => &ties.said,
        Ties::Keyed(_) => panic!("R2 is not more special than R0 or R1"),
    };
    match &mut new.ties {
        Ties::Ordered(ties) => {
            *ties = Slot::of(said.clone());
            ties.settle(&mut shell.inputs, new.max_vs);
        }
        Ties::Keyed(payloads) => {
            let Some(max_vs) = old.max_vs else { return };
            let counting = shell.inputs.counting();
            let inputs: Vec<_> = counting.filter(|(_, input)| input.last_vs == Some(max_vs)).collect();
            for (payload, ve) in said.iter() {
                if ve == max_vs {
                    payloads.enter_empty(payload, 1);
                    continue;
                }
                let (place, _) = payloads.enter(payload);
                for (slot, input) in &inputs {
                    // Not by position: an input may have passed elements over, and deliver them now.
                    if input.at_last_vs.count(payload, ve) > 0 {
                        payloads.mark(place, *slot);
                    }
                }
            }
            for (slot, input) in inputs {
                payloads.count_empties(slot, &input.at_last_vs, max_vs);
            }
        }
        Ties::None(_) => panic!("R0 is not more general than anything"),
    }
}

/// With an index, elements of a joining input do not wait: what has waited is merged now. The input's stable point, which
/// it may have said since, is no reason to refuse what came before.
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
            // It was another input that made the merge switch.
            shell.broken.push(Violation { index: 0, ..*violation });
        }
    }
}

/// Equal output events as (vs, payload, ve, copies).
fn counted(live: &Live) -> Vec<(i64, &[u8], i64, u64)> {
    let mut counted: Vec<(i64, &[u8], i64, u64)> = Vec::new();
    for (vs, payload, ve) in live.events() {
        match counted.last_mut() {
            Some(last) if (last.0, last.1, last.2) == (vs, payload, ve) => last.3 += 1,
            _ => counted.push((vs, payload, ve, 1)),
        }
    }
    counted
}

/// The slots of inputs that have delivered something, with how many copies of an event.
fn delivered(shell: &Shell, vs: i64, payload: &[u8], ve: i64, copies: u64) -> Vec<(usize, u64)> {
    let counting = shell.inputs.counting();
    counting
        .map(|(slot, input)| (slot, InsertOnly::delivered(input, vs, payload, ve, copies)))
        .collect()
}

fn r3_from_events(_old: &InsertOnly, new: &mut R3, shell: &Shell, live: &Live) {
    for (vs, payload, ve, copies) in counted(live) {
        let id = new.index.adopt(vs, payload);
        new.index.store.nodes.get_mut(id).out = ve;
        for (slot, count) in delivered(shell, vs, payload, ve, copies) {
            if count > 0 {
                new.set_end(id, slot, ve);
            }
        }
    }
    new.rebuild(shell.max_stable);
}

fn r4_from_events(_old: &InsertOnly, new: &mut R4, shell: &Shell, live: &Live) {
    for (vs, payload, ve, copies) in counted(live) {
        let id = new.index.adopt(vs, payload);
        for _ in 0..copies {
            new.add(id, At::Out, ve);
        }
        for (slot, count) in delivered(shell, vs, payload, ve, copies) {
            for _ in 0..count {
                new.add(id, At::In(slot), ve);
            }
        }
    }
    new.rebuild(shell.max_stable);
}

fn r4_from_r3(old: &R3, new: &mut R4, shell: &Shell) {
    for id in old.index.store.nodes.ids() {
        let (vs, payload) = old.index.store.key(id);
        let out = old.index.store.nodes.get(id).out;
        let said = shell.inputs.order().iter().map(|&slot| (slot, old.end(id, slot)));
        let said: Vec<(usize, i64)> = said.filter(|&(_, ve)| ve != NONE).collect();
        // Final-only: a half-frozen event was promised, even if who did has left; others may still say it.
        if out == NONE && said.is_empty() && vs >= shell.max_stable {
            continue;
        }
        let copy = new.index.adopt(vs, payload);
        if out != NONE {
            new.add(copy, At::Out, out);
        }
        for (slot, ve) in said {
            new.add(copy, At::In(slot), ve);
        }
    }
    new.rebuild(shell.max_stable);
}
