"""Entrances of the native core are those of Python: batches, errors, counts and state, after every take."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pytest
from native_world import SOURCES, shown
from temporal_world import Item, random_stream

from lmerge.core.elements import INF
from lmerge.core.properties import INSERT_ONLY, KEY, NOTHING, ORDERED, STRICTLY_ORDERED
from lmerge.errors import InvalidRow, LmergeError, UsageError
from lmerge.temporal.changes import Change
from lmerge.temporal.columns import as_rows
from lmerge.temporal.entrance import LatePolicy, ProgressRule, StreamEntrance
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.native.entrance import NativeEntrance
from lmerge.temporal.native.step import column_form
from lmerge.temporal.plan.stream import source
from lmerge.temporal.running import QueryRun
from lmerge.temporal.values import order_key

SEEDS = range(250)
PROMISES: Final = (
    *[NOTHING] * 16,
    frozenset({KEY}),
    frozenset({INSERT_ONLY}),
    frozenset({ORDERED}),
    frozenset({STRICTLY_ORDERED}),
    frozenset({INSERT_ONLY, ORDERED}),
)


def outcome(run: Callable[[], Any]) -> tuple[Any, bool]:
    """Return what a call returns or raises, as text, and whether it goes on."""
    try:
        return shown(run()), True
    except LmergeError as error:
        return (type(error), str(error), getattr(error, "property_name", None)), False


class TwinEntrances:
    """An entrance on both implementations, of the same settings. Both take the same."""

    def __init__(self, name: str, settings: dict[str, Any], rule: ProgressRule | None, late: LatePolicy) -> None:
        self.schema = SOURCES[name][0]
        self._new: list[Callable[[], StreamEntrance]] = [
            partial(StreamEntrance, "it's", rule, late, **settings),
            partial(NativeEntrance, "it's", self.schema, rule, late, **settings),
        ]
        self.both: list[StreamEntrance] = [new() for new in self._new]

    def take(self, items: list[Item]) -> bool:
        """Let both take items, and compare; return whether they go on."""
        return self._compared([outcome(partial(one.take, items)) for one in self.both])

    def take_columns(self, changes: list[Change], stable: int | None) -> bool:
        """Let both take a batch of columns, and compare; return whether they go on."""
        columns = column_form(self.schema).batch(changes, stable)
        ours, theirs = self.both
        found = outcome(lambda: ours.take_columns(columns))
        return self._compared([found, outcome(lambda: self._rows(theirs.take_columns(columns)))])

    def advance(self, latest: int) -> None:
        """Let both come to a time, and compare."""
        self._compared([outcome(partial(one.advance, latest)) for one in self.both])

    def swap_states(self) -> None:
        """Let each go on in a new entrance with the state of the other."""
        states = [one.state(order_key(self.schema)) for one in self.both]
        self.both = [new() for new in self._new]
        for one, state in zip(self.both, reversed(states), strict=True):
            one.restore(state)
        self._compared([("", True)] * 2)

    def _rows(self, batches: Any) -> list[Any]:
        return [as_rows(batch) for batch in batches]

    def _compared(self, found: list[tuple[Any, bool]]) -> bool:
        ours, theirs = self.both
        assert found[0] == found[1]
        if not found[0][1]:
            return False
        theirs.live.check()
        key = order_key(self.schema)
        assert shown(ours.state(key)) == shown(theirs.state(key))
        assert (ours.mark, ours.dropped, ours.moved) == (theirs.mark, theirs.dropped, theirs.moved)
        assert (len(ours.live), ours.live.stable) == (len(theirs.live), theirs.live.stable)
        by_time = sorted(ours.live, key=lambda event: (event.vs, key(event.row), event.ve))
        assert shown(by_time) == shown(list(theirs.live))
        return True


def with_faults(random_: random.Random, stream: list[Item]) -> list[Item]:
    """Return the stream with a few changes that are not legal, or not where they were."""
    items = list(stream)
    for _ in range(random_.choice((0, 0, 1, 2))):
        at = random_.randrange(len(items))
        item = items[at]
        if isinstance(item, Change):
            row, vs, old, new = item
            faults = (Change(row, vs, old, vs - 1), Change(row, vs, old ^ 1, new), Change(row, vs - 5, old, new), item)
            items.insert(random_.randrange(len(items)), random_.choice(faults))
    return items


def run(seed: int, name: str, rule: ProgressRule | None, late: LatePolicy) -> tuple[int, int, int]:
    """Run both over a random stream in random batches; return how many takes, failures and late changes there were."""
    random_ = random.Random(seed)
    settings = {"promises": random_.choice(PROMISES), "has_points": random_.random() < 0.1}
    twins = TwinEntrances(name, settings, rule, late)
    stream = random_stream(random_, 30, SOURCES[name][1])
    if rule is not None and random_.random() < 0.9:
        stream = [item for item in stream if isinstance(item, Change) or item == INF]
    if random_.random() < 0.4:
        stream = [item for item in stream if not isinstance(item, Change) or item.is_insert]
    items = with_faults(random_, stream) if stream else []
    taken = 0
    while items:
        count = random_.choice((1, 2, 5, 30))
        batch, items = items[:count], items[count:]
        changes = [item for item in batch if isinstance(item, Change)]
        if random_.random() < 0.3 and len(changes) == len(batch):
            stable = items[0] if items else None
            items = items[1:] if isinstance(stable, int) else items
            goes_on = twins.take_columns(changes, stable if isinstance(stable, int) else None)
        else:
            goes_on = twins.take(batch)
        if not goes_on:
            return taken, 1, 0
        taken += 1
        if random_.random() < 0.2:
            twins.swap_states()
        if random_.random() < 0.1:
            twins.advance(random_.randint(-8, 20))
    return taken, 0, twins.both[0].dropped + twins.both[0].moved


@pytest.mark.parametrize("name", ["ints", "scalars", "nested"])
def test_declared_streams_enter_in_the_same_way(name: str) -> None:
    found = [run(seed, name, None, LatePolicy.FAIL) for seed in SEEDS]
    assert sum(taken for taken, _, _ in found) > 500
    assert 20 < sum(failed for _, failed, _ in found) < len(SEEDS) - 20


@pytest.mark.parametrize("late", list(LatePolicy))
def test_rules_decide_change_by_change_in_both(late: LatePolicy) -> None:
    counts = 0
    for seed in SEEDS:
        random_ = random.Random(seed)
        rule = ProgressRule(random_.choice((0, 2, 5, 40)), random_.choice((0, 0, 3)), random_.choice((0, 0, 3)))
        counts += run(seed, random_.choice(("ints", "scalars")), rule, late)[2]
    assert counts > 50 or late is LatePolicy.FAIL


def test_late_events_are_revised_in_both() -> None:
    """A row that has many events of a few starts: what was dropped or moved is found again."""
    counts = 0
    for seed in SEEDS:
        random_ = random.Random(seed)
        late = random_.choice((LatePolicy.DROP, LatePolicy.MOVE))
        twins = TwinEntrances("ints", {}, ProgressRule(random_.choice((0, 1, 3))), late)
        stream = [item for item in random_stream(random_, 60, SOURCES["ints"][1][:1]) if isinstance(item, Change)]
        while stream:
            count = random_.choice((1, 3, 9))
            taken, stream = stream[:count], stream[count:]
            assert twins.take([*taken])
            if random_.random() < 0.1:
                twins.swap_states()
        counts += twins.both[0].moved
        twins.take([INF])
    assert counts > 100


ARROW: Final = pa.table(
    {
        "vs": pa.array([0, 1, 1, 4, 9]),
        "ve": pa.array([3, 2, 7, 5, INF]),
        "k": pa.array([1, 0, 0, 1, 0]),
        "x": pa.array([-0.0, struct.unpack("d", b"\1" * 6 + b"\xff\x7f")[0], None, 0.5, 0.0]),
        "s": pa.array(["a", None, "", "b", "c"]),
        "n": pa.array([0, 1, 2, 3, 4], pa.date32()),
    }
)


@pytest.mark.parametrize("names", [("k", "x"), ("k", "x", "s"), ("k", "x", "n"), ("n",)])
def test_arrow_tables_enter_a_run_as_their_rows(names: tuple[str, ...]) -> None:
    """Directly as columns, or by way of the wire's form; floats are canonical in both."""
    types = {"k": "int", "x": "float?", "s": "string?", "n": "date"}
    stream = source("s", {name: types[name] for name in names})
    found = []
    for implementation in ("python", "native"):
        run = QueryRun({"all": stream.where(col[names[0]] == col[names[0]]).node}, implementation=implementation)
        assert run.entrances["s"].has_columns == (implementation == "native")
        steps = run.take_arrow("s", ARROW.select(["vs", "ve", *names]), 4)
        steps += run.take_arrow("s", ARROW.slice(4).select(["vs", *names]), ve=None)
        found.append((shown([as_rows(step["all"]) for step in steps]), shown(run.snapshot())))
        with pytest.raises(UsageError, match="is no lifetime"):
            run.take_arrow("s", ARROW.select(["vs", "ve", *names]), vs="ve", ve="vs")
        with pytest.raises(InvalidRow, match="no column"):
            run.take_arrow("s", ARROW.select(["vs", "ve"]))
    assert found[0] == found[1]
