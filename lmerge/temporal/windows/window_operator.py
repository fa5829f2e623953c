"""The operator of windows: groups, windows, when their results are emitted, and how far the output is stable.

Every step has the paper's four phases (V.D) for a whole batch: the windows that the changes affect are found and
updated (``WindowGroup.apply``), and for each one what was emitted is compared with its result now, so that retractions
and inserts are the smallest that do it (departure D8). Two calendars have the windows that only time moves: one by the
watermark, one by the stable point. So a step costs what changes.

The watermark is that of the whole stream: the latest stable, or the latest start of an event that was received (V.B).

**Stable point.** Nothing below it may be emitted or revised later. So it is the smallest start of a result that is not
settled (``settles_at``) or not emitted yet, and not more than where windows that have no events yet can begin. It moves
with the input's alone: the watermark can release a window and a revision hold it again, in one batch or in two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sortedcontainers import SortedList

from lmerge.core.calendar import Calendar, Node
from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import LmergeError
from lmerge.temporal.changes import Change, Delta, differences
from lmerge.temporal.columns import AnyDelta, ColumnDelta, MixedOperator, as_rows
from lmerge.temporal.errors import ModuleViolation
from lmerge.temporal.operators.operator import Due, raise_first, row_of_state
from lmerge.temporal.operators.skipping import SkippedEvents, SkippingOperator
from lmerge.temporal.values import OrderKey, Values
from lmerge.temporal.windows.grid_group import GridGroup, starts_of
from lmerge.temporal.windows.group import WindowEntry, WindowGroup, WindowRules
from lmerge.temporal.windows.holding import Holding, first_holding
from lmerge.temporal.windows.kinds import Hopping
from lmerge.temporal.windows.module import IncrementalModule
from lmerge.temporal.windows.placing import GROUPS, grid_group, placed_blocks, placed_inserts
from lmerge.temporal.windows.policies import Form, Stamp
from lmerge.temporal.windows.ready import ReadyWindows
from lmerge.temporal.windows.stamping import first_result, has_results, stamped
from lmerge.temporal.windows.window_state import check_group, restore_group, state_of_group


class WindowOperator(SkippingOperator, MixedOperator):
    """Results of windows, by group. ``key_of``: the group's key of a row; None: all rows are one group.

    ``key_order``: the order of groups, in which a checkpoint has them. ``key_columns``: the key's columns by their
    places in a row, if it has no other values.

    Raises ModuleViolation, LimitExceeded or UsageError from ``step``; the operator cannot go on then.
    """

    def __init__(
        self,
        name: str,
        rules: WindowRules,
        output_key: OrderKey,
        key_of: Callable[[Values], Values] | None = None,
        key_order: OrderKey = tuple,
        key_columns: Sequence[int] | None = None,
    ) -> None:
        # On a grid, events that end before the first window that is needed are left out. The ends of all others are.
        super().__init__(name, output_key, [SkippedEvents(rules.key) if isinstance(rules.kind, Hopping) else None])
        self._rules, self._key_of, self._key_order, self._key_columns = rules, key_of, key_order, key_columns
        self._groups: dict[Values, WindowGroup] = {}
        # Groups in whose live events further windows of a grid will begin.
        self._going_on: dict[Values, WindowGroup] = {}
        # Groups of this step, with the earliest time that a change of it has moved.
        self._touched: dict[Values, int] = {}
        self._mark = self._input_stable = self._begun_before = NEG_INF
        self._is_marked = False  # whether batches bring the stream's watermark
        # Where the grid of an event without end stops behind the end of all time (D13).
        self._last_finite = NEG_INF
        self._by_mark, self._by_stable = Calendar(), Calendar()
        self._open: SortedList[int] = SortedList()
        self._ready = ReadyWindows(rules)
        # Whether new events can be applied by window: if a state reads rows alone, or there is none and no end matters.
        reads_more = rules.module.reads_events if isinstance(rules.module, IncrementalModule) else rules.sees_ends
        self._takes_rows = isinstance(rules.kind, Hopping) and not reads_more
        if rules.keeps_empty:
            assert key_of is None, "groups without events are not there"
            self._groups[()] = self._going_on[()] = GROUPS[type(rules.kind)]((), rules)

    takes_columns = True  # whether nothing but the windows looks at the changes

    def step_mixed(self, deltas: Sequence[AnyDelta]) -> Delta:
        """Take a batch; new events as columns become rows by window at once."""
        (delta,) = deltas
        (skip,) = self._skips
        is_whole = self._takes_rows and skip is not None and skip.until == NEG_INF
        has_mark = self._is_marked or delta.mark is not None
        if isinstance(delta, Delta) or not (self.takes_columns and is_whole and has_mark and len(delta)):
            return self.step([as_rows(delta)])
        assert skip is not None
        return self._moved(skip.take(Delta([], delta.stable, delta.mark)), delta)

    def _step(self, deltas: Sequence[Delta]) -> Delta:
        (delta,) = deltas
        return self._moved(delta, delta)

    def _moved(self, delta: Delta, came: AnyDelta) -> Delta:
        """Move time as ``delta`` has it, take the changes that came, and return the batch of the output."""
        self._move_time(delta)
        if isinstance(came, Delta) or not self._inserted_columns(came):
            changes = as_rows(came).changes
            if not self._inserted(changes):
                for change in changes:
                    group = self._group(change.row)
                    group.apply(change, self._begun)
                    self._changed(group, change.sync_time)
        if self._mark == INF and isinstance(self._rules.kind, Hopping):
            self._end_grid()
        self._touch_due()
        return self._emit_merged(self._refresh(), None if delta.stable is None else self._output_stable())

    @property
    def skip_until(self) -> int:
        """The time before which events can end and have no part in what is needed.

        A grid needs the events of the first window that ends at or after what its consumer needs. Elsewhere an event
        that ends early can decide where a later window begins, and an unclipped result can outlive its window.
        """
        kind, t = self._rules.kind, self.fast_forwarded
        if t == NEG_INF or not isinstance(kind, Hopping) or self._rules.stamp in (Stamp.UNCHANGED, Stamp.TIME_BOUND):
            return NEG_INF
        return max(NEG_INF, min(INF, kind.first_over(t - 1) + 1))

    def next_due(self) -> Due:
        """Return the first stable point and watermark at which a window moves, or begins to hold the stable point."""
        stable = min(super().next_due().stable, self._by_stable.first_due())
        mark = self._by_mark.first_due()
        kind = self._rules.kind
        if self._going_on and isinstance(kind, Hopping):
            mark = min(mark, kind.start_above(self._begun))
        free = self._output_stable()
        if free is not None and free > self.stable:
            stable = min(stable, self._input_stable + 1)
        if self._open:
            holds_from = self._holds_from(self._open[0])
            if holds_from > self._input_stable:
                stable = min(stable, holds_from)
        return Due(stable, mark)

    @property
    def is_idle(self) -> bool:
        """Whether there is no group."""
        return not self._groups and super().is_idle

    def live(self) -> int:
        """Return the number of live events."""
        return super().live() + sum(group.live for group in self._groups.values())

    def sizes(self) -> dict[str, int]:
        """Return the numbers of groups and of windows."""
        groups = self._groups.values()
        return {"groups": len(groups), "windows": sum(len(group.windows) for group in groups)}

    def held_by(self) -> Holding | None:
        """Return the window that holds the output's stable point behind where the input's allows it."""
        if not self._open or self._open[0] >= self._input_stable:
            return None
        return first_holding(self._groups.values(), self._open[0], self._input_stable)

    def state(self) -> dict[str, Any]:
        """Return what the operator has to know to go on, as plain values."""
        times = [self._input_stable, self._mark, self._last_finite, self._is_marked]
        order = self._key_order
        groups = sorted(self._groups.values(), key=lambda group: order(group.key))
        kept = [state_of_group(group, self._input_stable) for group in groups]
        return super().state() | {"times": times, "groups": kept}

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` has returned. The operator is a new one."""
        super().restore(state)
        self._input_stable, self._mark, self._last_finite, self._is_marked = state["times"]
        for kept in state["groups"]:
            key = row_of_state(kept["key"])
            group = self._groups[key] = GROUPS[type(self._rules.kind)](key, self._rules)
            restore_group(group, kept)
            if group.goes_on(self._begun):
                self._going_on[key] = group
            if group.due is not None:
                self._by_stable.add([group.due, group, None])
            for entry in group.windows.values():
                self._wait(group, entry, group.closes_at(entry))

    def check(self) -> None:
        """Assert the invariants of groups and windows, and that no window is kept that is closed and emitted."""
        super().check()
        assert not self._touched
        for calendar in (self._by_mark, self._by_stable):
            calendar.check()
        for group in self._groups.values():
            check_group(group)
            for entry in group.windows.values():
                assert self._rules.form is Form.FINAL or not self._has_reached(group.closes_at(entry))
        assert list(self._open) == sorted(at for group in self._groups.values() for at in group.held.values())

    # Time.

    @property
    def _begun(self) -> int:
        """The watermark; behind the end of all time the latest finite one, where a grid of windows stops (D13)."""
        return self._last_finite if self._mark == INF else self._mark

    def _has_reached(self, due: int) -> bool:
        return self._input_stable >= due

    def _move_time(self, delta: Delta) -> None:
        """Move stable point and watermark, and let windows begin in the events that were there before."""
        before = self._begun_before = self._begun
        stable = self._input_stable if delta.stable is None else max(self._input_stable, delta.stable)
        mark = delta.mark
        if mark is not None:
            self._is_marked = True
        elif not self._is_marked:
            mark = max((change.vs for change in delta.changes), default=None)
        self._mark = max(self._mark, stable, NEG_INF if mark is None else mark)
        self._last_finite = max(before, *(t for t in (self._input_stable, stable, mark) if t is not None and t < INF))
        self._input_stable = stable
        self._begin_windows(before)

    def _begin_windows(self, before: int) -> None:
        """Let windows begin that start after ``before`` in the events that are there."""
        kind, going_on = self._rules.kind, self._going_on.values()
        if not isinstance(kind, Hopping) or kind.start_above(before) > self._begun or not going_on:
            return
        last = INF if self._rules.keeps_empty else max(group.events.last_end or NEG_INF for group in going_on)
        starts_of(kind, kind.start_above(before), min(last, self._begun + 1), self._rules.windows_max)
        for key, group in list(self._going_on.items()):
            group.advance(before, self._begun)
            if not group.goes_on(self._begun):
                del self._going_on[key]
            self._touch(group)

    def _end_grid(self) -> None:
        """Let windows begin up to the last end of an event: behind the end of all time nothing else stops them."""
        before = self._last_finite
        ends = (group.last_finite_end for group in self._groups.values())
        self._last_finite = max([before, *(end for end in ends if end is not None)])
        self._begin_windows(before)

    def _touch_due(self) -> None:
        """Touch the windows that time alone has moved."""
        if self._input_stable == INF:
            for group in self._groups.values():
                group.touched.update(group.windows)
                self._touch(group)
        for node in _up_to(self._by_mark, self._mark):
            self._look_again(node, "due_mark")
        for node in _up_to(self._by_stable, self._input_stable):
            if node[2] is None:
                self._look_at_group(node)
            else:
                self._look_again(node, "due_stable")

    def _look_again(self, node: Node, field: str) -> None:
        due, start = node[0], node[2]
        group: WindowGroup = node[1]
        entry = group.windows.get(start)
        if entry is not None and getattr(entry, field) == due and self._groups.get(group.key) is group:
            setattr(entry, field, None)
            group.touched.add(start)
            self._touch(group)

    def _look_at_group(self, node: Node) -> None:
        group: WindowGroup = node[1]
        if group.due == node[0] and self._groups.get(group.key) is group:
            group.due = None
            self._touch(group)

    # Groups.

    def _inserted(self, changes: Sequence[Change]) -> bool:
        """Apply new events by group and window, or return False if each must be applied by itself."""
        if not (self._takes_rows and changes):
            return False
        found = placed_inserts(self._rules, changes, self._key_of, self._groups, self._begun)
        for group, some, windows in found or ():
            self._groups[group.key] = group
            group.insert(some, windows, self._begun)
            self._changed(group, min(change.vs for change in some))
        return found is not None

    def _inserted_columns(self, batch: ColumnDelta) -> bool:
        """Do as ``_inserted`` for columns. When time is bound the first change of each group counts, so not then."""
        if self._rules.stamp is Stamp.TIME_BOUND:
            return False
        found = placed_blocks(self._rules, batch, self._key_columns, self._key_of, self._begun)
        for key, (windows, kept) in (found or {}).items():
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = grid_group(key, self._rules)
            assert isinstance(group, GridGroup)
            group.insert_blocks(kept, windows, self._begun)
            self._changed(group, INF)
        return found is not None

    def _changed(self, group: WindowGroup, sync_time: int) -> None:
        """Note that events of a group have changed from ``sync_time`` on."""
        self._touch(group, sync_time)
        if group.goes_on(self._begun):
            self._going_on[group.key] = group

    def _group(self, row: Values) -> WindowGroup:
        key = () if self._key_of is None else self._key_of(row)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = GROUPS[type(self._rules.kind)](key, self._rules)
        return group

    def _touch(self, group: WindowGroup, sync_time: int = INF) -> None:
        self._touched[group.key] = min(sync_time, self._touched.get(group.key, INF))

    def _refresh(self) -> list[Change]:
        """Bring what was emitted for each touched window to what it must be, and drop what is closed."""
        changes: list[Change] = []
        failures: list[tuple[Values, LmergeError]] = []
        touched = [(self._groups[key], sync) for key, sync in self._touched.items()]
        self._touched.clear()
        for group, sync_time in touched:
            try:
                for start in sorted(group.touched):
                    found = self._refreshed(group, start)
                    if self._rules.stamp is Stamp.TIME_BOUND:
                        self._check_bound(group, start, found, sync_time)
                    changes += found
            except LmergeError as error:
                failures.append((group.key, error))
            group.touched.clear()
        raise_first(failures, self._key_order)
        for group, start in self._ready.released():
            entry = group.windows.pop(start)
            try:
                changes += differences((), stamped(group, entry) if has_results(group, entry) else ())
            except LmergeError as error:
                failures.append((group.key, error))
            self._hold(group, start, None)
            self._touched[group.key] = INF
        raise_first(failures, self._key_order)
        for group in [*(group for group, _ in touched), *(self._groups[key] for key in self._touched)]:
            self._prune(group)
        self._touched.clear()
        return changes

    def _refreshed(self, group: WindowGroup, start: int) -> list[Change]:
        """Return the changes of a window's results, and note when to look at it again."""
        entry = group.windows.get(start)
        emitted = group.emitted.pop(start, [])
        if entry is None:
            self._hold(group, start, None)
            self._ready.forget(group, start)
            return differences(emitted, ())
        closes_at = group.closes_at(entry)
        is_closed = self._has_reached(closes_at)
        if self._rules.form is Form.FINAL:
            self._wait(group, entry, closes_at)
            return []
        must = self._must_be_emitted(group, entry)
        results = stamped(group, entry) if must and has_results(group, entry) else []
        next_look = INF
        if self._rules.stamp is Stamp.TIME_BOUND and self._rules.form is Form.SETTLED and not is_closed:
            next_look = min((one.vs + 1 for one in results if one.vs >= self._input_stable), default=INF)
            results = [one for one in results if one.vs < self._input_stable]
        if is_closed:
            self._hold(group, start, None)
            del group.windows[start]
        else:
            if results:
                group.emitted[start] = results
            self._wait(group, entry, closes_at, next_look)
        return differences(emitted, results)

    def _wait(self, group: WindowGroup, entry: WindowEntry, closes_at: int, next_look: int = NEG_INF) -> None:
        """Let a window hold the output's stable point, and note when to look at it again: a checkpoint has neither.

        ``next_look``: when its next time-bound result has begun; if that is not known, at the next stable point.
        """
        start = entry.start
        if self._rules.form is Form.FINAL:
            self._ready.note(group, start, self._has_reached(closes_at))
            self._hold(group, start, first_result(group, entry))
            self._look_later(group, entry, False, closes_at, next_look)
            return
        must = self._must_be_emitted(group, entry)
        is_settled = self._has_reached(group.settles_at(entry)) or self._rules.stamp is Stamp.TIME_BOUND
        self._hold(group, start, None if must and is_settled else first_result(group, entry))
        self._look_later(group, entry, must, closes_at, next_look)

    def _must_be_emitted(self, group: WindowGroup, entry: WindowEntry) -> bool:
        form = self._rules.form
        if form is Form.EAGER:
            return entry.start <= self._mark
        if form is Form.SETTLED:
            return self._rules.stamp is Stamp.TIME_BOUND or self._has_reached(group.settles_at(entry))
        # What the output's stable point has passed was emitted, and a revision cannot take it back (D9).
        first = first_result(group, entry)
        return entry.end <= self._mark or (first is not None and first < self.stable)

    def _check_bound(self, group: WindowGroup, start: int, changes: list[Change], sync_time: int) -> None:
        """Raise ModuleViolation if a change of a window lies before the change of the input that caused it (V.F.1).

        Only the form that emits at once shows what caused a change. Others emit later what an earlier change has made.
        """
        is_caused = self._rules.form is Form.EAGER and start <= self._begun_before and sync_time < INF
        bound = sync_time if is_caused else self.stable
        for change in changes:
            if change.sync_time < bound:
                raise ModuleViolation(
                    f"{self.name}: {self._rules.module.shown} is declared time-bound, and a change at {bound} made it "
                    f"{change} in the window that starts at {start}"
                )

    def _look_later(self, group: WindowGroup, entry: WindowEntry, must: bool, closes_at: int, next_look: int) -> None:
        """Enter a window into the calendars for the next times at which time alone can move it."""
        form = self._rules.form
        mark = entry.start if form is Form.EAGER else entry.end
        is_by_mark = form in (Form.EAGER, Form.WATERMARK) and not must
        if is_by_mark and self._mark < mark < INF and entry.due_mark != mark:
            entry.due_mark = mark
            self._by_mark.add([mark, group, entry.start])
        due = closes_at
        if form is not Form.FINAL and not self._has_reached(group.settles_at(entry)):
            due = group.settles_at(entry)
        if self._rules.stamp is Stamp.TIME_BOUND and form is Form.SETTLED:
            due = min(closes_at, max(next_look, self._input_stable + 1))
        if self._input_stable < due < INF and entry.due_stable != due:
            entry.due_stable = due
            self._by_stable.add([due, group, entry.start])

    def _prune(self, group: WindowGroup) -> None:
        """Drop what a group does not need, and come back when the next of its events has ended."""
        group.prune(self._input_stable)
        if group.is_empty or self._input_stable == INF:
            self._groups.pop(group.key, None)
            self._going_on.pop(group.key, None)
            return
        first = group.first_end
        if first is None or first == INF:
            return
        due = first + 1
        if due > self._input_stable and (group.due is None or due < group.due):
            group.due = due
            self._by_stable.add([due, group, None])

    # The output's stable point.

    def _hold(self, group: WindowGroup, start: int, at: int | None) -> None:
        """Let a window hold the output's stable point at ``at``, or not at all."""
        before = group.held.pop(start, None)
        if before is not None:
            self._open.remove(before)
        if at is not None:
            group.held[start] = at
            self._open.add(at)

    def _output_stable(self) -> int | None:
        stable, kind, stamp = self._input_stable, self._rules.kind, self._rules.stamp
        if stable in (NEG_INF, INF):
            return None if stable == NEG_INF else INF
        if isinstance(kind, Hopping) and stamp is not Stamp.TIME_BOUND:
            # The first window that ends behind the input's stable point; an event can still come into it. None begins
            # at -inf or before.
            stable = max(kind.first_over(stable), kind.start_above(NEG_INF))
            if stamp is Stamp.POINT_AT_END:
                stable += kind.size - 1
        return min(stable, INF, self._open[0] if self._open else INF)

    def _holds_from(self, at: int) -> int:
        """Return the first stable point of the input at which a window that holds at ``at`` holds the output's."""
        kind, stamp = self._rules.kind, self._rules.stamp
        if not isinstance(kind, Hopping) or stamp is Stamp.TIME_BOUND:
            return at + 1
        # Then every window that could be emitted at or before ``at`` has ended.
        last = at - kind.size + 1 if stamp is Stamp.POINT_AT_END else at
        return kind.start_above(last) - kind.hop + kind.size


def _up_to(calendar: Calendar, t: int) -> list[Node]:
    """Remove and return the nodes that are due at or before ``t``."""
    return [] if t == NEG_INF else calendar.pop_below(min(t + 1, INF))
