"""Rewrites of plans: each keeps the table of every random plan, and each is applied where it is written that it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import ClassVar

import pytest
from plan_generator import RandomPlan, ended, random_history, random_plan, random_predicate
from temporal_world import random_stream

from lmerge.core.elements import INF
from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.surface import col, lit
from lmerge.temporal.modules.kinds import TimedOperator
from lmerge.temporal.modules.properties import Properties, Stamped, TimedRow, Window
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.properties import explain
from lmerge.temporal.plan.rewriting import BETTER, REWRITES, rewrite, rewrite_plan
from lmerge.temporal.plan.showing import tree
from lmerge.temporal.plan.stream import Stream, aggregate, count, method_of, module, source
from lmerge.temporal.plan.windows import AggregateNode
from lmerge.temporal.running import QueryRun, ResultTable
from lmerge.temporal.windows.policies import Form
from lmerge.wire.schema import SchemaLike

NUMBERS = {"a": "int", "b": "int"}
HISTORY: list[Change | int] = [
    Change((0, 1), 1, 1, 4),
    Change((0, 2), 2, 2, 12),
    Change((1, 5), 3, 3, 8),
    3,
    Change((1, 5), 6, 6, INF),
    Change((2, 2), 7, 7, 9),
    Change((0, 2), 2, 12, 11),
]


def numbers(name: str = "numbers") -> Stream:
    return source(name, NUMBERS)


class ByKey(TimedOperator[tuple[int, int]]):
    """The rows of each ``a`` in order of their starts, from start to start: a module that treats each ``a`` alone."""

    inputs: ClassVar[SchemaLike] = {"a": "int", "b": "int"}
    results: ClassVar[SchemaLike] = {"a": "int", "first": "int", "second": "int"}
    properties = Properties(reads=("start", "window"), per_group=("a",), filter_commutes=("a",), time_bound=True)

    def compute(self, rows: Sequence[TimedRow[tuple[int, int]]], window: Window) -> Iterator[Stamped]:
        for one in rows:
            for other in rows:
                if one.row[0] == other.row[0] and one.start < other.start:
                    start = max(other.start, window.start)
                    yield Stamped((one.row[0], one.row[1], other.row[1]), start, window.end)


by_key = method_of(ByKey)


# Every rewrite keeps the table.


def tables(outputs: dict[str, PlanNode], history: Sequence[tuple[str, Change | int]]) -> dict[str, Counter[Lifetime]]:
    """Return the tables of a plan's results when its sources have ended."""
    run = QueryRun(outputs)
    found = {name: ResultTable() for name in outputs}
    for source_name, item in history:
        for step in run.take(source_name, [item]):
            for name, delta in step.items():
                found[name].apply(delta)
    for step in run.end():
        for name, delta in step.items():
            found[name].apply(delta)
    assert all(table.stable == INF for table in found.values())
    return {name: table.events for name, table in found.items()}


def filtered(random_: Random, plan: RandomPlan) -> dict[str, PlanNode]:
    """Return the results of a plan, with filters over them."""
    outputs = {}
    for name, stream in plan.outputs.items():
        for _ in range(random_.randint(0, 2)):
            stream = stream.where(random_predicate(random_, stream) & random_predicate(random_, stream))
        outputs[name] = stream.node
    return outputs


def test_rewritten_plans_have_the_same_tables() -> None:
    applied: Counter[str] = Counter()
    for seed in range(250):
        random_ = Random(seed)
        plan = random_plan(random_)
        outputs = filtered(random_, plan)
        names = BETTER if seed % 2 else random_.sample(list(REWRITES), random_.randint(1, len(REWRITES)))
        rewritten = rewrite_plan(outputs, [name for name in names if not name.startswith("form")])
        applied.update(one.name for one in rewritten.applied)
        if not rewritten.applied:
            continue
        run = QueryRun(outputs)
        sources = list(run.entrances)
        history = ended(random_history(random_, sources, 24), sources)
        there = set(QueryRun(rewritten.outputs).entrances)
        expected = tables(outputs, history)
        found = tables(rewritten.outputs, [(name, item) for name, item in history if name in there])
        assert found == expected, "\n".join(map(str, rewritten.applied))
    assert applied.keys() >= set(BETTER) - {"filter-below-module", "groups-apart", "time-bound"}


