"""Plans as values: built, checked, printed, written as JSON and back, compiled, and what they promise."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest
from temporal_world import Item, StreamTable, cut, random_stream

from lmerge.core.elements import INF
from lmerge.core.properties import DETERMINISTIC_TIES, INSERT_ONLY, KEY, ORDERED, STRICTLY_ORDERED, Properties
from lmerge.errors import UsageError
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.surface import col, lit
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.json_format import fingerprint, plan_from_json, plan_to_json
from lmerge.temporal.plan.properties import algorithm_of, derive, explain
from lmerge.temporal.plan.showing import mermaid, tree
from lmerge.temporal.plan.stream import Stream, aggregate, count, source
from lmerge.temporal.values import Values

FLIGHTS = {"origin": "string", "delay": "float(1)?", "number": "int"}
NUMBERS = {"a": "int", "b": "int"}
ROWS = ((0, 0), (0, 1), (1, 0), (1, 2))


def flights(*promises: str) -> Stream:
    return source("flights", FLIGHTS, promises=promises)


def late() -> Stream:
    return flights().where(col.delay > 15).select("origin", twice=col.delay * 2)


def numbers(*promises: str, name: str = "numbers") -> Stream:
    return source(name, NUMBERS, promises=promises)


# Errors when a plan is built.


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: flights().where(col.dellay > 15), "dellay"),
        (lambda: flights().where(col.delay + 1), "a filter takes bool"),
        (lambda: flights().select("origin", "origin"), "two columns named 'origin'"),
        (lambda: flights().select(col.delay * 2), "needs a name"),
        (lambda: flights().union(numbers()), "flights has the columns"),
        (lambda: flights().join(numbers(), {"origin": "a"}), "cast one of them"),
        (lambda: flights().join(flights().named("other"), where=col.delay + col.delay_right), "not bool"),
        (lambda: flights().join(numbers()), "key of both inputs, a predicate, or both"),
        (lambda: flights().join(numbers(), how="sideways", where=lit(True)), "sideways"),
        (lambda: flights().tumbling(0), "size of 0"),
        (lambda: flights().hopping(5, 0), "hop of 0"),
        (lambda: flights().count_windows(0), "at least 1"),
        (lambda: flights().tumbling(5).agg(), "computes nothing"),
        (lambda: flights().tumbling(5).agg(s=aggregate("sum", col.origin)), "origin is string"),
        (lambda: flights().tumbling(5).agg(s=aggregate("summ", col.delay)), "there is no aggregate 'summ'"),
        (lambda: flights().group_by("origin").tumbling(5).agg(origin=count()), "two columns named 'origin'"),
        (lambda: flights().tumbling(5).agg(n=count(), output="unchanged"), "no lifetime of its own"),
        (lambda: flights().snapshot().agg(n=count(), output="point-at-end"), "can move"),
        (lambda: flights().set_duration(0), "at least 1"),
        (lambda: source("", FLIGHTS), "needs a name"),
        (lambda: source("s", FLIGHTS, promises=["orderly"]), "orderly"),
        (lambda: compile_plan([flights().union(source("flights", FLIGHTS, promises=[KEY])).node]), "named 'flights'"),
        (lambda: flights()["gate"], "flights has no column 'gate'"),
        (lambda: flights().edges("gate"), "edges.*gate"),
        (lambda: flights().edges("origin", lasts=0), "edges: a sample lasts 0"),
        (lambda: flights().edges("origin", ties="first"), "'first' is not a rule for ties: there are last, error"),
        (lambda: flights().as_of(numbers(), {"origin": "a"}), "as_of: origin is string.*cast one of them"),
        (lambda: flights().as_of(flights(), "origin", within=-1), "as_of: a sample holds within -1"),
        (lambda: flights().as_of(flights(), "origin", how="full"), "inner or left, not full"),
        (lambda: flights().as_of(flights(), "gate"), "as_of.*gate"),
        (lambda: flights().as_of(flights(), "origin", suffix=""), "both streams have the column 'origin'"),
        (lambda: flights().join(flights(), where=lit(True), pairs_max=0), "join: pairs_max is 0"),
        (lambda: source("s", FLIGHTS, shape="line"), "'line' is not a shape of events"),
        (lambda: source("s", FLIGHTS, shape="point", by="origin"), "source 's' has point events"),
        (lambda: source("s", FLIGHTS, shape="edge", by="gate"), "gate"),
    ],
)
def test_what_does_not_fit_is_an_error_where_it_is_built(build: object, message: str) -> None:
    assert callable(build)
    with pytest.raises(UsageError, match=message):
        build()


# Printing and JSON.


def test_a_plan_is_printed_as_a_tree_and_as_a_picture() -> None:
    counted = late().group_by("origin").tumbling(10).agg(n=count()).named("per origin")
    joined = counted.join(late().snapshot().agg(n=count()), where=col.n > col.n_right)
    assert tree(joined.node).splitlines() == [
        "inner join on col.n > col.n_right",
        "├─ per origin: n=count() by origin in tumbling(10), final",
        "│  └─ select origin, twice=col.delay * 2",
        "│     └─ filter col.delay > 15",
        "│        └─ flights (origin: string, delay: float(1)?, number: int)",
        "└─ n=count() in snapshot, final",
        "   └─ select origin, twice=col.delay * 2 (as above)",
    ]
    shaped = source("s", NUMBERS, shape="edge", by="a").as_of(numbers().coalesce().cleanse(), "a", within=3, how="left")
    assert tree(shaped.node).splitlines() == [
        "left as-of join on col.a == col.a, within 3",
        "├─ edges by col.a",
        "│  └─ s (a: int, b: int, edge events)",
        "└─ cleanse",
        "   └─ coalesce",
        "      └─ numbers (a: int, b: int)",
    ]
    drawn = mermaid({"late <flights>": joined.node})
    assert drawn.startswith("flowchart TD\n")
    assert 'n4["<b>per origin</b><br/>n=count() by origin in tumbling(10), final"]' in drawn
    assert '(["late &lt;flights&gt;"])' in drawn
    assert "n4 --> n6" in drawn


def every_kind() -> dict[str, Stream]:
    """Return plans that have every kind of node and every parameter."""
    parts = numbers("ordered").where((col.a > 0) & col.b.is_in([1, 2])).select("a", c=col.a + col.b)
    windows = [
        numbers().group_by("a", half=col.b // 2).hopping(10, 4, offset=-3).agg(n=count(), form="eager"),
        numbers().snapshot().agg(m=aggregate("percentile_cont", col.b, p=0.25), form="settled"),
        numbers().count_windows(3, by="ends").agg(n=count(col.a), form="watermark", output="point-at-end"),
    ]
    altered = numbers().shift(-5).set_duration(7).clip_duration(3).extend(2).at_end(4)
    joined = numbers().join(parts, {"a": "c"}, where=col.b < col.a_right, how="left", suffix="_right")
    return {
        "parts": parts,
        "altered": altered.union(numbers(), numbers()),
        "joined": joined.named("both"),
        "without": numbers().without(numbers(name="others"), on=["a", "b"]),
        **{f"window {at}": window for at, window in enumerate(windows)},
        "edges": numbers().edges(["a", col.b // 2], lasts=9, ties="error"),
        "signal": source("signal", NUMBERS, shape="edge", by="a").edges(),
        "points": source("points", NUMBERS, shape="point").points().coalesce().cleanse(),
        "as of": numbers().as_of(numbers(name="others"), {"a": "b"}, within=5, how="left", suffix="_then"),
        "latest": numbers().as_of(numbers(name="others")),
        "theta": numbers().join(numbers(name="others"), where=col.a < col.b_right, pairs_max=50),
        "nested": source("n", {"s": "string?", "l": "list<int?>", "t?": {"u": "timestamp", "v": "decimal(2)"}}),
    }


def test_a_plan_survives_json() -> None:
    outputs = {name: stream.node for name, stream in every_kind().items()}
    document = plan_to_json(outputs)
    again = plan_from_json(json.loads(json.dumps(document)))
    assert again == outputs
    assert plan_to_json(again) == document
    assert sum(node["kind"] == "source" and node["label"] == "numbers" for node in document["nodes"]) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("lmerge_plan"), "no plan"),
        (lambda d: d.update(lmerge_plan=2), "version 2"),
        (lambda d: d.update(nodes={}), "list of nodes"),
        (lambda d: d.update(outputs={"x": "n9"}), "'n9', and there is none"),
        (lambda d: d["nodes"][1].update(kind="sort"), "n2.*no kind 'sort'"),
        (lambda d: d["nodes"][1].update(reads=["n3"]), "n2.*'n3', which is no node before it"),
        (lambda d: d["nodes"][1].pop("predicate"), "n2.*not those of 'filter'"),
        (lambda d: d["nodes"][1].update(policy="lazy"), "n2.*no field 'policy'"),
        (lambda d: d["nodes"][2].update(id="n1"), "two nodes have the id"),
        (lambda d: d["nodes"][0].update(columns=[["origin", "text"]]), "n1.*text"),
        (lambda d: d["nodes"].append(5), "an object with an id"),
    ],
)
def test_json_that_is_no_plan_is_named(change: object, message: str) -> None:
    document = json.loads(json.dumps(plan_to_json({"late": late().node})))
    assert callable(change)
    change(document)
    with pytest.raises(PlanError, match=message):
        plan_from_json(document)


def test_nodes_that_mean_the_same_have_one_fingerprint() -> None:
    assert fingerprint(late().named("late").node) == fingerprint(late().node)
    assert fingerprint(late().node) != fingerprint(
        flights().where(col.delay > 16).select("origin", twice=col.delay * 2).node
    )
    assert fingerprint(flights().node) != fingerprint(source("others", FLIGHTS).node)


# Compiling.


def test_equal_parts_are_computed_once_and_span_operators_in_one_pass() -> None:
    one = late().group_by("origin").tumbling(10).agg(n=count())
    other = late().where(col.twice > 100).snapshot().agg(n=count())
    plan = compile_plan([one.node, other.node, late().node])
    assert [step.name for step in plan.steps] == ["filter+select", "aggregate", "filter", "aggregate 2"]
    assert [step.reads for step in plan.steps] == [(0,), (1,), (1,), (3,)]
    assert plan.outputs == (2, 4, 1)
    alone = compile_plan([late().where(col.twice > 100).shift(5).named("moved").node])
    assert [(step.name, len(step.nodes)) for step in alone.steps] == [("moved", 4)]


def test_a_diamond_runs_in_step() -> None:
    base = numbers().where(col.a >= 0)
    diamond = base.select("a", "b").join(base.select("a", c=col.b + 1), "a")
    graph = compile_plan([diamond.node]).graph()
    (delta,) = graph.step([Delta([Change((1, 2), 0, 0, 9), Change((1, 5), 3, 3, INF)], 3)])
    rows = sorted((change.row, change.vs, change.new) for change in delta.changes)
    assert rows == [((1, 2, 1, 3), 0, 9), ((1, 2, 1, 6), 3, 9), ((1, 5, 1, 3), 3, 9), ((1, 5, 1, 6), 3, INF)]
    assert delta.stable == 3


@pytest.mark.parametrize("seed", range(60))
def test_fused_and_shared_plans_emit_what_separate_operators_do(seed: int) -> None:
    random_ = random.Random(seed)
    base = numbers().where(col.b < 2).with_columns(c=col.a * 10 + col.b)
    ends = [
        base.shift(random_.choice((-3, 0, 2))).where(col.c > 0),
        base.set_duration(4),
        base.snapshot().agg(n=count()),
    ]
    together = compile_plan([stream.node for stream in ends]).graph()
    apart = [compile_plan([stream.node]).graph() for stream in ends]
    for delta in cut(random_, random_stream(random_, 20, rows=ROWS)):
        assert together.step([delta]) == [graph.step([delta])[0] for graph in apart]


# Promises.


def grouped(stream: Stream, form: str = "final") -> Stream:
    return stream.group_by("a").tumbling(5).agg(n=count(), form=form)


PROMISING: Sequence[tuple[str, Stream, str]] = [
    ("in order into a window", numbers(INSERT_ONLY, ORDERED).tumbling(5).agg(n=count()), "r0"),
    (
        "in order into a window, by watermark",
        numbers(INSERT_ONLY, ORDERED).tumbling(5).agg(n=count(), form="watermark"),
        "r0",
    ),
    ("eager over order", numbers(INSERT_ONLY, ORDERED).tumbling(5).agg(n=count(), form="eager"), "r3"),
    ("final over disorder", numbers().tumbling(5).agg(n=count()), "r0"),
    ("grouped", grouped(numbers(INSERT_ONLY, ORDERED)), "r1"),
    ("grouped over disorder, eager", grouped(numbers(), "eager"), "r3"),
    ("grouped over disorder, watermark", grouped(numbers(), "watermark"), "r3"),
    ("grouped over disorder, final", grouped(numbers()), "r1"),
    ("grouped snapshot", numbers(INSERT_ONLY, ORDERED).group_by("a").snapshot().agg(n=count()), "r3"),
    ("union", numbers(INSERT_ONLY, ORDERED).union(numbers(INSERT_ONLY, ORDERED, name="others")), "r4"),
    ("a filter of order", numbers(INSERT_ONLY, STRICTLY_ORDERED).where(col.a > 0).select("a"), "r0"),
    ("a column that is lost", numbers(KEY).select("a"), "r4"),
    ("columns that can be computed back", numbers(KEY).select(c=col.a + 1, d=-col.b, e=lit(0)), "r3"),
    ("a group's key alone", grouped(numbers(), "eager").select("a"), "r3"),
    ("a count without its group", grouped(numbers(), "eager").select("n"), "r4"),
    ("samples", numbers().edges("a"), "r3"),
    ("samples by key and start", numbers().edges("a", lasts=4).select("a"), "r3"),
    ("samples of a computed signal", numbers().edges(col.a // 2).select("b"), "r4"),
    ("what is present", numbers().coalesce(), "r3"),
    ("cleansed", numbers().cleanse(), "r1"),
    ("cleansed, and shifted", numbers().cleanse().shift(3).where(col.b > 0), "r1"),
    ("the latest sample", numbers(KEY).as_of(numbers(name="others"), "a", how="left"), "r3"),
    ("the latest sample of events without a key", numbers().as_of(numbers(KEY, name="others"), "a"), "r4"),
    ("ties in any batch", numbers(INSERT_ONLY, ORDERED, DETERMINISTIC_TIES).where(col.b > 0), "r2"),
    ("ties of a source", numbers(INSERT_ONLY, ORDERED, DETERMINISTIC_TIES), "r1"),
]


@pytest.mark.parametrize(("name", "stream", "algorithm"), PROMISING, ids=[name for name, _, _ in PROMISING])
def test_promises_are_derived_through_the_tree(name: str, stream: Stream, algorithm: str) -> None:
    choice = algorithm_of(stream.node)
    assert choice.case.algorithm == algorithm, explain(stream.node)
    assert all(derived.reason for derived in derive(stream.node).values())


def in_order(random_: random.Random, count_of: int) -> list[Delta]:
    """Return an insert-only stream in order of starts, by batches."""
    times = sorted(random_.randint(-5, 25) for _ in range(count_of))
    changes = [Change(random_.choice(ROWS), t, t, t + random_.randint(1, 9)) for t in times]
    batches: list[Delta] = []
    for change in changes:
        batches.append(Delta([change], change.vs if random_.random() < 0.4 and not _has(batches, change.vs) else None))
    return [*batches, Delta([], INF)]


def keyed(stream: Sequence[Item]) -> list[Item]:
    """Return a stream without what would make two events of one row and start."""
    ends: dict[tuple[Values, int], int] = {}
    kept: list[Item] = []
    for item in stream:
        if isinstance(item, Change):
            row, vs, old, new = item
            if ends.get((row, vs), vs) != old:
                continue
            ends[row, vs] = new
        kept.append(item)
    return kept


def _has(batches: Sequence[Delta], stable: int) -> bool:
    return any(delta.stable is not None and delta.stable >= stable for delta in batches)


@pytest.mark.parametrize(("name", "stream", "algorithm"), PROMISING, ids=[name for name, _, _ in PROMISING])
def test_runs_keep_what_is_promised(name: str, stream: Stream, algorithm: str) -> None:
    promised = derive(stream.node)[stream.node].promises
    plan = compile_plan([stream.node])
    is_ordered = ORDERED in plan.sources[0].promises or STRICTLY_ORDERED in plan.sources[0].promises
    for seed in range(40):
        random_ = random.Random(seed)
        graph, table, order = plan.graph(), StreamTable(), Order()
        streams = [
            in_order(random_, 15) if is_ordered else cut(random_, keyed(stream) if KEY in one.promises else stream)
            for one in plan.sources
            for stream in (random_stream(random_, 25, rows=ROWS),)
        ]
        for at in range(max(map(len, streams))):
            step = [stream[at] if at < len(stream) else Delta([]) for stream in streams]
            if STRICTLY_ORDERED in plan.sources[0].promises and at and _repeats(streams[0], at):
                break
            (delta,) = graph.step(step)
            table.apply(delta)
            order.check(delta, promised)
        assert INSERT_ONLY not in promised or table.inserts_only
        if KEY in promised:
            starts = [(event.row, event.vs) for event in table.events.elements()]
            assert len(starts) == len(set(starts))


def _repeats(batches: Sequence[Delta], at: int) -> bool:
    starts = [change.vs for delta in batches[: at + 1] for change in delta.changes]
    return len(starts) != len(set(starts))


class Order:
    """Checks that starts come in the order that is promised."""

    def __init__(self) -> None:
        self._last: int | None = None

    def check(self, delta: Delta, promised: Properties) -> None:
        for change in delta.changes:
            if ORDERED in promised and self._last is not None:
                assert change.vs > self._last if STRICTLY_ORDERED in promised else change.vs >= self._last
            self._last = change.vs
