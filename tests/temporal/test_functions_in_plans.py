"""Users' functions in plans: random ones are refused or found, and rows that fail end the query or are dropped."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from lmerge.core.elements import INF
from lmerge.core.engines.selection import NATIVE, PYTHON
from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.expressions.functions import FunctionRegistry, scalar_function
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.aggregating import max as greatest
from lmerge.temporal.plan.json_format import plan_from_json, plan_to_json
from lmerge.temporal.plan.rewriting import rewrite
from lmerge.temporal.plan.stream import Stream, source
from lmerge.temporal.running import Item, QueryRun, ResultTable

NUMBERS = source("numbers", {"a": "int"})


@scalar_function(["int"], "int", name="seventh_of_a_number")
def seventh(a: int) -> int:
    return 7 // a


@pytest.fixture(params=[PYTHON, NATIVE])
def implementation(request: pytest.FixtureRequest, demand: Callable[[str], None]) -> str:
    """Return each implementation in turn; the native core is left out where it is not built."""
    name: str = request.param
    if name == NATIVE:
        demand(name)
    return name


def function(call: Callable[..., Any], name: str, result: str = "int", **declared: Any) -> Any:
    return FunctionRegistry().scalar(["int"], result, name=name, **declared)(call)


def test_a_function_that_is_declared_random_is_refused_everywhere() -> None:
    dice = function(lambda n: n, "dice", deterministic=False)
    wrong: list[Callable[[], object]] = [
        lambda: NUMBERS.where(dice(col.a) > 0),
        lambda: NUMBERS.select(x=dice(col.a) + 1),
        lambda: NUMBERS.join(NUMBERS.shift(1), where=dice(col.a) == col.a_right),
        lambda: NUMBERS.group_by(x=dice(col.a)).snapshot().agg(n=greatest(col.a)),
        lambda: NUMBERS.snapshot().agg(n=greatest(dice(col.a))),
        lambda: NUMBERS.group_by(x=dice(col.a)).apply(lambda group: group),
        lambda: NUMBERS.edges(dice(col.a)),
    ]
    for build in wrong:
        with pytest.raises(PlanError, match=r"^\w+: function 'dice' version 1 is declared not deterministic"):
            build()


@pytest.mark.parametrize("vectorised", [False, True])
def test_a_random_function_that_is_not_declared_is_found_by_rechecks(vectorised: bool, implementation: str) -> None:
    numbers = itertools.count()
    draw = (lambda values: [next(numbers) for _ in values]) if vectorised else (lambda _: next(numbers))
    lies = function(draw, "lies", vectorised=vectorised)
    for stream in (NUMBERS.select(x=lies(col.a)), NUMBERS.where(lies(col.a) % 2 == 0)):
        run = QueryRun({"n": stream.named("drawn").rechecked().node}, implementation=implementation)
        with pytest.raises(
            ModuleViolation, match=r"^drawn: function 'lies' declared deterministic gave .* for the row"
        ):
            run.take("numbers", [Change((1,), 1, 1, 5)])
    honest = NUMBERS.select(x=function(abs, "honest")(col.a)).rechecked()
    assert QueryRun({"n": honest.node}, implementation=implementation).take("numbers", [Change((-1,), 1, 1, 5)])


def ratio(call: str, vectorised: bool) -> Stream:
    def divided(a: Any) -> Any:
        return [10 // one for one in a] if vectorised else 10 // a

    tenth = function(divided, f"tenth of {call}".replace(" ", "_"), vectorised=vectorised)
    return NUMBERS.select("a", x=tenth(col.a)) if call == "select" else NUMBERS.where(tenth(col.a) > 0)


@pytest.mark.parametrize("vectorised", [False, True])
@pytest.mark.parametrize("call", ["select", "where"])
def test_rows_that_fail_are_dropped_and_counted(call: str, vectorised: bool, implementation: str) -> None:
    """The event of row 0 comes, is adjusted and removed: nothing of it comes out, and it is counted once."""
    stream = ratio(call, vectorised).on_error("drop")
    run, table = QueryRun({"n": stream.node}, implementation=implementation), ResultTable()
    items: list[Item] = [Change((0,), 1, 1, 5), Change((2,), 1, 1, 5), Change((0,), 1, 5, 7), Change((2,), 1, 5, 8), 4]
    for step in run.take("numbers", items):
        table.apply(step["n"])
    run = QueryRun.load(run.dump(), {"n": stream.node}, implementation=implementation)
    for step in run.take("numbers", [Change((0,), 1, 7, 6), INF]):
        table.apply(step["n"])
    assert set(table.events) == {Lifetime((2, 5) if call == "select" else (2,), 1, 8)}
    (part,) = run.parts
    assert part.operator.failed == 1
    assert "1 failed, dropped" in run.mermaid()


def test_rows_that_fail_end_the_query_unless_they_are_dropped(implementation: str) -> None:
    for stream in (ratio("select", False), ratio("select", False).on_error("drop").on_error("fail")):
        run = QueryRun({"n": stream.node}, implementation=implementation)
        with pytest.raises(ModuleViolation, match="raised ZeroDivisionError"):
            run.take("numbers", [Change((0,), 1, 1, 5)])


def test_the_policy_is_in_the_json_of_a_plan_and_no_rewrite_moves_it() -> None:
    call = seventh(col.a)
    for stream in (NUMBERS.where(call > 0), NUMBERS.select("a", x=call)):
        node = stream.on_error("drop").rechecked().node
        document = plan_to_json({"n": node})
        assert document["nodes"][-1]["on_error"] == "drop"
        assert document["nodes"][-1]["rechecks"] is True
        assert plan_from_json(document) == {"n": node}
        assert "on_error" not in plan_to_json({"n": stream.node})["nodes"][-1]
    filtered = NUMBERS.shift(3).where(call > 0).on_error("drop").where(col.a > 0)
    assert rewrite(filtered.node)[1] == ()


def test_policies_stand_behind_what_computes_rows() -> None:
    with pytest.raises(PlanError, match=r"numbers: on_error\(\) is for where\(\) and select\(\)"):
        NUMBERS.on_error("drop")
    with pytest.raises(PlanError, match="'ignore' is not a policy for rows that fail: there are fail, drop"):
        NUMBERS.where(col.a > 0).on_error("ignore")