QUERIES: dict[str, Callable[[], Stream]] = {
    "filter-below-select": lambda: numbers().select(x=col.a, y=col.b + 1).where((col.x > 0) & (col.y > 2)),
    "filter-below-lifetime": lambda: numbers().extend(3).where(col.b > 1),
    "filter-below-union": lambda: numbers().union(numbers("others")).where(col.b > 1),
    "filter-below-join": lambda: numbers().join(numbers("others"), "a").where((col.b > 1) & (col.b_right < 5)),
    "filter-below-window": lambda: numbers().group_by("a").hopping(4, 2).agg(n=count()).where(col.a > 0),
    "filter-below-module": lambda: numbers().tumbling(5).apply(by_key()).where(col.a > 0),
    "groups-apart": lambda: numbers().hopping(6, 3).apply(by_key()),
    "time-bound": lambda: numbers().tumbling(5).apply(by_key(), form="settled"),
    "merge-filters": lambda: numbers().where(col.a > 0).where(col.b > 1),
    "join-order": lambda: (
        numbers()
        .join(numbers("others"), "a", where=col.b <= col.b_right)
        .join(numbers("third"), {"b_right": "b"}, where=col.a_right == col.a_3, suffix="_3")
    ),
    "join-sides": lambda: numbers().join(numbers("a"), "a", where=col.b < col.b_right, how="left"),
    "form-eager": lambda: numbers().snapshot().agg(n=count()),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_rewrite_is_applied_and_keeps_the_table(name: str) -> None:
    query = QUERIES[name]().node
    made, applied = rewrite(query, [name])
    assert {one.name for one in applied} == {name}, tree(query)
    assert made.schema == query.schema
    sources = list(QueryRun({"out": query}).entrances)
    history = [(one, item) for item in HISTORY for one in sources]
    assert tables({"out": made}, history) == tables({"out": query}, history)
    assert tables({"out": query}, history)["out"].total() > 0, "nothing is compared"
    assert rewrite(made, [name])[1] == (), "what a rewrite has made is rewritten again"


# Where a rewrite does not apply.


@pytest.mark.parametrize(
    "query",
    [
        lambda: numbers().join(numbers("others"), "a", how="left").where(col.b_right > 1),
        lambda: numbers().join(numbers("others"), "a", how="full").where(col.a > 1),
        lambda: numbers().as_of(numbers("others"), "a").where(col.b_right > 1),
        lambda: numbers().join(numbers("others"), "a").where(col.b + 1 > 1),  # it can overflow
        lambda: numbers().group_by("a").tumbling(5).agg(n=count()).where(col.n > 1),
        lambda: numbers().extend(3).group_by("a").tumbling(5).agg(n=count()).where(col.a > 1),  # it has later ends
        lambda: numbers().tumbling(5).top(1, by="a").where(col.a > 0),
        lambda: numbers().snapshot().apply(by_key()).where(col.a > 0),  # the others cut the windows
        lambda: numbers().snapshot().apply(by_key(), form="settled"),
        lambda: numbers().edges("a").where(col.b > 0),
        lambda: numbers().tumbling(5).apply(by_key(), output="clip").where(col.first > 0),
    ],
)
def test_a_filter_stays_where_it_would_change_the_table(query: Callable[[], Stream]) -> None:
    made, applied = rewrite(query().node, [name for name in BETTER if name != "groups-apart"])
    assert applied == ()
    assert made == query().node


def test_conjuncts_go_where_each_can() -> None:
    joined = numbers().join(numbers("others"), "a").where((col.b > 1) & (col.b < col.b_right) & (col.b_right != 7))
    made, _ = rewrite(joined.node)
    assert tree(made).splitlines() == [
        "filter col.b < col.b_right",
        "└─ inner join on col.a == col.a",
        "   ├─ filter col.b > 1",
        "   │  └─ numbers (a: int, b: int)",
        "   └─ filter col.b != 7",
        "      └─ others (a: int, b: int)",
    ]


def test_a_conjunct_that_can_fail_stays_behind_the_one_that_guards_it() -> None:
    guarded = numbers().select("a", c=col.b + 1).where((col.c > 0) & (lit(10) // col.a > 0))
    assert rewrite(guarded.node)[1] == ()
    turned = numbers().select("a", c=col.b + 1).where((lit(10) // col.a > 0) & (col.c > 0))
    assert [one.name for one in rewrite(turned.node)[1]] == ["filter-below-select"]


def test_a_merged_filter_guards_as_before() -> None:
    twice = numbers().where(col.a > 0).where(lit(10) // col.a > 0)
    assert rewrite(twice.node)[0].shown == "filter (col.a > 0) & (10 // col.a > 0)"


class Pairs(ByKey):
    """As ``ByKey``, with the same columns, and declares nothing."""

    name = "pairs_of_rows"
    properties = Properties(reads=("start", "window"))


def test_a_filter_by_a_column_that_is_not_declared_stays() -> None:
    query = numbers().tumbling(5).apply(method_of(Pairs)()).where(col.a > 0)
    assert rewrite(query.node) == (query.node, ())


def test_what_several_read_is_computed_once_and_stays() -> None:
    windows = numbers().group_by("a").tumbling(5).agg(n=count())
    outputs = {"all": windows.node, "some": windows.where(col.a > 0).node}
    assert rewrite_plan(outputs).outputs == outputs


def test_a_module_is_called_for_the_groups_that_it_declares() -> None:
    made, applied = rewrite(numbers().tumbling(5).apply(by_key()).where(col.a > 0).node)
    assert [one.name for one in applied] == ["groups-apart", "time-bound", "filter-below-module"]
    assert made.shown == "apply by_key() apart by a in tumbling(5), final, time-bound"
    assert made.reads[0].shown == "filter col.a > 0"


@pytest.mark.parametrize("form", list(Form))
def test_a_time_bound_module_has_the_same_table_in_every_form(form: Form) -> None:
    call = module("started_so_far")
    own = numbers().tumbling(5).apply(call, form=form).node
    bound = numbers().tumbling(5).apply(call, form=form, output="time-bound").node
    for seed in range(60):
        random_ = Random(seed)
        history = [("numbers", item) for item in random_stream(random_, 16, rows=((0, 0), (1, 2)))]
        assert tables({"out": bound}, history) == tables({"out": own}, history)


def test_rewrites_are_shown_and_unknown_ones_are_named() -> None:
    query = numbers().group_by("a").tumbling(5).agg(n=count(), m=aggregate("max", col.b)).where(col.a > 0)
    assert explain(query.node).splitlines()[-1] == (
        "possible rewrite, .rewritten('filter-below-window'): "
        "filter col.a > 0 <- n=count(), m=max(col.b) by a in tumbling(5), final -> "
        "n=count(), m=max(col.b) by a in tumbling(5), final <- filter col.a > 0"
    )
    with pytest.raises(PlanError, match="no rewrite 'faster'; there are merge-filters"):
        rewrite(query.node, ["faster"])
    with pytest.raises(PlanError, match="one form, not those of form-eager and form-final"):
        query.rewritten("form-eager", "form-final")


def test_explain_shows_what_is_computed_once_and_in_one_pass() -> None:
    base = numbers().where(col.a > 0).shift(3)
    lines = explain(base.join(base.coalesce(), "a").node).splitlines()
    assert "one pass: filter col.a > 0, shift 3" in lines
    assert "computed once for 2 readers: shift 3" in lines


def test_a_stream_has_plans_that_differ() -> None:
    query = numbers().group_by("a").snapshot().agg(n=count())
    assert query.rewritten("form-eager").node.shown == "n=count() by a in snapshot, eager"
    assert query.rewritten().node == query.node


def test_explain_shows_what_modules_declare() -> None:
    query = numbers().tumbling(5).apply(module("by_key"), form="eager")
    assert "    module 'by_key' version 1 declares reads=start+window, filter_commutes=a, per_group=a, time_bound" in (
        explain(query.node).splitlines()
    )


def test_what_a_rewrite_asks_of_a_plan_of_many_diamonds_is_asked_of_each_node_once() -> None:
    stream = source("numbers", {"a": "int", "b": "int"})
    for _ in range(60):
        stream = stream.union(stream)
    counts = stream.group_by("a").tumbling(5).agg(n=count()).where(col.a > 0)
    assert isinstance(rewrite(counts.node)[0], AggregateNode), "the filter was pushed below the windows"
