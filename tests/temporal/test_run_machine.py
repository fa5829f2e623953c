"""Hypothesis drives a run: items come, it is restored and fast-forwarded, queries are attached and leave.

Random plans are judged by a run of their own that has had every item and no interruption (``run_world``). The cases of
the laws are judged by SQL in DuckDB, which shares no code with a run (``QueriedMachine``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random

import pytest
from canonical_world import NUMBERS, RecordedRuns, StreamClock
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from law_queries import TIMES, query_of
from law_world import CASES, ROWS
from operator_world import LossyInput
from plan_generator import SOURCES, random_plan
from run_world import InterruptedRun, JudgedResult, is_prompt, random_query
from temporal_world import Item, StreamTable

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import InputViolation
from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.open_events import OpenEvents
from lmerge.temporal.plan.beginnings import FROM_THE_START
from lmerge.temporal.plan.json_format import plan_from_json, plan_to_json
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.running import MAIN
from lmerge.temporal.values import Values

seeds = st.integers(0, 5_000)
times = st.integers(-8, 20)
ends = st.one_of(times, times, st.just(INF))
indexes = st.integers(0, 30)


class RunMachine(RuleBasedStateMachine):
    """One run, and the live events of each source. ``sources``: by name, what their events have."""

    sources: Mapping[str, Sequence[Values]] = {name: rows for name, (_, rows) in SOURCES.items()}

    @initialize(seed=seeds)
    def start(self, seed: int) -> None:
        self.plan = random_plan(Random(seed))
        self.begin(InterruptedRun(self.plan.nodes, Random(seed)))

    def begin(self, world: InterruptedRun) -> None:
        """Begin with a run."""
        self.world, self.queries = world, 0
        self.live = {name: OpenEvents(name) for name in self.sources}
        self.names = sorted(self.sources)

    @rule(at=indexes, row=indexes, vs=times, ve=ends)
    def insert(self, at: int, row: int, vs: int, ve: int) -> None:
        name = self._name(at)
        rows = self.sources[name]
        self._take(name, Change(rows[row % len(rows)], vs, vs, ve))

    @rule(at=indexes, which=indexes, end=ends)
    def revise(self, at: int, which: int, end: int) -> None:
        name = self._name(at)
        events = list(self.live[name])
        if events:
            row, vs, ve = events[which % len(events)]
            self._take(name, Change(row, vs, ve, end))

    @rule(at=indexes, t=times)
    def stable(self, at: int, t: int) -> None:
        self._take(self._name(at), t)

    @rule(at=indexes)
    def end(self, at: int) -> None:
        self._take(self._name(at), INF)

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
        self.world.attach(name, self.query(Random(seed), name))

    @precondition(lambda self: len(self.world.run.queries) > 1)
    @rule(which=indexes)
    def detach(self, which: int) -> None:
        others = [name for name in self.world.run.queries if name != MAIN]
        self.world.detach(others[which % len(others)])

    def query(self, random_: Random, name: str) -> Mapping[str, PlanNode]:
        """Return a further query."""
        return random_query(random_, list(self.plan.nodes.values()), name)

    def _name(self, at: int) -> str:
        return self.names[at % len(self.names)]

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


class QueriedRun(InterruptedRun):
    """A run of cases of the laws, whose results are recorded after every change, and judged by their queries."""

    def __init__(self, outputs: Mapping[str, PlanNode], cases: dict[str, str], random_: Random) -> None:
        super().__init__(outputs, random_)
        self._cases = cases
        self.lossy = {name: LossyInput(random_) for name in LAW_SOURCES}
        self._given = {name: StreamTable() for name in LAW_SOURCES}
        self._clock, self._passed = StreamClock(), dict.fromkeys(outputs, NEG_INF)
        self._recorded: dict[str, RecordedRuns] = {}
        self._promised: dict[str, list[Callable[[Counter[Lifetime]], Counter[Lifetime]]]] = {}

    def take(self, source: str, item: Item) -> None:
        given = self._given[source]
        delta = Delta([], item) if isinstance(item, int) else Delta([item], None)
        if delta.stable is None or delta.stable > given.stable:
            given.apply(delta)
            if source == "lefts":  # the only source of windows
                self._clock.take(delta, given)
        self._passed = {output: result.table.stable for output, result in self.results.items()}
        super().take(source, item)
        self.record()

    def attach(self, name: str, outputs: Mapping[str, PlanNode]) -> bool:
        has_begun = super().attach(name, outputs)
        if has_begun:
            self.record()
        return has_begun

    def record(self) -> None:
        """Record what is promised of each result now."""
        lefts = self._given["lefts"]
        for output, result in self.results.items():
            times = lefts.stable, self._clock.mark, self._clock.begun(lefts), self._passed.get(output, NEG_INF)
            tables = {name: table.events for name, table in self._given.items()}
            runs = self._recorded.setdefault(output, RecordedRuns(dict.fromkeys(LAW_SOURCES, NUMBERS), TIMES))
            promised = partial(self._of_promised, result, result.table.stable, result.needed, self.was_fed_back)
            runs.note(tables, promised(Counter(result.table.events)), times, output)
            self._promised.setdefault(output, []).append(promised)

    def judge(self) -> None:
        """Compare all that was recorded with the queries."""
        for output, runs in self._recorded.items():
            query, columns = query_of(self._cases[output])
            expected = runs.expected(query, columns)
            for at, (found, right) in enumerate(zip(runs.emitted, expected, strict=True)):
                promised = self._promised[output][at](right)
                assert found == promised, (self._cases[output], at, found - promised, promised - found)

    def _of_promised(
        self, result: JudgedResult, stable: int, needed: int, was_fed_back: bool, events: Counter[Lifetime]
    ) -> Counter[Lifetime]:
        """Return the events that a result must have. What is not final may wait if not all was there, or needed."""
        has_all = not was_fed_back and (result.begins == FROM_THE_START or is_prompt(result.node))
        return Counter(
            {
                event: count
                for event, count in events.items()
                if (has_all or event.ve < stable or stable == INF)
                and result.begins.has(event.vs, event.ve)
                and event.ve >= needed
            }
        )


LAW_SOURCES = ("lefts", "rights", "thirds")
OF_ALL = ("join of three",)
"""So that a run has all sources from its start, and queries over them can be attached."""


class QueriedMachine(RunMachine):
    """A run of two cases of the laws, to which others are attached."""

    sources = dict.fromkeys(LAW_SOURCES, ROWS)

    @initialize(seed=seeds)
    def start(self, seed: int) -> None:
        self.cases: dict[str, str] = {}
        nodes = self.nodes(["main", "all"], [Random(seed).choice(list(CASES)), *OF_ALL])
        self.begin(QueriedRun(nodes, self.cases, Random(seed)))

    def query(self, random_: Random, name: str) -> Mapping[str, PlanNode]:
        return self.nodes([name], [random_.choice(list(CASES))])

    def nodes(self, outputs: Sequence[str], cases: Sequence[str]) -> dict[str, PlanNode]:
        self.cases.update(zip(outputs, cases, strict=True))
        return {output: CASES[case].node for output, case in zip(outputs, cases, strict=True)}

    def teardown(self) -> None:
        if isinstance(world := getattr(self, "world", None), QueriedRun):
            world.judge()


def drive(machine: type[RunMachine], examples: int) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    bounded = settings(max_examples=examples, stateful_step_count=30, deadline=None, suppress_health_check=checks)
    run_state_machine_as_test(machine, settings=bounded)


def test_a_run_that_anything_happens_to_is_right() -> None:
    drive(RunMachine, 20)


def test_a_run_that_anything_happens_to_is_right_by_sql() -> None:
    drive(QueriedMachine, 12)


def test_a_snapshot_can_name_the_attached_query_of_each_case() -> None:
    for case in CASES:
        outputs = {"attached": CASES[case].node}
        assert plan_to_json(plan_from_json(plan_to_json(outputs))) == plan_to_json(outputs), case


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("machine", [RunMachine, QueriedMachine])
def test_many_runs_that_anything_happens_to_are_right(machine: type[RunMachine], long_seeds: range) -> None:
    drive(machine, len(long_seeds))
