"""Streams in plans: joins of several streams, diamonds, functions of users, samples, and other lifetimes, by a run."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import permutations, product

import pytest
from temporal_world import StreamTable, cut, random_stream

from lmerge.core.elements import INF
from lmerge.errors import LimitExceeded
from lmerge.temporal.changes import NOTHING_CHANGES, Change, Delta, Lifetime
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.expressions.functions import FunctionRegistry
from lmerge.temporal.expressions.surface import Expression, col
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.joining import join
from lmerge.temporal.plan.json_format import plan_from_json, plan_to_json
from lmerge.temporal.plan.stream import Stream, source
from lmerge.temporal.values import Values

ROWS = ((0, 0), (0, 1), (1, 2))
NAMES = ("left", "middle", "right")


def numbers(name: str = "numbers") -> Stream:
    return source(name, {"a": "int", "b": "int"})


def three() -> tuple[Stream, Stream, Stream]:
    return numbers("left"), numbers("middle"), numbers("right")


def runs(random_: random.Random, count: int) -> list[list[Delta]]:
    """Return steps of random batches of several sources."""
    streams = [cut(random_, random_stream(random_, 8, rows=ROWS)) for _ in range(count)]
    length = max(map(len, streams))
    return [[stream[at] if at < len(stream) else NOTHING_CHANGES for stream in streams] for at in range(length)]


# Joins of several streams.


def combined(tables: Sequence[StreamTable], test: Callable[[Values], bool]) -> Counter[Lifetime]:
    """Return the combinations of events that are valid together and fulfil a test of their columns."""
    found: Counter[Lifetime] = Counter()
    for events in product(*(table.events.elements() for table in tables)):
        start, end = max(event.vs for event in events), min(event.ve for event in events)
        row = tuple(value for event in events for value in event.row)
        if start < end and test(row):
            found[Lifetime(row, start, end)] += 1
    return found


JOINS: dict[str, tuple[str | tuple[str, ...], Expression | None, Callable[[Values], bool]]] = {
    "one column": ("a", None, lambda row: row[0] == row[2] == row[4]),
    "two columns": (("a", "b"), None, lambda row: row[:2] == row[2:4] == row[4:]),
    "a predicate of neighbours": (
        (),
        (col.b < col.b_2) & (col.a_2 <= col.b_3),
        lambda row: row[1] < row[3] and row[2] <= row[5],
    ),
    "a predicate of all": (
        (),
        (col.b + col.b_2 >= 0) & (col.b + col.b_2 == col.b_3 + col.a),
        lambda row: row[1] + row[3] == row[5] + row[0],
    ),
    "both": (
        "a",
        (col.b != col.b_2) & (col.b_3 > 0),
        lambda row: row[0] == row[2] == row[4] and row[1] != row[3] and row[5] > 0,
    ),
}


def _in_order(on: str | tuple[str, ...], where: Expression | None, order: Sequence[int] | None) -> Stream | None:
    """Return the join, or None in an order in which a stream would be joined by nothing."""
    try:
        return join(*three(), on=on, where=where, order=order)
    except PlanError as problem:
        if order is None or "by nothing" not in str(problem):
            raise
        return None


@pytest.mark.parametrize("name", JOINS)
def test_a_join_of_three_streams_has_the_events_of_every_order(name: str) -> None:
    on, where, test = JOINS[name]
    built = [_in_order(on, where, order) for order in (None, *permutations(range(3)))]
    orders = [stream for stream in built if stream is not None]
    assert len(orders) >= 3
    assert {stream.schema.names for stream in orders} == {("a", "b", "a_2", "b_2", "a_3", "b_3")}
    plans = [compile_plan([stream.node]) for stream in orders]
    for seed in range(12):
        graphs, outputs = [plan.graph() for plan in plans], [StreamTable() for _ in plans]
        tables = {label: StreamTable() for label in NAMES}
        for step in runs(random.Random(seed), 3):
            given = dict(zip(NAMES, step, strict=True))
            for label, table in tables.items():
                table.apply(given[label])
            expected = combined(list(tables.values()), test)
            for plan, graph, output in zip(plans, graphs, outputs, strict=True):
                output.apply(graph.step([given[one.label] for one in plan.sources])[0])
                assert output.events == expected
                assert output.stable == min(table.stable for table in tables.values())


def test_a_conjunct_guards_those_behind_it_in_every_order() -> None:
    overflows = col.b_3 * 2**62 > 0
    where = (col.b_2 != 0) & overflows
    rows = [Delta([Change(row, 0, 0, 9)], None) for row in ((0, 4), (0, 0), (0, 4))]
    given = dict(zip(NAMES, rows, strict=True))
    for order in permutations(range(3)):
        plan = compile_plan([join(*three(), on="a", where=where, order=order).node])
        assert plan.graph().step([given[one.label] for one in plan.sources])[0].changes == []
    unguarded = compile_plan([join(*three(), on="a", where=overflows).node])
    with pytest.raises(ModuleViolation, match="64 bits"):
        unguarded.graph().step([given[one.label] for one in unguarded.sources])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: join(numbers(), on="a"), "a join of 1 streams"),
        (lambda: join(*three(), on="c"), "stream 1 of the join, left, has no column 'c'"),
        (lambda: join(*three()), "stream 2 of the join, .* by nothing"),
        (lambda: join(*three(), where=col.b < col.b_2), "stream 3 of the join, .* by nothing"),
        (lambda: join(*three(), where=col.b < col.c), "no column 'c'; it has a, b, a_2"),
        (lambda: join(*three(), on="a", order=(0, 1, 1)), r"\[0, 1, 1\] is no order of 3 streams"),
        (lambda: join(numbers(), source("x", {"a": "int", "a_2": "int"}), on="a"), "streams 2 and 2 .* column 'a_2'"),
        (lambda: join(numbers(), source("x", {"a": "string"}), on="a"), "cast one of them"),
    ],
)
def test_joins_that_do_not_fit_are_errors_where_they_are_built(build: Callable[[], Stream], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        build()


def test_a_theta_join_of_too_many_pairs_ends_with_a_named_error() -> None:
    stream = numbers("left").join(numbers("right"), where=col.b <= col.b_right, pairs_max=20).named("pairs")
    graph = compile_plan([stream.node]).graph()
    many = Delta([Change((0, at), 0, 0, 9) for at in range(5)], None)
    graph.step([many, Delta(many.changes[:4], None)])
    with pytest.raises(LimitExceeded, match=r"pairs: a step compares more than 20 pairs \(pairs_max\)"):
        graph.step([many, many])


# Diamonds, and functions of users.


def test_both_arms_of_a_diamond_see_the_stables_in_step() -> None:
    """A self-join is stable where its input is, in the same step, and keeps nothing behind it."""
    base = numbers().where(col.b >= 0)
    arms = base.select("a").join(base.shift(2).select(c=col.a), {"a": "c"})
    plan = compile_plan([arms.node, base.node])
    assert [step.name for step in plan.steps].count("filter") == 1
    for seed in range(40):
        random_ = random.Random(seed)
        graph, table, output = plan.graph(), StreamTable(), StreamTable()
        for delta in cut(random_, random_stream(random_, 20, rows=ROWS)):
            table.apply(delta)
            output.apply(graph.step([delta])[0])
            moved: Counter[Lifetime] = Counter()
            for one, other in product(table.events.elements(), repeat=2):
                start, end = max(one.vs, other.vs + 2), min(one.ve, other.ve if other.ve == INF else other.ve + 2)
                if one.row[0] == other.row[0] and start < end:
                    moved[Lifetime((one.row[0], other.row[0]), start, end)] += 1
            assert output.events == moved
            assert output.stable == table.stable
        if table.stable == INF:
            assert graph.live() == 0


def test_columns_of_a_user_function_are_computed_once_for_each_event() -> None:
    functions, calls = FunctionRegistry(), []

    @functions.scalar(["int"], "int")
    def doubled(value: int) -> int:
        calls.append(value)
        return 2 * value

    mapped = numbers().with_columns(c=doubled(col.b)).where(col.c > 1).shift(1).select("a", d=col.c + 1)
    plan = compile_plan([mapped.node])
    assert len(plan.steps) == 1
    (delta,) = plan.graph().step([Delta([Change((7, 0), 0, 0, 3), Change((8, 1), 1, 1, INF)], None)])
    assert delta.changes == [Change((8, 3), 2, 2, INF)]
    assert calls == [0, 1]


# Samples and lifetimes.


def test_lifetimes_are_altered_as_they_are_named() -> None:
    altered = {
        "shift": (numbers().shift(-2), [(2, 7)]),
        "set": (numbers().set_duration(3), [(4, 7)]),
        "extend": (numbers().extend(4), [(4, 13)]),
        "clip": (numbers().clip_duration(2), [(4, 6)]),
        "points": (numbers().points(), [(4, 5)]),
        "at end": (numbers().at_end(2), [(9, 11)]),
        "to the next": (numbers().edges("a"), [(4, INF)]),
        "to the next, for a while": (numbers().edges("a", lasts=1), [(4, 5)]),
    }
    for name, (stream, lifetimes) in altered.items():
        graph = compile_plan([stream.node]).graph()
        (delta,) = graph.step([Delta([Change((0, 1), 4, 4, 9)], None)])
        assert [(change.vs, change.new) for change in delta.changes] == lifetimes, name


def test_signals_and_the_latest_sample_by_a_run() -> None:
    """The nodes give their operators the right columns: compared with SQL's ``lead`` and ``asof join``."""
    edges, latest = (
        numbers("left").edges("a", lasts=6),
        numbers("left").as_of(numbers("right"), "a", within=4, how="left"),
    )
    plans = compile_plan([edges.node, latest.node])
    for seed in range(30):
        graph, tables = plans.graph(), {label: StreamTable() for label in ("left", "right")}
        outputs = StreamTable(), StreamTable()
        for step in runs(random.Random(seed), 2):
            given = dict(zip(tables, step, strict=True))
            for label, table in tables.items():
                table.apply(given[label])
            for output, delta in zip(outputs, graph.step([given[one.label] for one in plans.sources]), strict=True):
                output.apply(delta)
            assert outputs[0].events == signal(tables["left"], 6)
            assert outputs[1].events == with_latest(tables["left"], tables["right"], 4)


