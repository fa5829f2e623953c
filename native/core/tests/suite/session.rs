//! A merge for tests. After every call it checks that the output is a legal stream, that it agrees with the live events
//! of the merge, and that every invariant holds.

use lmerge_core::element::{Element, Event, NEG_INF, STABLE};
use lmerge_core::input::Demands;
use lmerge_core::merge::Kind;
use lmerge_core::policy::{Closing, LAZY, Policy, Show};
use lmerge_core::sharded::Sharded;
use lmerge_core::tdb::Tdb as Client;
use lmerge_core::violation::Violation;

use crate::tdb::{Tdb, columns, elements};

pub const EAGER: Policy = Policy {
    reflects_adjusts: true,
    ..LAZY
};
pub const HALF_FROZEN_ONLY: Policy = Policy {
    show: Show::HalfFrozen,
    ..LAZY
};
pub const FINAL_ONLY: Policy = Policy {
    show: Show::Final,
    ..LAZY
};
pub const LEADING_INPUT_ONLY: Policy = Policy {
    show: Show::Leading,
    ..LAZY
};

pub fn quorum(quorum: usize) -> Policy {
    Policy {
        show: Show::Quorum,
        quorum,
        ..LAZY
    }
}

/// All inputs must have ended.
pub const ALL: Closing = Closing(None);

/// The properties that an input must promise for an algorithm.
pub fn demands(kind: Kind) -> Demands {
    Demands::from_bits(match kind {
        Kind::R0 => 1 + 4,
        Kind::R1 => 1 + 2 + 8,
        Kind::R2 => 1 + 2 + 16,
        Kind::R3 | Kind::R3Minus => 16,
        Kind::R4 => 0,
    })
}

/// An attached input, as in a snapshot's document.
#[derive(Clone, Copy, Debug)]
pub struct Attached {
    pub slot: usize,
    pub demands: Demands,
    pub join_at: Option<i64>,
    pub observes: bool,
}

/// See the head of this module.
pub struct Session {
    pub merge: Sharded,
    pub policy: Policy,
    pub closing: Closing,
    pub attached: Vec<Attached>,
    pub output: Tdb,
    pub emitted: Vec<Element>,
    /// Slots that have joined, in order.
    pub joined: Vec<usize>,
    pub broken: Vec<Violation>,
    /// The TDB of a client that receives the output.
    client: Client,
}

impl Session {
    /// A lazy merge with inputs in the slots 0, 1, ...
    pub fn new(kind: Kind, inputs: usize) -> Session {
        Session::with_policy(kind, LAZY, inputs)
    }

    pub fn with_policy(kind: Kind, policy: Policy, inputs: usize) -> Session {
        Session::of(kind, policy, ALL, 1, inputs)
    }

    pub fn of(kind: Kind, policy: Policy, closing: Closing, shards: usize, inputs: usize) -> Session {
        let mut session = Session {
            merge: Sharded::new(kind, policy, closing, true, shards),
            policy,
            closing,
            attached: Vec::new(),
            output: Tdb::new(),
            emitted: Vec::new(),
            joined: Vec::new(),
            broken: Vec::new(),
            client: Client::new(NEG_INF, i64::MAX),
        };
        (0..inputs).for_each(|slot| session.attach(slot, None));
        session
    }

    pub fn attach(&mut self, slot: usize, join_at: Option<i64>) {
        let demands = demands(self.merge.kind());
        self.attach_as(Attached {
            slot,
            demands,
            join_at,
            observes: false,
        });
    }

    pub fn attach_as(&mut self, input: Attached) {
        let Attached {
            slot,
            demands,
            join_at,
            observes,
        } = input;
        let joined = observes || join_at.is_none_or(|join_at| join_at <= self.merge.max_stable());
        self.merge.attach(slot, slot, demands, join_at, observes, joined);
        self.attached.push(input);
        self.take();
    }

    /// Deliver elements that keep the promises of the input. Returns what the merge emits.
    pub fn deliver(&mut self, slot: usize, delivered: &[Element]) -> Vec<Element> {
        let batch = columns(delivered);
        self.merge
            .apply(slot, &batch.view(), 0)
            .expect("a promise that is kept");
        self.take()
    }

    /// Deliver elements that break a promise of the input. Returns what the merge has emitted, and the violation.
    pub fn refuse(&mut self, slot: usize, delivered: &[Element]) -> (Vec<Element>, Violation) {
        let batch = columns(delivered);
        let violation = self.merge.apply(slot, &batch.view(), 0).expect_err("a broken promise");
        assert_eq!(violation.slot, slot);
        assert_eq!(violation.element, delivered[violation.index], "the offender is named");
        (self.take(), *violation)
    }

    pub fn leave(&mut self, slot: usize) -> Vec<Element> {
        self.merge.remove(slot);
        self.attached.retain(|input| input.slot != slot);
        self.merge.after_detach();
        self.take()
    }

    pub fn admit(&mut self, slot: usize) -> Vec<Element> {
        self.merge.admit(slot);
        self.take()
    }

    /// The events that the output describes.
    pub fn events(&self) -> Vec<Event> {
        self.output.events()
    }

    /// How many elements of an input came too late to have an effect.
    pub fn late(&self, slot: usize) -> u64 {
        self.merge.input(slot).4
    }

    /// What the merge has emitted since the last call, checked.
    pub fn take(&mut self) -> Vec<Element> {
        self.merge.check();
        let changes = self.merge.changes();
        let taken = self.merge.take();
        let emitted = elements(&taken.batch.view());
        let [inserts, adjusts, _] = taken.batch.view().counts();
        assert_eq!(changes, inserts + adjusts);
        for element in &emitted {
            self.output.apply(element).expect("a legal output");
        }
        assert_eq!(self.output.stable, self.merge.announced());
        self.client.apply(&taken.batch.view(), 0).expect("a legal output");
        self.client.check();
        assert_eq!(
            as_events(elements(&self.client.live_events().view())),
            self.output.live()
        );
        if let Some(live) = self.merge.live_events() {
            let mut live = elements(&live.view());
            let last = live
                .pop_if(|element| element.kind == STABLE)
                .map_or(NEG_INF, |stable| stable.vs);
            assert_eq!(last, self.output.stable);
            assert_eq!(
                as_events(live),
                self.output.live(),
                "the live events of the merge are those of its output"
            );
        }
        self.joined.extend(taken.joined);
        self.broken.extend(taken.broken);
        self.emitted.extend(emitted.iter().cloned());
        emitted
    }
}

fn as_events(inserts: Vec<Element>) -> Vec<Event> {
    inserts
        .into_iter()
        .map(|element| Event {
            vs: element.vs,
            payload: element.payload,
            ve: element.ve,
        })
        .collect()
}
