//! The part that all algorithms share: they check promises, and move the output's stable point.
//! See `lmerge/core/algorithm.py`.

use std::ops::Range;

use crate::columns::{Columns, View};
use crate::element::{ADJUST, INF, INSERT, NEG_INF};
use crate::indices::Indices;
use crate::input::Inputs;
use crate::policy::{Closing, Policy};
use crate::store::Live;
use crate::violation::{Code, Violation};

/// Fewer inserts are written one by one: a copy of parts of columns has a fixed cost.
const COPIED_MIN: usize = 4;

/// A broken promise, boxed so that the good path returns no large value.
pub type Checked = Result<(), Box<Violation>>;

/// The state around the running algorithm.
#[derive(Debug)]
pub struct Shell {
    pub inputs: Inputs,
    pub policy: Policy,
    pub closing: Closing,
    /// The paper's MaxStable: everything below is decided.
    pub max_stable: i64,
    /// The last stable in the output; below `max_stable` only under final-only.
    pub announced: i64,
    /// The largest join_at of an input that was admitted before it: the merge is right for ends at or above this.
    pub right_from: i64,
    /// Slots that have joined since the last `take`.
    pub joined: Vec<usize>,
    /// Promises found broken while another input's elements were merged.
    pub broken: Vec<Violation>,
    pub out: Columns,
    /// In a shard: the inserts that were shown, by their index in the batch, instead of copies in `out`.
    pub noted: Option<Vec<u32>>,
    /// Inserts and adjusts in `out`, and inserts in `noted`.
    pub changes: usize,
    pub live: Option<Live>,
}

impl Shell {
    pub fn new(policy: Policy, closing: Closing) -> Shell {
        Shell {
            inputs: Inputs::default(),
            policy,
            closing,
            max_stable: NEG_INF,
            announced: NEG_INF,
            right_from: NEG_INF,
            joined: Vec::new(),
            broken: Vec::new(),
            out: Columns::default(),
            noted: None,
            changes: 0,
            live: None,
        }
    }

    #[inline]
    pub fn emit_insert(&mut self, vs: i64, ve: i64, payload: &[u8]) {
        self.out.insert(vs, ve, payload);
        self.changes += 1;
        if let Some(live) = &mut self.live {
            live.insert(vs, ve, payload);
        }
    }

    /// Add inserts to those of `shown`, which follow each other in a batch; if they do not follow them, emit those first.
    #[inline]
    pub fn show_inserts(&mut self, batch: &View<'_>, shown: &mut Range<usize>, more: Range<usize>) {
        if let Some(noted) = &mut self.noted {
            self.changes += more.len();
            noted.extend(more.map(|index| index as u32));
            return;
        }
        if shown.end != more.start {
            self.emit_inserts(batch, shown);
            shown.start = more.start;
        }
        shown.end = more.end;
    }

    /// Emit inserts that follow each other in a batch, and empty the range.
    #[inline]
    pub fn emit_inserts(&mut self, batch: &View<'_>, shown: &mut Range<usize>) {
        let Range { start, end } = std::mem::take(shown);
        if start == end {
            return;
        }
        copy_inserts(&mut self.out, batch, start..end);
        self.changes += end - start;
        if let Some(live) = &mut self.live {
            (start..end).for_each(|index| live.insert(batch.vs(index), batch.ve(index), batch.payload(index)));
        }
    }

    pub fn emit_adjust(&mut self, vs: i64, vold: i64, ve: i64, payload: &[u8]) {
        debug_assert!(
            self.live.is_none(),
            "an algorithm that keeps no output events adjusts none"
        );
        self.out.adjust(vs, vold, ve, payload);
        self.changes += 1;
    }

    /// Emit stable(t) if it is larger than the last one.
    pub fn announce(&mut self, t: i64) {
        if t > self.announced {
            self.announced = t;
            self.out.stable(t);
            if let Some(live) = &mut self.live {
                live.stable(t);
            }
        }
    }

