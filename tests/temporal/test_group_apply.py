"""Group-and-apply of sub-plans of every kind: equal to a union of what each key has by itself (sheet O8)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgpack
import pytest
from operator_world import LossyInput, check_smallest, from_then_on
from temporal_world import StreamTable, cut, random_stream

from lmerge.core.elements import INF, NEG_INF
from lmerge.core.properties import INSERT_ONLY, KEY, ORDERED
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.columns import AnyDelta
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.expressions.surface import col, lit
from lmerge.temporal.graph import OperatorGraph
from lmerge.temporal.operators.group_apply import GroupApplyOperator
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.groups import GroupApplyNode
from lmerge.temporal.plan.json_format import plan_from_json, plan_to_json
from lmerge.temporal.plan.properties import derive, explain
from lmerge.temporal.plan.rewriting import rewrite
from lmerge.temporal.plan.showing import mermaid, tree
from lmerge.temporal.plan.stream import Stream, aggregate, count, source
from lmerge.temporal.values import order_key
from lmerge.temporal.windows.policies import Form

ROWS = ((0, 0), (0, 1), (1, 0), (1, 2), (2, 0))
KEYS = (0, 1, 2)
SEEDS = 20

SubPlan = Callable[[Stream], Stream]


def numbers(*promises: str) -> Stream:
    return source("numbers", {"a": "int", "b": "int"}, promises=promises)


def each_other(group: Stream) -> Stream:
    """Join a group with itself, one side later than the other: a diamond whose sides are stable at other times."""
    return group.select("b").join(group.shift(3).select(c=col.b), where=col.b <= col.c)


SUB_PLANS: dict[str, SubPlan] = {
    "the group itself": lambda group: group,
    "event by event": lambda group: group.where(col.b < 2).shift(-2).select(c=col.b * 10).extend(1),
    "edges": lambda group: group.edges().select("b"),
    "samples with an end": lambda group: group.edges(lasts=3).select("b"),
    "coalesced": lambda group: group.select("b").coalesce(),
    "cleansed": lambda group: group.cleanse().select("b"),
    "what was cleansed late": lambda group: group.extend(3).cleanse().snapshot().agg(n=count()),
    "what was cleansed, on a grid": lambda group: group.cleanse().tumbling(5).agg(n=count(), form="eager"),
    "a self-join": each_other,
    "an anti-join": lambda group: group.without(group.shift(1).where(col.b > 0), where=col.b < col.b_right).select("b"),
    "without what comes later": lambda group: group.select("b").without(group.shift(-2).cleanse(), "b"),
    "a full join": lambda group: group.select("b").join(group.shift(2).select(c=col.b), {"b": "c"}, how="full"),
    "the latest": lambda group: group.select("b").as_of(group.shift(1).select(c=col.b), within=4, how="left"),
    "tumbling, final": lambda group: group.tumbling(5).agg(n=count()),
    "hopping, watermark": lambda group: group.hopping(6, 2).agg(n=count(), form="watermark"),
    "with gaps, eager": lambda group: group.hopping(2, 5).agg(n=count(), form="eager"),
    "points at the end": lambda group: group.hopping(5, 2).agg(n=count(), output="point-at-end"),
    "points at the end, watermark": lambda group: group.hopping(5, 2).agg(
        n=count(), output="point-at-end", form="watermark"
    ),
    "windows over windows": lambda group: group.snapshot().agg(n=count()).tumbling(4).agg(m=aggregate("max", col.n)),
    "a union of windows": lambda group: (
        group.snapshot().agg(n=count()).union(group.shift(2).tumbling(3).agg(n=count()))
    ),
    "what one side alone holds": lambda group: group.snapshot().agg(n=count()).union(group.shift(-5).select(n=col.b)),
    "windows joined with the group": lambda group: (
        group.snapshot().agg(n=count(), form="eager").join(group.shift(1).select("b"), where=lit(True), how="left")
    ),
    "groups of the group": lambda group: (
        group.select("b").group_by("b").apply(lambda inner: inner.snapshot().agg(n=count()))
    ),
    "groups of windows of the group": lambda group: (
        group.snapshot().agg(n=count()).group_by("n").apply(lambda inner: inner.edges(), keys=False)
    ),
}
for form in Form:
    for kind, cut_into in {
        "snapshot": Stream.snapshot,
        "count": lambda stream: stream.count_windows(2),
        "count of ends": lambda stream: stream.count_windows(2, by="ends"),
        "sessions": lambda stream: stream.sessions(1),
    }.items():
        SUB_PLANS[f"{kind}, {form}"] = lambda group, cut_into=cut_into, form=form: (  # type: ignore[misc]  # defaults
            cut_into(group).agg(n=count(), s=aggregate("sum", col.b), form=form)
        )


def applied(sub_plan: SubPlan) -> Stream:
    """Return the sub-plan for each group; where it keeps the key's column, without the key before it."""
    stream = numbers()
    try:
        return stream.group_by("a").apply(sub_plan)
    except PlanError:
        return stream.group_by("a").apply(sub_plan, keys=False)


