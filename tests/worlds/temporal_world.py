"""Random legal streams for operators of the temporal algebra, and the table that a stream means.

A stream has disorder, revisions up and down, removals, duplicates, ends at infinity, and stables that meet the next
change exactly. ``cut`` makes batches of it, each with at most one stable behind its changes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.values import Values

Item: TypeAlias = Change | int
"""A change, or a stable point."""

ROWS: Sequence[Values] = ((0,), (1,))
FIRST, LAST = -8, 16


def random_stream(
    random_: random.Random, items: int, rows: Sequence[Values] = ROWS, open_part: float = 0.1
) -> list[Item]:
    """Return a legal stream. ``open_part``: of the events, have no end at first."""
    live: list[Lifetime] = []
    stable = NEG_INF
    stream: list[Item] = []
    for _ in range(items):
        choice = random_.random()
        if choice < 0.5 or not live:
            vs = max(random_.randint(FIRST, LAST), stable, FIRST)
            ve = INF if random_.random() < open_part else vs + random_.choice((1, 1, 2, 3, 5, 9))
            live.append(Lifetime(random_.choice(rows), vs, ve))
            stream.append(Change(live[-1].row, vs, vs, ve))
        elif choice < 0.8:
            change = _revision(random_, live, stable)
            if change is not None:
                stream.append(change)
                live.remove(Lifetime(change.row, change.vs, change.old))
                if change.new > change.vs:
                    live.append(Lifetime(change.row, change.vs, change.new))
        else:
            times = [t for event in live for t in (event.vs, event.ve) if t < INF]
            t = random_.choice([max(stable + 1, FIRST), random_.randint(FIRST, LAST + 4), *times])
            if t > stable:
                stable = t
                stream.append(t)
    return [*stream, INF] if random_.random() < 0.5 else stream


def _revision(random_: random.Random, live: Sequence[Lifetime], stable: int) -> Change | None:
    """Return a legal adjust or removal of a live event, or None if the one that was drawn is not legal."""
    changeable = [event for event in live if event.ve >= stable]
    if not changeable:
        return None
    row, vs, ve = random_.choice(changeable)
    first = max(vs, stable)
    later = ve + 1 if ve < INF else first + 2
    new = random_.choice((INF, first, first + 1, first + random_.randint(0, 8), later))
    return None if new == ve else Change(row, vs, ve, new)


def cut(random_: random.Random, stream: Iterable[Item], part: float = 0.4) -> list[Delta]:
    """Return the stream in batches: cut behind every stable, and behind ``part`` of the changes."""
    batches: list[Delta] = []
    changes: list[Change] = []
    for item in stream:
        if isinstance(item, int):
            batches.append(Delta(changes, item))
            changes = []
            continue
        changes.append(item)
        if random_.random() < part:
            batches.append(Delta(changes, None))
            changes = []
    return [*batches, Delta(changes, None)] if changes else batches


class StreamTable:
    """The table that a stream means, and its stable point. Fails at a change that is not legal."""

    def __init__(self) -> None:
        self.events: Counter[Lifetime] = Counter()
        self.stable = NEG_INF
        self.inserts_only = True

    def apply(self, delta: Delta) -> None:
        """Take a batch; its changes come before its stable."""
        for change in delta.changes:
            row, vs, old, new = change
            assert old != new, f"{change} changes nothing"
            assert min(old, new) >= max(vs, self.stable), f"{change} lies below stable({self.stable})"
            if old > vs:
                assert self.events[Lifetime(row, vs, old)] > 0, f"{change} of an event that is not there"
                self.events[Lifetime(row, vs, old)] -= 1
                self.inserts_only = False
            if new > vs:
                self.events[Lifetime(row, vs, new)] += 1
        self.events = +self.events
        if delta.stable is not None:
            assert delta.stable > self.stable, f"stable({delta.stable}) after stable({self.stable})"
            self.stable = delta.stable
