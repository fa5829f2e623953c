//! Due times as they follow from the entries of an index: after snapshots and switches, in snapshots, and in checks. In
//! between `fall_due` and the visits of stables keep them.

use crate::algorithm::Shell;
use crate::element::INF;
use crate::index::{Index, Spill};
use crate::nodes::{NIL, NONE};
use crate::policy::Leader;
use crate::state::EndRow;

impl<S: Spill> Index<S> {
    /// After `load` and switches: due times follow from the entries, but for those in `dues`. No node is in the wheel yet.
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
            INF if self.final_only && node.out == NONE => max_stable, // perhaps nobody says it any more: the next stable looks
            due => due,
        }
    }

    /// The nodes whose due time does not follow from the entries: an end that went up or away again left it behind. A
    /// visit before anything is due can change the output, so a restored merge must make the same (law 12).
    pub fn early(&self, max_stable: i64, next_due: impl Fn(&Index<S>, u32) -> i64) -> Vec<u32> {
        let mut early = self.store.nodes.ids();
        early.retain(|&id| self.store.nodes.get(id).due != self.due(id, max_stable, &next_due));
        early
    }

    /// Assert what holds whatever the entries are.
    pub fn check(&self, max_stable: i64, next_due: impl Fn(&Index<S>, u32) -> i64) {
        self.store.check();
        assert_eq!(self.table.len(), self.store.nodes.len(), "keys and nodes");
        let mut spilled = 0;
        for id in self.store.nodes.ids() {
            let (vs, payload) = self.store.key(id);
            assert_eq!(
                self.find(self.hash(vs, payload), vs, payload),
                id,
                "a node under another key"
            );
            let node = self.store.nodes.get(id);
            spilled += usize::from(node.spill() != NIL);
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

    /// Assert that the unfrozen events of each input were counted, where the most of them lead.
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
