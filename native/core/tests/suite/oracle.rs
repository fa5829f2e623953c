//! The oracle: random streams of one TDB, merged in any order with inputs that join, leave and are restored, give that
//! TDB. After every call the output is legal and all invariants hold ([`Session`] checks this).

use fastrand::Rng;
use lmerge_core::element::{Element, Event, INF};
use lmerge_core::merge::Kind;
use lmerge_core::policy::{LAZY, Leader, Policy};

use crate::generate::{Kinds, chance, joining, ordered, present, reference};
use crate::session::{ALL, EAGER, FINAL_ONLY, HALF_FROZEN_ONLY, LEADING_INPUT_ONLY, Session, quorum};
use crate::state::{restored, text};

/// One random session.
struct World {
    random: Rng,
    kind: Kind,
    shards: usize,
    events: Vec<Event>,
    session: Session,
    /// The elements that each attached input has still to deliver, in order of attachment.
    streams: Vec<(usize, Vec<Element>)>,
    slots: Vec<usize>,
}

impl World {
    fn new(seed: u64, kind: Kind, policy: Policy, switches_to: Option<Kind>) -> World {
        let mut random = Rng::with_seed(seed);
        let duplicates = matches!(kind, Kind::R1 | Kind::R4) && chance(&mut random, 0.7);
        let count = random.usize(1..=20);
        let events = reference(
            &mut random,
            count,
            Kinds {
                duplicates,
                strict: kind == Kind::R0,
            },
        );
        // Slots on both sides of those that have a bit.
        let mut slots = if random.bool() {
            vec![0, 1, 2, 3]
        } else {
            vec![63, 0, 64, 130]
        };
        if kind == Kind::R2 || switches_to == Some(Kind::R2) {
            slots = vec![0, 1, 2, 63]; // a restored hash is read back from one 64-bit integer
        }
        let shards = if matches!(kind, Kind::R3 | Kind::R4) {
            random.usize(1..=3)
        } else {
            1
        };
        let session = Session::of(kind, policy, ALL, shards, 0);
        let mut world = World {
            random,
            kind,
            shards,
            events,
            session,
            streams: Vec::new(),
            slots,
        };
        for _ in 0..world.random.usize(1..=3) {
            world.attach(None);
        }
        world
    }

    fn stream(&mut self) -> Vec<Element> {
        match self.kind {
            Kind::R3 | Kind::R4 | Kind::R3Minus => present(&mut self.random, &self.events),
            _ => ordered(&mut self.random, &self.events, self.kind == Kind::R2),
        }
    }

    fn attach(&mut self, join_at: Option<i64>) {
        let slot = self.slots.remove(0);
        let mut stream = self.stream();
        if let Some(join_at) = join_at {
            stream = joining(&stream, join_at, &self.events);
        }
        self.session.attach(slot, join_at);
        self.streams.push((slot, stream));
    }

    fn restore(&mut self) {
        let shards = if self.shards > 1 { self.random.usize(1..=3) } else { 1 };
        let copy = restored(&self.session, shards);
        assert_eq!(
            text(&self.session, &copy),
            text(&self.session, &self.session.merge),
            "a restored merge is another"
        );
        self.session.merge = copy;
    }

    fn deliver(&mut self) {
        let unfinished: Vec<usize> = (0..self.streams.len())
            .filter(|&at| !self.streams[at].1.is_empty())
            .collect();
        let at = self.random.choice(unfinished).expect("an input has elements left");
        let (slot, stream) = &mut self.streams[at];
        let count = self.random.usize(1..=4).min(stream.len());
        let delivered: Vec<Element> = stream.drain(..count).collect();
        self.session.deliver(*slot, &delivered);
    }

    fn run(mut self, switches_to: Option<Kind>) {
        let mut switches_to = switches_to;
        while self.streams.iter().any(|(_, stream)| !stream.is_empty()) {
            let chance = self.random.f64();
            let stable = self.session.merge.max_stable();
            if chance < 0.03 && !self.slots.is_empty() && stable < INF {
                let join_at = stable.max(-20).saturating_add(self.random.i64(0..=10));
                self.attach(Some(join_at));
            } else if chance < 0.05 && self.streams.len() > 1 {
                let at = self.random.usize(1..self.streams.len());
                let (slot, _) = self.streams.remove(at);
                self.session.leave(slot);
                self.slots.push(slot);
            } else if chance < 0.1 {
                self.restore();
            } else if chance < 0.2 && switches_to.is_some() {
                let kind = switches_to.take().expect("just looked");
                self.session.merge.switch(kind, true);
                self.session.take();
            } else {
                self.deliver();
            }
        }
        assert_eq!(self.session.events(), self.events);
        assert_eq!((self.session.merge.announced(), self.session.broken.len()), (INF, 0));
    }
}

