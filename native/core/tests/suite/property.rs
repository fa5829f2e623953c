//! The property that must hold for any bytes given as a batch. `hostile` and `native/fuzz` use it.

use lmerge_core::columns::{Columns, Limits, Raw, View};
use lmerge_core::element::{ADJUST, Element, STABLE};
use lmerge_core::input::Demands;
use lmerge_core::merge::Kind;
use lmerge_core::policy::{Closing, LAZY, Leader, Policy, Show};
use lmerge_core::sharded::Sharded;

use crate::tdb::{Tdb, elements};

/// The limits of a batch here.
pub const LIMITS: Limits = Limits {
    elements: 200,
    payload_bytes: 100,
};

/// Take the first `count` bytes of `data`, or all if there are fewer.
fn take<'a>(data: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = data.split_at(count.min(data.len()));
    *data = rest;
    taken
}

fn byte(data: &mut &[u8]) -> u8 {
    take(data, 1).first().copied().unwrap_or(0)
}

/// Builds from `data` raw columns, or a valid batch, and a policy to merge it by.
pub fn holds_for(mut data: &[u8]) {
    let how = byte(&mut data);
    let policy = policy(byte(&mut data));
    if how.is_multiple_of(4) {
        let n = usize::from(byte(&mut data));
        let lengths = [n, 8 * n, 8 * n, 8 * n, 4 * n];
        let shift = how >> 2; // some columns can be left out, one can have another length
        let mut column = |at: usize| {
            let is_left_out = shift >> at & 1 == 1;
            take(&mut data, if is_left_out { 0 } else { lengths[at] })
        };
        let (kinds, vs, ve, vold, ends) = (column(0), column(1), column(2), column(3), column(4));
        holds(
            &Raw {
                kinds,
                vs,
                ve,
                vold,
                ends,
                payloads: data,
            },
            policy,
        );
    } else {
        let batch = plausible(data);
        assert!(
            View::decode(&batch.raw(), LIMITS).is_ok(),
            "a batch that was written is read"
        );
        holds(&batch.raw(), policy);
    }
}

/// A batch of elements near each other in time, so that they interact: four bytes an element.
fn plausible(data: &[u8]) -> Columns {
    let mut batch = Columns::default();
    for bytes in data.chunks_exact(4).take(LIMITS.elements) {
        let [what, vs, ve, vold] = *bytes else {
            unreachable!("chunks of four")
        };
        let time = |byte: u8| match byte {
            0 => i64::MIN,
            255 => i64::MAX,
            _ => i64::from(byte % 64) - 16,
        };
        let payload = [b"", &b"a"[..], b"bb", &[b'c'; 90]][usize::from(what >> 2 & 3)];
        match what % 4 {
            STABLE => batch.stable(time(vs)),
            ADJUST => batch.adjust(time(vs), time(vold), time(ve), payload),
            _ => batch.insert(time(vs), time(ve), payload),
        }
    }
    batch
}

/// One of the named policies.
fn policy(byte: u8) -> Policy {
    let shows = [Show::First, Show::Quorum, Show::Leading, Show::HalfFrozen, Show::Final];
    let show = shows[usize::from(byte) % 5];
    let lag = if byte & 64 == 0 { 0 } else { 3 };
    Policy {
        show,
        reflects_adjusts: show != Show::Final && byte & 128 != 0,
        quorum: 2,
        lag,
        quorum_percent: if byte & 32 == 0 { 0 } else { 60 },
        leader: [Leader::Stable, Leader::Insert, Leader::Unfrozen][usize::from(byte) / 5 % 3],
        lead_max: (byte & 32 != 0).then_some(4),
    }
}

