"""Windows on the native core beside those in Python: the same changes, stable points, errors and states."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from native_world import packed
from temporal_world import Item, cut, random_stream

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import LmergeError
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.errors import ModuleViolation
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.native.describing import native_step
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.plan.grouped import Windowed, aggregate, count
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.stream import Stream, source
from lmerge.temporal.plan.windows import AggregateNode
from lmerge.temporal.running import QueryRun
from lmerge.temporal.values import NAN, Values
from lmerge.temporal.windows.policies import Form

SEEDS = 5
SeedsOf = Callable[[int, int], range]
SCHEMA = {"g": "int", "s": "string?", "i": "int?", "f": "float?", "r": "float(2)?", "d": "decimal(2)?"}
TEXTS = (None, "", "a", "b", "\u00e4")
INTS = (None, 0, 1, -3, 2**62, 7)
FLOATS = (None, 0.0, 0.1, -2.5, 1e300, 5e-324, float("inf"), float("-inf"), NAN)
ROUNDED = (None, 0.0, 0.25, -1.01, 1e12)
DECIMALS = (None, Decimal("0.00"), Decimal("1.25"), Decimal("-99.99"))

ROWS: Sequence[Values] = [
    (g, TEXTS[at % 5], INTS[at % 6], FLOATS[at % 9], ROUNDED[at % 5], DECIMALS[at % 4])
    for at in range(20)
    for g in (at % 2,)
]

CALLS: dict[str, dict[str, Any]] = {
    "count": {"n": count()},
    "values": {"n": count(col.i), "k": aggregate("distinct_count", col.s), "m": aggregate("mode", col.f)},
    "integers": {"a": aggregate("sum", col.i), "b": aggregate("avg", col.i), "c": aggregate("stddev_samp", col.i)},
    "floats": {"a": aggregate("sum", col.f), "b": aggregate("avg", col.f), "c": aggregate("var_pop", col.f)},
    "digits": {"a": aggregate("sum", col.r), "b": aggregate("stddev_pop", col.r), "c": aggregate("avg", col.d)},
    "decimals": {"a": aggregate("sum", col.d), "b": aggregate("var_samp", col.d), "c": aggregate("min", col.d)},
    "extremes": {"a": aggregate("min", col.f), "b": aggregate("max", col.s), "c": aggregate("collect", col.i)},
    "places": {
        "a": aggregate("percentile_disc", col.f, p=0.9),
        "b": aggregate("percentile_cont", col.d, p=0.3),
        "c": aggregate("median", col.f),
        "d": aggregate("percentile_cont", col.r, p=0.7),
    },
    "ends": {"a": aggregate("first", col.s), "b": aggregate("last", col.d), "c": aggregate("first", col.i)},
}


def windows_of(stream: Stream, kind: str) -> Windowed[Stream]:
    return {
        "tumbling": lambda: stream.group_by("g").tumbling(5),
        "hopping": lambda: stream.group_by("g").hopping(4, 2, offset=1),
        "overlapping": lambda: stream.group_by("g").hopping(9, 2, offset=1),
        "uneven": lambda: stream.hopping(3, 2),
        "gaps": lambda: stream.group_by("g", "s").hopping(2, 5, since=-3),
        "snapshot": lambda: stream.group_by("g").snapshot(),
        "one snapshot": lambda: stream.snapshot(),
        "one start": lambda: stream.count_windows(1),
        "three starts": lambda: stream.group_by("g").count_windows(3),
        "two ends": lambda: stream.group_by("g").count_windows(2, by="ends"),
        "session": lambda: stream.group_by("g").sessions(2),
        "session without a gap": lambda: stream.sessions(0),
    }[kind]()


GRIDS = ("tumbling", "hopping", "overlapping", "uneven", "gaps")
ALIGNED = ("session", "session without a gap", "snapshot", "one snapshot")
KINDS = (*GRIDS, *ALIGNED, "one start", "three starts", "two ends")


def both(node: PlanNode) -> list[PlanOperator]:
    native = native_step("windows", [node])
    assert native is not None
    return [node.operator("windows"), native]


def outcome(operator: PlanOperator, delta: Delta) -> Any:
    try:
        return operator.step([delta])
    except LmergeError as error:
        return type(error), str(error)


def stretched(item: Item, factor: int) -> Item:
    """Return a change or a stable point of a stream whose times are ``factor`` times as far apart."""
    if isinstance(item, int):
        return item if item == INF else item * factor
    vs, old, new = (t if t == INF else t * factor for t in item[1:])
    return Change(item.row, vs, old, new)


def compare(node: PlanNode, random_: random.Random, factor: int = 1) -> int:
    """Run both over a random stream. Between steps they go on with each other's state, or with feedback.

    ``factor``: by which the times of the stream are stretched.
    """
    python, native = both(node)
    compared = 0
    stream = random_stream(random_, random_.choice((8, 12, 20, 40)), ROWS)
    for delta in cut(random_, (stretched(item, factor) for item in stream)):
        choice = random_.random()
        if choice < 0.2:
            states = [python.state(), native.state()]
            python, native = both(node)
            python.restore(states[1])
            native.restore(states[0])
        elif choice < 0.3:
            t = random_.randint(-8, 20) * factor
            assert python.fast_forward(t) == native.fast_forward(t)
        if random_.random() < 0.2:
            delta = delta._replace(mark=max([change.vs for change in delta.changes], default=None))
        expected = outcome(python, delta)
        found = outcome(native, delta)
        if not isinstance(expected, Delta):
            assert found == expected
            return compared
        assert found.changes == expected.changes
        assert found.stable == expected.stable
        python.check()
        native.check()
        assert packed(native) == packed(python)
        assert (native.live(), native.skipped, native.sizes()) == (python.live(), python.skipped, python.sizes())
        compared += len(expected.changes)
    return compared


def judge(run: Callable[[random.Random], int], seeds: range) -> None:
    """Run for seeds, and for others until there is something to compare."""
    runs = map(run, map(random.Random, seeds))
    assert sum(runs) or any(map(run, map(random.Random, range(SEEDS))))


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("kind", KINDS)
def test_aggregates_are_the_same(kind: str, calls: str, form: Form, seeds_of: SeedsOf) -> None:
    def run(random_: random.Random) -> int:
        output = "align" if kind in ALIGNED else random_.choice(("align", "point-at-end"))
        policies: dict[str, Any] = {"form": form, "output": output}
        stream = windows_of(source("events", SCHEMA), kind).agg(**policies, **CALLS[calls])
        return compare(stream.node, random_)

    judge(run, seeds_of(SEEDS, 2))


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("calls", CALLS)
def test_sixty_windows_over_each_event_are_the_same(calls: str, form: Form, seeds_of: SeedsOf) -> None:
    def run(random_: random.Random) -> int:
        policies: dict[str, Any] = {"form": form, "output": random_.choice(("align", "point-at-end"))}
        since = random_.choice((None, -350))
        windows = source("events", SCHEMA).group_by("g").hopping(420, 7, offset=3, since=since)
        return compare(windows.agg(**policies, **CALLS[calls]).node, random_, random_.choice((20, 100)))

    judge(run, seeds_of(SEEDS, 3))


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("kind", KINDS)
def test_ranked_rows_are_the_same(kind: str, form: Form, seeds_of: SeedsOf) -> None:
    def run(random_: random.Random) -> int:
        rank = random_.choice((None, "rank"))
        windows = windows_of(source("events", SCHEMA), kind)
        ranked = windows.top(2, by=[col.f.desc(), col.d], rank=rank, form=form)
        return compare(ranked.node, random_)

    judge(run, seeds_of(SEEDS, 2))


LARGE: Sequence[Values] = [(g, s, value) for g in range(4) for s in ("a", "b") for value in (2**62, -(2**62), 1)]


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_group_whose_sum_is_too_large_is_named(kind: str, form: Form) -> None:
    """Several groups fail in a step; the order in which their events came does not decide which is named."""
    named: set[str] = set()
    for seed in range(30):
        random_ = random.Random(seed)
        node = windows_of(source("events", {"g": "int", "s": "string", "i": "int"}), kind).agg(
            total=aggregate("sum", col.i), form=form
        )
        starts = [random_.randint(-5, 9) for _ in range(random_.choice((12, 30)))]
        changes = [Change(random_.choice(LARGE), vs, vs, vs + random_.randint(1, 12)) for vs in starts]
        found = set()
        for _ in range(3):
            random_.shuffle(changes)
            for operator in both(node.node):
                outcomes = (outcome(operator, delta) for delta in (Delta(changes, -6), Delta([], 7), Delta([], INF)))
                found.add(next((one for one in outcomes if not isinstance(one, Delta)), None))
        (error,) = found
        named |= set() if error is None else {error[1]}
    assert len(named) > 1


def test_a_start_without_a_first_window_is_the_same_error() -> None:
    row = ROWS[3]
    for change in (Change(row, NEG_INF, NEG_INF, 5), Change(row, NEG_INF, 7, INF)):
        python, native = both(source("events", SCHEMA).tumbling(5).agg(n=count()).node)
        assert outcome(native, Delta([change])) == outcome(python, Delta([change])) != Delta([])


@pytest.mark.parametrize("form", list(Form))
def test_windows_that_would_end_behind_all_time_are_emitted(form: Form) -> None:
    node = source("events", SCHEMA).hopping(10, 2).agg(n=count(), form=str(form)).node
    python, native = both(node)
    emitted: list[Change] = []
    for delta in (
        Delta([Change(ROWS[0], INF - 14, INF - 14, INF - 2)], INF - 9),
        Delta([Change(ROWS[1], INF - 3, INF - 3, INF - 2)], INF - 4),
        Delta([], INF),
    ):
        found = outcome(python, delta)
        assert outcome(native, delta) == found
        assert isinstance(found, Delta)
        emitted += found.changes
    assert any(change.new == INF for change in emitted)


def test_too_many_windows_are_the_same_error() -> None:
    node = source("events", SCHEMA).tumbling(1).agg(n=count()).node
    assert isinstance(node, AggregateNode)
    node = replace(node, policies=replace(node.policies, windows_max=10))
    for first, last in ((Change(ROWS[0], 0, 0, 10**6), 9), (Change(ROWS[0], 0, 0, INF), 100)):
        python, native = both(node)
        for delta in (Delta([first]), Delta([Change(ROWS[1], last, last, last + 1)]), Delta([], INF)):
            expected = outcome(python, delta)
            found = outcome(native, delta)
            if not isinstance(expected, Delta):
                assert found == expected
                break
            assert found.changes == expected.changes


def test_nothing_is_computed_of_an_event_that_has_no_end_to_count() -> None:
    """It is in no window by ends, so a value that it has not is no failure, before it ends."""
    largest = 2**63 - 1
    query = source("left", {"v": "int"}).count_windows(1, by="ends").agg(n=aggregate("max", col.v * 2))
    found = []
    for implementation in ("python", "native"):
        run = QueryRun({"result": query}, implementation=implementation)
        given: list[Change | int] = [
            Change((largest,), 1, 1, INF),
            Change((3,), 1, 1, 5),
            Change((largest,), 1, INF, 1),
        ]
        found.append([str(one) for step in run.take("left", [*given, 9]) for one in step["result"].changes])
        with pytest.raises(ModuleViolation, match="the result is beyond 64 bits"):
            run.take("left", [Change((largest,), 10, 10, 12), 20])
    assert found == [["insert((6), 5, 6)"]] * 2


def test_no_window_holds_the_stable_point_that_would_begin_before_all_time() -> None:
    """A grid has no window from -inf or before, so the first one behind it is the first that a result can be of."""
    first = NEG_INF + 1 + (-(NEG_INF + 1)) % 2
    node = source("events", SCHEMA).hopping(10, 2).agg(n=count(), output="point-at-end").node
    for stable in (NEG_INF + 1, NEG_INF + 5, first + 9):
        python, native = both(node)
        found = outcome(python, Delta([], stable))
        assert isinstance(found, Delta)
        assert outcome(native, Delta([], stable)) == found
        assert found.stable == first + 9


@pytest.mark.parametrize(
    "query",
    [
        lambda left: left.tumbling(5, since=10),
        lambda left: left.hopping(2, 5),
        lambda left: left.hopping(40, 2, since=10),
        lambda left: left.group_by("v").tumbling(5, since=10),
    ],
)
def test_nothing_is_computed_of_an_event_that_ends_outside_all_windows(query: Callable[[Stream], Any]) -> None:
    """Before a grid begins, or in a gap of it: a value that it has not is no failure."""
    largest = 2**63 - 1
    node = query(source("left", {"v": "int"})).agg(n=aggregate("max", col.v * 2)).node
    given = [
        Delta([Change((largest,), 3, 3, 5), Change((3,), 10, 10, 12), Change((largest,), 8, 8, 9)], 9),
        Delta([Change((largest,), 8, 9, 10), Change((4,), 15, 15, 16)], 10),
        Delta([Change((largest,), 13, 13, 14)] if "since" not in node.shown else [], 20),
        Delta([Change((largest,), 25, 25, 27)], INF),
    ]
    python, native = both(node)
    for delta in given:
        found = outcome(python, delta)
        assert outcome(native, delta) == found
    assert not isinstance(found, Delta), "the last event is in a window"


def test_a_key_is_computed_of_every_event() -> None:
    largest = 2**63 - 1
    grouped = source("left", {"v": "int"}).group_by(k=col.v * 2)
    for windowed in (grouped.tumbling(5, since=10), grouped.count_windows(1, by="ends")):
        python, native = both(windowed.agg(n=count()).node)
        delta = Delta([Change((1,), 12, 12, 13), Change((largest,), 3, 3, 4), Change((largest,), 3, 3, INF)], 9)
        found = outcome(python, delta)
        assert not isinstance(found, Delta)
        assert outcome(native, delta) == found
