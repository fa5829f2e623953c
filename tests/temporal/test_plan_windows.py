"""Windows in plans: users' modules of every kind, top-k, sessions, policies, what is refused, and their JSON."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import pytest
from module_world import (
    DEFINED,
    CountsByValue,
    Distinct,
    Latest,
    Ranked,
    RunningCount,
    Spread,
    Total,
    Weighted,
    WeightedTotal,
)
from temporal_world import StreamTable, cut, random_stream
from window_definition import WindowDefinition

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import LimitExceeded, UsageError
from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.expressions.surface import col, lit
from lmerge.temporal.modules.functions import aggregate as declare
from lmerge.temporal.modules.kinds import Aggregate, AggregateModule, Operator, OperatorModule, TimedOperator
from lmerge.temporal.modules.properties import Properties, Stamped, TimedRow, Window
from lmerge.temporal.modules.registry import MODULES
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.json_format import plan_from_json, plan_to_json
from lmerge.temporal.plan.stream import Stream, WindowedStream, aggregate, count, method_of, module, source
from lmerge.temporal.plan.windows import WindowNode
from lmerge.temporal.running import QueryRun, collect
from lmerge.temporal.values import NAN, Values
from lmerge.temporal.windows.group import WindowRules
from lmerge.temporal.windows.kinds import WindowDescriptor
from lmerge.temporal.windows.module import WindowModule
from lmerge.temporal.windows.policies import Clip, Form, Stamp
from lmerge.testing.example_modules import FollowedBy, MyAverage, MyTimeWeightedAverage
from lmerge.wire.schema import SchemaLike

ROWS = ((0, 0), (0, 1), (1, 0), (1, 2))
EVERY_KIND = (Spread, Total, Weighted, WeightedTotal, Distinct, CountsByValue, Ranked, Latest)


@declare()
def middle(values: list[int], *, low: bool = True) -> int:
    """Return the value in the middle."""
    return sorted(values)[(len(values) - low) // 2]


class Sparse(Operator[int]):
    """How many rows there are, also if there are none."""

    inputs: ClassVar[SchemaLike] = {"b": "int"}
    results: ClassVar[SchemaLike] = {"rows": "int"}
    properties = Properties(empty_preserving=False)

    def compute(self, rows: Sequence[int]) -> list[tuple[int]]:
        return [(len(rows),)]


class Answers(Aggregate[int, Any]):
    """Returns what a test lets it return."""

    inputs: ClassVar[SchemaLike] = {"b": "int"}
    result = "int"
    answer: ClassVar[Callable[[Sequence[int]], Any]] = len

    def compute(self, rows: Sequence[int]) -> Any:
        return type(self).answer(rows)


class Emits(TimedOperator[int]):
    """Yields what a test lets it yield. It declares all that a run checks."""

    inputs: ClassVar[SchemaLike] = {"b": "int"}
    results: ClassVar[SchemaLike] = {"x": "int"}
    properties = Properties(time_bound=True, insert_only=True, preserves_order=True)
    answer: ClassVar[Callable[[Sequence[TimedRow[int]], Window], Any]] = lambda rows, window: []

    def compute(self, rows: Sequence[TimedRow[int]], window: Window) -> Any:
        return type(self).answer(rows, window)


class Keyed(TimedOperator[int]):
    """What a module learns of its window."""

    inputs: ClassVar[SchemaLike] = {"b": "int"}
    results: ClassVar[SchemaLike] = {"kind": "string", "key": "string", "length": "int"}

    def compute(self, rows: Sequence[TimedRow[int]], window: Window) -> Iterator[tuple[str, str, int]]:
        assert window.kind is not None
        yield window.kind.shown, repr(window.key), window.end - window.start


REGISTERED = (
    *EVERY_KIND,
    middle,
    Sparse,
    Answers,
    Emits,
    Keyed,
    RunningCount,
    MyAverage,
    MyTimeWeightedAverage,
    FollowedBy,
)


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    before = set(MODULES.names())
    for one in REGISTERED:
        MODULES.named(one)
    yield
    for name in set(MODULES.names()) - before:
        MODULES.forget(name)


def numbers(*promises: str) -> Stream:
    return source("numbers", {"a": "int", "b": "int"}, promises=promises)


def signals() -> Stream:
    return source("signals", {"kind": "string", "key": "string", "value": "float"})


def events(*found: tuple[Any, int, int]) -> list[Change]:
    return [Change(row if isinstance(row, tuple) else (0, row), vs, vs, ve) for row, vs, ve in found]


def results(stream: Stream, *found: tuple[Any, int, int]) -> list[Lifetime]:
    return collect(stream.node, {compile_plan([stream.node]).sources[0].label: events(*found)})


def step_by_step(stream: Stream, items: Sequence[Change | int]) -> None:
    run = QueryRun({"out": stream.node})
    for item in items:
        run.take("numbers", [item])


# Every kind of module, window and policy.

WINDOWS: dict[str, Callable[[Stream], WindowedStream]] = {
    "tumbling": lambda stream: stream.tumbling(5),
    "hopping by group": lambda stream: stream.group_by("a").hopping(4, 2, offset=1),
    "snapshot by group": lambda stream: stream.group_by("a").snapshot(),
    "count": lambda stream: stream.count_windows(2),
    "sessions by group": lambda stream: stream.group_by("a").sessions(1),
}


class DefinedModule(WindowModule):
    """Computes what a module must, and reads what that reads."""

    def __init__(self, kind: type[AggregateModule | OperatorModule], like: WindowModule) -> None:
        self._defined = DEFINED[kind]
        self.reads_events, self.starts_only = like.reads_events, like.starts_only
        self.reads_window, self.stamps = like.reads_window, like.stamps

    def compute(self, events: Sequence[Lifetime], window: WindowDescriptor) -> Sequence[Values]:
        return self._defined([Lifetime(row[1:], vs, ve) for row, vs, ve in events], window)


def stream_of(kind: type[AggregateModule | OperatorModule], windows: WindowedStream, form: Form, clip: Clip) -> Stream:
    call = module(MODULES.named(kind), of=col.b)
    if issubclass(kind, AggregateModule):
        return windows.agg(r=call, form=form, clip=clip)
    return windows.apply(call, form=form, clip=clip)


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("kind", [kind for kind in EVERY_KIND if kind is not Distinct])
def test_a_module_in_a_plan_is_its_definition(kind: type[AggregateModule | OperatorModule], windows: str) -> None:
    for form in Form:
        random_ = random.Random(f"{kind.__name__} {windows} {form}")
        clip = random_.choice(list(Clip)) if kind.is_timed else Clip.NONE
        chosen = WINDOWS[windows](numbers())
        node = stream_of(kind, chosen, form, clip).node
        assert isinstance(node, WindowNode)
        policies = node.policies
        defined = DefinedModule(kind, node.module)
        rules = WindowRules(node.window, defined, policies.clip, policies.stamp, form, lambda row: row)
        key_of: Callable[[Values], Values] = (lambda row: row[:1]) if node.keys else (lambda row: ())
        definition, graph, table = WindowDefinition(rules, key_of), compile_plan([node]).graph(), StreamTable()
        for delta in cut(random_, random_stream(random_, 16, rows=ROWS)):
            table.apply(graph.step([delta])[0])
            assert table.events == definition.take(delta)
            assert table.stable == definition.output_stable


def test_an_operator_without_inputs_gets_whole_rows() -> None:
    found = results(numbers().tumbling(5).apply(module("distinct")), (3, 1, 2), (3, 2, 3), (4, 2, 7))
    assert found == [Lifetime((0, 3), 0, 5), Lifetime((0, 4), 0, 5), Lifetime((0, 4), 5, 10)]


def test_examples_of_the_paper_by_method_and_by_name() -> None:
    found = [(10.0, 0, 5), (20.0, 5, 10), (40.0, -5, 5), (30.0, 8, 14)]
    rows = [(("A", "x", value), vs, ve) for value, vs, ve in found]
    my_average = method_of(MyAverage)
    for call in (my_average(of=col.value), module("my_average", of=col.value, digits=1), my_average()):
        tumbling = results(signals().tumbling(10).agg(m=call), *rows)
        assert Lifetime((25.0,), 0, 10) in tumbling
    for clip, expected in {"none": 73.0, "left": 53.0, "right": 61.0, "full": 41.0}.items():
        weighted = signals().tumbling(10).agg(m=module("my_time_weighted_average", of=col.value), clip=clip)
        assert Lifetime((expected,), 0, 10) in results(weighted, *rows)


def test_a_pattern_needs_the_starts_that_events_have() -> None:
    rows = [(("A", "first", 0.0), -2, 1), (("B", "second", 0.0), -1, 4)]
    call = module("followed_by", of={"key": col.key, "kind": col.kind})
    found = results(signals().tumbling(10).apply(call), *rows)
    assert found == [Lifetime(("first", "second"), -1, 0), Lifetime(("first", "second"), 0, 10)]
    aligned = results(signals().tumbling(10).apply(call, output="align"), *rows)
    assert aligned == [Lifetime(("first", "second"), -10, 0), Lifetime(("first", "second"), 0, 10)]
    with pytest.raises(PlanError, match="apply: module 'followed_by' version 1 needs the starts of events"):
        signals().tumbling(10).apply(call, clip="left")


def test_a_module_learns_kind_and_key_of_its_window() -> None:
    found = results(numbers().group_by("a", half=col.b // 2).tumbling(5).apply(module("keyed")), (5, 1, 2))
    assert found == [Lifetime((0, 2, "tumbling(5)", "(0, 2)", 5), 0, 5)]


def test_a_function_under_a_decorator_is_an_aggregate() -> None:
    windows = numbers().tumbling(5)
    plan = windows.agg(low=module("middle", of=col.b), high=module("middle", of=[col.b], low=False), n=count())
    assert results(plan, (1, 0, 2), (2, 1, 2), (8, 2, 3), (9, 3, 4)) == [Lifetime((2, 8, 4), 0, 5)]


# Top-k and sessions.


def test_top_k_has_all_ties_and_the_rank() -> None:
    by_group = numbers().group_by("a").tumbling(5).top(2, by=[col.b.desc()])
    assert str(by_group.schema) == "a: int, b: int, rank: int"
    found = results(by_group, ((0, 3), 0, 1), ((0, 5), 1, 2), ((0, 3), 2, 3), ((0, 1), 2, 3), ((1, 1), 4, 5))
    assert [event.row for event in found] == [(0, 3, 2), (0, 3, 2), (0, 5, 1), (1, 1, 1)]


@pytest.mark.parametrize("seed", range(20))
def test_ranks_are_those_of_the_window_after_every_batch(seed: int) -> None:
    random_ = random.Random(seed)
    k, is_last = random_.randint(1, 3), random_.random() < 0.5
    by = [col.b.desc() if is_last else col.b.asc()]
    plan = numbers().hopping(4, 3).top(k, by=by, rank="r", form="eager")
    graph, table, given = compile_plan([plan.node]).graph(), StreamTable(), StreamTable()
    mark = NEG_INF
    unending = [item for item in random_stream(random_, 20, rows=ROWS) if item != INF]
    for delta in cut(random_, unending):
        table.apply(graph.step([delta])[0])
        given.apply(delta)
        mark = max([mark, *(change.vs for change in delta.changes), given.stable])
        expected: list[Lifetime] = []
        for start in range(-30, min(mark, 60) + 1):
            members = [one for one in given.events.elements() if one.vs < start + 4 and one.ve > start]
            if start % 3 or not members:
                continue
            for one in members:
                better = sum(other.row[1] != one.row[1] and (other.row[1] > one.row[1]) is is_last for other in members)
                if better < k:
                    expected.append(Lifetime((*one.row, better + 1), start, start + 4))
        assert sorted(table.events.elements()) == sorted(expected)


def test_missing_values_rank_last_and_nan_first_of_the_descending() -> None:
    stream = source("numbers", {"x": "float?"})
    for by, expected in ((col.x, [1.0, 2.0, NAN, None]), (col.x.desc(), [NAN, 2.0, 1.0, None])):
        found = results(stream.tumbling(5).top(4, by=by), *(((value,), 1, 2) for value in (NAN, None, 1.0, 2.0)))
        assert [event.row[0] for event in sorted(found, key=lambda event: int(event.row[1]))] == expected


def test_sessions_end_behind_their_gap() -> None:
    found = results(numbers().group_by("a").sessions(2).agg(n=count()), (1, 0, 3), (2, 5, 6), (3, 9, 10))
    assert found == [Lifetime((0, 2), 0, 6), Lifetime((0, 1), 9, 10)]


# Windows without events, and windows that begin at -inf.


def test_windows_without_events_have_a_result_where_it_is_declared() -> None:
    windows = numbers().tumbling(5, since=-5)
    plan = windows.agg(n=count(on_empty=0), last=aggregate("last", col.b), top=aggregate("max", col.b, on_empty=-1))
    assert str(plan.schema) == "n: int, last: int?, top: int"
    found = results(plan, (7, 11, 12), (8, 1, 2), (9, -20, -10))
    assert found == [
        Lifetime((0, None, -1), -5, 0),
        Lifetime((1, 8, 8), 0, 5),
        Lifetime((0, None, -1), 5, 10),
        Lifetime((1, 7, 7), 10, 15),
    ]
    applied = results(numbers().tumbling(5, since=0).apply(module("sparse")), (7, 11, 12))
    assert applied == [Lifetime((0,), 0, 5), Lifetime((0,), 5, 10), Lifetime((1,), 10, 15)]


def test_an_event_from_the_beginning_of_time_needs_a_first_window() -> None:
    found = results(numbers().tumbling(5, since=0).agg(n=count()), (1, NEG_INF, 7))
    assert found == [Lifetime((1,), 0, 5), Lifetime((1,), 5, 10)]
    with pytest.raises(UsageError, match=r"starts at -inf, where tumbling\(5\) has no first window: give .* since="):
        results(numbers().tumbling(5).agg(n=count()), (1, NEG_INF, 7))


def test_a_stable_that_would_open_too_many_windows_is_refused() -> None:
    graph = compile_plan([numbers().tumbling(1, since=0).agg(n=count(on_empty=0)).node]).graph()
    with pytest.raises(LimitExceeded, match="windows_max"):
        graph.step([Delta([], 10**15)])


# What is refused when a plan is built.


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda w: w.agg(m=module("nothing", of=col.b)), "there is no module 'nothing'"),
        (lambda w: w.agg(m=module("my_average", of=col.b, digit=1)), "no parameter 'digit'; there are digits"),
        (
            lambda w: w.agg(m=module("my_average", of=col.b, digits=math.inf)),
            "'digits' is inf, which a plan cannot record",
        ),
        (lambda w: w.agg(m=module("my_average", of=col.b, digits=object())), "which a plan cannot record"),
        (lambda w: w.agg(m=module("my_average", of=col.c)), "'aggregate': .*no column 'c'"),
        (lambda w: w.agg(m=module("my_average", of=lit("x"))), "aggregate: module 'my_average' .* takes value: float"),
        (lambda w: w.agg(m=module("my_average", of=[col.a, col.b])), "takes 1 columns .*, and got 2"),
        (lambda w: w.agg(m=module("my_average", of={"valeu": col.b})), "its inputs are value"),
        (lambda w: w.agg(m=module("my_average")), "no column 'value'"),
        (lambda w: w.agg(m=module("followed_by")), "is an operator: it returns rows"),
        (lambda w: w.agg(m=3), "m=3 is no aggregate"),
        (lambda w: w.apply(module("my_average", of=col.b)), "apply: 'my_average' is an aggregate"),
        (lambda w: w.apply("distinct"), "no call of a module"),
        (lambda w: w.apply(module("ranked", of=col.b), output="time-bound"), "does not declare time_bound"),
        (lambda w: w.apply(module("distinct"), output="unchanged"), "gives its results no lifetimes"),
        (lambda w: w.apply(module("distinct"), output="sideways"), "'sideways' is not an output"),
        (lambda w: w.apply(module("distinct"), clip="down"), "'down' is not a clipping"),
        (lambda w: w.apply(module("sparse")), "windows without events: .* only on a grid with since="),
        (lambda w: w.apply(module("counts_by_value", of=col.b, on_empty=0)), "an operator computes its rows"),
        (lambda w: w.agg(n=count(on_empty=0)), "on_empty: .* only on a grid with since="),
        (lambda w: w.top(0, by="b"), "top: .*k is 0"),
        (lambda w: w.top(1, by=[]), "nothing to order by"),
        (lambda w: w.top(1, by="c"), "'top': .*no column 'c'"),
        (lambda w: w.top(1, by="b", rank="b"), "the rank needs another name"),
        (lambda w: w.top(1, by="b", output="clip"), "the output cannot be clip"),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_it(build: Callable[[WindowedStream], Stream], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        build(numbers().tumbling(5))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: numbers().group_by("a").tumbling(5, since=0).agg(n=count(on_empty=0)), "on_empty"),
        (lambda: numbers().tumbling(5, since=0).agg(n=count(on_empty=1.5)), "on_empty of 'n'.*1.5"),  # type: ignore[arg-type]  # it is refused
        (lambda: numbers().tumbling(5, since=0).agg(n=aggregate("max", col.b, on_empty=col.b)), "so it is a constant"),
        (
            lambda: numbers().snapshot().apply(module("distinct"), output="point-at-end"),
            "the end of a snapshot can move",
        ),
        (lambda: numbers().sessions(1).top(1, by="b", output="point-at-end"), "the end of a session can move"),
        (lambda: numbers().group_by("a").tumbling(5).apply(module("distinct")), "apply: it has two columns named 'a'"),
        (lambda: numbers().group_by("a", "b").tumbling(5).top(1, by="b", rank=None), "have no columns"),
        (lambda: numbers().sessions(-1), "gap of -1"),
        (lambda: numbers().tumbling(2.5), "size of 2.5"),  # type: ignore[arg-type]  # it is refused
        (lambda: numbers().tumbling(True), "size of True"),
        (lambda: numbers().tumbling(5, since=NEG_INF), "since -inf"),
        (lambda: numbers().count_windows(2, by="middles"), "'middles' is not what a count window counts"),
        (lambda: method_of("my_average")(3, digits=[object()]), "cannot record"),
    ],
)
def test_windows_that_do_not_fit_are_named(build: Callable[[], Stream], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build()


# What a module does when it runs.

DRAWN = random.Random(1)

RUNS: list[tuple[str, Callable[[], Stream], Any, str]] = [
    ("raises", lambda: numbers().tumbling(5).agg(m=module("answers")), lambda rows: 1 // 0, "ZeroDivisionError"),
    ("a wrong type", lambda: numbers().tumbling(5).agg(m=module("answers")), lambda rows: "x", "'x' is not a whole"),
    ("nothing", lambda: numbers().tumbling(5).agg(m=module("answers")), lambda rows: None, "no value for m"),
    ("overflows", lambda: numbers().tumbling(5).agg(m=module("answers")), lambda rows: 2**63, "64-bit range"),
    (
        "is random",
        lambda: numbers().tumbling(5).agg(m=module("answers"), rechecks=True),
        lambda rows: DRAWN.randrange(10**9),
        "'answers' version 1 is not deterministic: in window",
    ),
    (
        "stamps the past",
        lambda: numbers().tumbling(5).apply(module("emits")),
        lambda rows, window: [Stamped((1,), window.start - 1, window.end)],
        "starts before the window",
    ),
    (
        "is not time-bound",
        lambda: numbers().tumbling(5).apply(module("emits"), output="time-bound", form="eager"),
        lambda rows, window: [Stamped((len(rows),), window.start, window.end)],
        "is declared time-bound",
    ),
    (
        "is not insert-only",
        lambda: numbers().tumbling(5).apply(module("emits"), output="align", form="eager"),
        lambda rows, window: [(len(rows),)],
        "is declared insert_only",
    ),
    (
        "does not preserve the order",
        lambda: numbers().tumbling(5).apply(module("emits"), output="clip", form="eager"),
        lambda rows, window: [Stamped((at,), window.end - at - 1, window.end) for at in range(len(rows))],
        "is declared preserves_order",
    ),
]


@pytest.mark.parametrize(("build", "answer", "message"), [run[1:] for run in RUNS], ids=[run[0] for run in RUNS])
def test_a_module_that_breaks_its_word_is_named(
    build: Callable[[], Stream], answer: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in (Answers, Emits):
        monkeypatch.setattr(one, "answer", staticmethod(answer))
    with pytest.raises(ModuleViolation, match=message) as raised:
        step_by_step(build(), [*events((1, 1, 3), (2, 2, 4), (3, 3, 9)), INF])
    assert "module '" in str(raised.value)


def test_what_was_emitted_is_remembered_so_a_random_module_makes_a_legal_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random_ = random.Random(4)
    monkeypatch.setattr(Answers, "answer", staticmethod(lambda rows: random_.randrange(100)))
    plan = numbers().hopping(4, 2).agg(m=module("answers"), form="eager")
    for _ in range(30):
        graph, table = compile_plan([plan.node]).graph(), StreamTable()
        for delta in cut(random_, random_stream(random_, 20, rows=ROWS)):
            table.apply(graph.step([delta])[0])


def test_sums_beyond_64_bits_and_nan_as_a_key() -> None:
    with pytest.raises(ModuleViolation, match=r"sum\(b\).*64"):
        results(numbers().tumbling(5).agg(s=aggregate("sum", col.b)), (2**62, 1, 2), (2**62, 1, 3))
    stream = source("numbers", {"x": "float"})
    rows = [((float("nan"),), 1, 2), ((-0.0,), 1, 2), ((0.0,), 2, 3), ((-float("nan"),), 2, 3)]
    canonical = [((NAN if row[0] != row[0] else row[0] + 0.0,), vs, ve) for row, vs, ve in rows]
    assert results(stream.group_by("x").tumbling(5).agg(n=count()), *canonical) == [
        Lifetime((0.0, 2), 0, 5),
        Lifetime((NAN, 2), 0, 5),
    ]


# JSON.


def every_policy() -> Iterator[Stream]:
    grouped = numbers().group_by("a", half=col.b // 2)
    yield from (grouped.sessions(3).agg(n=count(), form=form) for form in Form)
    for clip in Clip:
        yield grouped.hopping(10, 4, offset=-3, since=2).apply(module("ranked", of=col.b), clip=clip)
    for stamp in (Stamp.ALIGN, Stamp.UNCHANGED, Stamp.CLIP, Stamp.TIME_BOUND, Stamp.POINT_AT_END):
        yield numbers().tumbling(5).apply(module("running_count", of=col.b), output=stamp, form="settled")
    yield grouped.snapshot().top(3, by=[col.b.desc(), "a"], rank="place", form="eager")
    yield numbers().count_windows(2, by="ends").top(1, by=col.b + 1, rank=None, output="point-at-end")
    yield numbers().tumbling(5, since=0).agg(n=count(on_empty=0), m=module("middle", of=col.b, low=False, on_empty=-3))
    yield numbers().tumbling(5).agg(m=module("total", of=col.b, factor=2), rechecks=True)
    yield numbers().tumbling(5).apply(module("distinct"))


def test_every_node_and_policy_survives_json() -> None:
    for stream in every_policy():
        document = json.loads(json.dumps(plan_to_json({"out": stream.node})))
        again = plan_from_json(document)
        assert again == {"out": stream.node}
        assert plan_to_json(again) == document
        assert again["out"].shown == stream.node.shown


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda node: node["calls"][0].update(version=2), "needs module 'total' version 2, and version 1 is here"),
        (lambda node: node["calls"][0].pop("version"), None),
        (lambda node: node["calls"][0].update(version="1"), "which is no whole number"),
        (lambda node: node["calls"][0].update(name="totals"), "there is no aggregate 'totals'"),
        (lambda node: node["calls"][0]["parameters"].update(scale=3), "no parameter 'scale'"),
        (lambda node: node["calls"][0].update(argument=[]), "a call has no field 'argument'"),
        (lambda node: node["window"].update(gap=3), "has no field 'gap'"),
        (lambda node: node["window"].update(size=2.5), "size is 2.5"),
        (lambda node: node["window"].update(kind="tilting"), "no window of kind 'tilting'"),
        (lambda node: node.update(form="slow"), "not those of 'aggregate'.*slow"),
        (lambda node: node.update(windows_max=0), "windows_max is 0"),
        (lambda node: node.update(windows_max=True), "windows_max is True"),
        (lambda node: node.update(rechecks=1), "neither true nor false"),
        (lambda node: node.pop("clip"), "not those of 'aggregate'.*clip"),
    ],
)
def test_json_of_windows_that_does_not_fit_is_named(change: Callable[[Any], object], message: str | None) -> None:
    plan = numbers().tumbling(5).agg(m=module("total", of=col.b, factor=2))
    document = json.loads(json.dumps(plan_to_json({"out": plan.node})))
    change(document["nodes"][1])
    if message is None:
        assert plan_from_json(document)["out"].schema == plan.schema
        return
    with pytest.raises(PlanError, match=f"node 'n2': .*{message}"):
        plan_from_json(document)


def test_parameters_differ_by_type() -> None:
    plans = [numbers().tumbling(5).agg(m=module("total", of=col.b, factor=one)).node for one in (1, 1.0, True)]
    assert len(set(plans)) == 3
    assert len(compile_plan(plans).steps) == 3
