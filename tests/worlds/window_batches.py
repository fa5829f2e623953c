"""Streams for a grid of windows, mostly of new events: what comes out of queries, and why they are refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

import pytest

import lmerge.temporal as lt
from lmerge.core.elements import INF
from lmerge.errors import LmergeError
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.columns import AnyDelta
from lmerge.temporal.modules.functions import aggregate_function
from lmerge.temporal.modules.kinds import IncrementalAggregate, IncrementalTimedAggregate
from lmerge.temporal.modules.properties import Properties, TimedRow, Window
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.windows import WindowNode
from lmerge.temporal.values import NAN
from lmerge.temporal.windows.policies import Form

READINGS = lt.source("readings", {"key": "string?", "n": "int?", "x": "float"})


@aggregate_function(inputs={"n": "int", "x": "float"}, result="string", name="batch_shown")
def shown(numbers: list[int], values: list[float]) -> str:
    return repr([*zip(numbers, values, strict=True)])


class BatchCalls(IncrementalAggregate[Any, list[str], str]):
    """What the module was called with, in order: a state that depends on how rows are divided into calls."""

    name = "batch_calls"
    inputs: ClassVar = {"n": "int", "x": "float"}
    result = "string"

    def begin(self) -> list[str]:
        return []

    def add(self, state: list[str], rows: Sequence[Any]) -> list[str]:
        return [*state, f"+{[*map(tuple, rows)]}"]

    def remove(self, state: list[str], rows: Sequence[Any]) -> list[str]:
        return [*state, f"-{[*map(tuple, rows)]}"]

    def compute(self, state: list[str]) -> str:
        return " ".join(state)


class BatchSpan(IncrementalTimedAggregate[int, int, str]):
    """The sum of rows and the start of their window: it reads no lifetime."""

    name = "batch_span"
    inputs: ClassVar = {"n": "int"}
    result = "string"
    properties = Properties(reads=("window",))

    def begin(self) -> int:
        return 0

    def add(self, state: int, rows: Sequence[TimedRow[int]]) -> int:
        return state + sum(one.row for one in rows)

    def remove(self, state: int, rows: Sequence[TimedRow[int]]) -> int:
        return state - sum(one.row for one in rows)

    def compute(self, state: int, window: Window) -> str:
        return f"{state} from {window.start}"


def batch_queries(form: Form) -> Iterator[lt.Stream]:
    numbers, total, least = lt.count(lt.col.n), lt.sum(lt.col.n), lt.min(lt.col.x)
    of_user = lt.method_of(shown)(of=[lt.col.n, lt.col.x])
    calls, span = lt.method_of(BatchCalls)(of=[lt.col.n, lt.col.x]), lt.method_of(BatchSpan)(of=[lt.col.n])
    for stream in (READINGS, READINGS.group_by("key")):
        yield stream.tumbling(5).agg(n=lt.count(), numbers=numbers, total=total, least=least, form=form)
        yield stream.hopping(7, 2).agg(n=lt.count(), numbers=numbers, total=total, least=least, form=form)
        yield stream.hopping(2, 5, offset=1).agg(y=of_user, form=form)
        yield stream.hopping(6, 3, since=4).agg(y=of_user, n=lt.count(), form=form)
        yield stream.hopping(6, 3).agg(calls=calls, span=span, total=total, form=form)


def random_delta(rng: Random, live: list[Change], now: int) -> Delta:
    changes = []
    for _ in range(rng.randint(0, 6)):
        vs = now + rng.randint(0, 6)
        row = (rng.choice("ab") if rng.random() < 0.8 else None, rng.choice((None, 1, 2)), rng.choice((0.5, NAN, 2.0)))
        end = rng.choice((vs + 1, vs + 2, vs + 9, vs + rng.randint(1, 5), INF))
        changes.append(Change(row, vs, vs, end))
    live += changes
    if rng.random() < 0.2:
        for one in rng.sample([one for one in live if one.new > now + 1 and one.vs >= now], k=min(len(changes), 1)):
            live.remove(one)
            changes.append(Change(one.row, one.vs, one.new, one.vs))
    return Delta(changes, now + 1 if rng.random() < 0.7 else None, max((change.vs for change in changes), default=None))


def random_deltas(seed: int) -> list[Delta]:
    rng, live = Random(seed), list[Change]()
    return [random_delta(rng, live, now) for now in range(0, 40, 2)] + [Delta([], INF, None)]


def outcomes(query: lt.Stream, deltas: Sequence[AnyDelta]) -> list[str]:
    graph = compile_plan([query.node]).graph("python")
    found = []
    for delta in deltas:
        found.append(repr((graph.step([delta]), graph.state())))
        graph.check()
    return found


def failure(query: lt.Stream, delta: AnyDelta) -> str:
    """Return the error of a query that may open five windows of a group in a step."""
    assert isinstance(query.node, WindowNode)
    node = replace(query.node, policies=replace(query.node.policies, windows_max=5))
    graph = compile_plan([node]).graph("python")
    with pytest.raises(LmergeError) as raised:
        graph.step([delta])
    return str(raised.value)
