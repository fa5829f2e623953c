"""Aggregates and top-k in windows of every kind and form, judged by their definitions over random streams."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from aggregate_definition import DEFINITIONS, order_of, same
from module_world import CountsByValue, Total, WeightedTotal
from operator_world import restored
from temporal_world import cut, random_stream
from window_judge import check_windows

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.modules.adapters import bind_aggregate_module, bind_operator_module
from lmerge.temporal.modules.aggregates import aggregate_module
from lmerge.temporal.modules.arguments import column_argument
from lmerge.temporal.modules.builtin import bind_aggregate
from lmerge.temporal.modules.kinds import AggregateModule
from lmerge.temporal.modules.top_k import OrderBy, TopK
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.values import NAN, Values, order_key
from lmerge.temporal.windows.group import WindowRules
from lmerge.temporal.windows.kinds import (
    CountedEnd,
    CountWindows,
    Hopping,
    Sessions,
    Snapshots,
    WindowDescriptor,
    WindowKind,
)
from lmerge.temporal.windows.module import WindowModule
from lmerge.temporal.windows.policies import Clip, Form, Stamp
from lmerge.temporal.windows.window_operator import WindowOperator
from lmerge.wire.schema import parse_schema

SCHEMA = parse_schema({"group": "int", "f": "float?", "d": "decimal(2)?"})
ROWS: list[Values] = [
    (0, 0.1, Decimal("1.25")),
    (0, 1e100, None),
    (0, NAN, Decimal("-0.50")),
    (1, 0.2, Decimal("1.25")),
    (1, -math.inf, None),
    (1, None, Decimal("3.00")),
    (1, 0.3, Decimal("0.01")),
]
CALLS = [
    ("sum", "f"),
    ("avg", "f"),
    ("stddev_samp", "f"),
    ("max", "f"),
    ("median", "d"),
    ("sum", "d"),
    ("var_pop", "d"),
    ("collect", "d"),
    ("distinct_count", "d"),
    ("mode", "d"),
]
KINDS: dict[str, WindowKind] = {
    "tumbling": Hopping(5, 5),
    "hopping": Hopping(4, 2, 1),
    "with gaps": Hopping(2, 5),
    "snapshot": Snapshots(),
    "two starts": CountWindows(2),
    "two ends": CountWindows(2, CountedEnd.ENDS),
    "session": Sessions(2),
}
SEEDS = 10


class DefinedAggregates(WindowModule):
    """The definitions of ``CALLS``, then what is the first and the last of ``f``, if ``by_start``."""

    def __init__(self, by_start: bool) -> None:
        self.reads_events = self.starts_only = by_start

    def compute(self, events: Sequence[Lifetime], window: WindowDescriptor) -> Sequence[Values]:
        row: list[Any] = []
        for name, of in CALLS:
            place = SCHEMA.names.index(of)
            present = [event.row[place] for event in events if event.row[place] is not None]
            row.append(DEFINITIONS[name](present, SCHEMA.columns[place]))
        if self.reads_events:
            in_order = sorted(events, key=lambda event: (event.vs, tuple(map(order_of, event.row))))
            there = [event.row[1] for event in in_order if event.row[1] is not None]
            row += [there[0], there[-1]] if there else [None, None]
        return [tuple(row)]


class DefinedTop(WindowModule):
    """The rows that fewer than two rows have a larger ``f`` than; missing values are the smallest."""

    def compute(self, events: Sequence[Lifetime], window: WindowDescriptor) -> Sequence[Values]:
        values = [
            (event.row[1] is not None, () if event.row[1] is None else order_of(event.row[1])) for event in events
        ]
        return [
            event.row for event, one in zip(events, values, strict=True) if sum(other > one for other in values) < 2
        ]


def aggregates(by_start: bool) -> WindowModule:
    calls = [*CALLS, *([("first", "f"), ("last", "f")] if by_start else [])]
    return aggregate_module(
        [bind_aggregate(name, [column_argument(SCHEMA, of, name)], {}, name + of, SCHEMA) for name, of in calls], SCHEMA
    )


MODULES: dict[str, tuple[WindowModule, WindowModule]] = {
    "aggregates": (aggregates(by_start=False), DefinedAggregates(by_start=False)),
    "with starts": (aggregates(by_start=True), DefinedAggregates(by_start=True)),
    "top": (TopK(SCHEMA, 2, [OrderBy(column_argument(SCHEMA, "f", "top"), descending=True)]), DefinedTop()),
}


def users(name: str) -> WindowModule:
    argument = [column_argument(SCHEMA, "group", name)]
    if name == "CountsByValue":
        return bind_operator_module(CountsByValue(), SCHEMA, argument)
    kinds: list[AggregateModule] = [Total(), WeightedTotal()]
    return aggregate_module([bind_aggregate_module(one, argument, one.module_name) for one in kinds], SCHEMA)


RESTORED = {name: module for name, (module, _) in MODULES.items()} | {
    name: users(name) for name in ("CountsByValue", "Total, WeightedTotal")
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("module", RESTORED)
def test_restored_windows_of_aggregates_go_on_alike(kind: str, module: str) -> None:
    for seed in range(SEEDS):
        random_ = random.Random(seed)
        form = random_.choice(list(Form))
        rules = WindowRules(KINDS[kind], RESTORED[module], Clip.NONE, Stamp.ALIGN, form, order_key(SCHEMA))

        def make(rules: WindowRules = rules) -> PlanOperator:
            return WindowOperator("windows", rules, lambda row: tuple(map(order_of, row)))

        operator = make()
        for delta in cut(random_, random_stream(random_, 12, ROWS)):
            twin = restored(make, operator)
            assert operator.step([delta]) == twin.step([delta])
            assert same(twin.state(), operator.state())


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("kind", KINDS)
def test_windows_of_aggregates_are_those_of_the_definitions(kind: str, module: str, form: Form) -> None:
    computed, defined = MODULES[module]
    for seed in range(SEEDS):
        random_ = random.Random(seed)
        clip = random_.choice(list(Clip)) if computed.reads_events else Clip.NONE
        rules = WindowRules(KINDS[kind], computed, clip, Stamp.ALIGN, form, order_key(SCHEMA))
        check_windows(rules, random_, ROWS, defined, lambda row: tuple(map(order_of, row)))