def by_filters(sub_plan: SubPlan) -> Stream:
    """Return the union of the sub-plan over each key's events: the definition of group-and-apply."""
    parts = []
    for key in KEYS:
        part = sub_plan(numbers().where(col.a == key))
        names = part.schema.names
        parts.append(part if "a" in names else part.select(a=lit(key), **{name: col[name] for name in names}))
    return parts[0].union(*parts[1:])


def graph_of(stream: Stream) -> OperatorGraph:
    """Return operators for a plan."""
    return compile_plan([stream.node]).graph()


def marked(batches: Sequence[Delta]) -> list[Delta]:
    """Return batches with the stream's watermark, as an entrance makes them: at the end it is the last finite end."""
    mark, table = NEG_INF, StreamTable()
    found = []
    for delta in batches:
        table.apply(delta)
        later = max((change.vs for change in delta.changes), default=mark)
        if delta.stable == INF:
            later = max([later, *(event.ve for event in table.events if event.ve < INF)])
        found.append(delta._replace(mark=later) if later > mark else delta)
        mark = max(mark, later)
    return found


def random_batches(random_: random.Random) -> list[Delta]:
    return marked(cut(random_, random_stream(random_, random_.choice((6, 12, 24)), rows=ROWS)))


@pytest.mark.parametrize("name", SUB_PLANS)
def test_groups_have_what_a_filter_of_each_key_has(name: str) -> None:
    sub_plan = SUB_PLANS[name]
    stream, defined = applied(sub_plan), by_filters(sub_plan)
    assert [column.name for column in stream.schema.columns] == list(defined.schema.names)
    for seed in range(SEEDS):
        random_ = random.Random(seed)
        graph, definition = graph_of(stream), compile_plan([defined.node]).graph()
        output, expected = StreamTable(), StreamTable()
        last = NEG_INF
        for delta in random_batches(random_):
            twin = _restored(stream, graph) if random_.random() < 0.2 else None
            (emitted,), (due,) = graph.step([delta]), definition.step([delta])
            graph.check()
            if twin is not None:
                assert twin.step([delta]) == [emitted], "restored groups go on in another way"
                assert twin.state() == graph.state()
            assert emitted.mark == due.mark
            check_smallest(emitted)
            output.apply(emitted._replace(mark=None))
            expected.apply(due._replace(mark=None))
            assert output.events == expected.events, seed
            assert output.stable == expected.stable, seed
            last = last if delta.stable is None else delta.stable
        if last == INF:
            assert graph.live() == 0
            assert _groups(graph) == 0


def _restored(stream: Stream, graph: OperatorGraph) -> OperatorGraph:
    twin = graph_of(stream)
    twin.restore(msgpack.unpackb(msgpack.packb(graph.state())))
    twin.check()
    return twin


def _groups(graph: OperatorGraph) -> int:
    operator = graph.steps[0].operator
    assert isinstance(operator, GroupApplyOperator)
    return len(operator.state()["groups"])


