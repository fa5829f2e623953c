"""Group-and-apply against SQL in DuckDB, after every batch: the sub-plan with the group as a partition (sheet O8).

What the watermark releases depends on how far the windows of a group were stable before the batch. That of a group is
the output's stable point of the sub-plan alone, over the group's events and the times of the whole stream.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import NamedTuple

import pytest
from canonical_world import NUMBER_ROWS, NUMBERS, RecordedRuns, StreamClock, graph_of
from queried_windows import WindowPolicy, emitted_of, members_of
from temporal_world import StreamTable, cut, random_stream

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Delta
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.stream import Stream, aggregate, count, source
from lmerge.temporal.windows.kinds import CountedEnd, CountWindows, Hopping, Sessions, Snapshots, WindowKind
from lmerge.temporal.windows.policies import Form
from lmerge.testing.canonical import groups, joins, presence, samples, spans, windows
from lmerge.testing.canonical.forms import StreamTimes

ROWS = (*NUMBER_ROWS, (2, 0), (2, 1))
GROUPS = (0, 1, 2)
TIMES = ("stable", "mark", "begun", *(f"passed{key}" for key in GROUPS))
PASSED = f"CASE k {' '.join(f'WHEN {key} THEN passed{key}' for key in GROUPS)} END"
BY = ("run", "k")
EVENTS = source("events", NUMBERS)
KEYED = f"({groups.keyed('events', [('k', 'a')])})"
SubPlan = Callable[[Stream], Stream]


class GroupCase(NamedTuple):
    """A sub-plan, its query over ``KEYED``, and the columns of its rows behind the key.

    ``depends``: on how far each group was stable before the batch.
    """

    sub_plan: SubPlan
    query: str
    columns: Sequence[str]
    depends: bool = False


def nested(query: str) -> str:
    return f"({query})"


def chosen(events: str, *columns: tuple[str, str], keys: Sequence[str] = BY) -> str:
    """Return the query of columns of a sub-plan's events, with run and key."""
    return nested(spans.projected(events, [*((key, key) for key in keys), *columns]))


B = chosen(KEYED, ("b", "b"))
LATER = chosen(nested(spans.shifted(KEYED, 3)), ("c", "b"))
PAIRS = (("run", "l.run"), ("k", "l.k"), ("b", "l.b"), ("c", "r.c"))
SAME = groups.same_group(BY)
INNER = groups.keyed(nested(spans.filtered(KEYED, "b >= 0")), [("j", "b % 2")])

SPANS: dict[str, GroupCase] = {
    "the group itself": GroupCase(lambda group: group.select("b"), B, "b"),
    "event by event": GroupCase(
        lambda group: group.where(col.b < 2).shift(-2).select(c=col.b * 10).extend(1),
        spans.extended(chosen(nested(spans.shifted(nested(spans.filtered(KEYED, "b < 2")), -2)), ("c", "b * 10")), 1),
        "c",
    ),
    "both arms of a diamond": GroupCase(
        lambda group: group.select("b").union(group.shift(1).select("b")),
        spans.union([B, chosen(nested(spans.shifted(KEYED, 1)), ("b", "b"))]),
        "b",
    ),
    "a self-join": GroupCase(
        lambda group: group.select("b").join(group.shift(3).select(c=col.b), where=col.b <= col.c),
        joins.inner(B, LATER, PAIRS, f"{SAME} AND l.b <= r.c"),
        "bc",
    ),
    "an anti-join": GroupCase(
        lambda group: group.select("b").without(group.shift(3).select(c=col.b), where=col.b <= col.c),
        joins.uncovered(B, LATER, PAIRS[:-1], f"{SAME} AND l.b <= r.c"),
        "b",
    ),
    "edges": GroupCase(lambda group: group.select("b").edges(), samples.edges(B, BY, (*BY, "b")), "b"),
    "as of": GroupCase(
        lambda group: group.select("b").as_of(group.shift(3).select("b", c=col.b), "b").select("b", "c"),
        samples.as_of(
            B,
            chosen(nested(spans.shifted(KEYED, 3)), ("b", "b"), ("c", "b")),
            [*((key, key) for key in BY), ("b", "b")],
            [*PAIRS[:-1], ("c", "s.c")],
            (*BY, "b", "c"),
            is_outer=False,
        ),
        "bc",
    ),
    "coalesced": GroupCase(lambda group: group.select("b").coalesce(), presence.coalesced(B, (*BY, "b")), "b"),
    "cleansed": GroupCase(
        lambda group: group.cleanse().select("b"),
        chosen(nested(presence.released(KEYED, "stable", BY)), ("b", "b")),
        "b",
    ),
    "groups in a group": GroupCase(
        lambda group: group.group_by(j=col.b % 2).apply(lambda inner: inner.select(c=col.b).coalesce()),
        presence.coalesced(chosen(nested(INNER), ("c", "b"), keys=(*BY, "j")), (*BY, "j", "c")),
        "jc",
    ),
}

