"""Every aggregate and top-k in windows against SQL in DuckDB, after every batch (sheets O9, O10).

The values are those with which DuckDB's sums are exact too: integers, decimals and halves.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pytest
from canonical_world import RecordedRuns, StreamClock
from temporal_world import StreamTable, cut, random_stream

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.modules.aggregates import aggregate_module
from lmerge.temporal.modules.arguments import column_argument
from lmerge.temporal.modules.builtin import BUILTIN_AGGREGATES, bind_aggregate
from lmerge.temporal.modules.top_k import OrderBy, TopK
from lmerge.temporal.values import Values, order_key
from lmerge.temporal.windows.group import WindowRules
from lmerge.temporal.windows.kinds import CountWindows, Hopping, Snapshots, WindowKind
from lmerge.temporal.windows.module import WindowModule
from lmerge.temporal.windows.policies import Clip, Form, Stamp
from lmerge.temporal.windows.window_operator import WindowOperator
from lmerge.testing.canonical import aggregates, windows
from lmerge.wire.schema import parse_schema

SCHEMA = parse_schema({"g": "int", "i": "int?", "f": "float?", "d": "decimal(2)?", "s": "string?"})
TYPES = {"g": "int", "i": "int", "f": "float", "d": "decimal", "s": "string"}
ROWS: Sequence[Values] = (
    (0, 5, 0.5, Decimal("0.25"), "b"),
    (0, None, -1.25, None, "ä"),
    (0, 7, None, Decimal("-7.50"), None),
    (1, -2, 8.75, Decimal("0.25"), "a"),
    (1, 5, 0.5, Decimal("3.00"), ""),
    (1, None, None, None, None),
)
KINDS: dict[str, WindowKind] = {"tumbling": Hopping(5, 5), "snapshot": Snapshots(), "two starts": CountWindows(2)}
EVENTS = "events"
KEYS = ("run", "g")
NEARLY = ("avg", "var_pop", "var_samp", "stddev_pop", "stddev_samp", "percentile_cont", "median")
PART = 0.3


def columns_of(name: str) -> str:
    """Return the columns that an aggregate takes; DuckDB's averages of decimals are not those of lmerge."""
    if name == "sum":
        return "ifd"
    return "if" if name in NEARLY else "ifds"


def members(kind: WindowKind) -> str:
    if isinstance(kind, Hopping):
        return windows.in_hopping(EVENTS, kind.size, kind.hop, kind.offset, "begun")
    return (
        windows.in_count_windows(EVENTS, kind.count, False, KEYS)
        if isinstance(kind, CountWindows)
        else windows.in_snapshots(EVENTS, KEYS)
    )


def recorded(kind: WindowKind, module: WindowModule, places: Sequence[int], seeds: Iterable[int]) -> RecordedRuns:
    """Run the eager form over random streams; ``places``: of floats that are rounded in the results."""
    runs = RecordedRuns({"events": TYPES}, ("mark", "begun"))
    rules = WindowRules(kind, module, Clip.NONE, Stamp.ALIGN, Form.EAGER, order_key(SCHEMA))
    for seed in seeds:
        random_ = random.Random(seed)
        operator = WindowOperator("windows", rules, repr, lambda row: row[:1])
        given, output, clock = StreamTable(), StreamTable(), StreamClock()
        for delta in cut(random_, random_stream(random_, 16, ROWS)):
            given.apply(delta)
            clock.take(delta, given)
            output.apply(operator.step([delta]))
            emitted = Counter({rounded(event, places): count for event, count in output.events.items()})
            runs.note({"events": given.events}, emitted, (clock.mark, clock.begun(given)))
    return runs


def rounded(event: Lifetime, places: Sequence[int]) -> Lifetime:
    row = [shortened(value) if at in places else value for at, value in enumerate(event.row)]
    return Lifetime(tuple(row), event.vs, event.ve)


def shortened(value: Any) -> Any:
    return None if value is None else round(float(value), 9) + 0.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BUILTIN_AGGREGATES)
def test_an_aggregate_in_windows_is_its_query_after_every_batch(name: str, kind: str) -> None:
    parameters = {"p": PART} if name.startswith("percentile") else {}
    taken = columns_of(name)
    arguments = [column_argument(SCHEMA, column, name) for column in taken]
    bound = [bind_aggregate(name, [one], parameters, f"r{one.column.name}", SCHEMA) for one in arguments]
    results = [(f"r{column}", aggregates.aggregate(name, column, SCHEMA.names, PART)) for column in taken]
    nearly = [place for place in range(1, len(taken) + 1) if name in NEARLY]
    results = [(column, f"round({sql}, 9) + 0.0" if nearly else sql) for column, sql in results]
    runs = recorded(KINDS[kind], aggregate_module(bound, SCHEMA), nearly, range(25))
    grouped = windows.grouped(members(KINDS[kind]), KEYS, results, ("mark",))
    begun = f"SELECT * FROM ({windows.aligned(grouped)}) WHERE vs <= mark"
    runs.judge(begun, ["g", *(name for name, _ in results)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("order", "k"), [("f", 1), ("f DESC", 2), ("s, i DESC", 3)])
def test_the_rows_of_rank_k_or_better_are_their_query_after_every_batch(kind: str, order: str, k: int) -> None:
    parts = order.split(", ")
    by = [OrderBy(column_argument(SCHEMA, part.split()[0], "top"), part.endswith("DESC")) for part in parts]
    runs = recorded(KINDS[kind], TopK(SCHEMA, k, by, rank="place"), (), range(40))
    in_sql = ", ".join(f"{part} NULLS LAST" for part in parts)
    ranked = windows.ranked(members(KINDS[kind]), KEYS, in_sql, k)
    columns = ["g AS og", "g", "i", "f", "d", "s", "rank AS place"]
    begun = f"SELECT run, {', '.join(columns)}, window_start, window_end FROM ({ranked}) WHERE window_start <= mark"
    runs.judge(windows.aligned(begun), ["og", "g", "i", "f", "d", "s", "place"])
