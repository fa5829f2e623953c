//! Due times as they follow from the entries of an index: after snapshots and switches, in snapshots, and in checks.
//! Otherwise `fall_due` and the visits of stables maintain them.

use crate::algorithm::Shell;
use crate::element::INF;
use crate::index::{Index, Spill};
use crate::nodes::{NIL, NONE};
use crate::policy::Leader;
use crate::state::EndRow;

impl<S: Spill> Index<S> {
    /// Enter all nodes in the empty wheel after `load` or a switch. `dues`: due times that do not follow from the
    /// entries.
    pub fn rebuild(&mut self, max_stable: i64, dues: &[EndRow], next_due: impl Fn(&Index<S>, u32) -> i64) {
        self.store.wheel = crate::wheel::Wheel::new(max_stable);
        self.held.clear();
        for id in self.store.nodes.ids() {
            self.store.nodes.get_mut(id).due = self.due(id, max_stable, &next_due);
        }
        for (vs, payload, due) in dues {
            let id = self.find(self.hash(*vs, payload), *vs, payload);
            self.store.nodes.get_mut(id).due = *due;
        }
        for id in self.store.nodes.ids() {
            let node = self.store.nodes.get(id);
            let (vs, due) = (node.vs, node.due);
            if self.final_only && vs < max_stable && node.out == NONE {
                self.hold(id);
            }
            self.store.enter(id, due);
        }
    }

    /// The due time of a node as it follows from the entries.
    fn due(&self, id: u32, max_stable: i64, next_due: impl Fn(&Index<S>, u32) -> i64) -> i64 {
        let node = self.store.nodes.get(id);
        if node.vs >= max_stable {
            return node.vs;
        }
        match next_due(self, id) {
            INF if self.final_only && node.out == NONE => max_stable, // perhaps no input has it: the next stable visits it
            due => due,
        }
    }

    /// The nodes whose due time does not follow from the entries: it comes from an end that was raised or removed
    /// later. A visit at that time can change the output, so a restored merge must make the same visit (law 12,
    /// docs/laws.md).
    pub fn early(&self, max_stable: i64, next_due: impl Fn(&Index<S>, u32) -> i64) -> Vec<u32> {
        let mut early = self.store.nodes.ids();
        early.retain(|&id| self.store.nodes.get(id).due != self.due(id, max_stable, &next_due));
        early
    }

    /// Assert the invariants that do not depend on the entries.
    pub fn check(&self, max_stable: i64, next_due: impl Fn(&Index<S>, u32) -> i64) {
        self.store.check();
        let mut spilled = 0;
        for id in self.store.nodes.ids() {
            let node = self.store.nodes.get(id);
            spilled += usize::from(node.spill() != NIL);
            let vs = node.vs;
            if vs < max_stable {
                let due = next_due(self, id);
                assert!(due >= node.due && node.due >= max_stable, "due too late");
            } else {
                assert_eq!(node.due, vs, "an unfrozen node is due at its Vs");
            }
        }
        let owned = self.spill_owners.iter().enumerate().filter(|&(_, &owner)| owner != NIL);
        for (at, &owner) in owned {
            assert_eq!(
                self.store.nodes.get(owner).spill() as usize,
                at,
                "spilled entries of another node"
            );
        }
        assert_eq!(spilled + self.unused_spills.len(), self.spills.len(), "spilled entries");
    }

    /// Assert that the unfrozen events of each input were counted, if the input with the most of them leads.
    pub fn check_unfrozen(&self, shell: &Shell, copies: impl Fn(u32, usize) -> usize) {
        if shell.policy.leads_by(Leader::Unfrozen) {
            let ids = self.unfrozen(shell.max_stable);
            for &slot in shell.inputs.order() {
                let count: usize = ids.iter().map(|&id| copies(id, slot)).sum();
                assert_eq!(
                    shell.inputs.get(slot).unfrozen,
                    count,
                    "unfrozen events were counted wrongly"
                );
            }
        }
    }
}
