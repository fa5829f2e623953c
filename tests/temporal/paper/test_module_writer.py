"""The module writer's view (IV of the extensibility paper; rows M1 to M15).

The eight kinds against their definitions, and the framework's checks of what modules declare, are in
tests/temporal/modules; here is one test for each sentence.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Sequence
from typing import ClassVar

import pytest
from module_world import NUMBERS, CountsByValue, Distinct, Latest, Ranked, Spread, Total, Weighted, WeightedTotal
from paper_modules import SumOfAll, median_of, my_average, my_time_weighted_average, sum_of_all, total_duration
from paper_world import PlanTrace, adjust, event, insert, names, numbers, result
from temporal_world import random_stream

from lmerge.core.elements import INF
from lmerge.temporal.changes import Change
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.expressions.functions import scalar_function
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.modules.describing import describe, kind_of
from lmerge.temporal.modules.kinds import Incremental, Mergeable, Operator, TimedAggregate
from lmerge.temporal.modules.properties import Properties, TimedRow, Window
from lmerge.temporal.modules.registry import MODULES, ModuleRegistry
from lmerge.temporal.plan.json_format import plan_from_json, plan_to_json
from lmerge.temporal.plan.stream import Stream, method_of, module, source
from lmerge.testing.example_modules import FollowedBy
from lmerge.testing.module_checks import check_module
from lmerge.wire.schema import SchemaLike

FLOATS = {"value": "float"}


def values(name: str = "values") -> Stream:
    return source(name, FLOATS)


def test_m1_a_plain_function_is_an_aggregate_under_disorder_and_revisions() -> None:
    """IV: the traditional user has a relational view, and time is handled for him."""
    plan = values().tumbling(5).agg(m=median_of(of=col.value), form="eager")
    for seed in range(30):
        run = PlanTrace(plan)
        stream = [
            one if isinstance(one, int) else Change((float(one.row[0]),), one.vs, one.old, one.new)
            for one in random_stream(random.Random(seed), 15, [(1,), (4,), (6,)], 0.0)
            if one != INF
        ]
        run.give(*stream, 30)
        alive: list[tuple[float, int, int]] = []
        for one in stream:
            if isinstance(one, int):
                continue
            if one.old > one.vs:
                alive.remove((one.row[0], one.vs, one.old))
            if one.new > one.vs:
                alive.append((one.row[0], one.vs, one.new))
        for start in range(-10, 30, 5):
            members = [value for value, vs, ve in alive if vs < start + 5 and ve > start]
            found = [one.row[0] for one in run.events if one.vs == start]
            assert found == ([statistics.median(members)] if members else [])


def test_m2_there_are_eight_kinds() -> None:
    """IV: aggregates and operators, time-sensitive or not, incremental or not."""
    kinds = {kind_of(one).removesuffix(", mergeable") for one in (Spread, Total, Weighted, WeightedTotal)}
    kinds |= {kind_of(one).removesuffix(", mergeable") for one in (Distinct, CountsByValue, Ranked, Latest)}
    both = ("aggregate", "operator")
    timed = ("", ", time-sensitive")
    assert kinds == {f"{kind}{when}{how}" for kind in both for when in timed for how in ("", ", incremental")}


class InOrder(TimedAggregate[int, str]):
    """The set as it is given."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    result = "string"

    def compute(self, rows: Sequence[TimedRow[int]], window: Window) -> str:
        return " ".join(f"{one.row}@{one.start}" for one in rows)


def test_m3_the_set_comes_in_canonical_order() -> None:
    """IV.A.1: a result cannot depend on arrival."""
    plan = numbers().tumbling(10).agg(s=method_of(InOrder)(of=col.b))
    items = [insert((0, 2), 4, 5), insert((0, 1), 1, 3), insert((0, 3), 1, 2), insert((0, 0), 4, 5)]
    found = {result(plan, *random.Random(seed).sample(items, 4))[0].row[0] for seed in range(12)}
    assert found == {"3@1 1@1 0@4 2@4"}