@pytest.mark.parametrize("name", SUB_PLANS)
def test_feedback_leaves_out_only_what_ends_before_it(name: str) -> None:
    stream, defined = applied(SUB_PLANS[name]), by_filters(SUB_PLANS[name])
    for seed in range(SEEDS):
        random_ = random.Random(seed)
        graph, definition = graph_of(stream), compile_plan([defined.node]).graph()
        output, expected = StreamTable(), StreamTable()
        lossy, t = LossyInput(random_), NEG_INF
        for delta in random_batches(random_):
            if random_.random() < 0.3:
                t = max(t, random_.randint(-8, 24))
                lossy.until = max(lossy.until, *graph.fast_forward(0, t))
                graph.check()
            # Else early results wait with the stable point for what is left out.
            times = [time for time in (delta.mark, delta.stable) if time is not None and time < INF]
            given = lossy.take(delta)._replace(mark=max(times, default=None))
            (emitted,), (due,) = graph.step([given]), definition.step([delta])
            graph.check()
            output.apply(emitted._replace(mark=None))
            expected.apply(due._replace(mark=None))
            assert from_then_on(output.events, t) == from_then_on(expected.events, t)
        if output.stable == INF:
            assert graph.live() == 0


def test_a_span_sub_plan_evaluates_no_event_that_is_not_needed() -> None:
    graph = graph_of(numbers().group_by("a").apply(lambda group: group.where(col.b >= 0).select("b")))
    assert graph.fast_forward(0, 10) == [10]
    (delta,) = graph.step([Delta([Change((0, 1), 1, 1, 5), Change((1, 1), 2, 2, 12)], 3, 2)])
    assert (delta.changes, delta.stable) == ([Change((1, 1), 2, 2, 12)], 1)
    assert graph.steps[0].operator.skipped == 1
    (delta,) = graph.step([Delta([Change((0, 1), 1, 5, 11)], 6)])
    assert (delta.changes, delta.stable) == ([Change((0, 1), 1, 1, 11)], 6)


def test_an_event_that_is_left_out_holds_the_stable_point_when_that_comes_to_it() -> None:
    graph = graph_of(numbers().group_by("a").apply(lambda group: group.where(col.b >= 0).select("b")))
    graph.fast_forward(0, 10)
    assert graph.step([Delta([Change((0, 1), 4, 4, 6)], 3, 4)])[0].stable == 3
    assert [graph.step([Delta([], stable)])[0].stable for stable in (5, 6, 7)] == [4, None, 7]


def test_a_group_holds_the_stable_point_that_its_input_has_held_within_a_window() -> None:
    """At 2 the window from 0 holds it in any group. In this one the event that is not cleansed goes on to hold it."""
    stream = numbers().group_by("a").apply(lambda group: group.cleanse().tumbling(5).agg(n=count(), form="eager"))
    graph = graph_of(stream)
    assert graph.step([Delta([Change((0, 1), 1, 1, INF)], 2, 1)])[0].stable == 0
    assert graph.step([Delta([], 20)])[0].stable is None
    (delta,) = graph.step([Delta([Change((0, 1), 1, INF, 21)], 30)])
    assert Change((0, 1), 0, 0, 5) in delta.changes


def test_the_feedback_is_the_least_that_a_group_needs() -> None:
    name = "an anti-join"
    graphs = [graph_of(applied(SUB_PLANS[name])), compile_plan([by_filters(SUB_PLANS[name]).node]).graph()]
    for graph in graphs:
        graph.step([Delta([Change((0, 0), 0, 0, 100), Change((1, 2), 5, 5, 6)], 10, 5)])
    assert [graph.fast_forward(0, 20) for graph in graphs] == [[0], [0]]


# Time, groups and state.


def test_the_watermark_is_that_of_the_stream() -> None:
    windows = numbers().group_by("a").apply(lambda group: group.tumbling(5).agg(n=count(), form="watermark"))
    graph = graph_of(windows)
    assert graph.step([Delta([Change((0, 1), 1, 1, 2)], None, 1)])[0].changes == []
    (delta,) = graph.step([Delta([Change((1, 1), 7, 7, 8)], None, 7)])
    assert delta.changes == [Change((0, 1), 0, 0, 5)]
    assert delta.mark == 7


def test_the_first_group_that_fails_is_named_in_whatever_order_events_come() -> None:
    plan = numbers().group_by("a").apply(lambda group: group.tumbling(5).agg(s=aggregate("sum", col.b)))
    changes = [Change((key, 2**62), vs, vs, vs + 1) for key, vs in ((2, 1), (2, 2), (1, 6), (1, 7), (1, 11), (1, 12))]
    for order in (changes, changes[::-1]):
        with pytest.raises(ModuleViolation, match=r"in window \[5, 10\)"):
            graph_of(plan).step([Delta([*order], INF)])


