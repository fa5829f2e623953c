"""What no operator may depend on: the order of hashes (L5), and how much is alive when a stable comes (L9)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import operator_app
import pytest
from operator_world import own_order

from lmerge.core.elements import INF
from lmerge.temporal.changes import NOTHING_CHANGES, Change, Delta
from lmerge.temporal.operators.as_of import AsOfJoinOperator
from lmerge.temporal.operators.cleanse import CleanseOperator
from lmerge.temporal.operators.coalesce import CoalesceOperator
from lmerge.temporal.operators.edges import EdgeOperator
from lmerge.temporal.operators.join import JoinKind, JoinOperator, JoinRules
from lmerge.temporal.operators.join_side import JoinInput
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.operators.span import MapRows, SpanOperator
from lmerge.temporal.operators.union import UnionOperator
from lmerge.temporal.values import Values

FEW, MANY = 100, 3_000


def printed(hash_seed: str) -> str:
    worlds = Path(operator_app.__file__).parent
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{worlds}:{worlds.parents[1]}"}
    program = [sys.executable, operator_app.__file__]
    return subprocess.run(program, env=environment, capture_output=True, text=True, check=True).stdout


def test_the_order_of_hashes_never_shows() -> None:
    found = printed("1")
    assert found.count("\n") > 1000
    assert printed("2") == found


def key_of(row: Values) -> Values:
    return row[:1]


def fast_forwarded(operator: PlanOperator) -> PlanOperator:
    operator.fast_forward(INF)
    return operator


SIDE = JoinInput(own_order, 1, key_of)

OPERATORS: dict[str, Callable[[], PlanOperator]] = {
    "span": lambda: fast_forwarded(SpanOperator("span", own_order, own_order, [MapRows(lambda row: row)])),
    "union": lambda: UnionOperator("union", own_order, 2),
    "skipping join": lambda: fast_forwarded(JoinOperator("join", own_order, JoinRules(JoinKind.INNER, SIDE, SIDE))),
    "inner join": lambda: JoinOperator("join", own_order, JoinRules(JoinKind.INNER, SIDE, SIDE)),
    "full join": lambda: JoinOperator("join", own_order, JoinRules(JoinKind.FULL, SIDE, SIDE)),
    "anti-join": lambda: JoinOperator("join", own_order, JoinRules(JoinKind.ANTI, SIDE, SIDE)),
    "edges": lambda: EdgeOperator("edges", own_order, key_of),
    "edges that end": lambda: EdgeOperator("edges", own_order, key_of, lasts=1000),
    "as of": lambda: AsOfJoinOperator("as of", own_order, SIDE, SIDE, within=1000),
    "coalesce": lambda: CoalesceOperator("coalesce", own_order),
    "cleanse": lambda: CleanseOperator("cleanse", own_order),
}


def calls_of_a_step(make: Callable[[], PlanOperator], live: int) -> int:
    """Return how many functions a step calls that has one change and a stable, beside ``live`` events of each input."""
    operator = make()
    events = [Change((key,), 1, 1, 40 + key) for key in range(live)]
    operator.step([Delta(events, 10)] * operator.inputs)
    operator.step([Delta([], 11)] * operator.inputs)
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    change = Change((live // 2,), 12, 12, INF)
    sys.setprofile(count)
    try:
        operator.step([Delta([change], 12), *[Delta([], 12)] * (operator.inputs - 1)])
        operator.step([Delta([], 13)] + [NOTHING_CHANGES] * (operator.inputs - 1))
    finally:
        sys.setprofile(None)
    assert operator.live() >= live or isinstance(operator, UnionOperator)
    return calls


@pytest.mark.parametrize("name", OPERATORS)
def test_a_stable_costs_what_changes(name: str) -> None:
    few, many = (calls_of_a_step(OPERATORS[name], live) for live in (FEW, MANY))
    assert few > 5
    assert many <= 1.3 * few
