"""History as Arrow tables: the table that comes out is that of a live run, and what does not fit is named."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from plan_generator import SOURCES, ended, random_history, random_plan
from run_world import sources_of
from temporal_world import Item
from typed_rows import EVERY_TYPE, TYPED_ROWS

from lmerge.core.elements import INF
from lmerge.core.engines.selection import PYTHON
from lmerge.errors import InvalidRow, UsageError
from lmerge.temporal import arrow_tables
from lmerge.temporal.arrow_tables import table_of_events
from lmerge.temporal.changes import Change
from lmerge.temporal.columns import AnyDelta
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.graph import OperatorGraph
from lmerge.temporal.plan.stream import Stream, count, source
from lmerge.temporal.row_forms import RowForms
from lmerge.temporal.running import QueryRun, ResultTable
from lmerge.temporal.values import NAN
from lmerge.wire.schema import parse_schema


@pytest.mark.parametrize("batch", [1, 3, 16_384])
def test_history_gives_the_table_of_a_live_run(batch: int, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The live run has disorder and revisions; the history has each source as it is at the end, or its items.

    With both engines, that is by rows and by columns.
    """
    assert engine
    monkeypatch.setattr(arrow_tables, "BATCH_EVENTS", batch)
    for seed in range(80):
        random_ = Random(seed)
        plan = random_plan(random_, outputs=1)
        names = sources_of(plan.nodes)
        live = {**plan.nodes, **{name: source(name, SOURCES[name][0]).node for name in names}}
        run, tables = QueryRun(live, implementation=PYTHON), {output: ResultTable() for output in live}
        # Where a grid stops inside an event without an end depends on all starts that there were, also of events that
        # were removed (D13): a table does not have these.
        history = [(name, with_ends(item)) for name, item in ended(random_history(random_, names), names)]
        for name, item in history:
            for step in run.take(name, [item]):
                for output, delta in step.items():
                    tables[output].apply(delta)
        (stream,) = plan.outputs.values()
        given: dict[str, Any] = {}
        for name in names:
            items = [item for source_name, item in history if source_name == name]
            as_table = table_of_events(parse_schema(SOURCES[name][0]), tables[name].events.elements())
            given[name] = as_table if random_.random() < 0.8 else items
        expected = table_of_events(stream.schema, tables["out1"].events.elements())
        check_equal(stream.collect(given), expected)


def with_ends(item: Item) -> Item:
    """Return an item in which an event without an end has one behind all others."""
    if isinstance(item, int):
        return item
    row, vs, old, new = item
    return Change(row, vs, min(old, 100), min(new, 100))


def check_equal(table: Any, other: Any) -> None:
    """Check that two tables have the same rows; NaN is equal to NaN."""
    assert table.schema == other.schema
    assert repr(table.to_pylist()) == repr(other.to_pylist())


def test_every_type_comes_in_and_goes_out() -> None:
    stream = source("all", EVERY_TYPE)
    forms = RowForms(stream.schema)
    events = [Change(forms.values(row), at, at, at + 5) for at, row in enumerate(TYPED_ROWS)]
    assert events[1].row[2] is NAN
    table = stream.collect({"all": events})
    assert table.column_names == ["vs", "ve", *stream.schema.names]
    assert table.column("ve").to_pylist() == [5, 6]
    assert table.drop_columns(["vs", "ve"]).drop_columns(["f"]).to_pylist() == [
        {name: value for name, value in row.items() if name != "f"} for row in TYPED_ROWS
    ]
    check_equal(stream.collect({"all": table}), table)


def numbers(shape: str = "interval") -> Stream:
    return source("numbers", {"a": "int"}, shape=shape)


def test_times_have_the_columns_that_are_given() -> None:
    table = pa.table({"at": [3, 1], "until": [9, 2], "a": [1, 2]})
    found = numbers().where(col.a > 0).collect({"numbers": table}, vs="at", ve="until")
    assert found.to_pylist() == [{"at": 1, "until": 2, "a": 2}, {"at": 3, "until": 9, "a": 1}]
    without = pa.table({"vs": [3], "a": [1]})
    assert numbers().collect({"numbers": without}, ve=None).column("ve").to_pylist() == [INF]
    assert numbers("point").collect({"numbers": without}).column("ve").to_pylist() == [4]
    assert numbers("edge").collect({"numbers": without}).column("ve").to_pylist() == [INF]
    assert numbers().collect({"numbers": without.slice(1)}, ve=None).num_rows == 0
    assert numbers().tumbling(5).agg(n=count()).collect({"numbers": without.slice(1)}, ve=None).num_rows == 0