def test_a_new_group_begins_at_the_time_of_the_stream() -> None:
    edges = numbers().group_by("a").apply(lambda group: group.snapshot().agg(n=count()))
    graph = graph_of(edges)
    assert graph.step([Delta([], 10, 10)]) == [Delta([], 10, 10)]
    (delta,) = graph.step([Delta([Change((3, 1), 10, 10, 12), Change((4, 1), 20, 20, 30)], 25, 20)])
    assert (delta.changes, delta.stable) == ([Change((3, 1), 10, 10, 12)], 20)


def test_a_group_without_events_frees_everything() -> None:
    stream = numbers().group_by("a").apply(lambda group: group.cleanse().snapshot().agg(n=count(), form="eager"))
    graph = graph_of(stream)
    empty = graph.state()
    for key in range(50):
        graph.step([Delta([Change((key, 1), key, key, key + 3)], None, key)])
    assert _groups(graph) == graph.live() == 50
    graph.step([Delta([Change((7, 1), 7, 10, 7)], 20)])
    assert _groups(graph) == 33
    graph.step([Delta([], 100)])
    assert graph.live() == 0
    assert _groups(graph) == 0
    (left,), (before,) = graph.state(), empty
    assert {name for name in left if left[name] != before[name]} == {"stable", "times", "idle", "is_marked"}


class CountedSteps(OperatorGraph):
    """Operators that count their steps."""

    steps_taken = 0

    def advance(self, deltas: Sequence[AnyDelta]) -> list[Delta]:
        CountedSteps.steps_taken += 1
        return super().advance(deltas)


@pytest.mark.parametrize("name", ["snapshot, final", "sessions, settled", "coalesced", "cleansed", "a self-join"])
def test_a_stable_visits_only_the_groups_for_which_it_is_time(name: str) -> None:
    def steps_of(groups: int) -> int:
        node = applied(SUB_PLANS[name]).node
        assert isinstance(node, GroupApplyNode)
        plan, key = node.compiled, order_key(node.input_schema)

        def make() -> OperatorGraph:
            graph = plan.graph()
            return CountedSteps(graph.sources, graph.steps, graph.outputs)

        operator = GroupApplyOperator("apply", key, make, lambda row: row[:1], key, False)
        far = [Change((at, 0), 5, 5, 10_000 + at) for at in range(groups)]
        operator.step([Delta(far, 6, 5)])
        CountedSteps.steps_taken = 0
        for stable in range(7, 107):
            operator.step([Delta([], stable, stable)])
        operator.step([Delta([Change((0, 0), 5, 10_000, 200)], 107, 107)])
        operator.step([Delta([], 201, 201)])
        return CountedSteps.steps_taken

    assert steps_of(400) <= steps_of(10) + 400 * 8, "a group is visited more often than a calendar divides its slots"
    assert steps_of(400) < 400 * 20


# The plan.


