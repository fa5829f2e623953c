"""Batches of new events, which a grid of windows takes by group and window: the same as each event by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import lmerge.temporal as lt
from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import LmergeError
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.modules.functions import aggregate
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.windows import WindowNode
from lmerge.temporal.windows.policies import Form
from lmerge.temporal.windows.window_operator import WindowOperator

READINGS = lt.source("readings", {"key": "string?", "n": "int?", "x": "float"})
NAN = float("nan")


@aggregate(inputs={"n": "int", "x": "float"}, result="string", name="batch_shown")
def shown(numbers: list[int], values: list[float]) -> str:
    return repr([*zip(numbers, values, strict=True)])


def queries(form: Form) -> Iterator[lt.Stream]:
    numbers, total, least = lt.count(lt.col.n), lt.sum(lt.col.n), lt.min(lt.col.x)
    of_user = lt.method_of(shown)(of=[lt.col.n, lt.col.x])
    for stream in (READINGS, READINGS.group_by("key")):
        yield stream.tumbling(5).agg(n=lt.count(), numbers=numbers, total=total, least=least, form=form)
        yield stream.hopping(7, 2).agg(n=lt.count(), numbers=numbers, total=total, least=least, form=form)
        yield stream.hopping(2, 5, offset=1).agg(y=of_user, form=form)
        yield stream.hopping(6, 3, since=4).agg(y=of_user, n=lt.count(), form=form)


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


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("seed", range(10))
def test_new_events_by_window_give_what_each_by_itself_gives(
    form: Form, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for query in queries(form):
        rng, live = Random(seed), list[Change]()
        deltas = [random_delta(rng, live, now) for now in range(0, 40, 2)] + [Delta([], INF, None)]
        by_window = outcomes(query, deltas)
        with monkeypatch.context() as patched:
            patched.setattr(WindowOperator, "_inserted", lambda self, changes: False)
            assert outcomes(query, deltas) == by_window


def outcomes(query: lt.Stream, deltas: list[Delta]) -> list[str]:
    graph = compile_plan([query.node]).graph("python")
    found = []
    for delta in deltas:
        found.append(repr((graph.step([delta]), graph.state())))
        graph.check()
    return found


def failure(query: lt.Stream, changes: list[Change]) -> str:
    assert isinstance(query.node, WindowNode)
    node = replace(query.node, policies=replace(query.node.policies, windows_max=5))
    graph = compile_plan([node]).graph("python")
    with pytest.raises(LmergeError) as raised:
        graph.step([Delta(changes, None, max(change.vs for change in changes))])
    return str(raised.value)


def test_the_first_event_that_is_refused_is_named() -> None:
    """Groups come together, and errors in the order of events."""
    query = READINGS.group_by("key").tumbling(1).agg(n=lt.count())
    rows: list[Any] = [("a", 1, 0.0), ("b", 1, 0.0), ("a", 2, 0.0)]
    far = [Change(rows[0], 0, 0, 3), Change(rows[1], 0, 0, 8), Change(rows[2], 0, 0, 9), Change(rows[0], 50, 50, 51)]
    assert "would open 8 windows of tumbling(1)" in failure(query, far)
    past = [Change(rows[0], 0, 0, 1), Change(rows[1], NEG_INF, NEG_INF, 1), Change(rows[2], 0, 0, 90)]
    assert "starts at -inf" in failure(query, past)
