"""Where a stream enters a plan: it is checked, gets its stable points, and is cut into batches (seed 000, II.C).

A source either declares stable points itself, or leaves them to a rule (``ProgressRule``). With a rule, a change that
lies before the stable point is *late*. It is dropped, moved or refused, by ``LatePolicy``, and counted. A source may go
on revising an event that was dropped or moved: what came of it is remembered for as long as it can be revised.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgpack

from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.core.properties import INSERT_ONLY, KEY, NOTHING, ORDERED, STRICTLY_ORDERED, Properties, closure
from lmerge.errors import InputViolation, UsageError
from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.columns import AnyDelta, as_rows
from lmerge.temporal.open_events import OpenEvents
from lmerge.temporal.operators.operator import event_of_state, state_of_event
from lmerge.temporal.values import OrderKey
from lmerge.text_enum import TextEnum


class LatePolicy(TextEnum):
    """What happens to a change before the stable point.

    ``drop``: it has no effect. ``move``: what of it lies behind the stable point has its effect, so an event that has
    ended is dropped. ``fail``: it ends the query.
    """

    DROP = "drop"
    MOVE = "move"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class ProgressRule:
    """When a source is stable: ``delay`` behind the latest start, each ``every`` starts' distance or ``events`` events.

    With neither ``every`` nor ``events`` it moves with every start. A ``delay`` of 0 is right for a source whose starts
    do not decrease. Raises UsageError for negative numbers.
    """

    delay: int = 0
    every: int = 0
    events: int = 0

    def __post_init__(self) -> None:
        for what, value in (("delay", self.delay), ("every", self.every), ("events", self.events)):
            if value < 0:
                raise UsageError(f"a rule of progress has {what}={value}, which is negative")


class StreamEntrance:
    """Makes checked batches of a source's changes. ``rule`` None: the source declares its stable points.

    ``has_points``: every event of the source lasts one unit of time. ``promises``: what the source promises of its
    stream (IV.G); a plan believes it, so it is checked. ``dropped`` and ``moved`` count late changes.
    ``has_columns``: its batches are columns.
    """

    has_columns: ClassVar[bool] = False

    def __init__(
        self,
        name: str,
        rule: ProgressRule | None = None,
        late: LatePolicy = LatePolicy.FAIL,
        *,
        has_points: bool = False,
        promises: Properties = NOTHING,
    ) -> None:
        self.name = name
        self._promises = closure(promises)
        self._has_points = has_points
        self.live = OpenEvents(name)
        self.dropped = self.moved = 0
        self._rule, self._late = rule, late
        self._stable = NEG_INF  # that of the live events follows it at the end of a batch
        self._latest = NEG_INF  # start
        self._last_start: int | None = None  # of an event that came, where its source promises an order
        self._mark: int | None = None  # moved since the last batch
        self._since_stable = 0  # events
        # What the source takes an event for, and what it is: by the source's (row, vs, ve); None: it was dropped.
        self._other: dict[Lifetime, list[Lifetime | None]] = {}

    def take(self, items: Iterable[Change | int]) -> list[Delta]:
        """Return the batches of changes and stable points (int) in their order.

        They are cut behind each stable point that the source declares. With a rule, all is one batch with the last
        stable point: what is late is decided change by change, so it does not depend on what is taken at once. Raises
        InputViolation for what no policy covers: the batches before have not been returned then.
        """
        batches: list[Delta] = []
        changes: list[Change] = []
        for item in items:
            stable: int | None
            if isinstance(item, int):
                stable = item
                if self._rule is not None and item != INF:
                    raise UsageError(
                        f"source {self.name!r} declares stable({item}), and a rule makes its stable points"
                    )
            else:
                self._check_promises(item)
                change = self._admitted(item)
                if change is not None:
                    self.live.apply(change)
                    changes.append(change)
                if item.vs > self._latest:
                    self._latest = self._mark = item.vs
                stable = self._due()
            if stable is not None and stable > self._stable:
                self._stable, self._since_stable = stable, 0
                if self._rule is None:
                    batches.append(self._batch(changes))
                    changes = []
        last = self._batch(changes)
        return batches if last.is_empty else [*batches, last]

    def batches(self, items: Iterable[Change | int]) -> Sequence[AnyDelta]:
        """Do as ``take``, and return the batches in the form in which they are made."""
        return self.take(items)

    def take_columns(self, batch: AnyDelta) -> Sequence[AnyDelta]:
        """Return the batches of changes in any form, and of the stable point behind them. Raises as ``take``."""
        return self.take([*as_rows(batch).changes, *([] if batch.stable is None else [batch.stable])])

    @property
    def mark(self) -> int:
        """The watermark: the latest start that the source has had, or its stable point if that is later."""
        return max(self._latest, self._stable)

    def state(self, key: OrderKey) -> dict[str, Any]:
        """Return what the entrance has to know to go on, as plain values. ``key``: the order of the source's rows."""
        others = sorted(self._other.items(), key=lambda item: (item[0].vs, key(item[0].row), item[0].ve))
        return {
            "live": self.live.state(key),
            "latest": self._latest,
            "last_start": self._last_start,
            "since_stable": self._since_stable,
            "late": [self.dropped, self.moved],
            "other": [
                [state_of_event(claimed), [None if actual is None else state_of_event(actual) for actual in actuals]]
                for claimed, actuals in others
            ],
        }

    def packed_state(self, key: OrderKey) -> bytes:
        """Return ``state`` as MessagePack."""
        packed: bytes = msgpack.packb(self.state(key))
        return packed

    def restore_packed(self, state: bytes) -> None:
        """Take what ``packed_state`` has returned. The entrance is a new one with the same settings."""
        self.restore(msgpack.unpackb(state))

    def restore(self, state: dict[str, Any]) -> None:
        """Take what ``state`` has returned. The entrance is a new one with the same settings."""
        self.live.restore(state["live"])
        self._stable = self.live.stable
        self._latest, self._since_stable = state["latest"], state["since_stable"]
        self._last_start = state["last_start"]
        self.dropped, self.moved = state["late"]
        self._other = {
            event_of_state(claimed): [None if actual is None else event_of_state(actual) for actual in actuals]
            for claimed, actuals in state["other"]
        }

    def advance(self, latest: int) -> list[Delta]:
        """Take that the source has come to ``latest`` without events that matter; return the batch that follows.

        The rule of progress makes its stable point. Without a rule nothing follows: the source declares them itself.
        """
        if self._rule is None:
            return []
        if latest > self._latest:
            self._latest = self._mark = latest
        stable = max(NEG_INF, self._latest - self._rule.delay)
        if stable > self._stable:
            self._stable, self._since_stable = stable, 0
        batch = self._batch([])
        return [] if batch.is_empty else [batch]

    def _check_promises(self, item: Change) -> None:
        """Raise InputViolation for a change that the source has promised not to make."""
        promises = self._promises
        if self._has_points and item.new - item.vs not in (0, 1):
            came = f"this one has [{show_time(item.vs)}, {show_time(item.new)})"
            raise InputViolation("no-point", self.name, str(item), "events of one unit of time", came)
        if not promises:
            return
        if not item.is_insert:
            if INSERT_ONLY in promises:
                promised, came = "only inserts and stables (insert-only)", "an adjust came"
                raise self._broken("adjust-not-promised", item, promised, came, INSERT_ONLY)
            return
        last = self._last_start
        if ORDERED in promises:
            strictly = STRICTLY_ORDERED in promises
            if last is not None and (item.vs < last or (strictly and item.vs == last)):
                rule, promise = ("increases", STRICTLY_ORDERED) if strictly else ("does not decrease", ORDERED)
                came = f"Vs is {show_time(item.vs)} after {show_time(last)}"
                raise self._broken("out-of-order", item, f"that Vs {rule} ({promise})", came, promise)
            self._last_start = item.vs
        if KEY in promises and self.live.ends(item.row, item.vs):
            promised, came = "that row and Vs are a key (key)", "it already has an event with this row and Vs"
            raise self._broken("duplicate-key", item, promised, came, KEY)

    def _broken(self, code: str, item: Change, promised: str, came: str, promise: str) -> InputViolation:
        return InputViolation(code, self.name, str(item), promised, came, property_name=promise)

    def _batch(self, changes: list[Change]) -> Delta:
        """Return a batch with the stable point, if it has moved since the last one."""
        stable = self._stable if self._stable > self.live.stable else None
        if stable is not None:
            self._move_stable(stable)
        mark, self._mark = self._mark, None
        return Delta(changes, stable, mark)

    def _due(self) -> int | None:
        """Return the stable point that the rule makes behind a change, if any."""
        rule = self._rule
        if rule is None:
            return None
        self._since_stable += 1
        stable = max(NEG_INF, self._latest - rule.delay)
        if self._since_stable < rule.events or stable <= self._stable:
            return None
        if rule.every and self._stable != NEG_INF and stable - self._stable < rule.every:
            return None
        return stable

    def _move_stable(self, stable: int) -> None:
        if stable == INF:
            # Windows of events without an end stop at the last finite time that the source has had (D13).
            ends = (event.ve for event in self.live if event.ve < INF)
            last = max(ends, default=NEG_INF)
            if last > self._latest:
                self._latest = self._mark = last
        self.live.move_stable(stable)
        for claimed, actuals in list(self._other.items()):
            left = [actual for actual in actuals if self._matters(claimed, actual)]
            if left:
                self._other[claimed] = left
            else:
                del self._other[claimed]

    # Late changes.

    def _admitted(self, change: Change) -> Change | None:
        """Return the change that has the effect of one by the source, or None if it has none."""
        row, vs, old, new = change
        if self._rule is None or new < vs or (old == vs >= self._stable and new > vs):
            return change
        claimed = Lifetime(row, vs, old)
        actual = None if change.is_insert else self._actual(claimed)
        is_final = actual is not None and actual.ve < self._stable
        if is_final:
            actual = None  # what is left of it is a past that nothing changes
        wish = Lifetime(row, vs, new) if new > vs else None
        goal = self._nearest(actual, wish)
        if goal != wish or is_final:
            self._count_late(change, actual, goal)
            if wish is not None and goal != wish and self._matters(wish, goal):
                self._other.setdefault(wish, []).append(goal)
        return _change_between(actual, goal)

    def _matters(self, claimed: Lifetime, actual: Lifetime | None) -> bool:
        """Whether a revision of an event of the source has to find what it is: until both are fully frozen."""
        return claimed.ve >= self._stable or (actual is not None and actual.ve >= self._stable)

    def _actual(self, claimed: Lifetime) -> Lifetime | None:
        """Return what became of an event of the source."""
        others = self._other.get(claimed, [])
        while others:
            actual = others.pop()
            if not others:
                del self._other[claimed]
            if self._matters(claimed, actual):
                return actual
        return claimed

    def _nearest(self, actual: Lifetime | None, wish: Lifetime | None) -> Lifetime | None:
        """Return the event nearest to a wish that is legal, given what is there."""
        stable, moves = self._stable, self._late is LatePolicy.MOVE
        if actual is None:
            if wish is None or wish.vs >= stable:
                return wish
            return Lifetime(wish.row, stable, wish.ve) if moves and wish.ve > stable else None
        row, vs, _ = actual
        end = vs if wish is None else wish.ve
        if end < stable:
            if not moves:
                return actual
            end = stable
        return Lifetime(row, vs, end) if end > vs else None

    def _count_late(self, change: Change, actual: Lifetime | None, goal: Lifetime | None) -> None:
        if self._late is LatePolicy.FAIL:
            promised = f"no change before stable({show_time(self._stable)}), by its rule of progress"
            came = f"it changes the table at {show_time(change.sync_time)}"
            raise InputViolation("late", self.name, str(change), promised, came)
        if goal == actual:
            self.dropped += 1
        else:
            self.moved += 1


def _change_between(before: Lifetime | None, after: Lifetime | None) -> Change | None:
    """Return the change that makes one event another of the same row and start, or None if they are equal."""
    if before == after:
        return None
    event = before if after is None else after
    assert event is not None
    old = event.vs if before is None else before.ve
    return Change(event.row, event.vs, old, event.vs if after is None else after.ve)