/// If `raw` is a batch, every operation on it succeeds; if not, the error has a message.
pub fn holds(raw: &Raw<'_>, policy: Policy) {
    let view = match View::decode(raw, LIMITS) {
        Ok(view) => view,
        Err(error) => {
            assert!(
                error.message.contains(if error.is_limit { "limit" } else { "column" }),
                "{error:?}"
            );
            return;
        }
    };
    let all = elements(&view);
    accessors_agree(raw, &view, &all);
    parts_agree(&view, &all);
    let mut copy = Columns::default();
    copy.extend(&view);
    let again = View::decode(&copy.raw(), LIMITS).expect("a batch that was written is read");
    assert_eq!(elements(&again), all);
    for kind in [Kind::R0, Kind::R1, Kind::R2, Kind::R3Minus] {
        merges(kind, LAZY, 1, &view);
    }
    for kind in [Kind::R3, Kind::R4] {
        merges(kind, policy, 1, &view);
        merges(kind, policy, 3, &view);
    }
}

fn accessors_agree(raw: &Raw<'_>, view: &View<'_>, all: &[Element]) {
    assert_eq!(
        (view.len(), view.is_empty(), view.kinds()),
        (raw.kinds.len(), raw.kinds.is_empty(), raw.kinds)
    );
    assert_eq!(view.counts().iter().sum::<usize>(), view.len());
    assert_eq!(view.payload_bytes(), raw.payloads.len());
    assert_eq!(
        all.iter()
            .flat_map(|element| element.payload.clone())
            .collect::<Vec<u8>>(),
        raw.payloads
    );
    for element in all {
        assert!(element.kind == ADJUST || element.vold == 0);
        assert!(element.kind != STABLE || (element.ve == 0 && element.payload.is_empty()));
    }
}

fn parts_agree(view: &View<'_>, all: &[Element]) {
    let n = view.len();
    for (start, stop) in [(0, n), (0, n / 2), (n / 2, n), (n / 3, n - n / 3), (n, n)] {
        let part = view.slice(start, stop);
        assert_eq!(elements(&part), all[start..stop]);
        assert_eq!(
            elements(&part.slice(part.len() / 2, part.len())),
            all[start + part.len() / 2..stop]
        );
    }
    for (elements_max, bytes_max) in [(1, 1), (3, 100), (1000, 200), (7, usize::MAX)] {
        let mut start = 0;
        for stop in view.cuts(elements_max, bytes_max) {
            let part = view.slice(start, stop);
            let bytes = part.payload_bytes() + 29 * part.len();
            assert!(start < stop && part.len() <= elements_max && (bytes <= bytes_max || part.len() == 1));
            start = stop;
        }
        assert_eq!(start, n, "the pieces are the whole");
    }
}

/// Three inputs deliver the batch, whole or in pieces; one that breaks a promise leaves. The output is always legal.
fn merges(kind: Kind, policy: Policy, shards: usize, view: &View<'_>) {
    let mut merge = Sharded::new(kind, policy, Closing(None), true, shards);
    let mut output = Tdb::new();
    let n = view.len();
    merge.attach(0, 0, Demands::default(), None, false, true);
    merge.attach(70, 70, Demands::default(), None, false, true);
    merge.attach(3, 3, Demands::default(), Some(5), false, false);
    let pieces = [(0, 0, n / 2), (70, 0, n), (3, 0, n / 3), (0, n / 2, n), (3, n / 3, n)];
    let mut has_left = [false; 71];
    for (slot, start, stop) in pieces {
        if has_left[slot] {
            continue;
        }
        if let Err(violation) = merge.apply(slot, &view.slice(start, stop), 0) {
            assert!(violation.index < stop - start && !violation.code.name().is_empty());
            assert!(violation.element.kind <= STABLE);
            merge.remove(slot);
            merge.after_detach();
            has_left[slot] = true;
        }
        merge.check();
        let taken = merge.take();
        for element in elements(&taken.batch.view()) {
            output.apply(&element).expect("a legal output");
        }
        for broken in taken.broken {
            if !has_left[broken.slot] {
                merge.remove(broken.slot);
                merge.after_detach();
                has_left[broken.slot] = true;
            }
        }
    }
}
