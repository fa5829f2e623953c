"""Decides what a spool can remove, from its manifests alone. Called by ``Spool.trim``.

The spool must be able to return the live events before the newest batch N and after it, because a batch can be run
again. So the batches N-1 and N always stay. A ``Cut`` is a batch up to which all batches become one snapshot. It is
N-2 at most.

**Dropped without reading.** Let F = min(the merge's stable point, the stream's own one after batch N-2). An event that
ends before F is frozen on both sides, for every batch that can still be asked for. The batches up to the cut leave
nothing live, and no later element refers to them, if

- all ends up to the cut, old ends included, are below F, and
- no later adjust has an old end at or below the largest of these ends.

This rule alone trims streams of inserts, and no element is read again.

    batch 3   insert(p, 1, 5)         largest end 5
    batch 4   adjust(p, 1, 5, 90)     smallest old end 5: batch 3 may not go without batch 4
    batch 5   insert(q, 60, 70)

**Folded.** Otherwise the batches up to N-2 are read, and their live events are written as the snapshot. This is worth
its cost in two cases:

- Most of the elements kept are dead. An adjust ends an event that an insert began, so it makes two dead elements. An
  insert is dead if it ends before F. A sample of the ends of each part gives an estimate of their number. So each fold
  removes about half of the elements that it reads: the work is a constant for each element, and the spool holds at
  most about twice the live events.
- The batches are many and small. Then the fold is for their number, and costs at most a millisecond for each batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from lmerge.core.elements import INF, NEG_INF
from lmerge.spark.spool.manifest import Base, Manifest

# Fewer batches than this are not worth writing a snapshot and removing files, unless they are large.
DROP_BATCHES_MIN: Final = 8
# Fewer dead elements than this are not worth reading: about a tenth of a second's work.
DEAD_ELEMENTS_MIN: Final = 65_536
# Fewer batches than this are not folded: in a stream of inserts the first of them can be dropped by then.
DEAD_BATCHES_MIN: Final = 4
# This many batches are worth folding for their number...
FOLD_BATCHES_MIN: Final = 64
# ...if there is at least one batch for this many elements to read: about a millisecond's work.
FOLD_ELEMENTS_PER_BATCH: Final = 1_000
# The last two batches stay as they are.
KEPT_BATCHES: Final = 2


@dataclass(frozen=True)
class Cut:
    """All batches up to ``batch`` become one snapshot. ``folds``: it holds their live events; else they leave none."""

    batch: int
    folds: bool


def cut_of(base: Base | None, manifests: Sequence[Manifest], merge_stable: int) -> Cut | None:
    """Return what to cut now, or None for nothing. ``manifests``: those that are kept, in order.

    ``merge_stable``: the merge's stable point.
    """
    old = manifests[:-KEPT_BATCHES]
    if not old:
        return None
    frozen_to = min(merge_stable, old[-1].stable_point)
    dropped = droppable(base, manifests, frozen_to)
    if dropped >= DROP_BATCHES_MIN or sum(manifest.elements for manifest in old[:dropped]) >= DEAD_ELEMENTS_MIN:
        return Cut(old[dropped - 1].batch, folds=False)
    kept = sum(manifest.elements for manifest in old) + (base.elements if base else 0)
    dead = dead_elements(base, old, frozen_to)
    if len(old) >= DEAD_BATCHES_MIN and dead >= DEAD_ELEMENTS_MIN and 2 * dead >= kept:
        return Cut(old[-1].batch, folds=True)
    if len(old) >= FOLD_BATCHES_MIN and len(old) * FOLD_ELEMENTS_PER_BATCH >= kept:
        return Cut(old[-1].batch, folds=True)
    return None


def droppable(base: Base | None, manifests: Sequence[Manifest], frozen_to: int) -> int:
    """Return how many of the first manifests leave no live events, by the first rule."""
    first = NEG_INF if base is None else base.largest_end
    largest = list(accumulate((manifest.largest_end for manifest in manifests), max, initial=first))
    smallest_vold = INF
    for count in range(len(manifests), 0, -1):
        if count <= len(manifests) - KEPT_BATCHES and largest[count] < frozen_to and largest[count] < smallest_vold:
            return count
        smallest_vold = min(smallest_vold, manifests[count - 1].smallest_vold)
    return 0


def dead_elements(base: Base | None, manifests: Sequence[Manifest], frozen_to: int) -> int:
    """Return an estimate of the number of elements that a fold would remove."""
    dead = 0 if base is None else _dead_inserts(base.elements, base.ends, frozen_to)
    for manifest in manifests:
        for part in manifest.parts:
            dead += 2 * part.adjusts + _dead_inserts(part.elements - part.adjusts, part.ends, frozen_to)
    return dead


def _dead_inserts(inserts: int, ends: Sequence[int], frozen_to: int) -> int:
    return inserts * bisect_left(ends, frozen_to) // len(ends) if ends else 0