def test_a_table_without_ends_is_asked_for(engine: str) -> None:
    """A name of the column of ends that is wrong would make every event last for ever."""
    assert engine
    ends = pa.table({"vs": [3], "until": [9], "a": [1]})
    with pytest.raises(UsageError, match=r"source 'numbers', the table has no column 've', so none of its events has"):
        numbers().where(col.a > 0).collect({"numbers": ends})
    with pytest.raises(UsageError, match=r"events without an end \(ve=None\)"):
        QueryRun({"n": numbers().where(col.a > 0)}).take_arrow("numbers", ends.select(["vs", "a"]))


def test_a_history_is_read_in_batches_that_free_what_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0
    step = OperatorGraph.advance_columns

    def watched(graph: OperatorGraph, deltas: Sequence[AnyDelta]) -> list[AnyDelta]:
        nonlocal most
        found = step(graph, deltas)
        most = max(most, graph.live())
        return found

    monkeypatch.setattr(OperatorGraph, "advance_columns", watched)
    monkeypatch.setattr(arrow_tables, "BATCH_EVENTS", 100)
    table = pa.table({"vs": list(range(10_000)), "ve": list(range(3, 10_003)), "a": [1] * 10_000})
    counted = numbers().snapshot().agg(n=count())
    assert counted.join(numbers(), where=col.a > 0).collect({"numbers": table}).num_rows > 10_000
    assert 0 < most < 500


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({}, UsageError, "has the sources numbers; there is history of"),
        ({"numbers": [], "letters": []}, UsageError, "history of numbers, letters"),
        ({"numbers": pa.table({"a": [1]})}, InvalidRow, "no column 'vs'"),
        ({"numbers": pa.table({"vs": [1], "ve": [2]})}, InvalidRow, "no column 'a'"),
        ({"numbers": pa.table({"vs": [1], "ve": [2], "a": [1], "b": [2]})}, InvalidRow, "column 'b' too many"),
        ({"numbers": pa.table({"vs": [1], "ve": [2], "a": ["x"]})}, InvalidRow, "row 0, column 'a'"),
        (
            {"numbers": pa.table({"vs": [1, 2], "ve": [2, 2], "a": [1, 1]})},
            UsageError,
            r"row 1: \[2, 2\) is no lifetime",
        ),
    ],
)
def test_a_history_that_does_not_fit_is_named(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        numbers().collect(given)


def test_a_point_lasts_one_unit_and_times_are_no_columns() -> None:
    with pytest.raises(UsageError, match="it lasts one unit of time"):
        numbers("point").collect({"numbers": pa.table({"vs": [1], "ve": [3], "a": [1]})})
    with pytest.raises(UsageError, match="the events have a column 'a'; give their times other names"):
        numbers().collect({"numbers": []}, vs="a")
    with pytest.raises(UsageError, match="the events have a column 'vs'"):
        source("s", {"vs": "int"}).collect({"s": []})


def test_errors_of_a_table_name_its_source(engine: str) -> None:
    assert engine
    left, right = source("l", {"k": "int"}), source("r", {"k": "int"})
    good = pa.table({"vs": [1], "ve": [5], "k": [1]})
    wrong = {
        "source 'r', row 0, column 'k' .int.: 'x' is not": pa.table({"vs": [1], "ve": [5], "k": ["x"]}),
        "source 'r', the table has no column 'vs'": pa.table({"ve": [5], "k": [1]}),
        r"source 'r', row 0: \[5, 1\) is no lifetime": pa.table({"vs": [5], "ve": [1], "k": [1]}),
    }
    for problem, table in wrong.items():
        with pytest.raises(UsageError, match=f"^{problem}"):
            left.join(right, "k").collect({"l": good, "r": table})


def test_what_is_no_history_is_named() -> None:
    numbers = source("numbers", {"k": "int"})
    with pytest.raises(UsageError, match="history is a mapping from the name of a source to its table"):
        numbers.collect(pa.table({"vs": [1], "k": [1]}))
    with pytest.raises(UsageError, match=r"source 'numbers': list is no Arrow table and no record batch"):
        QueryRun({"n": numbers.node}).take_arrow("numbers", [{"k": 1}])
