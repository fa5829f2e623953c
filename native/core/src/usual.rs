//! The usual cases of R3 and R4, which are the same for both: inputs that agree on one end of each event, merged by the
//! paper's policy. Whatever is not usual goes the general way, with the same result: `r3`, `r4`.

use crate::algorithm::Shell;
use crate::columns::View;
use crate::element::INSERT;
use crate::index::{Index, Spill};
use crate::input::Input;
use crate::nodes::{BITS, NIL, NONE, Node};
use crate::run::Run;

impl<S: Spill> Index<S> {
    /// Merge the elements of a run from `number` on, up to the first that is not usual. Returns its number, or the
    /// length of the run.
    #[inline]
    pub fn merge_usual(
        &mut self,
        shell: &mut Shell,
        slot: usize,
        batch: &View<'_>,
        run: &mut Run,
        number: usize,
    ) -> usize {
        if !shell.policy.is_lazy() || slot >= BITS {
            return number;
        }
        let max_stable = shell.max_stable;
        let mut order = Order::of(shell.inputs.get(slot));
        let mut shown = 0..0;
        let mut number = number;
        while number < run.len() {
            let (index, hash) = run.element(number);
            let (vs, ve) = (batch.vs(index), batch.ve(index));
            if batch.kind(index) != INSERT || vs < order.floor || ve <= vs {
                break;
            }
            let id = self.found(run, number, batch);
            if id != NIL {
                if !self.agree(id, slot, ve) {
                    break;
                }
            } else if vs >= max_stable {
                run.note_made(hash);
                let mut node = Node::new(vs, vs);
                (node.out, node.common, node.has) = (ve, ve, 1 << slot);
                self.store.add(hash, node, batch.payload(index));
                shell.show_inserts(batch, &mut shown, index..index + 1);
            } else {
                break;
            }
            order.note(vs);
            number += 1;
        }
        shell.emit_inserts(batch, &mut shown);
        order.end(shell.inputs.get_mut(slot));
        number
    }

    /// Note that the input in `slot` has an event that the output and other inputs have, with the same end. False: it is
    /// not so. No due time changes.
    #[inline]
    fn agree(&mut self, id: u32, slot: usize, ve: i64) -> bool {
        let node = self.store.nodes.get_mut(id);
        let bit = 1 << slot;
        let agrees = node.spill() == NIL && node.has != 0 && node.common == ve && node.out != NONE;
        if !agrees || node.has & bit != 0 {
            return false;
        }
        node.has |= bit;
        true
    }

    /// Visit a node before stable(t) of the input in `slot`, if that is usual: the output has the end that the input
    /// has, so nothing is emitted, and the node leaves the index or gets its next due time. False: it is not so.
    #[inline]
    pub fn visit_usual(&mut self, max_stable: i64, id: u32, slot: usize, t: i64) -> bool {
        let node = self.store.nodes.get_mut(id);
        let end = node.out;
        let agrees = node.spill() == NIL && node.agrees(slot) && node.common == end;
        if !agrees || self.final_only || (node.vs < max_stable && end < max_stable) {
            return false;
        }
        if end < t {
            self.store.remove(id);
        } else {
            node.due = end;
            self.store.wheel.push(end, id);
        }
        true
    }
}

/// The smallest Vs that an insert of an input may have, while no stable comes.
struct Order {
    floor: i64,
    last_vs: Option<i64>,
    /// By how much Vs must increase, if the input is ordered.
    step: Option<i64>,
}

impl Order {
    fn of(input: &Input) -> Order {
        let step = input.demands.is_ordered().then_some(i64::from(input.demands.strict));
        let mut order = Order {
            floor: input.stable,
            last_vs: input.last_vs,
            step,
        };
        if let Some(last) = input.last_vs {
            order.note(last);
        }
        order
    }

    #[inline]
    fn note(&mut self, vs: i64) {
        if let Some(step) = self.step {
            self.last_vs = Some(vs);
            self.floor = self.floor.max(vs.saturating_add(step));
        }
    }

    fn end(self, input: &mut Input) {
        input.last_vs = self.last_vs;
    }
}
