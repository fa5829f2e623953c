"""Arrow tables as history of a query's sources, and its results as Arrow tables. Only this module needs pyarrow.

A table of a source has a row for each event: the columns of its schema, and two of times for start and end. It becomes
batches of inserts in the order of their starts, each with the stable point that the next batch allows. So state is
freed as it would be live, and the table that comes out is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa

from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.core.engines.selection import AUTO
from lmerge.errors import UsageError
from lmerge.temporal.changes import NOTHING_CHANGES, Change, Delta, Lifetime
from lmerge.temporal.columns import AnyDelta, ColumnOperator
from lmerge.temporal.entrance import StreamEntrance
from lmerge.temporal.graph import OperatorGraph
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.sources import SourceNode, SourceShape
from lmerge.temporal.row_forms import RowForms
from lmerge.temporal.runs.checked import ItemCheck
from lmerge.temporal.runs.results import ResultTable
from lmerge.temporal.runs.settings import Item, SourceSettings
from lmerge.temporal.values import order_key
from lmerge.wire.arrow import ArrowRows, arrow_schema, int64_column, wire_columns
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Schema

History: TypeAlias = "ArrowRows | Iterable[Item]"
"""What a source has had: a table with a row for each event, or its items."""

END: Final = "ve"

# Events of a batch: enough that what a step costs by itself does not count, and few beside a history.
BATCH_EVENTS: Final = 16_384


def collect_arrow(
    node: PlanNode,
    history: Mapping[str, History],
    settings: Mapping[str, SourceSettings] | None = None,
    *,
    vs: str = "vs",
    ve: str | None = "ve",
) -> Any:
    """Run a query over what its sources have had, to their end; return its events as an Arrow table, by start and row.

    ``vs``, ``ve``: the columns of times, in the tables of sources and in the result (int64, in units of time). A table
    of points or edges needs no column ``ve``. With ``ve=None`` no event of a table has an end, and that of the result
    is ``ve``. ``settings``: of sources whose history is items.

    Raises UsageError for a history that is missing or of no source, InvalidRow for a table that does not fit, and what
    a run raises.
    """
    if not isinstance(history, Mapping):
        raise UsageError(
            f"history is a mapping from the name of a source to its table or items, not {type(history).__name__}"
        )
    plan = compile_plan([node])
    names = [source.label for source in plan.sources]
    if set(history) != set(names):
        raise UsageError(f"the plan has the sources {', '.join(names)}; there is history of {', '.join(history)}")
    graph, table = plan.graph(AUTO), _CollectedTable(node.schema)
    as_columns = [_takes_columns(graph, place) for place in range(len(names))]
    for place, delta in _in_order_of_time(plan.sources, history, settings or {}, vs, ve, as_columns):
        steps: list[AnyDelta] = [NOTHING_CHANGES] * len(names)
        steps[place] = delta
        (found,) = graph.advance_columns(steps)
        for error in graph.failures.values():
            raise error
        table.apply(found)
    return table.as_arrow(vs, END if ve is None else ve)


class _CollectedTable:
    """The table of a result: as columns if its batches are columns."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._rows = ResultTable()
        self._columns: Any = None  # a ``ColumnTable``

    def apply(self, delta: AnyDelta) -> None:
        """Take a batch. All that change something have one form, that of the operator."""
        if isinstance(delta, Delta):
            self._rows.apply(delta)
            return
        if self._columns is None:
            from lmerge._native import ColumnTable
            from lmerge.temporal.native.step import column_form

            self._columns = ColumnTable(column_form(self._schema))
        self._columns.apply(delta)

    def as_arrow(self, vs: str, ve: str) -> Any:
        """Return the events, as ``table_of_events`` does."""
        if self._columns is None:
            return table_of_events(self._schema, self._rows.events.elements(), vs=vs, ve=ve)
        fields = _fields(self._schema, vs, ve)
        events = self._columns.events()
        times, rows = pa.record_batch(events.times()), pa.record_batch(events.rows())
        return pa.Table.from_arrays([times["vs"], times["new"], *rows.columns], schema=fields)


def _takes_columns(graph: OperatorGraph, place: int) -> bool:
    """Whether all that reads a source takes columns."""
    readers = [step.operator for step in graph.steps if place in step.reads]
    return bool(readers) and all(isinstance(operator, ColumnOperator) for operator in readers)


def inserts_of(
    source: SourceNode, rows: ArrowRows, vs: str, ve: str | None, stable: int | None, *, as_columns: bool
) -> AnyDelta:
    """Return a batch of inserts, with ``stable`` behind them; ``vs``, ``ve``: the columns of times.

    ``as_columns``: of the native core, if it can be. Raises UsageError for what is no lifetime, and InvalidRow. All
    name the source.
    """
    if not isinstance(rows, (pa.Table, pa.RecordBatch)):
        raise UsageError(f"source {source.label!r:.64}: {type(rows).__name__} is no Arrow table and no record batch")
    try:
        return _inserts_of(source, rows, vs, ve, stable, as_columns=as_columns)
    except UsageError as error:
        error.args = (f"source {source.label!r:.64}, {error}", *error.args[1:])
        raise