def test_m4_the_state_gets_what_came_and_what_went_once_a_batch() -> None:
    """IV.A.2: AddEventToState, RemoveEventFromState, ComputeResult; removed is what was added."""
    SumOfAll.calls.clear()
    run = PlanTrace(numbers().tumbling(10).agg(s=sum_of_all(of=col.b), form="eager"))
    run.give_together(insert((0, 2), 1, 3), insert((0, 5), 2, 4))
    assert SumOfAll.calls == ["add [2, 5]"]
    run.give_together(insert((0, 1), 6, 7), adjust((0, 5), 2, 4, 2))
    assert sorted(SumOfAll.calls[1:]) == ["add [1]", "remove [5]"]
    assert run.events == [event(3, 0, 10)]
    run.give(adjust((0, 1), 6, 7, 8))
    assert len(SumOfAll.calls) == 3, "an end that a time-insensitive module does not see is no change for it"


def test_m5_states_can_be_merged() -> None:
    """Beside the paper: what panes and parallel groups need; windows without it are as right."""
    assert issubclass(Total, Mergeable)
    assert "mergeable" in check_module(Total(), rounds=20)
    plan = numbers().hopping(60, 1)
    items = [insert((0, at), at, at + 1) for at in range(20)]
    merged = result(plan.agg(s=method_of(Total)(of=col.b)), *items)
    assert merged == result(plan.agg(s=sum_of_all(of=col.b)), *items)


@pytest.mark.parametrize("kind", [Total, WeightedTotal, CountsByValue, Latest])
def test_m6_states_and_sets_agree(kind: type[Incremental[int, object]]) -> None:
    """IV.A.2: the framework's check compares them over random histories, bit for bit."""
    assert "incremental" in check_module(kind(), rounds=60)  # type: ignore[arg-type]  # modules of a kind


class FirstOfAll(Operator[int]):
    """The rows in the order in which they come: a module that sees no times must not be able to learn them."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    results: ClassVar[SchemaLike] = {"place": "int", "value": "int"}

    def compute(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        return list(enumerate(rows))


def test_m7_a_time_insensitive_module_cannot_see_times() -> None:
    """IV.B.1: lifetimes that move inside the window change nothing."""
    plan = numbers().tumbling(10).apply(method_of(FirstOfAll)(of=col.b))
    one = result(plan, insert((0, 2), 1, 3), insert((0, 1), 4, 5))
    other = result(plan, insert((0, 2), 7, 9), insert((0, 1), 0, 1))
    assert one == other


class Described(TimedAggregate[int, str]):
    """The window that it gets."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    result = "string"

    def compute(self, rows: Sequence[TimedRow[int]], window: Window) -> str:
        assert window.kind is not None
        return f"{window.start} {window.end} {window.kind.shown} {window.key}"


def test_m8_a_time_sensitive_module_gets_the_window_with_kind_and_key() -> None:
    """IV.B.2."""
    plan = numbers().group_by("a").tumbling(5).agg(w=method_of(Described)(of=col.b))
    assert result(plan, insert((7, 0), 1, 2)) == [event((7, "0 5 tumbling(5) (7,)"), 0, 5)]


def test_m9_my_average() -> None:
    """IV.C: 25.0 for 10, 20, 40, 30."""
    plan = values().tumbling(10).agg(a=my_average(of=col.value))
    items = [insert(10.0, 0, 5), insert(20.0, 5, 10), insert(40.0, 0, 5), insert(30.0, 8, 9)]
    assert result(plan, *items) == [event(25.0, 0, 10)]


def test_m10_a_mapping_goes_from_the_streams_columns_to_the_modules_inputs() -> None:
    """IV.C: an extension method, or by name with parameters; a wrong type is an error where it is built."""
    flights = source("flights", {"origin": "string", "delay": "float"})
    by_method = flights.tumbling(5).agg(m=my_average(of=col.delay * 2, digits=1))
    by_name = flights.tumbling(5).agg(m=module("my_average", of=col.delay * 2, digits=1))
    assert by_method == by_name
    assert result(by_name, insert(("x", 1.01), 1, 2)) == [event(2.0, 0, 5)]
    with pytest.raises(PlanError, match=r"'my_average' version 1 takes value: float, and .*'origin' is string"):
        flights.tumbling(5).agg(m=my_average(of=col.origin))