def nested() -> Stream:
    return (
        numbers()
        .group_by("a", half=col.b // 2)
        .apply(
            lambda group: (
                group.where(col.b > 0).select("b").group_by("b").apply(lambda inner: inner.snapshot().agg(n=count()))
            )
        )
    )


def test_a_sub_plan_is_shown_in_the_tree_and_in_the_picture() -> None:
    assert tree(nested().named("halves").node).splitlines() == [
        "halves: apply by a, half=col.b // 2",
        "│  ╎  apply by b",
        "│  ╎  │  ╎  n=count() in snapshot, final",
        "│  ╎  │  ╎  └─ group 2 (b: int)",
        "│  ╎  └─ select b",
        "│  ╎     └─ filter col.b > 0",
        "│  ╎        └─ group (a: int, b: int)",
        "└─ numbers (a: int, b: int)",
    ]
    drawn = mermaid({"halves": nested().node})
    assert drawn.count("subgraph") == drawn.count("    end\n") == 2
    assert "n2_plan -.-> n2" in drawn


def test_a_sub_plan_survives_json() -> None:
    outputs = {name: applied(sub_plan).node for name, sub_plan in SUB_PLANS.items()} | {"nested": nested().node}
    document = plan_to_json(outputs)
    again = plan_from_json(json.loads(json.dumps(document)))
    assert again == outputs
    assert plan_to_json(again) == document


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda node: node.pop("plan"), "n2.*not those of 'group_apply'"),
        (lambda node: node["plan"]["outputs"].clear(), "n2.*outputs by name"),
        (lambda node: node["plan"].update(outputs={"other": "n1"}), "n2.*not those of 'group_apply'.*result"),
        (lambda node: node["plan"]["nodes"][0].update(label="others"), "n2.*reads 'others'"),
        (lambda node: node.update(has_keys=1), "n2.*has_keys is true or false"),
    ],
)
def test_json_of_a_sub_plan_that_is_none_is_named(change: Callable[[dict[str, Any]], object], message: str) -> None:
    document = json.loads(json.dumps(plan_to_json({"it": applied(SUB_PLANS["edges"]).node})))
    change(document["nodes"][1])
    with pytest.raises(PlanError, match=message):
        plan_from_json(document)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: numbers().group_by("a").apply(lambda group: group),
            "group_apply: the key 'a' comes before.*keys=False",
        ),
        (lambda: numbers().group_by("c").apply(lambda group: group.select("b")), "group_apply.*no column 'c'"),
        (lambda: numbers().group_by("a").apply(lambda group: group.select("c")), "select.*no column 'c'"),
        (lambda: numbers().group_by("a").apply(lambda group: numbers()), "reads 'numbers', which is not the stream"),
        (lambda: numbers().group_by("a").apply(lambda group: group.union(numbers())), "reads 'numbers'"),
        (
            lambda: numbers().group_by("a").apply(cast("SubPlan", lambda group: None)),
            "a sub-plan returns a stream, not None",
        ),
        (
            lambda: (
                numbers()
                .group_by("a")
                .apply(lambda group: group.group_by("b").apply(lambda inner: inner.union(group), keys=False))
            ),
            "reads 'group', which is not the stream",
        ),
        (
            lambda: numbers().group_by("a").apply(lambda group: group.tumbling(5, since=0).agg(n=count(on_empty=0))),
            "on_empty: there are such windows only",
        ),
    ],
)
def test_what_is_no_sub_plan_is_an_error_where_it_is_built(build: Callable[[], Stream], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        build()


def test_a_sub_plan_of_windows_becomes_windows_by_the_key() -> None:
    snapshots = numbers().group_by("a").apply(lambda group: group.group_by("b").snapshot().agg(n=count()))
    assert snapshots.schema == numbers().group_by("a", "b").snapshot().agg(n=count()).schema
    rewritten, applied_rules = rewrite(snapshots.node)
    assert rewritten == numbers().group_by("a", "b").snapshot().agg(n=count()).node
    assert [one.name for one in applied_rules] == ["group-windows"]
    assert "possible rewrite, .rewritten('group-windows'): apply by a <- numbers" in explain(snapshots.node)
    kept = numbers().extend(3).group_by("a").apply(lambda group: group.tumbling(5).agg(n=count()))
    assert rewrite(kept.node) == (kept.node, ())


@pytest.mark.parametrize("name", [name for name in SUB_PLANS if rewrite(applied(SUB_PLANS[name]).node)[1]])
def test_rewritten_sub_plans_keep_the_output(name: str) -> None:
    stream = applied(SUB_PLANS[name])
    rewritten, _ = rewrite(stream.node)
    for seed in range(SEEDS):
        batches = random_batches(random.Random(seed))
        graph, other = graph_of(stream), compile_plan([rewritten]).graph()
        assert [graph.step([delta]) for delta in batches] == [other.step([delta]) for delta in batches]


@pytest.mark.parametrize(
    ("name", "promises", "promised"),
    [
        ("snapshot, final", [], {INSERT_ONLY, KEY}),
        ("snapshot, eager", [INSERT_ONLY, ORDERED], {KEY}),
        ("cleansed", [], {INSERT_ONLY}),
        ("edges", [], {KEY}),
        ("event by event", [KEY], {KEY}),
        ("event by event", [INSERT_ONLY, ORDERED], {INSERT_ONLY}),
        ("the group itself", [KEY, INSERT_ONLY], {INSERT_ONLY}),
    ],
)
def test_promises_are_those_of_each_group_in_no_order(name: str, promises: list[str], promised: set[str]) -> None:
    grouped = numbers(*promises).group_by("a")
    keys = "a" not in SUB_PLANS[name](numbers()).schema.names
    node = grouped.apply(SUB_PLANS[name], keys=keys).node
    assert derive(node)[node].promises == promised
    assert "    ╎ " in explain(node)
