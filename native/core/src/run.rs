//! Runs: the elements between two stables, which R3 and R4 look up together before they merge them one by one.

use crate::algorithm::{Algorithm, Checked, Shell, observe, stable};
use crate::columns::View;
use crate::element::ADJUST;
use crate::index::{Index, Indexed, Spill};
use crate::indices::Indices;
use crate::nodes::NIL;
use crate::retired::sweep;

/// Elements between two stables, each with the node of its key. They are looked up together, so that the cache misses
/// overlap. Only stables remove nodes, so the nodes found stay valid.
#[derive(Debug)]
pub struct Run {
    len: usize,
    at: [usize; RUN],
    hash: [u32; RUN],
    id: [u32; RUN],
    /// A bit set of parts of the hashes of the nodes made since the look-up.
    made: [u64; MADE],
}

/// More than the cache misses that a core can have in flight, so that each step of a look-up fills them.
const RUN: usize = 128;
/// Words of the bit set, with several bits for each element.
const MADE: usize = 8;

impl Run {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The index and the hash of an element.
    #[inline]
    pub fn element(&self, number: usize) -> (usize, u32) {
        (self.at[number], self.hash[number])
    }

    /// Whether a node may have been made for a key with this hash.
    #[inline]
    fn was_made(&self, hash: u32) -> bool {
        self.made[hash as usize / 64 % MADE] >> (hash % 64) & 1 == 1
    }

    /// Note that a node was made for a key with this hash.
    #[inline]
    pub fn note_made(&mut self, hash: u32) {
        self.made[hash as usize / 64 % MADE] |= 1 << (hash % 64);
    }
}

impl Default for Run {
    fn default() -> Run {
        Run {
            len: 0,
            at: [0; RUN],
            hash: [0; RUN],
            id: [NIL; RUN],
            made: [0; MADE],
        }
    }
}

impl<S: Spill> Index<S> {
    /// Look up the next elements: up to the next stable, or as many as a run takes. Returns the index of that stable.
    #[inline]
    pub fn look_up(&self, batch: &View<'_>, indices: &mut Indices<'_>, run: &mut Run) -> Option<usize> {
        (run.len, run.made) = (0, [0; MADE]);
        let mut stable = None;
        // A shard gets its elements without stables.
        if let Some(count) = indices.fill(&mut run.at) {
            run.len = count;
        }
        while run.len < RUN {
            let Some(at) = indices.next() else { break };
            if batch.kind(at) > ADJUST {
                stable = Some(at);
                break;
            }
            run.at[run.len] = at;
            run.len += 1;
        }
        let Run { at, hash, id, len, .. } = run;
        self.store
            .find_all(batch, &at[..*len], &mut hash[..*len], &mut id[..*len]);
        stable
    }

    /// The node of an element of a run, or NIL.
    #[inline]
    pub fn found(&self, run: &Run, number: usize, batch: &View<'_>) -> u32 {
        let (id, (at, hash)) = (run.id[number], run.element(number));
        if id == NIL && run.was_made(hash) {
            self.find(hash, batch.vs(at), batch.payload(at))
        } else {
            id
        }
    }
}

/// Merge the elements at `indices`, all of one input, in runs between stables.
pub fn apply_runs<A: Algorithm + Indexed>(
    algorithm: &mut A,
    shell: &mut Shell,
    slot: usize,
    batch: &View<'_>,
    mut indices: Indices<'_>,
) -> Checked {
    if shell.inputs.get(slot).observes {
        return observe(algorithm, shell, slot, batch, indices);
    }
    let mut run = Run::default();
    loop {
        algorithm.index().arrange();
        let next_stable = algorithm.index().look_up(batch, &mut indices, &mut run);
        let mut number = 0;
        loop {
            number = algorithm.index().merge_usual(shell, slot, batch, &mut run, number);
            if number == run.len() {
                break;
            }
            algorithm.merge(shell, slot, batch, &mut run, number)?;
            number += 1;
        }
        match next_stable {
            Some(index) => stable(algorithm, shell, slot, batch, index)?,
            None if run.is_empty() => break,
            None => {}
        }
    }
    sweep(algorithm, batch.len());
    Ok(())
}