def test_m11_my_time_weighted_average() -> None:
    """IV.C: the sum of payload times duration, by the window's duration."""
    plan = values().tumbling(10).agg(a=my_time_weighted_average(of=col.value), clip="full")
    assert result(plan, insert(10.0, 0, 5), insert(21.0, 5, 10)) == [event(15.5, 0, 10)]


def test_m12_modules_are_packages_that_queries_call_by_name() -> None:
    """I, Figure 1, VI.E: names are unique, a description lists what a query writer has to know."""
    described = describe("followed_by")
    assert (described.version, described.inputs) == (1, "kind: string, key: string")
    assert [parameter.name for parameter in described.parameters] == ["first", "second"]
    registry = ModuleRegistry()
    registry.register(FollowedBy)
    with pytest.raises(PlanError, match="'followed_by' is there already"):
        registry.register(FollowedBy)
    document = plan_to_json({"it": numbers().tumbling(5).agg(s=sum_of_all(of=col.b)).node})
    assert '"name": "sum_of_all", ' in json.dumps(document)
    assert '"version": 1' in json.dumps(document)


def test_m13_a_plan_names_module_and_version_and_fails_clearly_without_it() -> None:
    """VI.F: "hiked over the wall"; nothing is serialized but the name and the version."""
    text = plan_to_json({"it": numbers().tumbling(5).agg(s=sum_of_all(of=col.b)).node})
    SumOfAll.version = 2
    try:
        with pytest.raises(PlanError, match="'sum_of_all' version 1, and version 2 is here"):
            plan_from_json(text)
    finally:
        SumOfAll.version = 1
    MODULES.forget("sum_of_all")
    try:
        with pytest.raises(PlanError, match="'sum_of_all'"):
            plan_from_json(text)
    finally:
        MODULES.register(SumOfAll)


class FalselyFiltered(Operator[tuple[int]]):
    """Declares that filters commute, and keeps the smallest of all."""

    properties = Properties(filter_commutes=("n",))
    inputs: ClassVar[SchemaLike] = {"n": "int"}
    results: ClassVar[SchemaLike] = {"n": "int"}

    def compute(self, rows: Sequence[int]) -> list[tuple[int]]:  # type: ignore[override]  # one input is its value
        return [(min(rows),)]


def test_m14_what_a_module_declares_is_checked() -> None:
    """I.A.5: a module that declares what is not so is found, with a smallest example."""
    with pytest.raises(ModuleViolation, match="'falsely_filtered' version 1 is not filter_commutes") as found:
        check_module(FalselyFiltered())
    assert str(found.value).rpartition(" with ")[2].count("[") == 2
    assert {"filter_commutes", "per_group", "insert_only"} <= set(check_module(Distinct(), schema=NUMBERS, rounds=20))


@scalar_function(["int"], "int", name="fails_at_seven")
def fails_at_seven(value: int) -> int:
    """Raise for one value."""
    if value == 7:
        raise ValueError("seven")
    return value


def test_m15_an_exception_names_module_operator_and_row() -> None:
    """V.A: evaluate parameters from the event, call, go on."""
    plan = numbers().select(b=fails_at_seven(col.b)).named("sevens")
    with pytest.raises(ModuleViolation, match=r"(?s)sevens.*fails_at_seven.*seven.*7"):
        result(plan, insert((0, 1), 1, 2), insert((3, 7), 1, 2))
    run = PlanTrace(numbers().select(b=fails_at_seven(col.b)))
    assert run.give(insert((0, 1), 1, 2)) == ["+(1)[1,2)"]


def test_m4_a_lifetime_that_is_the_same_once_clipped_is_no_change() -> None:
    """IV.A.2, III.C.1."""
    run = PlanTrace(names().tumbling(5).agg(d=total_duration(), clip="right", form="eager"))
    run.give(insert("later", 20, 21), insert("a", 1, 9))
    out = run.give(adjust("a", 1, 9, 7))
    assert out == ["(8)[5,10) gone", "+(6)[5,10)"]