    /// The latest end of a half-frozen event that the input in `slot` lacks or has with an end below MaxStable.
    pub fn latest_lacked(&self, slot: usize) -> i64 {
        if self.max_stable >= self.right_from {
            return INF;
        }
        let join_at = self.inputs.get(slot).join_at.unwrap_or(NEG_INF);
        self.max_stable.max(join_at.saturating_sub(1))
    }

    /// Whether enough inputs have delivered stable(+inf) (law 5, docs/laws.md).
    fn may_close(&self) -> bool {
        let (mut closed, mut joined) = (0, 0);
        for (_, input) in self.inputs.counting() {
            joined += 1;
            closed += usize::from(input.stable == INF);
        }
        self.closing.agreed(closed, joined)
    }
}

/// Append inserts that follow each other in a batch.
#[inline]
pub(crate) fn copy_inserts(out: &mut Columns, batch: &View<'_>, range: Range<usize>) {
    if out.is_empty() {
        out.reserve(&batch.slice(range.start, batch.len())); // most of a batch is new, or little of it
    }
    if range.len() < COPIED_MIN {
        for index in range {
            out.insert(batch.vs(index), batch.ve(index), batch.payload(index));
        }
    } else {
        out.extend(&batch.slice(range.start, range.end));
    }
}

/// One running algorithm, without its [`Shell`].
pub trait Algorithm {
    /// Merge the elements of `batch` at `indices`, all of one input.
    fn apply(&mut self, shell: &mut Shell, slot: usize, batch: &View<'_>, indices: Indices<'_>) -> Checked;

    /// Make the output ready for stable(t), which the input in `slot` has reached.
    fn freeze(&mut self, _shell: &mut Shell, _slot: usize, _t: i64) {}

    /// Show events whose showing depends on the number of inputs (V.A): an input has joined or left.
    fn reconsider(&mut self, _shell: &mut Shell) {}

    /// The stable that the output may emit after `t` is frozen.
    fn stable_to_emit(&mut self, _shell: &Shell, t: i64) -> i64 {
        t
    }

    /// Merge the elements that waited for the input to join. False: it has broken a promise, and none was merged.
    fn admit_waiting(&mut self, _shell: &mut Shell, _slot: usize) -> bool {
        true
    }

    /// Drop the input in `slot`, which has left: its entries do not count any more (law 3).
    fn forget(&mut self, _slot: usize) {}

    /// Make columns for `slots` inputs.
    fn widen(&mut self, _slots: usize) {}

    /// Assert every invariant.
    fn check(&self, shell: &Shell);
}

/// Let the output follow the input in `slot`, which has a new stable point or has just begun to count.
pub fn advance<A: Algorithm + ?Sized>(algorithm: &mut A, shell: &mut Shell, slot: usize) {
    if shell.policy.lead_max.is_none() {
        follow(algorithm, shell, slot);
    } else {
        follow_unheld(algorithm, shell);
    }
}

/// With a bound of the lead: follow the inputs that are not held. One input can release another's stable.
fn follow_unheld<A: Algorithm + ?Sized>(algorithm: &mut A, shell: &mut Shell) {
    loop {
        let before = shell.max_stable;
        if shell.inputs.mark_held(before, &shell.policy) {
            algorithm.reconsider(shell);
        }
        for slot in shell.inputs.by_lead() {
            follow(algorithm, shell, slot);
            if shell.max_stable > before {
                break;
            }
        }
        if shell.max_stable == before {
            return;
        }
    }
}

/// Move the output's stable point to that of the input in `slot` if the input counts and is ahead.
fn follow<A: Algorithm + ?Sized>(algorithm: &mut A, shell: &mut Shell, slot: usize) {
    let input = shell.inputs.get(slot);
    if !input.counts() {
        return; // law 1: it is joining; or its stable is held
    }
    let t = shell.policy.held_back(input.stable);
    if t <= shell.max_stable || (t == INF && !shell.may_close()) {
        return;
    }
    let decider = shell.inputs.decider(slot, shell.max_stable, &shell.policy);
    algorithm.freeze(shell, decider, t);
    shell.max_stable = t;
    let t = algorithm.stable_to_emit(shell, t);
    shell.announce(t);
    for slot in shell.inputs.order().to_vec() {
        let input = shell.inputs.get(slot);
        let may_join = !input.joined && input.join_at.is_some_and(|join_at| join_at <= shell.max_stable);
        // An input that has broken a promise is removed after this call.
        if may_join && !shell.broken.iter().any(|violation| violation.slot == slot) {
            admit(algorithm, shell, slot);
        }
    }
}

