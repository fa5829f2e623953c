"""What a plan promises of a stream, held against what was emitted (6.3): order, inserts alone, keys.

Written from the definitions of IV.G alone: the merge checks the same in another way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from lmerge.core.elements import NEG_INF, show_time
from lmerge.core.properties import INSERT_ONLY, KEY, ORDERED, STRICTLY_ORDERED, Properties
from lmerge.temporal.changes import Delta
from lmerge.temporal.values import Values


def broken_promise(promises: Properties, deltas: Iterable[tuple[int, Delta]]) -> tuple[int, str] | None:
    """Return the step of the first change that breaks a promise, and how; None if all are kept.

    ``deltas``: what was emitted, with the numbers of the steps.
    """
    latest = NEG_INF
    alive: Counter[tuple[Values, int]] = Counter()
    for step, delta in deltas:
        for change in delta.changes:
            row, vs, old, new = change
            if old > vs:
                if INSERT_ONLY in promises:
                    return step, f"{change} came, and the plan promises inserts alone"
                alive[row, vs] -= new == vs
                continue
            if ORDERED in promises and vs < latest:
                return step, f"{change} came after a start of {show_time(latest)}, and the plan promises their order"
            if STRICTLY_ORDERED in promises and vs == latest > NEG_INF:
                return step, f"{change} starts when another event has, and the plan promises that none does"
            latest = max(latest, vs)
            alive[row, vs] += 1
            if KEY in promises and alive[row, vs] > 1:
                return step, f"{change} is there already, and the plan promises that row and start are a key"
    return None
