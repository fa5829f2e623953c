"""Built-in aggregates against their definitions, bit for bit, through random histories (ENGINE O9, L11)."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from aggregate_definition import DEFINITIONS, POOLS, SCHEMA, continuous, discrete, order_of, random_event, same

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.modules.aggregates import AccumulatedAggregate, MergeableAggregateList, aggregate_module
from lmerge.temporal.modules.arguments import column_argument
from lmerge.temporal.modules.builtin import BUILTIN_AGGREGATES, NUMBERS, bind_aggregate
from lmerge.temporal.values import NAN
from lmerge.temporal.windows.kinds import WindowDescriptor
from lmerge.wire.schema import Column, parse_schema

WINDOW = WindowDescriptor(0, 10)
PARTS = ("0", "0.1", "0.5", "0.99", "1", "0.3333")
COLUMNS = SCHEMA.columns


def bound(name: str, column: str | None = None, **parameters: Any) -> AccumulatedAggregate:
    arguments = [] if column is None else [column_argument(SCHEMA, column, name)]
    return bind_aggregate(name, arguments, parameters, "r", SCHEMA)


def together(aggregates: Sequence[AccumulatedAggregate]) -> MergeableAggregateList:
    module = aggregate_module(aggregates, SCHEMA)
    assert isinstance(module, MergeableAggregateList)
    return module


def of_column(column: Column) -> dict[str, AccumulatedAggregate]:
    """Return every aggregate that takes the column."""
    numeric = ("sum", "avg", "var_pop", "var_samp", "stddev_pop", "stddev_samp", "median")
    names = [name for name in DEFINITIONS if name not in numeric or column.type in NUMBERS]
    found = {name: bound(name, column.name) for name in names}
    for part in PARTS:
        found[f"disc {part}"] = bound("percentile_disc", column.name, p=float(part))
        if column.type in NUMBERS:
            found[f"cont {part}"] = bound("percentile_cont", column.name, p=float(part))
    return found


def defined(name: str, values: list[Any], column: Column) -> Any:
    kind, _, part = name.partition(" ")
    if part:
        return (discrete if kind == "disc" else continuous)(Fraction(part))(values, column)
    return DEFINITIONS[name](values, column)


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_every_result_is_that_of_the_definition_after_every_step_of_a_history(column: Column) -> None:
    aggregates = of_column(column)
    module, place = together(list(aggregates.values())), SCHEMA.names.index(column.name)
    for seed in range(8):
        random_ = random.Random(seed)
        state, events = module.begin(), list[Lifetime]()
        for _ in range(30):
            if events and random_.random() < 0.4:
                events.remove(gone := random_.choice(events))
                state = module.remove(state, gone)
            else:
                events.append(random_event(random_))
                state = module.add(state, events[-1])
            values = [event.row[place] for event in events if event.row[place] is not None]
            (row,) = module.result(state, WINDOW)
            for name, result in zip(aggregates, row, strict=True):
                assert same(result, defined(name, values, column)), (name, values)


def test_a_state_depends_on_its_events_alone_and_comes_back_from_plain_values() -> None:
    module = together([one for column in COLUMNS for one in of_column(column).values()] + [bound("first", "f")])
    for seed in range(20):
        random_ = random.Random(seed)
        events = [random_event(random_) for _ in range(9)]
        state = module.begin()
        for event in random_.sample(events, len(events)):
            state = module.add(state, event)
        kept = events[:5]
        for event in random_.sample(events[5:], 4):
            state = module.remove(state, event)
        fresh = module.begin()
        for event in kept:
            fresh = module.add(fresh, event)
        assert same(module.state_of(state), module.state_of(fresh))
        assert is_plain(module.state_of(state))
        restored = module.restore(module.state_of(state))
        assert same(module.state_of(restored), module.state_of(state))
        for event in kept:
            restored = module.remove(restored, event)
        assert same(module.state_of(restored), module.state_of(module.begin()))


def is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and all(map(is_plain, value.values()))
    if isinstance(value, int):
        return abs(value) < 2**63
    return value is None or isinstance(value, (str, float, bytes))


def test_states_that_are_merged_are_the_state_of_all_events_and_a_copy_is_independent() -> None:
    module = together([one for column in COLUMNS for one in of_column(column).values()] + [bound("last", "i")])
    for seed in range(10):
        random_ = random.Random(seed)
        parts = [[random_event(random_) for _ in range(random_.randint(0, 4))] for _ in range(2)]
        left, right, both = module.begin(), module.begin(), module.begin()
        for state, events in ((left, parts[0]), (right, parts[1]), (both, parts[0] + parts[1])):
            for event in events:
                module.add(state, event)
        before = module.state_of(left), module.state_of(right)
        merged = module.merge(module.copied(left), right)
        assert same(module.state_of(merged), module.state_of(both))
        for event in parts[0] + parts[1]:
            merged = module.remove(merged, event)
        assert same((module.state_of(left), module.state_of(right)), before)
        assert same(module.state_of(merged), module.state_of(module.begin()))


@pytest.mark.parametrize("values", [(1e100, 1.0, -1e100, 0.1), (0.1, 0.2, 0.3, -0.6), (math.inf, -math.inf, NAN, 1.0)])
def test_the_order_of_adding_and_removing_makes_no_difference(values: tuple[float, ...]) -> None:
    module = together([bound(name, "f") for name in ("sum", "avg", "stddev_pop", "var_samp", "min", "max")])
    events = [Lifetime((*(None,) * 1, value, *(None,) * 8), 0, 1) for value in values]
    found = set()
    for order in itertools.permutations(events):
        for removed in order:
            state = module.begin()
            for event in order:
                state = module.add(state, event)
            state = module.remove(state, removed)
            left = [event.row[1] for event in events if event is not removed]
            found.add((repr(sorted(left, key=order_of)), repr(module.result(state, WINDOW))))
    assert len(found) == len(values)


def test_a_sum_is_exact_where_floats_are_not() -> None:
    module = together([bound("sum", "f"), bound("sum", "f2"), bound("avg", "f2")])
    state = module.begin()
    for number, cents in ((1e100, 0.1), (1.0, 0.2), (-1e100, 0.3)):
        module.add(state, Lifetime((None, number, cents, *(None,) * 7), 0, 1))
    assert module.result(state, WINDOW) == [(1.0, 0.6, 0.2)]


def test_an_integer_sum_that_leaves_64_bits_names_column_and_window_and_one_that_returns_does_not() -> None:
    module = together([bound("sum", "i")])
    state = module.begin()
    big = Lifetime((2**63 - 1, *(None,) * 9), 0, 1)
    one = Lifetime((1, *(None,) * 9), 0, 1)
    for event in (big, one):
        state = module.add(state, event)
    with pytest.raises(ModuleViolation, match=r"sum\(i\) over column 'i': its sum in window \[0, 10\) exceeds 64 bits"):
        module.result(state, WINDOW)
    assert module.result(module.remove(state, one), WINDOW) == [(2**63 - 1,)]
    lowest = Lifetime((-(2**63), *(None,) * 9), 0, 1)
    assert module.result(module.add(module.begin(), lowest), WINDOW) == [(-(2**63),)]


def test_a_decimal_sum_beyond_38_digits_is_refused() -> None:
    module = together([bound("sum", "d")])
    state = module.begin()
    value = Decimal("9" * 35 + ".999")
    module.add(state, Lifetime((*(None,) * 4, value, *(None,) * 5), 0, 1))
    assert module.result(state, WINDOW) == [(value,)]
    module.add(state, Lifetime((*(None,) * 4, Decimal("0.001"), *(None,) * 5), 0, 1))
    with pytest.raises(ModuleViolation, match="exceeds 38 digits"):
        module.result(state, WINDOW)


def test_first_and_last_go_by_start_then_by_row() -> None:
    module = together([bound("first", "s"), bound("last", "s")])
    assert module.reads_events
    assert module.starts_only
    events = [(5, "c", 1), (5, "d", 1), (3, None, 0), (4, "b", 7), (4, "a", 8), (9, None, 0)]
    for order in itertools.permutations(events):
        state = module.begin()
        for vs, text, number in order:
            state = module.add(state, Lifetime((number, *(None,) * 4, text, *(None,) * 4), vs, vs + 1))
        assert module.result(state, WINDOW) == [("b", "d")]


def test_aggregates_of_one_column_share_what_they_keep() -> None:
    module = together([bound("avg", "i"), bound("sum", "i"), bound("var_pop", "i"), bound("sum", "f"), bound("count")])
    assert len(module.accumulators) == 3
    state = module.begin()
    for value in (1, 2, 6):
        state = module.add(state, Lifetime((value, 1.5, *(None,) * 8), 0, 1))
    assert module.result(state, WINDOW) == [(3.0, 9, 14 / 3, 4.5, 3)]
    assert len(together([bound("min", "i"), bound("max", "i"), bound("median", "i")]).accumulators) == 1


def test_the_types_of_results() -> None:
    schema = parse_schema({"i": "int", "f": "float(2)", "d": "decimal(2)?", "s": "string"})

    def type_of(name: str, column: str, **parameters: Any) -> str:
        argument = column_argument(schema, column, name)
        return bind_aggregate(name, [argument], parameters, "r", schema).result.describe()

    assert bind_aggregate("count", [], {}, "n", schema).result == Column("n", "int")
    assert [type_of("sum", name) for name in "ifd"] == ["int", "float(2)", "decimal(2)?"]
    assert [type_of("avg", name) for name in "ifd"] == ["float", "float", "float?"]
    assert [type_of("stddev_samp", "i"), type_of("stddev_pop", "i")] == ["float?", "float"]
    assert [type_of(name, "d") for name in ("min", "last", "mode", "count")] == ["decimal(2)?"] * 3 + ["int"]
    assert [type_of("collect", "d"), type_of("distinct_count", "s")] == ["list<decimal(2)>", "int"]
    assert [type_of("percentile_disc", "s", p=0.5), type_of("percentile_cont", "i", p=1)] == ["string", "float"]


@pytest.mark.parametrize(
    ("name", "columns", "parameters", "problem"),
    [
        ("sum", ["s"], {}, r"sum\(s\): s is string\?, and sum takes int or decimal or float"),
        ("avg", ["t"], {}, r"avg\(t\): t is timestamp\?"),
        ("median", ["b"], {}, r"b is bool\?"),
        ("percentile_cont", ["s"], {"p": 0.5}, r"s is string\?"),
        ("sum", [], {}, r"sum\(\) has 0 arguments; sum takes one"),
        ("min", ["i", "f"], {}, "has 2 arguments"),
        ("minimum", ["i"], {}, r"minimum\(i\): there is no aggregate 'minimum'; there are count, "),
        ("percentile_disc", ["i"], {}, "p is None; it must be a number from 0 to 1"),
        ("percentile_disc", ["i"], {"p": 1.5}, "p is 1.5"),
        ("percentile_disc", ["i"], {"p": "x"}, "p is 'x'"),
        ("percentile_disc", ["i"], {"p": math.nan}, "p is nan"),
        ("percentile_disc", ["i"], {"p": True}, "p is True"),
        ("min", ["i"], {"p": 0.5}, r"min\(i, p=0.5\): there is no parameter 'p'"),
        ("count", [], {"q": 1}, "has 0 arguments"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, columns: list[str], parameters: dict[str, Any], problem: str) -> None:
    arguments = [column_argument(SCHEMA, column, name) for column in columns]
    with pytest.raises(PlanError, match=problem):
        bind_aggregate(name, arguments, parameters, "r", SCHEMA)


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(PlanError, match=r"sum\(x\): there is no column 'x' in \(i: int\?"):
        column_argument(SCHEMA, "x", "sum(x)")


def test_all_aggregates_have_a_definition() -> None:
    with_orders = {"first", "last", "percentile_disc", "percentile_cont"}
    assert set(BUILTIN_AGGREGATES) == set(DEFINITIONS) | with_orders
    assert set(POOLS) == set(SCHEMA.names)
