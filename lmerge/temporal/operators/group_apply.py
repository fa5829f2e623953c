"""Group-and-apply (sheet O8): each group of a stream runs its own copy of a sub-plan, and the union of all comes out.

The table is that of a plan that filters each key, computes the sub-plan for it, and unites the results. Watermark and
stable point are those of the whole stream (II.C; V.B): a window of one group begins when any group's event comes.

**Time costs what changes.** A group runs only when it has changes, or when time makes a difference to it. Beside the
groups runs one more copy of the sub-plan, which gets no events but all of time: the *idle* one. A group in which
nothing is due (``PlanOperator.next_due``) does at each place what the idle one does there. So the groups wait in
calendars, one for each place of the sub-plan and each of its times, and ``stable`` visits those alone for which a place
of the idle copy has reached what they wait for. A group that has waited gets the time that has passed with its next
change: how a stream is cut into batches makes no difference to an operator.

The output's stable point is the idle copy's, or the least of the groups that hold it further back. A group whose
operators are as without events is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from sortedcontainers import SortedList

from lmerge.core.calendar import Calendar, Node
from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import LmergeError
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.graph import OperatorGraph
from lmerge.temporal.operators.lifetimes import plus
from lmerge.temporal.operators.operator import Due, PlanOperator, raise_first, row_of_state, state_of_row
from lmerge.temporal.values import OrderKey, Values, show_values

Slot: TypeAlias = tuple[int, bool]
"""A place of the sub-plan, and whether it is its watermark that counts, or its stable point."""


class AppliedGroup:
    """A group: its operators, the time that they have seen, when they must see time again, and where they hold it."""

    __slots__ = ("graph", "held", "key", "mark", "stable", "waits")

    def __init__(self, key: Values, graph: OperatorGraph) -> None:
        self.key, self.graph = key, graph
        self.stable = self.mark = NEG_INF
        # By slot: [due, the group, the slot] in its calendar.
        self.waits: dict[Slot, Node] = {}
        self.held: int | None = None

    def restore(self, times: Sequence[int], states: Sequence[dict[str, Any]]) -> None:
        """Take the stable point and the watermark that it has seen, and the states of its operators."""
        self.stable, self.mark = times
        self.graph.restore(states)

    def stables(self) -> list[int]:
        """Return the stable point of each place."""
        return [self.stable, *(step.operator.stable for step in self.graph.steps)]

    @property
    def skipped(self) -> int:
        """How often its operators have left an event out."""
        return sum(step.operator.skipped for step in self.graph.steps)

    @property
    def is_idle(self) -> bool:
        """Whether its operators are as without events."""
        return all(step.operator.is_idle for step in self.graph.steps)


class GroupApplyOperator(PlanOperator):
    """A sub-plan for each group. ``make`` returns new operators for it: a graph of one source and one output.

    ``key_of``: the group's key of a row; None: all rows are one group. ``key_order``: the order of keys. ``has_keys``:
    the key stands before the columns of the sub-plan. Raises from ``step`` what the sub-plan's operators raise.
    """

    def __init__(
        self,
        name: str,
        output_key: OrderKey,
        make: Callable[[], OperatorGraph],
        key_of: Callable[[Values], Values] | None,
        key_order: OrderKey,
        has_keys: bool,
    ) -> None:
        super().__init__(name, output_key)
        self._make, self._key_of, self._key_order, self._has_keys = make, key_of, key_order, has_keys
        self._groups: dict[Values, AppliedGroup] = {}
        self._idle = AppliedGroup((), make())
        (self._output,) = self._idle.graph.outputs
        self._needed = NEG_INF
        self._is_marked = False  # whether batches bring the stream's watermark
        self._left_out = 0  # by groups that were dropped
        places = 1 + len(self._idle.graph.steps)
        self._calendars: dict[Slot, Calendar] = {
            (place, of_mark): Calendar() for place in range(places) for of_mark in (False, True)
        }
        self._held: SortedList[int] = SortedList()
        # Of the idle copy, by place.
        self._stables, self._marks = [NEG_INF] * places, [NEG_INF] * places

    def step(self, deltas: Sequence[Delta]) -> Delta:
        """Take a batch; run the groups that it changes, and those for which it is time."""
        (delta,) = deltas
        visits: dict[Values, list[Change]] = {}
        for change in delta.changes:
            visits.setdefault(() if self._key_of is None else self._key_of(change.row), []).append(change)
        self._move_time(delta)
        now = self._idle.stable, self._idle.mark
        for group in self._due_groups():
            visits.setdefault(group.key, [])
        changes: list[Change] = []
        failures: list[tuple[Values, LmergeError]] = []
        for key, own in visits.items():
            group = self._groups.get(key) or self._new_group(key)
            try:
                changes += self._run(group, own, *now)
            except LmergeError as error:
                failures.append((key, error))
                continue
            self._settle(group)
        raise_first(failures, self._key_order)
        return self._emit_merged(changes, None if delta.stable is None else self._output_stable())

    def mark_of(self, mark: int) -> int:
        """Return the watermark of the sub-plan's output."""
        return self._marks_at(mark)[self._output]

    def fast_forward(self, t: int) -> list[int]:
        """Learn that the consumer needs no event that ends before ``t``; return the least that a group needs."""
        super().fast_forward(t)
        needed = self._idle.graph.fast_forward(0, self.fast_forwarded)
        for group in self._all_now():
            needed += group.graph.fast_forward(0, self.fast_forwarded)
            self._settle(group)
        return [min(needed)]

    def next_due(self) -> Due:
        """Return the first time for which a group waits; the next one, if one waits for a place inside the sub-plan."""
        if any(place and calendar.first_due() < INF for (place, _), calendar in self._calendars.items()):
            return Due(NEG_INF, NEG_INF)
        stable, mark = (self._calendars[0, of_mark].first_due() for of_mark in (False, True))
        if self._output_stable() > self.stable:
            stable = min(stable, plus(self._idle.stable, 1))
        return Due(stable, mark)

    @property
    def skipped(self) -> int:
        """How often an event was left out and not evaluated, by any group's operators."""
        return self._left_out + sum(group.skipped for group in self._groups.values())

    @property
    def is_idle(self) -> bool:
        """Whether there is no group."""
        return not self._groups

    def live(self) -> int:
        """Return the number of events that the groups' operators keep."""
        return sum(group.graph.live() for group in self._groups.values())

    def state(self) -> dict[str, Any]:
        """Return what the operator has to know to go on, as plain values. Every group is brought to the time it is."""
        groups = sorted(self._all_now(), key=lambda group: self._key_order(group.key))
        return super().state() | {
            "is_marked": self._is_marked,
            "times": [self._idle.stable, self._idle.mark],
            "idle": self._idle.graph.state(),
            "groups": [[state_of_row(group.key), group.graph.state()] for group in groups],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` has returned. The operator is a new one."""
        super().restore(state)
        self._is_marked = state["is_marked"]
        self._idle.restore(state["times"], state["idle"])
        self._stables, self._marks = self._idle.stables(), self._marks_at(self._idle.mark)
        for slot, calendar in self._calendars.items():
            calendar.pop_below(self._reached(slot))
        for plain, kept in state["groups"]:
            key = row_of_state(plain)
            group = self._groups[key] = AppliedGroup(key, self._make())
            group.restore(state["times"], kept)
            self._settle(group)

    def check(self) -> None:
        """Assert that groups have events, and that none of them has anything to do at the time that it is."""
        assert list(self._held) == sorted(group.held for group in self._groups.values() if group.held is not None)
        self._idle.graph.check()
        assert self._idle.is_idle
        for calendar in self._calendars.values():
            calendar.check()
        for group in self._groups.values():
            group.graph.check()
            assert not group.is_idle
            self._check_waits(group)

    # Time.

    def _move_time(self, delta: Delta) -> None:
        """Give the idle copy the time of a batch."""
        idle, mark = self._idle, delta.mark
        if mark is not None:
            self._is_marked = True
        elif not self._is_marked:
            mark = max((change.vs for change in delta.changes), default=None)
        stable = idle.stable if delta.stable is None else max(idle.stable, delta.stable)
        emitted = self._run(idle, [], stable, idle.mark if mark is None else max(idle.mark, mark))
        assert not emitted, "operators without events emit something"
        self._stables, self._marks = idle.stables(), self._marks_at(idle.mark)

    def _marks_at(self, mark: int) -> list[int]:
        """Return the watermark of each place at one of the source."""
        marks = [mark]
        for operator, reads, _ in self._idle.graph.steps:
            marks.append(operator.mark_of(max(marks[place] for place in reads)))
        return marks

    def _reached(self, slot: Slot) -> int:
        """Return the time behind the one that a place of the idle copy has reached."""
        place, of_mark = slot
        return min(INF, (self._marks if of_mark else self._stables)[place] + 1)

    def _due_groups(self) -> list[AppliedGroup]:
        """Return the groups for which it is time, and take them out of the calendars in which they have waited."""
        if self._idle.stable == INF:
            return list(self._groups.values())
        due = []
        for slot, calendar in self._calendars.items():
            for node in calendar.pop_below(self._reached(slot)):
                if node[0] is not None:
                    group: AppliedGroup = node[1]
                    del group.waits[slot]
                    due.append(group)
        return due

    def _output_stable(self) -> int:
        """Return the least stable point of the groups and of one that may come."""
        stable = self._stables[self._output]
        return min(stable, self._held[0]) if self._held else stable

    # Groups.

    def _new_group(self, key: Values) -> AppliedGroup:
        group = self._groups[key] = AppliedGroup(key, self._make())
        if self.fast_forwarded > NEG_INF:
            group.graph.fast_forward(0, self.fast_forwarded)
        return group

    def _all_now(self) -> list[AppliedGroup]:
        """Bring every group to the time that it is, and return those that are left."""
        for group in list(self._groups.values()):
            waited = self._run(group, [], self._idle.stable, self._idle.mark)
            assert not waited, "a group has waited too long"
            self._settle(group)
        return list(self._groups.values())

    def _run(self, group: AppliedGroup, own: list[Change], stable: int, mark: int) -> list[Change]:
        """Give a group its changes and the time behind them; return the changes of its output."""
        delta = Delta(own, stable if stable > group.stable else None, mark if mark > group.mark else None)
        group.stable, group.mark = stable, mark
        if delta.is_empty:
            return []
        try:
            (found,) = group.graph.step([delta])
        except LmergeError as error:
            where = "" if self._key_of is None else f"group {show_values(group.key)}: "
            error.args = (f"{self.name}: {where}{error}", *error.args[1:])
            raise
        if not self._has_keys:
            return found.changes
        return [Change(group.key + row, vs, old, new) for row, vs, old, new in found.changes]

    def _settle(self, group: AppliedGroup) -> None:
        """Note until when a group that is at the stream's time need not run, or drop it."""
        if group.is_idle or group.stable == INF:
            self._drop(group)
            return
        stables = group.stables()
        for (operator, reads, _), at in zip(group.graph.steps, range(1, len(stables)), strict=True):
            due = operator.next_due()
            self._wait_for_stable(group, reads, stables, min(due))
            if stables[at] == self._stables[at] and all(stables[place] < self._stables[place] for place in reads):
                # On a grid the input that the group holds back comes to hold the output behind a window only.
                self._wait(group, (at, False), stables[at] + 1)
            if due.mark < INF:
                for place in reads:
                    self._wait(group, (place, True), due.mark)
            assert stables[at] <= self._stables[at], f"{operator.name} of a group is stable before one without events"
        out = stables[self._output]
        self._hold(group, out if out < self._stables[self._output] else None)

    def _wait_for_stable(self, group: AppliedGroup, reads: Sequence[int], stables: Sequence[int], due: int) -> None:
        """Let a group wait until all that one of its operators reads has reached ``due``.

        An input that the group holds back moves only when the group runs. Others move with the idle copy.
        """
        held = [stables[place] for place in reads if stables[place] < self._stables[place]]
        ahead = next((place for place in reads if self._stables[place] < due), None)
        if due < INF and ahead is not None:
            self._wait(group, (ahead, False), due)
        elif due < INF and not held:
            self._wait(group, (min(reads, key=lambda place: self._stables[place]), False), due)
        if held and len(held) < len(reads):
            # From here on the operator's output is held back by that input.
            for place in reads:
                if stables[place] == self._stables[place] <= min(held):
                    self._wait(group, (place, False), min(held) + 1)

    def _wait(self, group: AppliedGroup, slot: Slot, due: int) -> None:
        """Enter a group into a calendar. One that is there earlier stays; it waits anew when that time comes."""
        due = max(due, self._reached(slot))
        node = group.waits.get(slot)
        if due == INF or (node is not None and node[0] <= due):
            return
        if node is not None:
            node[0] = None
        node = group.waits[slot] = [due, group]
        self._calendars[slot].add(node)

    def _hold(self, group: AppliedGroup, at: int | None) -> None:
        """Let a group hold the output's stable point at ``at``, or not at all."""
        if group.held is not None:
            self._held.remove(group.held)
        group.held = at
        if at is not None:
            self._held.add(at)

    def _drop(self, group: AppliedGroup) -> None:
        del self._groups[group.key]
        self._hold(group, None)
        self._left_out += group.skipped
        for node in group.waits.values():
            node[0] = None

    def _check_waits(self, group: AppliedGroup) -> None:
        """Assert that time has made no difference to a group since it has run."""
        for slot, node in group.waits.items():
            assert node[0] >= self._reached(slot), "a group has waited too long"
        twin = AppliedGroup(group.key, self._make())
        twin.restore([group.stable, group.mark], group.graph.state())
        changes = self._run(twin, [], self._idle.stable, self._idle.mark)
        assert not changes, "a group that waits has something to emit"
        out, idle = twin.stables()[self._output], self._stables[self._output]
        assert out == (idle if group.held is None else group.held), "a group that waits holds the stable point"
