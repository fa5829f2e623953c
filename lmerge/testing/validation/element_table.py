"""The elements of recorded streams as one Arrow table, with what came before each of them.

A row is an element: ``stream`` (its number), ``place`` (its line or index, from 1), ``kind`` (0 insert, 1 adjust,
2 stable), ``payload``, ``vs`` (of a stable: its Vc), ``vold``, ``ve``, then ``stable_before``, the largest stable of
its stream before it, and ``start_before``, the largest Vs that its stream has inserted before it. Both are NULL while
there is none.

The table ``unknown`` has the adjusts of events that are not there: ``stream``, ``place``, ``payload``, ``vs`` and
``event_end``, the Vold. The view ``changes`` has the ends that elements give (``step`` 1) and take away (-1). There an
unknown event comes into being with its adjust, so no sum of steps is negative, and the event ends where the adjust put
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lmerge.core.batch import Batch, Row
from lmerge.core.elements import INSERT, NEG_INF, STABLE, Element
from lmerge.core.properties import NOTHING, Properties

ELEMENT_FIELDS: Final = (
    ("place", pa.int64()),
    ("kind", pa.int8()),
    ("payload", pa.binary()),
    ("vs", pa.int64()),
    ("vold", pa.int64()),
    ("ve", pa.int64()),
)
ELEMENTS: Final = pa.schema(ELEMENT_FIELDS)

_GIVEN: Final = "SELECT stream, place, payload, vs, ve AS event_end FROM elements WHERE kind < 2 AND ve > vs"
_TAKEN: Final = "SELECT stream, place, payload, vs, vold AS event_end FROM elements WHERE kind = 1"
_BY: Final = "stream, payload, vs, event_end"
# The ends that may have been taken away before they were there. Most are taken once, after they were given: a join
# finds that, which takes a quarter of the time of counting all (bench/verify.py).
_SUSPECTS: Final = f"""
WITH taken AS (SELECT {_BY}, min(place) AS first, count(*) AS times FROM ({_TAKEN}) GROUP BY ALL)
SELECT {_BY} FROM taken WHERE times > 1
UNION ALL SELECT {_BY} FROM taken AS t ANTI JOIN elements AS e
ON e.stream = t.stream AND e.payload = t.payload AND e.vs = t.vs AND e.ve = t.event_end
AND e.kind < 2 AND e.ve > e.vs AND e.place < t.first"""
# An end that is taken away before it is there makes the count fall to a new minimum below zero.
_UNKNOWN: Final = f"""
WITH suspects AS ({_SUSPECTS}),
steps AS (SELECT *, 1 AS step FROM ({_GIVEN}) UNION ALL SELECT *, -1 FROM ({_TAKEN})),
counted AS (
    SELECT *, sum(step) OVER (PARTITION BY {_BY} ORDER BY place, step ROWS UNBOUNDED PRECEDING) AS there
    FROM steps SEMI JOIN suspects USING ({_BY})
),
fallen AS (
    SELECT *, coalesce(min(there) OVER (
        PARTITION BY {_BY} ORDER BY place, step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), 0) AS least_before FROM counted
)
SELECT stream, place, payload, vs, event_end FROM fallen WHERE there < least(0, least_before)"""
_CHANGES: Final = f"""
SELECT *, 1 AS step FROM ({_GIVEN})
UNION ALL SELECT *, -1 FROM ({_TAKEN})
UNION ALL SELECT stream, place, payload, vs, event_end, 1 FROM unknown"""


@dataclass(frozen=True)
class RecordedStream:
    """One stream: the elements between an attach and the next one of its input, or those of a whole file.

    ``name``: empty for a file without inputs. ``elements``: a table with the columns of ``ELEMENTS``, in the order of
    the places. ``join_at``: the stream is right for events with Ve >= this. ``is_replaced``: its input attached again.
    """

    name: str
    elements: pa.Table
    promises: Properties = NOTHING
    join_at: int = NEG_INF
    is_replaced: bool = False


def stream_of(elements: Iterable[Element], name: str = "stream", promises: Properties = NOTHING) -> RecordedStream:
    """Return the stream of elements in memory."""
    rows = [(place, *row) for place, row in enumerate(Batch.of(elements).rows(), 1)]
    return RecordedStream(name, table_of_rows(rows), promises)


def table_of_rows(rows: Sequence[tuple[int, int, int, int, int, bytes]]) -> pa.Table:
    """Return the table of rows: a place, then an element as the core has it (kind, vs, ve, vold, payload)."""
    columns: list[Sequence[Any]] = [*zip(*rows)] if rows else [()] * 6
    place, kind, vs, ve, vold, payload = columns
    in_order = (place, kind, payload, vs, vold, ve)
    return pa.table([pa.array(values, field.type) for values, field in zip(in_order, ELEMENTS)], schema=ELEMENTS)


def row_at(found: dict[str, Any]) -> Row:
    """Return an element of the table as the core has it."""
    return found["kind"], found["vs"], found["ve"], found["vold"], found["payload"]


def element_table(streams: Sequence[RecordedStream]) -> pa.Table:
    """Return the elements of all streams, with their stream's number and what came before them."""
    return pa.concat_tables([_numbered(number, stream.elements) for number, stream in enumerate(streams)])


def _numbered(number: int, elements: pa.Table) -> pa.Table:
    numbers = pa.repeat(pa.scalar(number, pa.int32()), len(elements))
    stables = _largest_before(elements, STABLE)
    starts = _largest_before(elements, INSERT)
    return (
        elements.add_column(0, "stream", numbers)
        .append_column("stable_before", stables)
        .append_column("start_before", starts)
    )


def _largest_before(elements: pa.Table, kind: int) -> pa.Array:
    """Return for each element the largest ``vs`` of the elements of a kind before it."""
    is_kind = pc.equal(elements["kind"], kind)
    times = pc.if_else(is_kind, elements["vs"], pa.scalar(None, pa.int64()))
    largest = pc.fill_null_forward(pc.cumulative_max(times.combine_chunks(), skip_nulls=True))
    return pa.concat_arrays([pa.nulls(1, pa.int64()), largest])[: len(elements)]


def load(database: Any, streams: Sequence[RecordedStream]) -> None:
    """Make the tables ``elements`` and ``unknown`` and the view ``changes`` in a DuckDB. ``elements`` is not copied."""
    database.register("elements", element_table(streams))
    database.execute(f"CREATE TEMP TABLE unknown AS {_UNKNOWN}")
    database.execute(f"CREATE TEMP VIEW changes AS {_CHANGES}")
