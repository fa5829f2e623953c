"""The rows that a query reads of a merge between two times. They depend on the TDB and the two times, nothing else.

A batch of a streaming query is a range: what was decided from ``start`` to ``end``. Spark writes the two times into
its checkpoint. It may ask for the same range again, after a failed task, after a restart, or at another server, which
revised its events in another way and may show them by another policy. The rows must be the same each time, or a restart
is not exactly once. So they hold only what is decided at ``end`` (``decided_events``): which events have Vs < end, and
the ends of those with Ve < end. An event that continues at ``end`` has no end here, because streams differ in it.

============  =========================================================================================================
``final``     a row for each event with start <= Ve < end
``upsert``    a row for each event that has begun (start <= Vs < end), and again, under the same key, for each that has
              ended (start <= Ve < end; then ``is_final``). Nothing is ever deleted: what begins is half frozen
``elements``  insert(p, Vs, Ve) for an event that has begun and ended, insert(p, Vs, inf) for one that has begun;
              adjust(p, Vs, inf, Ve) for one that had begun before and has ended; then stable(end). That is a legal
              stream, whatever the ranges: every insert has Vs >= start, every adjust Vold and Ve >= start
``frames``    the same elements, many in each row: see ``frame_rows``
``table``     a row for each event with Vs < end and start <= Ve: what a batch query reads
============  =========================================================================================================

A batch query reads one range, once, and needs the present state. With ``current_ends`` an event that continues has the
end that the server has now. Only this is not the same everywhere.

The rows of all ranges together reconstitute to the TDB. The rows of ``final``, and the final rows of ``upsert``, are
its events. A range that is ``fresh`` begins a query: events that began before its start and continue there begin with
it.

A range can be read in slices. Every event belongs to the slice [low, high) of its end, and an event that continues
belongs to the last slice. So a slice needs the stream from low (a resume token) to high. Neither a row nor the order,
(end, Vs, payload), depends on how a range was sliced.

Keys of ``upsert``: (Vs, payload, ordinal). The ordinal is 0, except among equal events: there the one that ends last
has 0, as in ``client.subscribe.envelopes``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lmerge.core.elements import INF, NEG_INF
from lmerge.spark.source import frame_rows
from lmerge.spark.source.decided_events import EVENTS, DecidedEvents

FINAL: Final = "final"
UPSERT: Final = "upsert"
ELEMENTS: Final = "elements"
TABLE: Final = "table"
FRAMES: Final = "frames"
ENVELOPES: Final = (FINAL, UPSERT, ELEMENTS, FRAMES)

INSERT: Final = "insert"
ADJUST: Final = "adjust"
STABLE: Final = "stable"

# The columns of each envelope beside the payload, in order.
OWN_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    FINAL: ("vs", "ve"),
    UPSERT: ("vs", "ve", "ordinal", "is_final"),
    ELEMENTS: ("kind", "vs", "ve", "vold"),
    FRAMES: ("frame", "elements", "order"),
    TABLE: ("vs", "ve"),
}
_TYPES: Final[dict[str, Any]] = {
    "kind": pa.string(),
    "vs": pa.int64(),
    "ve": pa.int64(),
    "vold": pa.int64(),
    "ordinal": pa.int64(),
    "is_final": pa.bool_(),
    "payload": pa.binary(),
}
_NO_TIME: Final = pa.scalar(None, pa.int64())


@dataclass(frozen=True)
class Range:
    """A range of time. ``fresh``: nothing was read before. ``current_ends``: see above."""

    start: int
    end: int
    fresh: bool = False
    current_ends: bool = False

    @property
    def begun_from(self) -> int:
        """The smallest Vs of events that begin in this range."""
        return NEG_INF if self.fresh else self.start


def row_schema(envelope: str) -> Any:
    """Return the columns of ``rows``. Times are int64. An end that is not decided is +inf; a missing value is null."""
    if envelope == FRAMES:
        return frame_rows.ROWS
    return pa.schema([pa.field(name, _TYPES[name]) for name in ("payload", *OWN_COLUMNS[envelope])])


def rows(envelope: str, requested: Range, events: DecidedEvents, low: int, high: int, *, is_last: bool) -> Any:
    """Return the rows of a slice, in order, from events decided to ``high``. ``is_last``: ``high`` is the end."""
    ended = events.between(low, high)
    goes_on = EVENTS.empty_table()
    if is_last and envelope != FINAL:
        goes_on = events.going_on(high, requested.begun_from, high)
        goes_on = goes_on.sort_by([("vs", "ascending"), ("payload", "ascending"), ("ve", "ascending")])
        if not requested.current_ends:
            goes_on = _set(goes_on, "ve", INF)
    if envelope == UPSERT:
        tables = _upserts(ended, goes_on, events, high)
    elif envelope in (ELEMENTS, FRAMES):
        tables = _elements(requested, ended, goes_on, is_last=is_last and envelope == ELEMENTS)
    else:
        tables = [ended, goes_on]
    schema = row_schema(ELEMENTS if envelope == FRAMES else envelope)
    table = pa.concat_tables([table.select(schema.names).cast(schema) for table in tables])
    if envelope == FRAMES:
        return frame_rows.frames_of(table, requested.start, requested.end, is_last=is_last)
    return table


def fitting_end(envelope: str, requested: Range, events: DecidedEvents, rows_max: int) -> int:
    """Return the latest end, up to ``requested.end``, at which the range has no more than ``rows_max`` rows.

    A moment is never split, so one that has more rows is a range of its own. The events with which a fresh range
    begins, and the stable of ``elements``, are not counted.
    """
    ended = events.between(requested.start, requested.end)
    times = ended.column("ve")
    if envelope in (UPSERT, ELEMENTS, FRAMES):  # each event has a row when it begins, unless it ends in the same range
        begun = ended.column("vs").filter(pc.greater_equal(ended.column("vs"), requested.start))
        goes_on = events.going_on(requested.end, requested.start, requested.end)
        times = pa.chunked_array([*times.chunks, *begun.chunks, *goes_on.column("vs").chunks], pa.int64())
    if len(times) <= rows_max:
        return requested.end
    times = times.take(pc.array_sort_indices(times)) if envelope != FINAL else times
    first, beyond = times[0].as_py(), times[rows_max].as_py()
    if beyond == INF > first:
        return INF - 1  # +inf, of events that never end, is a moment too
    return int(beyond if beyond > first else min(first + 1, requested.end))


def _elements(requested: Range, ended: Any, goes_on: Any, *, is_last: bool) -> list[Any]:
    """Return the elements (III.A) of a stream that publishes each end only when it is final."""
    has_begun = pc.greater_equal(ended.column("vs"), requested.begun_from)
    ended = ended.append_column("kind", pc.if_else(has_begun, INSERT, ADJUST))
    ended = ended.append_column("vold", pc.if_else(has_begun, _NO_TIME, pa.scalar(INF, pa.int64())))
    # At the end of the stream an event that never ends is final. Its insert has published that already.
    ended = ended.filter(pc.or_(has_begun, pc.less(ended.column("ve"), INF)))
    tables = [ended, _set(_set(goes_on, "kind", INSERT), "vold", _NO_TIME)]
    if is_last:
        tables.append(
            pa.table(
                {"payload": [None], "kind": [STABLE], "vs": [requested.end], "ve": [None], "vold": [None]},
                schema=row_schema(ELEMENTS),
            )
        )
    return tables


def _upserts(ended: Any, goes_on: Any, events: DecidedEvents, high: int) -> list[Any]:
    later = events.going_on(high, NEG_INF, high, ended) if ended.num_rows else EVENTS.empty_table()
    ordinals = _ordinals(ended, Counter(_keys(later)))
    numbers = _ordinals(goes_on, Counter())  # equal ones begin together, so all of them are here
    return [
        _set(ended, "is_final", True).append_column("ordinal", ordinals),
        _set(goes_on, "is_final", False).append_column("ordinal", numbers),
    ]


def _ordinals(events: Any, later: Counter[tuple[int, bytes]]) -> Any:
    """Return how many events of the same key end after each: those in ``later``, and those that follow here."""
    if not later and not _has_equals(events):
        return pa.array([0] * events.num_rows, pa.int64())
    ordinals = []
    for key in reversed(_keys(events)):
        ordinals.append(later[key])
        later[key] += 1
    return pa.array(ordinals[::-1], pa.int64())


def _has_equals(events: Any) -> bool:
    keys = events.select(["vs", "payload"]).group_by(["vs", "payload"], use_threads=False).aggregate([])
    return bool(keys.num_rows < events.num_rows)


def _keys(events: Any) -> list[tuple[int, bytes]]:
    return list(zip(events.column("vs").to_pylist(), events.column("payload").to_pylist()))


def _set(table: Any, name: str, value: Any) -> Any:
    """Return the table with a column of one value."""
    column = pa.repeat(value if isinstance(value, pa.Scalar) else pa.scalar(value, _TYPES[name]), table.num_rows)
    at = table.schema.get_field_index(name)
    return table.append_column(name, column) if at < 0 else table.set_column(at, name, column)
