"""Windows in plans: what is refused when one is built, what ends one that runs, and every node in JSON."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from temporal_world import StreamTable, cut, random_stream
from window_plan_world import OpenAggregate, OpenOperator, events, numbers, registered_modules, results, step_by_step

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import UsageError
from lmerge.temporal.changes import Lifetime
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.expressions.surface import col, lit
from lmerge.temporal.modules.properties import Stamped
from lmerge.temporal.plan.calls import CallParameters
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.json_format import plan_from_json, plan_to_json
from lmerge.temporal.plan.stream import Stream, WindowedStream, aggregate, count, method_of, module, source
from lmerge.temporal.values import NAN
from lmerge.temporal.windows.policies import Clip, Form, Stamp

ROWS = ((0, 0), (0, 1), (1, 0), (1, 2))


@pytest.fixture(autouse=True, scope="module")
def modules() -> Iterator[None]:
    with registered_modules():
        yield


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
    ("raises", lambda: numbers().tumbling(5).agg(m=module("open_aggregate")), lambda rows: 1 // 0, "ZeroDivisionError"),
    (
        "a wrong type",
        lambda: numbers().tumbling(5).agg(m=module("open_aggregate")),
        lambda rows: "x",
        "'x' is not a whole",
    ),
    ("nothing", lambda: numbers().tumbling(5).agg(m=module("open_aggregate")), lambda rows: None, "no value for m"),
    ("overflows", lambda: numbers().tumbling(5).agg(m=module("open_aggregate")), lambda rows: 2**63, "64-bit range"),
    (
        "is random",
        lambda: numbers().tumbling(5).agg(m=module("open_aggregate"), rechecks=True),
        lambda rows: DRAWN.randrange(10**9),
        "'open_aggregate' version 1 is not deterministic: in window",
    ),
    (
        "stamps the past",
        lambda: numbers().tumbling(5).apply(module("open_operator")),
        lambda rows, window: [Stamped((1,), window.start - 1, window.end)],
        "starts before the window",
    ),
    (
        "is not time-bound",
        lambda: numbers().tumbling(5).apply(module("open_operator"), output="time-bound", form="eager"),
        lambda rows, window: [Stamped((len(rows),), window.start, window.end)],
        "is declared time-bound",
    ),
    (
        "is not insert-only",
        lambda: numbers().tumbling(5).apply(module("open_operator"), output="align", form="eager"),
        lambda rows, window: [(len(rows),)],
        "is declared insert_only",
    ),
    (
        "does not preserve the order",
        lambda: numbers().tumbling(5).apply(module("open_operator"), output="clip", form="eager"),
        lambda rows, window: [Stamped((at,), window.end - at - 1, window.end) for at in range(len(rows))],
        "is declared preserves_order",
    ),
]


@pytest.mark.parametrize(("build", "answer", "message"), [run[1:] for run in RUNS], ids=[run[0] for run in RUNS])
def test_a_module_that_breaks_its_declaration_is_named(
    build: Callable[[], Stream], answer: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in (OpenAggregate, OpenOperator):
        monkeypatch.setattr(one, "answer", staticmethod(answer))
    with pytest.raises(ModuleViolation, match=message) as raised:
        step_by_step(build(), [*events((1, 1, 3), (2, 2, 4), (3, 3, 9)), INF])
    assert "module '" in str(raised.value)


def test_what_was_emitted_is_remembered_so_a_random_module_makes_a_legal_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random_ = random.Random(4)
    monkeypatch.setattr(OpenAggregate, "answer", staticmethod(lambda rows: random_.randrange(100)))
    plan = numbers().hopping(4, 2).agg(m=module("open_aggregate"), form="eager")
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
        (
            lambda node: node["calls"][0].update(name="totals"),
            "the plan needs module 'totals' version 1, which is not installed",
        ),
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
    assert plans[0] != plans[1] != plans[2] != plans[0]
    assert len(compile_plan(plans).steps) == 3
    assert CallParameters({"factor": 1}) != CallParameters({"factor": True})  # nodes compare their hashes first