fn runs(kind: Kind, policies: &[Policy], switches_to: Option<Kind>, seeds: u64) {
    for &policy in policies {
        for seed in 0..seeds {
            let shown = format!("{kind:?} to {switches_to:?}, {policy:?}, seed {seed}");
            let run = std::panic::catch_unwind(|| World::new(seed, kind, policy, switches_to).run(switches_to));
            run.unwrap_or_else(|_| panic!("{shown}"));
        }
    }
}

/// All policies of an index, each with and without a lag.
fn policies() -> Vec<Policy> {
    let adjusting = |policy: Policy| Policy {
        reflects_adjusts: true,
        ..policy
    };
    let led_by = |leader| Policy {
        leader,
        ..LEADING_INPUT_ONLY
    };
    let fraction = Policy {
        quorum_percent: 60,
        ..quorum(0)
    };
    let shows = [
        LAZY,
        EAGER,
        HALF_FROZEN_ONLY,
        FINAL_ONLY,
        LEADING_INPUT_ONLY,
        quorum(2),
        fraction,
        led_by(Leader::Insert),
        led_by(Leader::Unfrozen),
        adjusting(HALF_FROZEN_ONLY),
        adjusting(LEADING_INPUT_ONLY),
        adjusting(led_by(Leader::Insert)),
        adjusting(led_by(Leader::Unfrozen)),
        adjusting(quorum(2)),
        adjusting(fraction),
    ];
    shows
        .into_iter()
        .flat_map(|policy| [policy, Policy { lag: 4, ..policy }])
        .collect()
}

#[test]
fn r3_gives_the_reference_under_every_policy() {
    runs(Kind::R3, &policies(), None, 200);
}

#[test]
fn r4_gives_the_reference_under_every_policy() {
    runs(Kind::R4, &policies(), None, 200);
}

#[test]
fn r3_minus_gives_the_reference() {
    runs(Kind::R3Minus, &[LAZY, Policy { lag: 4, ..LAZY }], None, 200);
}

#[test]
fn r0_to_r2_give_the_reference() {
    for kind in [Kind::R0, Kind::R1, Kind::R2] {
        runs(kind, &[LAZY, EAGER, Policy { lag: 3, ..LAZY }], None, 300);
    }
}

#[test]
fn a_switch_on_the_way_loses_nothing() {
    use Kind::{R0, R1, R2, R3, R4};
    for (from, to) in [
        (R0, R1),
        (R0, R2),
        (R0, R3),
        (R0, R4),
        (R1, R4),
        (R2, R3),
        (R2, R4),
        (R3, R4),
    ] {
        runs(from, &[LAZY, EAGER], Some(to), 200);
    }
}

#[test]
fn r4_emits_what_r3_emits_when_vs_and_payload_are_a_key() {
    // Not the policies under which R4 looks only at an insert, and R3 also at adjusts, to show an event.
    for policy in [LAZY, HALF_FROZEN_ONLY, FINAL_ONLY, Policy { lag: 4, ..LAZY }] {
        for seed in 0..100 {
            let mut random = Rng::with_seed(seed);
            let events = reference(&mut random, 15, Kinds::default());
            let mut streams: Vec<Vec<Element>> = (0..3).map(|_| present(&mut random, &events)).collect();
            let mut r3 = Session::with_policy(Kind::R3, policy, 3);
            let mut r4 = Session::with_policy(Kind::R4, policy, 3);
            while streams.iter().any(|stream| !stream.is_empty()) {
                let slot = random.usize(0..3);
                let count = random.usize(1..=4).min(streams[slot].len());
                let delivered: Vec<Element> = streams[slot].drain(..count).collect();
                assert_eq!(
                    r3.deliver(slot, &delivered),
                    r4.deliver(slot, &delivered),
                    "{policy:?}, seed {seed}"
                );
            }
        }
    }
}