KINDS: dict[str, WindowKind] = {
    "tumbling": Hopping(5, 5),
    "hopping": Hopping(4, 2, 1),
    "snapshot": Snapshots(),
    "two starts": CountWindows(2),
    "two ends": CountWindows(2, CountedEnd.ENDS),
    "session": Sessions(2),
}


def window_case(kind: WindowKind, form: Form) -> GroupCase:
    results = windows.grouped(members_of(kind, KEYED, BY), BY, [("n", "count(*)"), ("s", "sum(b)")], TIMES)
    moment = StreamTimes("stable", "mark", PASSED)
    # Groups wait for themselves alone: windows of a group are those of a sub-plan of its own.
    emitted = emitted_of(kind, results, BY, WindowPolicy(form), moment, peers=BY)

    def sub_plan(group: Stream) -> Stream:
        return group.group_by().over(kind).agg(n=count(), s=aggregate("sum", col.b), form=form)

    return GroupCase(sub_plan, emitted, "ns", form is Form.WATERMARK)


WINDOWS = {f"{kind}, {form}": window_case(KINDS[kind], form) for kind in KINDS for form in Form}
CASES = {**SPANS, **WINDOWS}


class GroupsAlone:
    """The sub-plan of each group by itself: how far its output is stable."""

    def __init__(self, case: GroupCase) -> None:
        plan = compile_plan([case.sub_plan(EVENTS).node])
        self._graphs = {key: plan.graph() for key in GROUPS if case.depends}
        self.passed = dict.fromkeys(GROUPS, NEG_INF)

    def take(self, delta: Delta) -> None:
        """Take a batch of the whole stream."""
        for key, graph in self._graphs.items():
            (found,) = graph.step([delta._replace(changes=[one for one in delta.changes if one.row[0] == key])])
            self.passed[key] = max(self.passed[key], NEG_INF if found.stable is None else found.stable)


def judge(case: GroupCase, implementations: Sequence[str], seeds: Iterable[int], *, has_keys: bool) -> None:
    plan = compile_plan([EVENTS.group_by(k=col.a).apply(case.sub_plan, keys=has_keys).node])
    runs = RecordedRuns({"events": NUMBERS}, TIMES)
    for implementation, seed in product(implementations, seeds):
        random_ = random.Random(f"{seed} {implementation}")
        graph, alone = graph_of(plan, implementation, native_from=None), GroupsAlone(case)
        given, output, clock = StreamTable(), StreamTable(), StreamClock()
        for delta in cut(random_, random_stream(random_, random_.choice((8, 14)), ROWS)):
            given.apply(delta)
            marked, passed = clock.take(delta, given), tuple(alone.passed.values())
            alone.take(marked)
            output.apply(graph.step([marked])[0])
            times = (given.stable, clock.mark, clock.begun(given), *passed)
            runs.note({"events": given.events}, Counter(output.events), times, f"{implementation}, seed {seed}")
        assert given.stable < INF or output.stable == INF
    if has_keys:
        runs.judge(case.query, ("k", *case.columns))
    else:
        runs.judge(groups.without_keys(nested(case.query), ["k"]), tuple(case.columns))


@pytest.mark.parametrize("name", CASES)
def test_a_sub_plan_is_its_query_with_the_group_as_a_partition_after_every_batch(
    name: str, implementations: Sequence[str]
) -> None:
    judge(CASES[name], implementations, range(24), has_keys=True)


@pytest.mark.parametrize("name", SPANS)
def test_results_without_keys_are_those_of_all_groups(name: str, implementations: Sequence[str]) -> None:
    judge(CASES[name], implementations, range(15), has_keys=False)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_a_sub_plan_is_its_query_for_many_seeds(name: str, implementations: Sequence[str], long_seeds: range) -> None:
    judge(CASES[name], implementations, long_seeds, has_keys=True)
