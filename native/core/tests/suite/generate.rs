//! Random temporal databases and physically different streams of one of them, from a seed:
//! `lmerge/testing/streams/merge_inputs.py`.

use std::collections::HashSet;

use fastrand::Rng;
use lmerge_core::element::{ADJUST, Element, Event, INF, INSERT, NEG_INF, STABLE};

use crate::tdb::f;

/// The kind of a TDB.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kinds {
    /// (Vs, payload) is no key, and equal events occur.
    pub duplicates: bool,
    /// Every Vs occurs once.
    pub strict: bool,
}

pub fn chance(random: &mut Rng, of_one: f64) -> bool {
    random.f64() < of_one
}

/// A TDB of about `count` events, ordered by (vs, payload, ve).
pub fn reference(random: &mut Rng, count: usize, kinds: Kinds) -> Vec<Event> {
    let mut events = Vec::new();
    let mut seen = HashSet::new();
    let mut vs = -20;
    for _ in 0..count {
        vs += random.i64(i64::from(kinds.strict)..=3);
        let letter = random.usize(0..4);
        let payload = vec![b'A' + letter as u8; 1 + 30 * letter];
        if !seen.insert((vs, letter)) && !kinds.duplicates {
            continue;
        }
        let far = random.i64(1..=20);
        let ve = if chance(random, 0.05) {
            INF
        } else {
            vs + random.choice([far, far % 5 + 1]).expect("one of two")
        };
        events.push(Event {
            vs,
            payload: payload.clone(),
            ve,
        });
        while kinds.duplicates && chance(random, 0.3) {
            let ve = if random.bool() { ve } else { vs + random.i64(1..=20) };
            events.push(Event {
                vs,
                payload: payload.clone(),
                ve,
            });
        }
    }
    events.sort();
    events
}

/// A legal stream that reconstitutes to `events`, with disorder, wrong ends that are revised, events that are removed
/// again, and the largest possible stables.
pub fn present(random: &mut Rng, events: &[Event]) -> Vec<Element> {
    let mut histories = Vec::new();
    for (at, event) in events.iter().enumerate() {
        if chance(random, 0.1) {
            let (vs, ve) = (event.vs, event.vs + random.i64(1..=9));
            let payload = format!("never{at}").into_bytes();
            let insert = Element {
                kind: INSERT,
                vs,
                ve,
                vold: 0,
                payload: payload.clone(),
            };
            histories.push(vec![
                insert,
                Element {
                    kind: ADJUST,
                    vs,
                    ve: vs,
                    vold: ve,
                    payload,
                },
            ]);
        }
        histories.push(history(random, event));
    }
    let mut queue: Vec<(f64, Vec<Element>)> = histories
        .into_iter()
        .enumerate()
        .map(|(at, history)| (at as f64 + 6.0 * random.f64(), history))
        .collect();
    queue.sort_by(|left, right| left.0.total_cmp(&right.0));
    interleave(random, queue.into_iter().map(|(_, history)| history).collect())
}

/// The elements of a stream for one event, in order.
fn history(random: &mut Rng, event: &Event) -> Vec<Element> {
    let Event { vs, payload, ve } = event.clone();
    let mut last_end = ve;
    if random.bool() {
        last_end = if random.bool() { INF } else { vs + random.i64(1..=30) };
    }
    let mut history = vec![Element {
        kind: INSERT,
        vs,
        ve: last_end,
        vold: 0,
        payload: payload.clone(),
    }];
    while last_end != ve {
        let after = if chance(random, 0.6) {
            ve
        } else {
            vs + random.i64(1..=30)
        };
        if after != last_end {
            history.push(Element {
                kind: ADJUST,
                vs,
                ve: after,
                vold: last_end,
                payload: payload.clone(),
            });
            last_end = after;
        }
    }
    history
}

/// Several histories at a time, each in its own order, with legal stables between.
fn interleave(random: &mut Rng, histories: Vec<Vec<Element>>) -> Vec<Element> {
    let mut stream = Vec::new();
    let mut window: Vec<Vec<Element>> = Vec::new();
    let mut rest = histories.into_iter().collect::<std::collections::VecDeque<_>>();
    let mut stable = NEG_INF;
    while !rest.is_empty() || !window.is_empty() {
        if !rest.is_empty() && window.len() < 8 && (window.is_empty() || chance(random, 0.7)) {
            window.extend(rest.pop_front());
            continue;
        }
        let at = random.usize(0..window.len());
        stream.push(window[at].remove(0));
        if window[at].is_empty() {
            window.remove(at);
        }
        if chance(random, 0.25) {
            let bound = window.iter().chain(&rest).flatten().map(needs).min().unwrap_or(INF);
            let vc = if chance(random, 0.6) {
                bound
            } else {
                bound - random.i64(0..=4)
            };
            if stable < vc && vc < INF {
                stable = vc;
                stream.push(f(vc));
            }
        }
    }
    stream.push(f(INF));
    stream
}

/// The largest stable after which `element` may still come.
fn needs(element: &Element) -> i64 {
    if element.kind == ADJUST {
        element.vold.min(element.ve)
    } else {
        element.vs
    }
}

/// An insert-only stream in order of Vs: for R0, R1 and R2. Equal Vs come in order of the payload, or `shuffled`.
pub fn ordered(random: &mut Rng, events: &[Event], shuffled: bool) -> Vec<Element> {
    let mut queue: Vec<(i64, u64, &Event)> = events
        .iter()
        .enumerate()
        .map(|(at, event)| (event.vs, if shuffled { random.u64(..) } else { at as u64 }, event))
        .collect();
    queue.sort();
    let mut stream = Vec::new();
    let mut stable = NEG_INF;
    for (at, &(vs, _, event)) in queue.iter().enumerate() {
        stream.push(Element {
            kind: INSERT,
            vs,
            ve: event.ve,
            vold: 0,
            payload: event.payload.clone(),
        });
        if chance(random, 0.25) {
            let bound = queue.get(at + 1).map_or(vs, |next| next.0);
            let vc = if chance(random, 0.6) {
                bound
            } else {
                bound - random.i64(0..=3)
            };
            if vc > stable {
                stable = vc;
                stream.push(f(vc));
            }
        }
    }
    stream.push(f(INF));
    stream
}

/// The part of `stream` that a replica delivers which starts late: without events that end before `join_at`.
pub fn joining(stream: &[Element], join_at: i64, events: &[Event]) -> Vec<Element> {
    let past: HashSet<(i64, &[u8])> = {
        let kept: HashSet<(i64, &[u8])> = events
            .iter()
            .filter(|event| event.ve >= join_at)
            .map(|event| (event.vs, &event.payload[..]))
            .collect();
        events
            .iter()
            .map(|event| (event.vs, &event.payload[..]))
            .filter(|key| !kept.contains(key))
            .collect()
    };
    let is_delivered =
        |element: &&Element| element.kind == STABLE || !past.contains(&(element.vs, &element.payload[..]));
    stream.iter().filter(is_delivered).cloned().collect()
}
