//! One running merge. Its inputs are identified by slot numbers.
//!
//! The caller (`lmerge/core/merge.py`) handles names, incarnations, the choice of the algorithm and all messages, the
//! same for this implementation and the one in Python. Pure and deterministic: no clock, no I/O. The same calls in the
//! same order give the same output.

use crate::algorithm::{self, Algorithm, Checked, Shell};
use crate::columns::{Columns, View};
use crate::delivered::Delivered;
use crate::element::NEG_INF;
use crate::in3t::At;
use crate::index::Indexed;
use crate::indices::Indices;
use crate::input::{Demands, Input};
use crate::insert_only::{InsertOnly, Ties};
use crate::nodes::{NIL, NONE};
use crate::policy::{Closing, Policy, Show};
use crate::r3::R3;
use crate::r3minus::R3Minus;
use crate::r4::R4;
use crate::retired;
use crate::store::Live;
use crate::switch::{repeats_a_key, switch};
use crate::violation::Violation;

/// The algorithms by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    R0,
    R1,
    R2,
    R3,
    R4,
    /// For comparison only.
    R3Minus,
}

impl Kind {
    pub fn parse(name: &str) -> Option<Kind> {
        Some(match name {
            "r0" => Kind::R0,
            "r1" => Kind::R1,
            "r2" => Kind::R2,
            "r3" => Kind::R3,
            "r4" => Kind::R4,
            "r3-" => Kind::R3Minus,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        ["r0", "r1", "r2", "r3", "r4", "r3-"][self as usize]
    }
}

/// A running algorithm.
#[derive(Debug)]
pub enum Running {
    InsertOnly(InsertOnly),
    R3(R3),
    R4(R4),
    R3Minus(R3Minus),
}

impl Running {
    fn new(kind: Kind, policy: &Policy) -> Running {
        let final_only = policy.show == Show::Final;
        match kind {
            Kind::R0 => Running::InsertOnly(InsertOnly::r0()),
            Kind::R1 => Running::InsertOnly(InsertOnly::r1()),
            Kind::R2 => Running::InsertOnly(InsertOnly::r2()),
            Kind::R3 => Running::R3(R3::new(final_only)),
            Kind::R4 => Running::R4(R4::new(final_only)),
            Kind::R3Minus => Running::R3Minus(R3Minus::default()),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Running::InsertOnly(InsertOnly {
                ties: Ties::None(_), ..
            }) => Kind::R0,
            Running::InsertOnly(InsertOnly {
                ties: Ties::Ordered(_), ..
            }) => Kind::R1,
            Running::InsertOnly(InsertOnly {
                ties: Ties::Unordered(_),
                ..
            }) => Kind::R2,
            Running::R3(_) => Kind::R3,
            Running::R4(_) => Kind::R4,
            Running::R3Minus(_) => Kind::R3Minus,
        }
    }

    fn as_dyn(&mut self) -> &mut dyn Algorithm {
        match self {
            Running::InsertOnly(algorithm) => algorithm,
            Running::R3(algorithm) => algorithm,
            Running::R4(algorithm) => algorithm,
            Running::R3Minus(algorithm) => algorithm,
        }
    }

    /// Adapt to new demands on the inputs.
    fn demand(&mut self, shell: &mut Shell) {
        if let Running::InsertOnly(algorithm) = self {
            algorithm.demand(shell);
        }
    }

    /// Whether the index contains the output events.
    fn keeps_events(&self, policy: &Policy) -> bool {
        !matches!(self, Running::InsertOnly(_)) && policy.show != Show::Final
    }
}

/// The results of one or more calls.
#[derive(Debug, Default)]
pub struct Taken {
    pub batch: Columns,
    /// Slots of inputs that have joined.
    pub joined: Vec<usize>,
    /// Promises found broken while another input's elements were merged.
    pub broken: Vec<Violation>,
}

/// One merge. Times are `i64`. A slot is a small number that the caller uses again after `remove`.
#[derive(Debug)]
pub struct Merge {
    pub(crate) shell: Shell,
    pub(crate) running: Running,
    track_live: bool,
    /// Whether what inputs deliver under R0-R2 is kept: see [`Delivered`].
    keeps_delivered: bool,
}

impl Merge {
    /// `track_live`: keep the output's live events also where the algorithm does not need them.
    pub fn new(kind: Kind, policy: Policy, closing: Closing, track_live: bool) -> Merge {
        let running = Running::new(kind, &policy);
        let mut merge = Merge {
            shell: Shell::new(policy, closing),
            running,
            track_live,
            keeps_delivered: false,
        };
        merge.shell.live = merge.new_live();
        merge
    }

    /// Keep what inputs deliver under R0-R2. To be called before an input attaches.
    pub fn keep_delivered(&mut self) {
        self.keeps_delivered = true;
    }

    pub fn kind(&self) -> Kind {
        self.running.kind()
    }

    /// The paper's MaxStable.
    pub fn max_stable(&self) -> i64 {
        self.shell.max_stable
    }

    /// The last stable in the output.
    pub fn announced(&self) -> i64 {
        self.shell.announced
    }

    /// Inserts and adjusts in the output since the last [`Merge::take`].
    pub fn changes(&self) -> usize {
        self.shell.changes
    }

    pub fn input(&self, slot: usize) -> &Input {
        self.shell.inputs.get(slot)
    }

    /// Attach an input (V.B). `joined`: its stable points count at once; otherwise when MaxStable reaches `join_at`.
    /// `place`: see [`Inputs::add`](crate::input::Inputs::add).
    pub fn attach(
        &mut self,
        slot: usize,
        place: usize,
        demands: Demands,
        join_at: Option<i64>,
        observes: bool,
        joined: bool,
    ) {
        if !self.is_free(slot) {
            self.forget_retired();
        }
        self.shell
            .inputs
            .add(slot, place, Input::new(demands, join_at, observes, joined));
        self.running.as_dyn().widen(self.shell.inputs.width());
        self.begin_delivered(slot, true);
        self.running.demand(&mut self.shell);
    }

    /// Change the properties that the input must keep.
    pub fn demand(&mut self, slot: usize, demands: Demands) {
        self.shell.inputs.get_mut(slot).demands = demands;
        self.running.demand(&mut self.shell);
    }

    /// Remove the input and, in later calls, its entries: see [`retired`].
    pub fn remove(&mut self, slot: usize) {
        self.shell.inputs.remove(slot);
        self.running.as_dyn().forget(slot);
    }

    /// Whether an input can have this slot: no input uses it, and no input that has left has entries in it.
    pub fn is_free(&self, slot: usize) -> bool {
        let has_entries = match &self.running {
            Running::R3(running) => running.index.retired.has(slot),
            Running::R4(running) => running.index.retired.has(slot),
            Running::InsertOnly(_) | Running::R3Minus(_) => false,
        };
        !has_entries && !self.shell.inputs.is_attached(slot)
    }

    /// Remove at once all remaining entries of inputs that have left.
    pub fn forget_retired(&mut self) {
        match &mut self.running {
            Running::R3(running) => retired::finish(running),
            Running::R4(running) => retired::finish(running),
            Running::InsertOnly(_) | Running::R3Minus(_) => {}
        }
    }

    /// Number of nodes that were swept so far of entries of inputs that have left.
    pub fn swept(&self) -> u64 {
        match &self.running {
            Running::R3(running) => running.index.retired.swept,
            Running::R4(running) => running.index.retired.swept,
            Running::InsertOnly(_) | Running::R3Minus(_) => 0,
        }
    }

    /// Let the inputs that remain decide again, on closing for example.
    pub fn after_detach(&mut self) {
        algorithm::after_detach(self.running.as_dyn(), &mut self.shell);
    }

    /// Do not measure the lead of others by the input until it has a new stable point.
    pub fn excuse(&mut self, slot: usize) {
        self.shell.inputs.get_mut(slot).excused = true;
        self.after_detach();
    }

    /// Let a joining input count from now on.
    pub fn admit(&mut self, slot: usize) {
        algorithm::admit(self.running.as_dyn(), &mut self.shell, slot);
    }

    /// Merge the elements of `batch` from `start` on. On a violation those before the offender have been merged.
    pub fn apply(&mut self, slot: usize, batch: &View<'_>, start: usize) -> Result<(), Box<Violation>> {
        let merged = self.apply_at(slot, batch, Indices::all(start, batch.len()));
        let max_stable = self.shell.max_stable;
        let input = self.shell.inputs.get_mut(slot);
        if let Some(delivered) = &mut input.delivered {
            let stop = merged
                .as_ref()
                .map_or_else(|violation| violation.index, |()| batch.len());
            delivered.add(batch, start, stop, input.stable.min(max_stable));
        }
        merged
    }

    /// Merge the elements of `batch` at `indices`.
    pub(crate) fn apply_at(&mut self, slot: usize, batch: &View<'_>, indices: Indices<'_>) -> Checked {
        match &mut self.running {
            Running::InsertOnly(running) => running.apply(&mut self.shell, slot, batch, indices),
            Running::R3(running) => running.apply(&mut self.shell, slot, batch, indices),
            Running::R4(running) => running.apply(&mut self.shell, slot, batch, indices),
            Running::R3Minus(running) => running.apply(&mut self.shell, slot, batch, indices),
        }
    }

    /// How many inputs have this event now; 0 where they have no entries of their own.
    pub fn supporters(&self, vs: i64, ve: i64, payload: &[u8]) -> u32 {
        let slots = self.shell.inputs.order().iter().copied();
        let count = match &self.running {
            Running::R3(r3) => match r3.index.find(r3.index.hash(vs, payload), vs, payload) {
                NIL => 0,
                id => slots.filter(|&slot| r3.end(id, slot) == ve).count(),
            },
            Running::R4(r4) => match r4.index.find(r4.index.hash(vs, payload), vs, payload) {
                NIL => 0,
                id => slots
                    .filter(|&slot| r4.index.ends(id, At::In(slot)).contains(&ve))
                    .count(),
            },
            Running::InsertOnly(_) | Running::R3Minus(_) => 0,
        };
        count as u32
    }

    /// Run another algorithm: any before the first element; once `started`, a more general one.
    pub fn switch(&mut self, kind: Kind, started: bool) {
        let new = Running::new(kind, &self.shell.policy);
        let old = std::mem::replace(&mut self.running, new);
        let width = self.shell.inputs.width();
        self.running.as_dyn().widen(width);
        self.shell.inputs.forget_ties();
        self.running.demand(&mut self.shell);
        if started {
            switch(old, &mut self.running, &mut self.shell);
            match &mut self.running {
                Running::R3(running) => running.count_unfrozen(&mut self.shell),
                Running::R4(running) => running.count_unfrozen(&mut self.shell),
                Running::InsertOnly(_) | Running::R3Minus(_) => {}
            }
        }
        if self.running.keeps_events(&self.shell.policy) {
            self.shell.live = None;
        } else if self.shell.live.is_none() {
            self.shell.live = self.new_live();
        }
        for slot in self.shell.inputs.order().to_vec() {
            self.begin_delivered(slot, !started);
        }
    }

    /// Whether two live events of the output, or of one input, have one (Vs, payload). Under R0-R2 only.
    pub fn repeats_a_key(&self) -> bool {
        let live = self.shell.live.as_ref().expect("a switch needs the live output");
        repeats_a_key(&self.shell, live)
    }

    /// Begin to keep what the input delivers if that is required; drop it where an index has it.
    fn begin_delivered(&mut self, slot: usize, from_the_start: bool) {
        let is_kept = self.keeps_delivered && matches!(self.running, Running::InsertOnly(_));
        let input = self.shell.inputs.get_mut(slot);
        if !is_kept || input.observes {
            input.delivered = None;
        } else if from_the_start {
            input.delivered = Some(Delivered::default());
        }
    }

    /// Note the index of an insert that is shown in its batch instead of copying it, where that is enough.
    pub(crate) fn note_shown(&mut self) {
        self.shell.noted = Some(Vec::new());
    }

    /// Return and clear the results since the last call.
    pub fn take(&mut self) -> Taken {
        self.shell.changes = 0;
        self.shell.out.trim();
        Taken {
            batch: std::mem::take(&mut self.shell.out),
            joined: std::mem::take(&mut self.shell.joined),
            broken: std::mem::take(&mut self.shell.broken),
        }
    }

    /// All live output events as (vs, payload, ve), in no useful order; None if they are not tracked.
    pub(crate) fn shown(&self) -> Option<Vec<(i64, &[u8], i64)>> {
        if let Some(live) = &self.shell.live {
            return Some(live.events());
        }
        if !self.running.keeps_events(&self.shell.policy) {
            return None;
        }
        let mut events: Vec<(i64, &[u8], i64)> = Vec::new();
        let announced = self.shell.announced;
        let mut show = |vs, payload, ve| {
            if ve >= announced {
                events.push((vs, payload, ve));
            }
        };
        match &self.running {
            Running::R3(running) => {
                let store = &running.index.store;
                for id in store.nodes.ids() {
                    let node = store.nodes.get(id);
                    if node.out != NONE {
                        show(node.vs, store.payload(id), node.out);
                    }
                }
            }
            Running::R4(running) => {
                let store = &running.index.store;
                for id in store.nodes.ids() {
                    let (vs, payload) = store.key(id);
                    running
                        .index
                        .ends(id, At::Out)
                        .iter()
                        .for_each(|&ve| show(vs, payload, ve));
                }
            }
            Running::R3Minus(running) => running
                .output
                .iter()
                .for_each(|((vs, payload), &ve)| show(*vs, payload, ve)),
            Running::InsertOnly(_) => {}
        }
        Some(events)
    }

    /// Number of live output events where they are tracked separately from the index.
    pub fn live_count(&self) -> Option<usize> {
        self.shell.live.as_ref().map(Live::len)
    }

    /// Size of the index: (Vs, payload) pairs; 0 under R0-R2.
    pub fn node_count(&self) -> usize {
        match &self.running {
            Running::InsertOnly(_) => 0,
            Running::R3(running) => running.index.store.nodes.len(),
            Running::R4(running) => running.index.store.nodes.len(),
            Running::R3Minus(running) => running.output.len(),
        }
    }

    /// Number of nodes that stables have visited so far.
    pub fn visits(&self) -> u64 {
        match &self.running {
            Running::InsertOnly(_) | Running::R3Minus(_) => 0,
            Running::R3(running) => running.index.visits,
            Running::R4(running) => running.index.visits,
        }
    }

    /// Bytes that the index and the live output hold, and bytes of the payloads in them.
    pub fn memory(&self) -> (usize, usize) {
        let (mut held, mut payload) = match &self.running {
            Running::InsertOnly(_) => (0, 0),
            Running::R3(running) => (running.index.held_bytes(), running.index.store.arena.payload_bytes()),
            Running::R4(running) => (running.index.held_bytes(), running.index.store.arena.payload_bytes()),
            Running::R3Minus(running) => running.memory(),
        };
        if let Some(live) = &self.shell.live {
            held += live.held_bytes();
            payload += live.payload_bytes();
        }
        (held, payload)
    }

    /// Assert every invariant (law 9). O(everything).
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        match &self.running {
            Running::InsertOnly(running) => running.check(&self.shell),
            Running::R3(running) => running.check(&self.shell),
            Running::R4(running) => running.check(&self.shell),
            Running::R3Minus(running) => running.check(&self.shell),
        }
        let has_live = self.track_live && !self.running.keeps_events(&self.shell.policy);
        assert_eq!(
            self.shell.live.is_some(),
            has_live,
            "live output events where they are needed"
        );
        assert!(self.shell.announced == NEG_INF || self.shell.announced <= self.shell.max_stable);
    }

    fn new_live(&self) -> Option<Live> {
        let is_needed = self.track_live && !self.running.keeps_events(&self.shell.policy);
        is_needed.then(|| Live::new(self.shell.announced))
    }
}
