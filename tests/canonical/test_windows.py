"""Windows against SQL in DuckDB: every kind, clipping, output and form that go together, after every batch (L1).

``TDB(out(P)) = form(SQL(TDB(P)), c, m)``: the query computes the windows, their events, the results, what is closed,
and which results the form must have emitted at the stable point c and the watermark m. Each implementation runs over
streams of its own; on the native one, windows that run in Python get the columns of a native step too.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import pytest
from canonical_world import NUMBER_ROWS, NUMBERS, RecordedRuns, StreamClock, graph_of
from queried_windows import RESULTS, QueriedResults, WindowPolicy, emitted_of, members_of, stamps_of
from temporal_world import StreamTable, cut, random_stream

from lmerge.core.engines.selection import PYTHON
from lmerge.temporal.changes import Lifetime
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.graph import OperatorGraph
from lmerge.temporal.plan.compiling import CompiledPlan, compile_plan
from lmerge.temporal.plan.stream import aggregate, count, source
from lmerge.temporal.windows.kinds import CountedEnd, CountWindows, Hopping, Sessions, Snapshots, WindowKind
from lmerge.temporal.windows.policies import Clip, Form, Stamp
from lmerge.testing.canonical import windows

KINDS: dict[str, WindowKind] = {
    "tumbling": Hopping(5, 5),
    "hopping": Hopping(4, 2, 1),
    "hopping, uneven": Hopping(3, 2),
    "hopping, often": Hopping(6, 1),
    "with gaps": Hopping(2, 5),
    "since": Hopping(4, 2, 1, since=2),
    "snapshot": Snapshots(),
    "each start": CountWindows(1),
    "two starts": CountWindows(2),
    "three starts": CountWindows(3),
    "two ends": CountWindows(2, CountedEnd.ENDS),
    "session": Sessions(2),
    "session without a gap": Sessions(0),
}
TIMES = ("is_grouped", "form", "stable", "mark", "begun", "passed")
EVENTS = "(SELECT *, CASE WHEN is_grouped THEN a END AS k FROM events)"
KEYS = ("run", "k")
SOURCE = source("events", NUMBERS)
FORMS = list(Form)
SEEDS = 2
"""For each choice, form and implementation; more where there are few choices."""


@dataclass(frozen=True)
class WindowChoice:
    """Results with policies that go together."""

    results: QueriedResults
    clip: Clip
    stamp: Stamp

    @property
    def policy(self) -> WindowPolicy:
        return WindowPolicy(None, self.stamp, self.clip, self.results.reads_ends, self.results.reads_window)


def choices(kind: WindowKind, results: QueriedResults) -> list[WindowChoice]:
    """Return every choice. Results of windows that need a second event, or join others, are not time-bound."""
    is_bound = isinstance(kind, Hopping | Snapshots)
    stamps = [stamp for stamp in stamps_of(kind, results) if is_bound or stamp is not Stamp.TIME_BOUND]
    return [WindowChoice(results, clip, stamp) for clip in results.clips for stamp in stamps]


def queried(kind: WindowKind, choice: WindowChoice) -> str:
    clip = choice.clip
    cut_to_window = windows.clipped(members_of(kind, EVENTS, KEYS), left=clip.cuts_left, right=clip.cuts_right)
    return emitted_of(kind, choice.results.query(cut_to_window, KEYS, TIMES[1:]), KEYS, choice.policy)


# The run.


def judge(kind: WindowKind, choice: WindowChoice, implementations: Sequence[str], seeds: range) -> None:
    """Judge all forms by one query."""
    runs = RecordedRuns({"events": NUMBERS}, TIMES)
    native_from = 0 if choice.results is RESULTS["no time"] else None
    for form in Form:
        plans = [plan_of(kind, choice, form, is_grouped, of_columns) for is_grouped, of_columns in PATHS]
        for implementation in implementations:
            # The operator in Python computes users' modules on either implementation, from columns or not.
            for seed in seeds if implementation == PYTHON or native_from == 0 else seeds[: len(seeds) // 2]:
                random_ = random.Random(f"{seed} {choice.clip} {choice.stamp} {form} {implementation}")
                at = random_.randrange(len(PATHS))
                graph = graph_of(plans[at], implementation, native_from=native_from)
                title = f"{choice.clip}, {choice.stamp}, {form}, {implementation}, seed {seed}"
                record_windows(runs, graph, random_, PATHS[at][0], form, title)
    runs.judge(queried(kind, choice), ("k", *choice.results.columns))


PATHS = ((False, False), (False, True), (True, False), (True, True))
"""Whether events are in groups, and whether they go through a step that keeps all of them, so that it gives columns."""


def plan_of(kind: WindowKind, choice: WindowChoice, form: Form, is_grouped: bool, of_columns: bool) -> CompiledPlan:
    stream = SOURCE.where(col.b >= 0) if of_columns else SOURCE
    grouped = stream.group_by(k=col.a) if is_grouped else stream.group_by()
    return compile_plan([choice.results.made(grouped.over(kind), form, choice.clip, choice.stamp).node])


def record_windows(
    runs: RecordedRuns, graph: OperatorGraph, random_: random.Random, is_grouped: bool, form: Form, title: str
) -> None:
    """Run a plan over a random stream, by groups or without, and record every batch."""
    given, output, clock = StreamTable(), StreamTable(), StreamClock()
    for delta in cut(random_, random_stream(random_, random_.choice((8, 14)), NUMBER_ROWS)):
        passed = output.stable
        given.apply(delta)
        output.apply(graph.step([clock.take(delta, given)])[0])
        emitted = output.events if is_grouped else ungrouped(output.events)
        times = (is_grouped, FORMS.index(form), given.stable, clock.mark, clock.begun(given), passed)
        runs.note({"events": given.events}, Counter(emitted), times, title)
    assert form is not Form.FINAL or output.inserts_only


def ungrouped(table: Counter[Lifetime]) -> Counter[Lifetime]:
    """Return results without a group as those of the group NULL."""
    return Counter({Lifetime((None, *row), vs, ve): count for (row, vs, ve), count in table.items()})


@pytest.mark.parametrize("module", RESULTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_window_clipping_output_and_form_is_its_query_after_every_batch(
    kind: str, module: str, implementations: Sequence[str]
) -> None:
    """Results with lifetimes of their own have many choices, of which each kind takes half; the long test has all."""
    found, at = choices(KINDS[kind], RESULTS[module]), list(KINDS).index(kind) % 2
    chosen = found if Stamp.UNCHANGED not in RESULTS[module].stamps else found[at::2]
    for choice in chosen:
        judge(KINDS[kind], choice, implementations, range(SEEDS if len(chosen) > 2 else 4 * SEEDS))


@pytest.mark.long
@pytest.mark.parametrize("module", RESULTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_window_is_its_query_for_many_seeds(
    kind: str, module: str, long_seeds: range, implementations: Sequence[str]
) -> None:
    for choice in choices(KINDS[kind], RESULTS[module]):
        judge(KINDS[kind], choice, implementations, long_seeds)


# Windows without events.


def queried_with_empty(kind: Hopping, policy: WindowPolicy) -> str:
    """Return the query of counts, and of sums that are missing or 7 where there is no event."""
    computed = [("n", "count(*)"), ("s", "sum(b)"), ("t", "sum(b)")]
    there = windows.grouped(members_of(kind, EVENTS, KEYS), ["run"], computed)
    assert kind.since is not None
    every = windows.grid("runs", kind.size, kind.hop, kind.offset, "begun", kind.since)
    results = windows.with_empty(there, every, ["run"], [("n", "0"), ("s", "NULL"), ("t", "7")])
    return emitted_of(kind, results, ["run"], policy)


GRIDS = (Hopping(5, 5, 0, -3), Hopping(4, 2, 1, 2), Hopping(2, 5, 0, 0), Hopping(6, 1, 0, 4))


@pytest.mark.parametrize("kind", GRIDS, ids=str)
def test_a_grid_that_has_a_first_window_has_results_without_events(
    kind: Hopping, implementations: Sequence[str], seeds_of: Callable[[int, int], range]
) -> None:
    total, since = aggregate("sum", col.b), aggregate("sum", col.b, on_empty=7)
    for stamp in (Stamp.ALIGN, Stamp.POINT_AT_END):
        runs = RecordedRuns({"events": NUMBERS}, TIMES)
        for form, implementation in product(Form, implementations):
            made = SOURCE.group_by().over(kind).agg(n=count(on_empty=0), s=total, t=since, form=form, output=stamp)
            plan = compile_plan([made.node])
            for seed in seeds_of(60, 8):
                random_ = random.Random(f"{seed} {form} {implementation}")
                graph = graph_of(plan, implementation, native_from=None)
                record_windows(runs, graph, random_, False, form, f"{form}, {implementation}, seed {seed}")
        query = f"SELECT *, NULL AS k FROM ({queried_with_empty(kind, WindowPolicy(None, stamp))})"
        runs.judge(query, ("k", "n", "s", "t"))