def signal(table: StreamTable, lasts: int) -> Counter[Lifetime]:
    found: Counter[Lifetime] = Counter()
    times = {(row[0], vs) for row, vs, _ in table.events}
    for key, vs in times:
        row = max(row for row, start, _ in table.events if (row[0], start) == (key, vs))
        found[Lifetime(row, vs, min([vs + lasts, *(t for other, t in times if other == key and t > vs)]))] += 1
    return found


def with_latest(lefts: StreamTable, samples: StreamTable, within: int) -> Counter[Lifetime]:
    found: Counter[Lifetime] = Counter()
    for row, vs, ve in lefts.events.elements():
        there = [(t, sample) for sample, t, _ in samples.events if sample[0] == row[0] and vs - within <= t <= vs]
        found[Lifetime(row + (max(there)[1] if there else (None, None)), vs, ve)] += 1
    return found


# Deep plans.


def test_a_plan_of_many_diamonds_is_compared_and_compiled_by_its_nodes() -> None:
    def diamonds() -> Stream:
        stream = numbers()
        for _ in range(60):
            stream = stream.union(stream)
        return stream

    one, other = diamonds(), diamonds()
    assert one.node == other.node
    assert one.node is not other.node
    assert one.union(numbers()).node != other.union(numbers("others")).node
    assert len(repr(one.node)) < 100
    assert len(compile_plan([one.node, other.node]).steps) == 60
    document = plan_to_json({"it": one.node})
    assert plan_from_json(json.loads(json.dumps(document))) == {"it": one.node}