/// Join the input (V.B). What it delivered before counts from now on.
pub fn admit<A: Algorithm + ?Sized>(algorithm: &mut A, shell: &mut Shell, slot: usize) {
    shell.inputs.get_mut(slot).joined = true;
    shell.joined.push(slot);
    if !algorithm.admit_waiting(shell, slot) {
        return;
    }
    let join_at = shell.inputs.get(slot).join_at;
    if let Some(join_at) = join_at.filter(|&join_at| join_at > shell.max_stable) {
        shell.right_from = shell.right_from.max(join_at);
    }
    recount(algorithm, shell);
    advance(algorithm, shell, slot);
}

/// Determine again which inputs count, and show what the policy shows for their number.
fn recount<A: Algorithm + ?Sized>(algorithm: &mut A, shell: &mut Shell) {
    shell.inputs.mark_held(shell.max_stable, &shell.policy);
    algorithm.reconsider(shell);
}

/// Let the output follow the inputs that remain. They may agree now on an event or on closing, or an input may lead by
/// less than before.
pub fn after_detach<A: Algorithm + ?Sized>(algorithm: &mut A, shell: &mut Shell) {
    recount(algorithm, shell);
    if shell.policy.lead_max.is_some() {
        follow_unheld(algorithm, shell);
        return;
    }
    for slot in shell.inputs.order().to_vec() {
        if shell.inputs.get(slot).stable == INF {
            advance(algorithm, shell, slot);
        }
    }
}

/// Merge a stable element of the input in `slot`.
pub fn stable<A: Algorithm + ?Sized>(
    algorithm: &mut A,
    shell: &mut Shell,
    slot: usize,
    batch: &View<'_>,
    index: usize,
) -> Checked {
    let vc = batch.vs(index);
    let input = shell.inputs.get_mut(slot);
    if vc < input.stable {
        let before = input.stable;
        return Err(Violation::of(Code::StableBackwards, slot, batch, index).detail(before));
    }
    input.excused &= vc == input.stable;
    input.stable = vc;
    advance(algorithm, shell, slot);
    Ok(())
}

/// Check the elements of an input in role `observe` as far as possible without the index. Merge none.
pub fn observe<A: Algorithm + ?Sized>(
    algorithm: &mut A,
    shell: &mut Shell,
    slot: usize,
    batch: &View<'_>,
    indices: Indices<'_>,
) -> Checked {
    for index in indices {
        match batch.kind(index) {
            INSERT => {
                let (vs, ve) = (batch.vs(index), batch.ve(index));
                if shell.inputs.get(slot).is_below_floor(vs) || ve < vs {
                    return Err(shell.inputs.get(slot).refuse_insert(slot, batch, index));
                }
                shell.inputs.get_mut(slot).last_vs = Some(vs);
            }
            ADJUST => shell.inputs.get(slot).check_adjust(slot, batch, index)?,
            _ => stable(algorithm, shell, slot, batch, index)?,
        }
    }
    Ok(())
}

/// Assert the invariants of the shell of every algorithm.
pub fn check_shell(shell: &Shell) {
    assert!(shell.announced <= shell.max_stable);
    for &slot in shell.inputs.order() {
        let input = shell.inputs.get(slot);
        if input.counts() && input.stable < INF {
            let held_back = shell.policy.held_back(input.stable);
            assert!(held_back <= shell.max_stable, "a joined input's stable was not used");
        }
        if !input.joined {
            let join_at = input.join_at.expect("a joining input has a join_at");
            assert!(join_at > shell.max_stable, "an input should have joined");
        }
    }
    if let Some(live) = &shell.live {
        live.check(shell.announced);
    }
}
