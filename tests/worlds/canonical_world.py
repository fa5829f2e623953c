"""Operators judged by SQL in DuckDB, after every batch of random streams, with one statement for many streams.

A statement costs DuckDB milliseconds, whatever it computes. So the tables behind every batch are recorded under a
number, the column ``run``, and one query judges all of them: ``run`` is one more column of the rows, and of the keys.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
from temporal_world import StreamTable, cut, random_stream

from lmerge.core.elements import INF, NEG_INF
from lmerge.core.engines.selection import NATIVE
from lmerge.temporal.changes import NOTHING_CHANGES, Delta, Lifetime
from lmerge.temporal.columns import ColumnOperator
from lmerge.temporal.graph import OperatorGraph
from lmerge.temporal.plan.compiling import CompiledPlan
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


@cache
def database() -> duckdb.DuckDBPyConnection:
    """Return the database of the process: to open one takes longer than a query. The tests run side by side already."""
    return duckdb.connect(config={"threads": 1})


class RecordedRuns:
    """Tables of inputs after batches, and what an operator had emitted then. ``tables``: columns and types by name.

    ``times``: columns beside the rows' own, with one value for each run. They follow ``run`` in every table.
    """

    def __init__(self, tables: Mapping[str, Mapping[str, str]], times: Sequence[str] = ()) -> None:
        self._schemas, self._times = tables, tuple(times)
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in tables}
        self._runs: list[tuple[Any, ...]] = []
        self.emitted: list[Counter[Lifetime]] = []
        self.titles: list[str] = []

    def note(
        self,
        tables: Mapping[str, Counter[Lifetime]],
        emitted: Counter[Lifetime],
        times: Sequence[Any] = (),
        title: str = "",
    ) -> None:
        """Record what was given and what was emitted behind a batch. ``title``: of the run, for messages."""
        run = len(self.emitted)
        self._runs.append((run, *times))
        self.titles.append(title)
        for name, table in tables.items():
            self._rows[name] += [(run, *times, *event.row, event.vs, event.ve) for event in table.elements()]
        self.emitted.append(emitted)

    @property
    def has_times(self) -> bool:
        """Whether runs have columns beside those of the rows."""
        return bool(self._times)

    def judge(self, query: str, columns: Sequence[str], *, may_be_empty: bool = False) -> None:
        """Assert that a query over the tables has what was emitted, in every run. ``columns``: of its rows.

        ``may_be_empty``: whether it is right that nothing was emitted in any run.
        """
        assert may_be_empty or any(self.emitted), "nothing was emitted"
        for run, (found, right) in enumerate(zip(self.emitted, self.expected(query, columns), strict=True)):
            where = f"run {run} {self.titles[run]}"
            assert found == right, f"{where}: beyond the query {found - right}, not emitted {right - found}"

    def expected(self, query: str, columns: Sequence[str]) -> list[Counter[Lifetime]]:
        """Return what a query has for each run. It can read the table ``runs`` too, with the times of each run."""
        connection = database()
        for name, schema in self._schemas.items():
            kinds = [*map(TYPES.__getitem__, schema.values()), pa.int64(), pa.int64()]
            connection.register(name, self._arrow(self._rows[name], [*schema, "vs", "ve"], kinds))
        connection.register("runs", self._arrow(self._runs, [], []))
        chosen = ", ".join(["run", *columns, "vs", "ve"])
        rows = connection.execute(f"SELECT {chosen} FROM ({query})").fetchall()
        for name in (*self._schemas, "runs"):
            connection.unregister(name)
        expected: list[Counter[Lifetime]] = [Counter() for _ in self.emitted]
        for run, *row, vs, ve in rows:
            expected[run][Lifetime(tuple(map(plain, row)), int(vs), int(ve))] += 1
        return expected

    def _arrow(self, rows: Sequence[tuple[Any, ...]], names: Sequence[str], kinds: Sequence[pa.DataType]) -> pa.Table:
        all_kinds = [pa.int64(), *map(self._type_of_time, self._times), *kinds]
        columns = list(zip(*rows)) or [()] * len(all_kinds)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, all_kinds, strict=True)]
        return pa.table(arrays, names=["run", *self._times, *names])

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


def graph_of(plan: CompiledPlan, implementation: str, *, native_from: int | None = 0) -> OperatorGraph:
    """Return a graph of a plan whose steps from ``native_from`` on are native, if the implementation is.

    None: whether they are does not matter, as where a user's module is called.
    """
    graph = plan.graph(implementation)
    if implementation == NATIVE and native_from is not None:
        for step in graph.steps[native_from:]:
            assert isinstance(step.operator, ColumnOperator), f"{step.operator.name} runs in Python"
    return graph


def record(
    runs: RecordedRuns, graph: OperatorGraph, names: Sequence[str], steps: Sequence[Sequence[Delta]], title: str = ""
) -> tuple[list[StreamTable], StreamTable]:
    """Run a graph over steps, and record the tables behind each one; return the inputs' and the output's tables."""
    tables, output = [StreamTable() for _ in names], StreamTable()
    for deltas in steps:
        for table, delta in zip(tables, deltas, strict=True):
            table.apply(delta)
        output.apply(graph.step(deltas)[0])
        given = {name: table.events for name, table in zip(names, tables, strict=True)}
        runs.note(
            given, Counter(output.events), [min(table.stable for table in tables)] if runs.has_times else (), title
        )
    return tables, output


class StreamClock:
    """The watermark of a stream, and where the grid of an event without an end stops (D13)."""

    def __init__(self) -> None:
        self.mark = self.last_finite = self._latest = NEG_INF

    def take(self, delta: Delta, table: StreamTable) -> Delta:
        """Take a batch that the table has taken; return it with the watermark, if a start or the end has moved it.

        A source that ends brings its last finite end as its watermark (decision 42).
        """
        before = self._latest
        for change in delta.changes:
            self.take_start(change.vs)
        self.take_stable(table.stable)
        if self.mark == INF:
            self._latest = max(self._latest, self.begun(table))
        return delta._replace(mark=self._latest if self._latest > before else None)

    def take_start(self, vs: int) -> None:
        """Take the start of an event of a change."""
        self.mark, self.last_finite = max(self.mark, vs), max(self.last_finite, vs)
        self._latest = max(self._latest, vs)

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
