"""What a spool can let go of: a pure decision from the manifests. Called by ``Spool.trim``.

The spool must be able to tell the live events before the newest batch, N, and after it (a batch can be run again), so
the batches N-1 and N always stay. ``cut`` is a batch up to which all become one snapshot, at most N-2.

**Dropped without a look.** Let F = min(the merge's stable point, the own one after batch N-2): what ends before F is
frozen on both sides for all that can still be asked. If all ends up to the cut, old ones too, are below F, and no later
adjust has an old end at or below the largest of them, then nothing of these batches is live and nothing later speaks
of them. Streams of inserts are trimmed by this rule alone, and no element is read again.

    batch 3   insert(p, 1, 5)         largest end 5
    batch 4   adjust(p, 1, 5, 90)     smallest old end 5: batch 3 may not go without batch 4
    batch 5   insert(q, 60, 70)

**Folded.** Else the batches up to N-2 are read and become the live events that they leave. That is worth its cost

- if most of what is kept is dead: an adjust ends what an insert has begun, so it makes two; an insert is dead if it
  ends before F, and the ends of some in each part say of how many that is true. So each fold removes about half of what
  it reads: the work is a constant for each element, and the spool holds at most about twice what is live.
- or if the batches are many and small: then it is for their number, a millisecond's work for each at most.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from lmerge.core.elements import INF, NEG_INF
from lmerge.spark.spool.manifest import Base, Manifest

# Fewer batches than these are not worth writing a snapshot and removing their files, unless they are large.
DROP_BATCHES_MIN: Final = 8
# Fewer dead elements than these are not worth reading: about a tenth of a second's work.
DEAD_ELEMENTS_MIN: Final = 65_536
# Nor are fewer batches: in a stream of inserts the first of them can be dropped by then.
DEAD_BATCHES_MIN: Final = 4
# So many batches are worth putting together...
FOLD_BATCHES_MIN: Final = 64
# ...if there is at least one for so many elements that are read for it: about a millisecond's work.
FOLD_ELEMENTS_PER_BATCH: Final = 1_000
# The two last batches stay as they are.
KEPT_BATCHES: Final = 2


@dataclass(frozen=True)
class Cut:
    """All batches up to ``batch`` become one snapshot. ``folds``: with what they leave; else they leave nothing."""

    batch: int
    folds: bool


def cut_of(base: Base | None, manifests: Sequence[Manifest], heard: int) -> Cut | None:
    """What to do now; None: nothing. ``manifests``: those that are kept, in order; ``heard``: the merge's stable point.
    """
    old = manifests[:-KEPT_BATCHES]
    if not old:
        return None
    frozen_to = min(heard, old[-1].stable_point)
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
    """How many of the first manifests leave nothing, by the first rule."""
    first = NEG_INF if base is None else base.largest_end
    largest = list(accumulate((manifest.largest_end for manifest in manifests), max, initial=first))
    smallest_vold = INF
    for count in range(len(manifests), 0, -1):
        if count <= len(manifests) - KEPT_BATCHES and largest[count] < frozen_to and largest[count] < smallest_vold:
            return count
        smallest_vold = min(smallest_vold, manifests[count - 1].smallest_vold)
    return 0


def dead_elements(base: Base | None, manifests: Sequence[Manifest], frozen_to: int) -> int:
    """About how many elements a fold would remove."""
    dead = 0 if base is None else _dead_inserts(base.elements, base.ends, frozen_to)
    for manifest in manifests:
        for part in manifest.parts:
            dead += 2 * part.adjusts + _dead_inserts(part.elements - part.adjusts, part.ends, frozen_to)
    return dead


def _dead_inserts(inserts: int, ends: Sequence[int], frozen_to: int) -> int:
    return inserts * bisect_left(ends, frozen_to) // len(ends) if ends else 0
