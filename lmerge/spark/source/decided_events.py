"""Computes the events on which a stream has decided, in columns: no Python object per element. Needs pyarrow.

An element adds to the number of events with some (Vs, payload, Ve), or takes from it: an insert adds one, an adjust
takes one at Vold and adds one at Ve. So the TDB of a stream is a sum, in which the order of its elements does not
matter, and Arrow can build it.

At a stable point T a part of that sum is *decided*: it is the same in every legal stream of one TDB (III.C), at any
server and under any policy, whatever other elements the stream has had so far:

* An event with Ve < T is fully frozen: it exists, with this end.
* An event with Vs < T <= Ve is half frozen: it exists, and it ends at T or later. It cannot be removed, as that would
  be an adjust to Vs, and no other event with such a Vs can be inserted. Its end can change, and two streams can have
  different ends for it.

Nothing else is decided. So rows that must be the same everywhere may depend on nothing else: see ``envelope_rows``.

Elements that are not decided wait in *runs* in order of (Ve, Vs, payload), so that the cost of settling depends only on
the number of settled events. Runs of similar size are merged: a row is sorted again a logarithmic number of times.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lmerge.client.subscribe.reader import last_stable
from lmerge.core.batch import AnyBatch
from lmerge.core.elements import ADJUST, INF, NEG_INF, STABLE
from lmerge.core.engines import selection
from lmerge.errors import InvalidBatch
from lmerge.spark.frames import arrays_of

EVENTS: Final = pa.schema([("vs", pa.int64()), ("ve", pa.int64()), ("payload", pa.binary())])
_ORDER: Final = [("ve", "ascending"), ("vs", "ascending"), ("payload", "ascending")]
_CHANGES: Final = EVENTS.append(pa.field("change", pa.int64()))
# Elements, and bytes, that are collected for one pass over them: a pass over a small batch costs more than its content.
_UNREAD_MAX: Final = 131_072
_UNREAD_BYTES_MAX: Final = 32 * 2**20
# The largest size of a run: Arrow's offsets end at 2 GiB.
_RUN_BYTES_MAX: Final = 512 * 2**20


class _Run(NamedTuple):
    """Changes in order of (Ve, Vs, payload). ``takes``: some of them are not +1."""

    table: Any
    takes: bool


class DecidedEvents:
    """The events of one stream. ``stable_point``: its last stable; ``decided_to``: the last time given to ``settle``.

    ``since``: events that end before it are not kept.
    """

    def __init__(self, since: int) -> None:
        self.since = since
        self.decided_to = since
        self.stable_point = NEG_INF
        self._decided: list[Any] = []  # tables, one after the other in Ve
        self._runs: list[_Run] = []
        self._unread: list[AnyBatch] = []
        self._unread_count = 0
        self._unread_bytes = 0

    def __len__(self) -> int:
        """Return the number of decided events that are kept."""
        return sum(int(table.num_rows) for table in self._decided)

    @property
    def bytes(self) -> int:
        """The approximate size of all that is kept."""
        tables = [*self._decided, *(run.table for run in self._runs)]
        return self._unread_bytes + sum(int(table.nbytes) for table in tables)

    def add(self, batch: AnyBatch) -> None:
        """Add the next batch of the stream."""
        if batch.count == 0:
            return
        self.stable_point = max(self.stable_point, last_stable(batch))
        self._unread.append(batch)
        self._unread_count += batch.count
        self._unread_bytes += batch.payload_sizes[0] + 24 * batch.count
        if self._unread_count >= _UNREAD_MAX or self._unread_bytes >= _UNREAD_BYTES_MAX:
            self._read()

    def settle(self, t: int) -> None:
        """Decide on the events that end before ``t``, at +inf on all. ``t`` is no later than the stable point.

        Raises InvalidBatch if the stream takes back an event that it never inserted.
        """
        assert t <= self.stable_point, "settled beyond the stable point"
        if t <= self.decided_to:
            return
        self._read()
        parts, takes, runs = [], False, []
        for run in self._runs:
            cut = _ends_before(run.table, t)
            if cut:
                parts.append(run.table.slice(0, cut))
                takes = takes or run.takes
            if cut < run.table.num_rows:
                runs.append(_Run(run.table.slice(cut), run.takes))
        table = _events(parts, takes)
        table = table.slice(_first_from(table, self.decided_to))  # a server may begin earlier than requested
        self._runs = runs
        self.decided_to = t
        if table.num_rows:
            self._decided.append(table)

    def between(self, low: int, high: int) -> Any:
        """Return decided events with low <= Ve < high (+inf: to the last), ordered by (Ve, Vs, payload)."""
        assert self.since <= low <= high <= self.decided_to, "the range is not decided, or was forgotten"
        parts = []
        for table in self._decided:
            first, last = _first_from(table, low), _ends_before(table, high)
            if first < last:
                parts.append(table.slice(first, last - first))
        return _joined(parts, EVENTS)

    def going_on(self, t: int, low: int, high: int, like: Any = None) -> Any:
        """Return events with Ve >= t and low <= Vs < high, in no order, with their present ends; none at +inf.

        These are all such events if ``high`` is no later than the stable point. ``like``: return only those whose Vs
        and whose payload occur in this table.
        """
        if t == INF:
            return EVENTS.empty_table()
        self._read()
        decided = [table.slice(_first_from(table, t)) for table in self._decided]
        changes = [run.table.slice(_first_from(run.table, t)) for run in self._runs]
        takes = any(run.takes for run in self._runs)
        chosen = [_started(table, low, high, like) for table in decided]
        return _joined([*chosen, _events([_started(table, low, high, like) for table in changes], takes)], EVENTS)

    def forget(self, before: int) -> None:
        """Drop the events that end before ``before``. They must not be requested any more."""
        if before > self.since:
            kept = [table.slice(_ends_before(table, before)) for table in self._decided]
            self._decided = [table for table in kept if table.num_rows]
            self.since = before

    def _read(self) -> None:
        """Make a run of the batches that were added."""
        if not self._unread:
            return
        batches, rows, size = self._unread, self._unread_count, self._unread_bytes
        self._unread, self._unread_count, self._unread_bytes = [], 0, 0
        parts = []
        takes = any(batch.counts(batch.count)[1] for batch in batches)
        while self._runs and _are_alike(self._runs[-1], rows, size):
            before = self._runs.pop()
            parts.append(before.table)
            takes, rows, size = takes or before.takes, rows + before.table.num_rows, size + before.table.nbytes
        table = _in_order(parts[::-1], batches, adds_up=takes)
        if table.num_rows:
            self._runs.append(_Run(table, takes and bool(pc.any(pc.not_equal(table.column("change"), 1)).as_py())))


def _changes_of(batch: AnyBatch) -> list[Any]:
    kind, vs, ve, vold, payload = arrays_of(batch)
    is_there = pc.and_(pc.not_equal(kind, STABLE), pc.greater(ve, vs))
    was_there = pc.and_(pc.equal(kind, ADJUST), pc.greater(vold, vs))
    return [_changes(vs, ve, payload, 1).filter(is_there), _changes(vs, vold, payload, -1).filter(was_there)]


def _changes(vs: Any, ve: Any, payload: Any, change: int) -> Any:
    return pa.table([vs, ve, payload, pa.repeat(pa.scalar(change, pa.int64()), len(vs))], schema=_CHANGES)


def _are_alike(before: _Run, rows: int, size: int) -> bool:
    """Whether a run should be merged with changes of so many rows and bytes."""
    return bool(before.table.num_rows <= 2 * rows and before.table.nbytes + size <= _RUN_BYTES_MAX)


def _in_order(tables: Sequence[Any], batches: Sequence[AnyBatch] = (), *, adds_up: bool) -> Any:
    """Return these changes, and those that the elements of batches make, in order.

    ``adds_up``: one row for each (Vs, payload, Ve), the sum; none that is 0.
    """
    if selection.best() == selection.NATIVE:
        from lmerge import _native
        from lmerge.core.engines.native_engine import columns_of

        parts = [part for table in tables for part in table.to_batches()]
        found = _native.event_changes([columns_of("stream", batch) for batch in batches], parts, adds_up)
        if found is not None:
            return pa.Table.from_batches([pa.record_batch(found)])
    table = _joined([*tables, *(part for batch in batches for part in _changes_of(batch))], _CHANGES)
    if adds_up:
        sums = table.group_by(["vs", "ve", "payload"], use_threads=False).aggregate([("change", "sum")])
        sums = sums.select(["vs", "ve", "payload", "change_sum"]).rename_columns(_CHANGES.names)
        table = sums.filter(pc.not_equal(sums.column("change"), 0))
    return table.sort_by(_ORDER)


def _events(parts: Sequence[Any], takes: bool) -> Any:
    """Return the events that changes leave, each as often as it exists, in order. ``parts`` are in order."""
    if not takes and len(parts) <= 1:
        return _joined(parts, _CHANGES).select(EVENTS.names)
    table = _in_order(parts, adds_up=takes)
    events = table.select(EVENTS.names)
    if not takes or not table.num_rows:
        return events
    counts = table.column("change")
    bounds = pc.min_max(counts).as_py()
    if bounds["min"] < 0:
        raise InvalidBatch("the stream takes back an event that it never inserted; no server sends such a stream")
    if bounds["max"] == 1:
        return events
    each = [events.filter(pc.greater_equal(counts, n)) for n in range(1, bounds["max"] + 1)]
    return pa.concat_tables(each).sort_by(_ORDER)


def _started(table: Any, low: int, high: int, like: Any) -> Any:
    vs = table.column("vs")
    mask = pc.less(vs, high)
    if low > NEG_INF:
        mask = pc.and_(mask, pc.greater_equal(vs, low))
    table = table.filter(mask)
    for name in ("vs", "payload") if like is not None else ():
        table = table.filter(pc.is_in(table.column(name), value_set=like.column(name).combine_chunks()))
    return table


def _joined(parts: Sequence[Any], schema: Any) -> Any:
    return pa.concat_tables(parts) if parts else schema.empty_table()


class _Ends:
    """The column Ve as a sequence for bisect."""

    def __init__(self, table: Any) -> None:
        self._column = table.column("ve")

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, at: int) -> int:
        return int(self._column[at].as_py())


def _first_from(table: Any, t: int) -> int:
    """Return the first row with Ve >= t of a table in order of Ve."""
    return 0 if t == NEG_INF else bisect_left(_Ends(table), t)


def _ends_before(table: Any, t: int) -> int:
    """Return how many rows have Ve < t. At +inf return all, as nothing can follow."""
    return int(table.num_rows) if t == INF else bisect_left(_Ends(table), t)
