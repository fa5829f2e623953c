//! How elements are divided into batches changes nothing: what is usual goes in runs, and a batch of one has none.

use fastrand::Rng;
use lmerge_core::element::{ADJUST, Element, INSERT, STABLE};
use lmerge_core::merge::Kind;
use lmerge_core::policy::{LAZY, Policy};
use lmerge_core::sharded::Sharded;

use crate::generate::{Kinds, chance, ordered, present, reference};
use crate::session::{ALL, EAGER, FINAL_ONLY, demands};
use crate::tdb::{columns, elements};

const INPUTS: usize = 3;

fn merge(kind: Kind, policy: Policy) -> Sharded {
    let mut merge = Sharded::new(kind, policy, ALL, true, 1);
    (0..INPUTS).for_each(|slot| merge.attach(slot, slot, demands(kind), None, false, true));
    merge
}

/// The streams of the inputs. Some break their promise, mostly in the middle of a run.
fn streams(random: &mut Rng, kind: Kind) -> Vec<Vec<Element>> {
    let kinds = Kinds {
        strict: kind == Kind::R0,
        duplicates: kind == Kind::R4,
    };
    let events = reference(random, 120, kinds);
    let mut streams: Vec<Vec<Element>> = (0..INPUTS)
        .map(|_| match kind {
            Kind::R0 | Kind::R1 => ordered(random, &events, false),
            Kind::R2 => ordered(random, &events, true),
            _ => present(random, &events),
        })
        .collect();
    if random.bool() {
        let stream = &mut streams[random.usize(0..INPUTS)];
        let at = random.usize(0..stream.len());
        let element = &mut stream[at];
        match random.u8(0..4) {
            _ if element.kind == STABLE => element.vs = element.vs.saturating_add(random.i64(1..30)),
            0 => element.vs -= random.i64(1..30),
            1 => element.ve = element.vs - 1,
            2 if element.kind == INSERT => element.kind = ADJUST,
            _ => {
                let again = stream[at].clone();
                stream.insert(at, again);
            }
        }
    }
    streams
}

/// Deliver to both merges, whole and one by one. Returns whether the input keeps its promise.
fn deliver(whole: &mut Sharded, single: &mut Sharded, slot: usize, batch: &[Element]) -> bool {
    let refused = whole.apply(slot, &columns(batch).view(), 0).err();
    let stop = refused.as_ref().map_or(batch.len(), |violation| violation.index + 1);
    let mut refused_alone = None;
    for element in &batch[..stop] {
        assert!(refused_alone.is_none(), "an element after one that is refused");
        refused_alone = single
            .apply(slot, &columns(std::slice::from_ref(element)).view(), 0)
            .err();
    }
    let of = |violation: &lmerge_core::violation::Violation| (violation.code, violation.element.clone());
    assert_eq!(refused.as_deref().map(of), refused_alone.as_deref().map(of));
    refused.is_none()
}

#[test]
fn whole_batches_leave_what_single_elements_leave() {
    let mut refused = 0;
    for kind in [Kind::R0, Kind::R1, Kind::R2, Kind::R3, Kind::R4] {
        for policy in [LAZY, EAGER, FINAL_ONLY] {
            for seed in 0..60 {
                let mut random = Rng::with_seed(seed);
                let mut waiting = streams(&mut random, kind);
                let (mut whole, mut single) = (merge(kind, policy), merge(kind, policy));
                let mut slots: Vec<usize> = (0..INPUTS).collect();
                while !slots.is_empty() {
                    let slot = slots[random.usize(0..slots.len())];
                    let size = if chance(&mut random, 0.3) { 3 } else { 90 };
                    let size = random.usize(1..=size).min(waiting[slot].len());
                    let batch: Vec<Element> = waiting[slot].drain(..size).collect();
                    let keeps = deliver(&mut whole, &mut single, slot, &batch);
                    refused += usize::from(!keeps);
                    assert_eq!(whole.input(slot), single.input(slot), "{kind:?} {policy:?} {seed}");
                    if !keeps {
                        for merge in [&mut whole, &mut single] {
                            merge.remove(slot);
                            merge.after_detach();
                        }
                    }
                    if !keeps || waiting[slot].is_empty() {
                        slots.retain(|&other| other != slot);
                    }
                    whole.check();
                    let of = |merge: &mut Sharded| (elements(&merge.take().batch.view()), merge.state(true));
                    assert_eq!(of(&mut whole), of(&mut single), "{kind:?} {policy:?} {seed}");
                    for &slot in &slots {
                        assert_eq!(whole.input_state(slot), single.input_state(slot), "{kind:?} {seed}");
                    }
                }
            }
        }
    }
    assert!(refused > 100, "{refused} inputs broke their promise");
}
