"""Batches of columns are written, and added up to tables, as the same batches of rows are."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from native_world import SOURCES
from temporal_world import random_stream

from lmerge._native import Columns, ColumnTable
from lmerge.core.elements import INF
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.entrance import StreamEntrance
from lmerge.temporal.native.step import column_form
from lmerge.temporal.plan.stream import source
from lmerge.temporal.runs.results import ElementWriter, ResultTable
from lmerge.temporal.values import order_key
from lmerge.wire.schema import Schema, parse_schema


def random_deltas(schema: Schema, rows: Any, random_: random.Random) -> list[Delta]:
    stream = random_stream(random_, 40, rows)
    entrance = StreamEntrance("s")
    deltas: list[Delta] = []
    while stream:
        count = random_.choice((1, 4, 15))
        deltas += entrance.take(stream[:count])
        stream = stream[count:]
    return deltas


@pytest.mark.parametrize("name", list(SOURCES))
def test_elements_of_columns_are_those_of_rows(name: str) -> None:
    schema, rows = SOURCES[name]
    writer, form = ElementWriter(source("s", schema).node), column_form(schema)
    for seed in range(60):
        deltas = random_deltas(schema, rows, random.Random(seed))
        columns = [form.batch(delta.changes, delta.stable, delta.mark) for delta in deltas]
        expected, found = writer.batch(deltas), writer.batch(columns)
        assert found.count == 0 or isinstance(found, Columns)
        assert list(found.rows()) == list(expected.rows())
        half = len(deltas) // 2
        assert list(writer.batch([*deltas[:half], *columns[half:]]).rows()) == list(expected.rows())


def test_a_float_is_written_as_the_plan_has_it() -> None:
    """A column that is rounded where rows come in is not rounded again where they go out."""
    node = source("s", {"x": "float(1)", "xs": "list<float(1)>"}).node
    changes = [Change((0.25, (0.123,)), 0, 0, 5)]
    writer = ElementWriter(node)
    rows = list(writer.batch([column_form(node.schema).batch(changes, 3)]).rows())
    assert rows == list(writer.batch([Delta(changes, 3)]).rows())


def test_what_the_core_refuses_is_written_in_python() -> None:
    node = source("s", {"d": "date"}).node
    delta = Delta([Change((2**30,), 0, 0, 5)], None)
    writer = ElementWriter(node)
    found = writer.batch([column_form(node.schema).batch(delta.changes)])
    assert not isinstance(found, Columns)
    assert list(found.rows()) == list(writer.batch([delta]).rows())


@pytest.mark.parametrize("name", list(SOURCES))
def test_a_table_of_columns_is_that_of_rows(name: str) -> None:
    schema, rows = SOURCES[name]
    form, key = column_form(schema), order_key(schema)
    for seed in range(60):
        random_ = random.Random(seed)
        ours, theirs = ResultTable(), ColumnTable(form)
        for delta in random_deltas(schema, rows, random_):
            ours.apply(delta)
            theirs.apply(form.batch(delta.changes, delta.stable, delta.mark))
            if random_.random() < 0.3:
                expected = sorted(ours.events.elements(), key=lambda event: (event.vs, key(event.row), event.ve))
                found = [(row, vs, ve) for row, vs, _, ve in theirs.events().changes()]
                assert repr(found) == repr([tuple(event) for event in expected])


@pytest.mark.parametrize("count", [1, 3, 100])
def test_history_comes_in_order_and_frees_what_is_behind(count: int) -> None:
    form = column_form(parse_schema({"x": "int"}))
    starts = [5, 1, 9, 1, 5, 0]
    changes = [Change((at,), start, start, INF if at == 2 else start + 30 - 9 * at) for at, start in enumerate(starts)]
    batches = form.batch([change for change in changes if change.new > change.vs]).in_order(count)
    found = [Change._make(change) for batch in batches for change in batch.changes()]
    assert found == sorted(found, key=lambda change: change.vs)
    assert [change.row[0] for change in found if change.vs == 5] == [0]
    for batch, following in pairwise(batches):
        assert len(batch) == count
        assert batch.stable == following.changes()[0][1]
        assert batch.mark == batch.changes()[-1][1]
    assert (batches[-1].stable, batches[-1].mark) == (INF, 35)
    (nothing,) = form.batch([]).in_order(count)
    assert (len(nothing), nothing.stable, nothing.mark) == (0, INF, None)