def _inserts_of(
    source: SourceNode, rows: ArrowRows, vs: str, ve: str | None, stable: int | None, *, as_columns: bool
) -> AnyDelta:
    names = rows.schema.names
    if vs in names and ve is not None and ve not in names and source.shape is SourceShape.INTERVAL:
        raise UsageError(
            f"the table has no column {ve!r:.64}, so none of its events has an end: name that column (ve=), ask for "
            "events without an end (ve=None), or declare points or edges (shape=)"
        )
    if as_columns:
        from lmerge.temporal.native.arriving import column_inserts

        found = column_inserts(source, rows, vs, ve, stable)
        if found is not None:
            return found
    return Delta(_inserts(source, rows, vs, ve), stable)


def table_of_events(schema: Schema, events: Iterable[Lifetime], *, vs: str = "vs", ve: str = "ve") -> Any:
    """Return events as an Arrow table: start, end, and the columns of ``schema``; by start, row and end.

    Raises UsageError if a column has the name of a time.
    """
    fields = _fields(schema, vs, ve)
    key = order_key(schema)
    ordered = sorted(events, key=lambda one: (one.vs, key(one.row), one.ve))
    times = [
        pa.array([event.vs for event in ordered], pa.int64()),
        pa.array([event.ve for event in ordered], pa.int64()),
    ]
    columns = [pa.array([one.row[at] for one in ordered], field.type) for at, field in enumerate(arrow_schema(schema))]
    return pa.Table.from_arrays([*times, *columns], schema=fields)


def _fields(schema: Schema, vs: str, ve: str) -> Any:
    """Return the Arrow schema of events. Raises UsageError if a column has the name of a time."""
    taken = [name for name in (vs, ve) if name in schema.names]
    if taken or vs == ve:
        raise UsageError(
            f"the events have a column {(taken or [vs])[0]!r:.64}; give their times other names (vs=, ve=)"
        )
    times = [pa.field(vs, pa.int64(), nullable=False), pa.field(ve, pa.int64(), nullable=False)]
    return pa.schema([*times, *arrow_schema(schema)])


def _in_order_of_time(
    sources: Sequence[SourceNode],
    history: Mapping[str, History],
    settings: Mapping[str, SourceSettings],
    vs: str,
    ve: str | None,
    as_columns: Sequence[bool],
) -> Iterator[tuple[int, AnyDelta]]:
    """Yield the batches of all sources, with the place of each, so that no source is far ahead of another."""
    batches: list[tuple[int, int, AnyDelta]] = []
    for place, source in enumerate(sources):
        given = history[source.label]
        is_table = isinstance(given, (pa.Table, pa.RecordBatch))
        found: Iterable[AnyDelta] = _of_items(source, given, settings) if not is_table else ()
        if is_table:
            found = _of_table(source, given, vs, ve, as_columns=as_columns[place])
        reached = NEG_INF
        for delta in found:
            reached = reached if delta.stable is None else max(reached, delta.stable)
            batches.append((reached, place, delta))
    batches.sort(key=lambda batch: batch[0])
    return ((place, delta) for _, place, delta in batches)


def _of_items(source: SourceNode, items: Iterable[Item], settings: Mapping[str, SourceSettings]) -> list[Delta]:
    chosen = settings.get(source.label, SourceSettings())
    is_point = source.shape is SourceShape.POINT
    entrance = StreamEntrance(source.label, chosen.rule, chosen.late, has_points=is_point)
    checked = ItemCheck(source.label, source.schema).checked(items)
    return [*entrance.take(checked), *entrance.take([INF])]


def _of_table(source: SourceNode, table: ArrowRows, vs: str, ve: str | None, *, as_columns: bool) -> Iterable[AnyDelta]:
    inserts = inserts_of(source, table, vs, ve, None, as_columns=as_columns)
    if not isinstance(inserts, Delta):
        return inserts.in_order(BATCH_EVENTS)
    return _in_order_of_starts(sorted(inserts.changes, key=lambda change: change.vs))


def _in_order_of_starts(changes: list[Change]) -> Iterator[Delta]:
    """Yield batches of inserts, as ``ColumnDelta.in_order``."""
    for first in range(0, len(changes), BATCH_EVENTS):
        batch = changes[first : first + BATCH_EVENTS]
        following = changes[first + BATCH_EVENTS : first + BATCH_EVENTS + 1]
        if following:
            yield Delta(batch, following[0].vs, batch[-1].vs)
        else:
            # As a source that ends: windows of events without an end stop at the last finite time (D13).
            yield Delta(batch, INF, max([batch[-1].vs, *(one.new for one in changes if one.new < INF)]))
    if not changes:
        yield Delta([], INF)


def _inserts(source: SourceNode, table: ArrowRows, vs: str, ve: str | None) -> list[Change]:
    names = source.schema.names
    starts = int64_column(table, vs)
    if ve is not None and ve in table.schema.names:
        ends = int64_column(table, ve)
    else:
        ends = [start + 1 for start in starts] if source.shape is SourceShape.POINT else [INF] * len(starts)
    for at, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if start >= end or (source.shape is SourceShape.POINT and end != start + 1):
            needed = "it lasts one unit of time" if source.shape is SourceShape.POINT else "an end is behind its start"
            lifetime = f"[{show_time(start)}, {show_time(end)})"
            raise UsageError(f"row {at}: {lifetime} is no lifetime: {needed}")
    kept = [name for name in table.schema.names if name in names or name not in (vs, ve)]
    codec = RowCodec(source.schema)
    rows = RowForms(source.schema).rows_of_columns(wire_columns(codec, table.select(kept)))
    return [Change(row, start, start, end) for row, start, end in zip(rows, starts, ends, strict=True)]
