"""Operators judged by SQL in DuckDB, after every batch of random streams, with one statement for many streams.

A statement costs DuckDB a millisecond, whatever it computes. So the tables behind every batch are recorded under a
number, the column ``run``, and one query judges all of them: ``run`` is one more column of the rows, and of the keys.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa
from temporal_world import StreamTable, cut, random_stream

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import NOTHING_CHANGES, Delta, Lifetime
from lmerge.temporal.graph import OperatorGraph
from lmerge.temporal.values import Values, canonical_float

TYPES: Mapping[str, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "string": pa.string(),
    "decimal": pa.decimal128(20, 2),
    "bool": pa.bool_(),
}

NUMBERS: Mapping[str, str] = {"a": "int", "b": "int"}
NUMBER_ROWS: Sequence[Values] = ((0, 0), (0, 1), (1, 0), (1, 2))


class RecordedRuns:
    """Tables of inputs after batches, and what an operator had emitted then. ``tables``: columns and types by name.

    ``times``: columns beside the rows' own, with one value for each run. They follow ``run`` in every table.
    """

    def __init__(self, tables: Mapping[str, Mapping[str, str]], times: Sequence[str] = ()) -> None:
        self._schemas, self._times = tables, tuple(times)
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in tables}
        self.emitted: list[Counter[Lifetime]] = []

    def note(
        self, tables: Mapping[str, Counter[Lifetime]], emitted: Counter[Lifetime], times: Sequence[Any] = ()
    ) -> None:
        """Record what was given and what was emitted behind a batch."""
        run = len(self.emitted)
        for name, table in tables.items():
            self._rows[name] += [(run, *times, *event.row, event.vs, event.ve) for event in table.elements()]
        self.emitted.append(emitted)

    @property
    def has_times(self) -> bool:
        """Whether runs have columns beside those of the rows."""
        return bool(self._times)

    def judge(self, query: str, columns: Sequence[str]) -> None:
        """Assert that a query over the tables has what was emitted, in every run. ``columns``: of its rows."""
        assert any(self.emitted), "nothing was emitted"
        with duckdb.connect() as connection:
            for name, schema in self._schemas.items():
                connection.register(name, self._arrow(name, schema))
            chosen = ", ".join(["run", *columns, "vs", "ve"])
            rows = connection.execute(f"SELECT {chosen} FROM ({query})").fetchall()
        expected: list[Counter[Lifetime]] = [Counter() for _ in self.emitted]
        for run, *row, vs, ve in rows:
            expected[run][Lifetime(tuple(map(plain, row)), int(vs), int(ve))] += 1
        for run, (found, right) in enumerate(zip(self.emitted, expected, strict=True)):
            assert found == right, f"run {run}: beyond the query {found - right}, not emitted {right - found}"

    def _arrow(self, name: str, schema: Mapping[str, str]) -> pa.Table:
        names = ["run", *self._times, *schema, "vs", "ve"]
        kinds = [pa.int64(), *map(self._type_of_time, self._times), *map(TYPES.__getitem__, schema.values())]
        columns = list(zip(*self._rows[name])) or [()] * len(names)
        arrays = [
            pa.array(column, kind) for column, kind in zip(columns, [*kinds, pa.int64(), pa.int64()], strict=True)
        ]
        return pa.table(arrays, names=names)

    def _type_of_time(self, name: str) -> pa.DataType:
        return pa.bool_() if name.startswith("is_") else pa.int64()


def plain(value: Any) -> Any:
    """Return a value of DuckDB as it is in a row of a plan."""
    if isinstance(value, float):
        return canonical_float(value)
    return tuple(map(plain, value)) if isinstance(value, list) else value


def steps_of(
    random_: random.Random, rows: Sequence[Sequence[Values]], length: int = 15, open_part: float = 0.1
) -> list[list[Delta]]:
    """Return random batches for several inputs; in each step every input takes its next batch, or waits."""
    waiting = [cut(random_, random_stream(random_, length, of_input, open_part)) for of_input in rows]
    run: list[list[Delta]] = []
    while any(waiting):
        run.append([batches.pop(0) if batches and random_.random() < 0.7 else NOTHING_CHANGES for batches in waiting])
    return run


def record(
    runs: RecordedRuns, graph: OperatorGraph, names: Sequence[str], steps: Sequence[Sequence[Delta]]
) -> tuple[list[StreamTable], StreamTable]:
    """Run a graph over steps, and record the tables behind each one; return the inputs' and the output's tables."""
    tables, output = [StreamTable() for _ in names], StreamTable()
    for deltas in steps:
        for table, delta in zip(tables, deltas, strict=True):
            table.apply(delta)
        output.apply(graph.step(deltas)[0])
        given = {name: table.events for name, table in zip(names, tables, strict=True)}
        runs.note(given, Counter(output.events), [min(table.stable for table in tables)] if runs.has_times else ())
    return tables, output


class StreamClock:
    """The watermark of a stream, and where the grid of an event without an end stops (D13)."""

    def __init__(self) -> None:
        self.mark = self.last_finite = NEG_INF

    def take(self, delta: Delta, table: StreamTable) -> None:
        """Take a batch that the table has taken."""
        for change in delta.changes:
            self.take_start(change.vs)
        self.take_stable(table.stable)

    def take_start(self, vs: int) -> None:
        """Take the start of an event of a change."""
        self.mark, self.last_finite = max(self.mark, vs), max(self.last_finite, vs)

    def take_stable(self, stable: int) -> None:
        """Take a stable point."""
        self.mark = max(self.mark, stable)
        if stable < INF:
            self.last_finite = max(self.last_finite, stable)

    def begun(self, table: StreamTable) -> int:
        """Return the time at which the last window of a grid has begun."""
        return self.begun_over(table.events)

    def begun_over(self, events: Iterable[Lifetime]) -> int:
        """Return the same for the events of a table."""
        if self.mark < INF:
            return self.mark
        return max([self.last_finite, *(event.ve for event in events if event.ve < INF)])
