"""Hypothesis drives a run: items come, it is restored and fast-forwarded, queries are attached and leave.

Every query is judged by a run of its own that has had every item and no interruption (``run_world``).
"""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from plan_generator import SOURCES, random_plan
from run_world import InterruptedRun, random_query
from temporal_world import Item

from lmerge.core.elements import INF
from lmerge.errors import InputViolation
from lmerge.temporal.changes import Change
from lmerge.temporal.open_events import OpenEvents
from lmerge.temporal.running import MAIN

seeds = st.integers(0, 5_000)
times = st.integers(-8, 20)
ends = st.one_of(times, times, st.just(INF))
names = st.sampled_from(sorted(SOURCES))
indexes = st.integers(0, 30)


class RunMachine(RuleBasedStateMachine):
    """One run, and the live events of each source."""

    @initialize(seed=seeds)
    def start(self, seed: int) -> None:
        self.plan = random_plan(Random(seed))
        self.world = InterruptedRun(self.plan.nodes, Random(seed))
        self.live = {name: OpenEvents(name) for name in SOURCES}
        self.queries = 0

    @rule(name=names, row=indexes, vs=times, ve=ends)
    def insert(self, name: str, row: int, vs: int, ve: int) -> None:
        rows = SOURCES[name][1]
        self._take(name, Change(rows[row % len(rows)], vs, vs, ve))

    @rule(name=names, which=indexes, end=ends)
    def revise(self, name: str, which: int, end: int) -> None:
        events = list(self.live[name])
        if events:
            row, vs, ve = events[which % len(events)]
            self._take(name, Change(row, vs, ve, end))

    @rule(name=names, t=times)
    def stable(self, name: str, t: int) -> None:
        self._take(name, t)

    @rule(name=names)
    def end(self, name: str) -> None:
        self._take(name, INF)

    @rule()
    def restore(self) -> None:
        self.world.restore()

    @rule(which=indexes, t=times)
    def fast_forward(self, which: int, t: int) -> None:
        outputs = list(self.world.results)
        self.world.fast_forward(outputs[which % len(outputs)], t)

    @precondition(lambda self: self.queries < 4)
    @rule(seed=seeds)
    def attach(self, seed: int) -> None:
        self.queries += 1
        name = f"q{self.queries}"
        self.world.attach(name, random_query(Random(seed), list(self.plan.nodes.values()), name))

    @precondition(lambda self: len(self.world.run.queries) > 1)
    @rule(which=indexes)
    def detach(self, which: int) -> None:
        others = [name for name in self.world.run.queries if name != MAIN]
        self.world.detach(others[which % len(others)])

    def _take(self, name: str, item: Item) -> None:
        live = self.live[name]
        if isinstance(item, int):
            live.move_stable(item)
        else:
            try:
                live.apply(item)
            except InputViolation:
                return
            if item.old == item.new:
                return
        self.world.take(name, item)


def test_a_run_that_anything_happens_to_is_right() -> None:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    bounded = settings(max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=checks)
    run_state_machine_as_test(RunMachine, settings=bounded)
