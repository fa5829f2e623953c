"""Windows in plans: users' modules of every kind, top-k, sessions, and windows without events."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import pytest
from module_world import DEFINED, Distinct
from temporal_world import StreamTable, cut, random_stream
from window_definition import WindowDefinition
from window_plan_world import EVERY_KIND, numbers, registered_modules, results, signals

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import LimitExceeded, UsageError
from lmerge.temporal.changes import Delta, Lifetime
from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.modules.kinds import AggregateModule, OperatorModule
from lmerge.temporal.modules.registry import MODULES
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.stream import Stream, WindowedStream, aggregate, count, method_of, module, source
from lmerge.temporal.plan.windows import WindowNode
from lmerge.temporal.values import NAN, Values
from lmerge.temporal.windows.group import WindowRules
from lmerge.temporal.windows.kinds import WindowDescriptor
from lmerge.temporal.windows.module import WindowModule
from lmerge.temporal.windows.policies import Clip, Form
from lmerge.testing.example_modules import MyAverage

ROWS = ((0, 0), (0, 1), (1, 0), (1, 2))


@pytest.fixture(autouse=True, scope="module")
def modules() -> Iterator[None]:
    with registered_modules():
        yield


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
