//! Decides which inputs the output follows, by the policy and the inputs' entries (V.A): `leads`, `should_show` and
//! `follows` of `lmerge/core/index.py`.

use crate::algorithm::Shell;
use crate::policy::{Leader, Show};

/// V.A: whether the input is the leading input; of equals the longest attached leads.
pub fn leads(shell: &Shell, slot: usize) -> bool {
    let mut best: Option<(usize, Option<i64>)> = None;
    for (slot, input) in shell.inputs.counting() {
        let rank = match shell.policy.leader {
            Leader::Stable => Some(input.stable),
            Leader::Insert => input.last_vs,
            Leader::Unfrozen => Some(input.unfrozen as i64),
        };
        if best.is_none_or(|(_, highest)| rank > highest) {
            best = Some((slot, rank));
        }
    }
    best.is_some_and(|(leader, _)| leader == slot)
}

/// V.A: how many inputs must have an event before it is shown.
pub fn quorum(shell: &Shell) -> usize {
    shell.policy.enough(shell.inputs.counting().count())
}

/// V.A, location 2: whether an unfrozen event is shown, now that `slot` has it. `supporters`: counts inputs that count.
pub fn should_show(shell: &Shell, slot: usize, supporters: impl FnOnce() -> usize) -> bool {
    match shell.policy.show {
        Show::First => true,
        Show::Quorum => shell.inputs.get(slot).counts() && supporters() >= quorum(shell),
        Show::Leading => leads(shell, slot),
        Show::HalfFrozen | Show::Final => false,
    }
}

/// V.A, location 1: whether a change by the input is shown at once; with a quorum, if enough others agree.
pub fn follows(shell: &Shell, slot: usize) -> bool {
    let policy = &shell.policy;
    policy.reflects_adjusts && shell.inputs.get(slot).joined && (policy.show != Show::Leading || leads(shell, slot))
}
