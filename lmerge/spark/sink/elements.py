"""Converts the rows of a partition, as Arrow record batches, into elements. Executors call this.

=============  =======================================================================================================
mode           what a row is
=============  =======================================================================================================
``append``     an event: insert(p, Vs, Ve)
``update``     what its key is now: adjust(old, Ve -> Vs) and insert(new) if a key's row has changed; adjust(p, Ve) if
               only the end has; nothing if it is the same. One row a key and batch; of several the last counts
``intervals``  a start, an end or an abort, see ``intervals``. A column ``kind`` gives which of the three; without one a
               null in ``vs`` means an end, and a null in ``ve`` means a start
``elements``   an element: columns kind (insert, adjust, stable), payload, vs, ve, vold. A stable has its Vc in vs. It
               is not published here, but at the end of the whole batch
``frames``     many elements in the column frame, with the same rules; or in the column report how far a shard of a
               merge has come (``lmerge.spark.frames``)
=============  =======================================================================================================

A null in ``ve`` (and in ``vold``) is +inf. A row is *late* if no legal stream can publish it any more, because the
stable point has passed it. With ``fail`` late rows raise InputViolation, which names the first of them; with ``drop``
they are left out and counted. Let S be the stable point published before the batch. An insert is late if Vs < S, an
adjust if its old or new end < S. A stable of this batch does not count, as it is published after all of the batch.

A change of a key is refused as a whole if either half of it is late. So what was published for the key stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lmerge.core.batch import EMPTY, AnyBatch, BatchBuilder, Row
from lmerge.core.elements import ADJUST, INF, INSERT, NEG_INF, STABLE, show_time
from lmerge.errors import InputViolation, InvalidBatch, InvalidRow, UsageError
from lmerge.spark.frames import Report, arrays_of, from_frame
from lmerge.spark.options import APPEND, ELEMENTS, ENVELOPES, FAIL, KEYED, MODES, UPDATE
from lmerge.spark.sink import columns, intervals
from lmerge.spark.spool.published_state import PublishedState
from lmerge.wire.arrow import encode_table, insert_columns, schema_of
from lmerge.wire.rows import RowCodec, row_formatter
from lmerge.wire.schema import Schema

KIND_NAMES: Final = ("insert", "adjust", "stable")  # in the order of their numbers
MARK_NAMES: Final = ("start", "end", "abort")


@dataclass(frozen=True)
class RowPlan:
    """How rows become elements.

    ``schema``: of the payload (not for mode ``elements``). ``vs``, ``ve``, ``kind``: names of columns. ``keys``: the
    columns of the key. ``name``: the stream's, for messages. ``raw``: the column that holds the payload's bytes, where
    there is no schema.
    """

    mode: str
    schema: Schema | None = None
    vs: str = "vs"
    ve: str | None = None
    keys: tuple[str, ...] = ()
    kind: str | None = None
    late: str = FAIL
    name: str = "stream"
    raw: str | None = None

    @property
    def is_keyed(self) -> bool:
        """Whether the elements of a row depend on what was published before for its key."""
        return self.mode in KEYED


@dataclass
class RowTally:
    """The number of rows converted, and of those without elements.

    ``unmatched``: ends whose start never came. ``unneeded``: events that end before the time to which the query skips.
    """

    rows: int = 0
    late: int = 0
    first_late: str = ""
    unmatched: int = 0
    unneeded: int = 0

    def add(self, other: RowTally) -> None:
        """Add the counts of another tally."""
        self.rows += other.rows
        self.late += other.late
        self.first_late = self.first_late or other.first_late
        self.unmatched += other.unmatched
        self.unneeded += other.unneeded


class RowConverter(Protocol):
    """Converts rows into elements.

    ``stable``: the largest stable among the rows; None: there is none. ``reports``: those of shards of a merge.
    """

    tally: RowTally
    stable: int | None
    reports: list[Report]

    def parts(self, rows: Any) -> Iterable[Any]:
        """Return a record batch in the parts that ``take`` takes."""

    def take(self, rows: Any) -> AnyBatch:
        """Return the elements of a record batch. Raises InvalidRow, InputViolation (a late row)."""

    def kept(self, value: Any) -> Any:
        """Return the part of a key's entry that can still change, or None."""


def converter_of(
    plan: RowPlan, stable: int, state: PublishedState | None = None, skipped: int = NEG_INF
) -> RowConverter:
    """Return the converter for the rows of a partition. Raises UsageError.

    ``stable``: the stable point published before the batch. ``state``: what was published for the keys. ``skipped``:
    events that end before it are left out.
    """
    if plan.mode not in MODES:
        raise UsageError(f"unknown mode {plan.mode!r:.40}; it is {', '.join(MODES)}")
    if plan.mode not in ENVELOPES and plan.schema is None and plan.raw is None:
        raise UsageError(f"mode {plan.mode} needs the schema of the payload")
    if plan.is_keyed and (not plan.keys or state is None):
        raise UsageError(f"mode {plan.mode} needs keys, and the state of what was published for them")
    if plan.mode == APPEND:
        return AppendConverter(plan, stable, skipped)
    if plan.mode in ENVELOPES:
        return ElementConverter(plan, stable) if plan.mode == ELEMENTS else FrameConverter(plan, stable)
    assert state is not None
    keyed = UpdateConverter if plan.mode == UPDATE else IntervalConverter
    return keyed(plan, stable, state, skipped)


class _Converter:
    """The common part of all converters: the stable point, and the handling of late and of unneeded rows."""

    def __init__(self, plan: RowPlan, stable: int, skipped: int = NEG_INF) -> None:
        self.plan = plan
        self._skipped = skipped
        self.tally = RowTally()
        self.stable: int | None = None
        self.reports: list[Report] = []
        self._published_stable = stable
        self._codec = None if plan.schema is None else RowCodec(plan.schema)

    def parts(self, rows: Any) -> Iterable[Any]:
        """Return the batch as it is."""
        return (rows,)

    def kept(self, value: Any) -> Any:
        """Without keys nothing is kept."""
        return None

    def _needed(self, rows: Any, vs: Any, ve: Any) -> tuple[Any, Any, Any]:
        """Return the rows that are still needed. The rows are whole events, so their ends are final."""
        if self._skipped == NEG_INF:
            return rows, vs, ve
        needed = pc.greater_equal(ve, self._skipped)
        rows, vs, ve, before = rows.filter(needed), vs.filter(needed), ve.filter(needed), rows.num_rows
        self.tally.unneeded += before - rows.num_rows
        return rows, vs, ve

    def _handle_late(self, row: Row, count: int) -> None:
        """Count ``count`` late rows, of which ``row`` is the first. Raises InputViolation if late rows are errors."""
        if not self.tally.late:
            self.tally.first_late = self._shown(row)
        self.tally.late += count
        if self.plan.late == FAIL:
            raise self._late(row, count)

    def _late(self, row: Row, count: int) -> InputViolation:
        stable = show_time(self._published_stable)
        others = f", and {count - 1} of the next rows as well" if count > 1 else ""
        return InputViolation(
            "late-row",
            self.plan.name,
            self._shown(row),
            f"nothing below its own stable({stable})",
            f"this row came after it{others}; a larger stable_lag lets it in, and late='drop' leaves it out",
        )

    def _shown(self, row: Row) -> str:
        """Return a row as an element for messages. Where there is a schema its columns are shown by name."""
        kind, vs, ve, vold, payload = row
        payload_text = row_formatter(None if self.plan.schema is None else self.plan.schema.to_message())(payload)
        times = (vs, ve) if kind == INSERT else (vs, vold, ve)
        return f"{KIND_NAMES[kind]}({', '.join([payload_text, *map(show_time, times)])})"

    def _payloads(self, rows: Any) -> list[bytes]:
        if self._codec is None:
            payloads: list[bytes] = self._raw(rows).to_pylist()
            return payloads
        return encode_table(self._codec, rows.select(self._codec.schema.names))

    def _raw(self, rows: Any) -> Any:
        """Return the column that holds the payload's bytes. Raises InvalidRow."""
        assert self.plan.raw is not None
        name = self.plan.raw
        return columns.binary(columns.without_nulls(columns.column_of(rows, name), name))


class AppendConverter(_Converter):
    """Mode ``append``."""

    def take(self, rows: Any) -> AnyBatch:
        """See ``RowConverter``."""
        self.tally.rows += rows.num_rows
        vs = columns.without_nulls(columns.times_of(rows, self.plan.vs), self.plan.vs)
        ve = columns.ends_of(rows, self.plan.ve)
        columns.check_order(vs, ve)
        rows, vs, ve = self._needed(rows, vs, ve)
        if self._published_stable > NEG_INF:
            late = pc.less(vs, self._published_stable)
            first = columns.first_true(late)
            if first is not None:
                row = (INSERT, vs[first].as_py(), ve[first].as_py(), 0, self._payloads(rows.slice(first, 1))[0])
                self._handle_late(row, pc.sum(late).as_py())
                on_time = pc.invert(late)
                rows, vs, ve = rows.filter(on_time), vs.filter(on_time), ve.filter(on_time)
        if not rows.num_rows:
            return EMPTY
        return self._inserts(rows, vs, ve)

    def _inserts(self, rows: Any, vs: Any, ve: Any) -> AnyBatch:
        """Return an insert for each row, from columns to columns. Raises InvalidRow."""
        if self._codec is None:
            return columns.batch_of(bytes([INSERT]) * rows.num_rows, vs, ve, None, self._raw(rows))
        names = self._codec.schema.names
        timed = rows.select(names)
        start, end = (columns.unlike(name, names) for name in ("vs", "ve"))
        for name, times in ((start, vs), (end, ve)):
            timed = timed.append_column(name, times)
        return insert_columns(self._codec, timed, start, end)


class _WholeElementConverter(_Converter):
    """The modes in which rows hold elements."""

    def _note_stables(self, stables: Any) -> None:
        """Note the largest of a column of stables."""
        stable = pc.max(stables).as_py()
        if stable is not None:
            self.stable = stable if self.stable is None else max(self.stable, stable)

    def _late_mask(self, kinds: Any, vs: Any, ve: Any, vold: Any) -> Any | None:
        """Find the late elements; None: there is none."""
        stable = self._published_stable
        if stable == NEG_INF:
            return None
        adjust = pc.or_(pc.less(ve, stable), pc.less(vold, stable))
        late = pc.if_else(pc.equal(kinds, INSERT), pc.less(vs, stable), adjust)
        return late if pc.any(late).as_py() else None

    def _on_time(self, late: Any, arrays: Sequence[Any]) -> list[Any]:
        """Return the columns of elements without the late ones. Raises InputViolation if late rows are errors."""
        first = columns.first_true(late)
        kind, vs, ve, vold, payload = (column[first].as_py() for column in arrays)
        self._handle_late((kind, vs, ve, vold, payload), pc.sum(late).as_py())
        on_time = pc.invert(late)
        return [column.filter(on_time) for column in arrays]


class ElementConverter(_WholeElementConverter):
    """Mode ``elements``."""

    def take(self, rows: Any) -> AnyBatch:
        """See ``RowConverter``."""
        self.tally.rows += rows.num_rows
        if not rows.num_rows:
            return EMPTY
        kinds = self._kinds(rows)
        vs = columns.without_nulls(columns.times_of(rows, "vs"), "vs")
        is_stable = pc.equal(kinds, STABLE)
        if pc.any(is_stable).as_py():
            self._note_stables(vs.filter(is_stable))
            is_event = pc.invert(is_stable)
            rows, kinds, vs = rows.filter(is_event), kinds.filter(is_event), vs.filter(is_event)
        if not rows.num_rows:
            return EMPTY
        ve = columns.ends_of(rows, "ve")
        columns.check_order(vs, ve)
        vold = self._old_ends(rows, kinds)
        payloads = columns.binary(columns.without_nulls(columns.column_of(rows, "payload"), "payload"))
        late = self._late_mask(kinds, vs, ve, vold)
        if late is not None:
            kinds, vs, ve, vold, payloads = self._on_time(late, (kinds, vs, ve, vold, payloads))
        return _batch_of(kinds, vs, ve, vold, payloads)

    def _kinds(self, rows: Any) -> Any:
        return columns.numbered(rows, "kind", KIND_NAMES)

    def _old_ends(self, rows: Any, kinds: Any) -> Any:
        """Return the column of old ends: +inf where an adjust has none, 0 for inserts."""
        if "vold" not in rows.schema.names and not pc.any(pc.equal(kinds, ADJUST)).as_py():
            return columns.constant(0, rows.num_rows)
        return pc.if_else(pc.equal(kinds, ADJUST), columns.ends_of(rows, "vold"), 0)


class FrameConverter(_WholeElementConverter):
    """Mode ``frames``."""

    def parts(self, rows: Any) -> Iterable[Any]:
        """Return the rows one by one: each frame is a batch of elements."""
        return (rows.slice(at, 1) for at in range(rows.num_rows))

    def take(self, rows: Any) -> AnyBatch:
        """Return the inserts and adjusts of the frame in a row that are not late. See ``RowConverter``."""
        frame = columns.column_of(rows, "frame")[0].as_py()
        report = rows.column("report")[0].as_py() if "report" in rows.schema.names else None
        if report is not None:
            self.reports.append(Report(**report))
            return EMPTY
        if frame is None:
            raise InvalidRow("a row has neither a frame nor a report")
        try:
            batch = from_frame(frame)
        except InvalidBatch as problem:
            raise InvalidRow(f"a row, column 'frame': {problem}") from problem
        self.tally.rows += batch.count
        has_stables = batch.counts(batch.count)[2] > 0
        arrays = arrays_of(batch)
        if has_stables:
            is_stable = pc.equal(arrays[0], STABLE)
            self._note_stables(arrays[1].filter(is_stable))
            is_event = pc.invert(is_stable)
            arrays = [column.filter(is_event) for column in arrays]
        kinds, vs, ve, vold, _ = arrays
        columns.check_order(vs, ve)
        late = self._late_mask(kinds, vs, ve, vold)
        if late is None and not has_stables:
            return batch
        return _batch_of(*(arrays if late is None else self._on_time(late, arrays)))


def _batch_of(kinds: Any, vs: Any, ve: Any, vold: Any, payloads: Any) -> AnyBatch:
    data = columns.bytes_of(kinds)
    return columns.batch_of(data, vs, ve, vold if ADJUST in data else None, payloads) if data else EMPTY


class _KeyedConverter(_Converter):
    """The modes with a keyed state."""

    def __init__(self, plan: RowPlan, stable: int, state: PublishedState, skipped: int = NEG_INF) -> None:
        super().__init__(plan, stable, skipped)
        self._state = state
        self._key_codec: RowCodec | None = None

    def _keys(self, rows: Any) -> list[bytes]:
        """Return the keys of the rows, as the bytes of their canonical form."""
        names = list(self.plan.keys)
        if self._key_codec is None:
            declared = {column.name: column for column in self.plan.schema.columns} if self.plan.schema else {}
            fields = [declared[name] if name in declared else _inferred(rows, name) for name in names]
            self._key_codec = RowCodec(Schema(tuple(fields)))
        return encode_table(self._key_codec, rows.select(names))


class UpdateConverter(_KeyedConverter):
    """Mode ``update``. An entry is (Vs, Ve, payload) of the published event."""

    def take(self, rows: Any) -> AnyBatch:
        """See ``RowConverter``."""
        self.tally.rows += rows.num_rows
        if not rows.num_rows:
            return EMPTY
        starts = columns.without_nulls(columns.times_of(rows, self.plan.vs), self.plan.vs)
        ends = columns.ends_of(rows, self.plan.ve)
        columns.check_order(starts, ends)
        rows, starts, ends = self._needed(rows, starts, ends)
        keyed_rows = zip(self._keys(rows), columns.ints(starts), columns.ints(ends), self._payloads(rows))
        builder = BatchBuilder()
        emit, stable = builder.rows.append, self._published_stable
        entries, changes = self._state.entries, self._state.changes
        for key, vs, ve, payload in keyed_rows:
            old = changes[key] if key in changes else entries.get(key)
            if old is None or old[1] < stable:  # nothing was published, or its event is frozen
                if vs < stable:
                    self._handle_late((INSERT, vs, ve, 0, payload), 1)
                elif ve > vs:
                    emit((INSERT, vs, ve, 0, payload))
                    changes[key] = (vs, ve, payload)
                continue
            old_vs, old_ve, old_payload = old
            if vs == old_vs and payload == old_payload:
                if ve == old_ve:
                    continue
                if ve < stable:
                    self._handle_late((ADJUST, vs, ve, old_ve, payload), 1)
                    continue
                emit((ADJUST, vs, ve, old_ve, payload))
            elif vs < stable:
                self._handle_late((INSERT, vs, ve, 0, payload), 1)
                continue
            elif old_vs < stable:
                self._handle_late((ADJUST, old_vs, old_vs, old_ve, old_payload), 1)
                continue
            else:
                emit((ADJUST, old_vs, old_vs, old_ve, old_payload))
                if ve > vs:
                    emit((INSERT, vs, ve, 0, payload))
            changes[key] = (vs, ve, payload) if ve > vs else None
        return builder.build()

    def kept(self, value: Any) -> Any:
        """Return the entry of an event that is not fully frozen and that is still needed."""
        return value if value[1] >= max(self._published_stable, self._skipped) else None


class IntervalConverter(_KeyedConverter):
    """Mode ``intervals``. An entry is the key's marks, in order."""

    def take(self, rows: Any) -> AnyBatch:
        """See ``RowConverter``."""
        self.tally.rows += rows.num_rows
        if not rows.num_rows:
            return EMPTY
        stable, entries, changes = self._published_stable, self._state.entries, self._state.changes
        touched: dict[bytes, Sequence[intervals.Mark]] = {}
        for key, new in zip(self._keys(rows), self._marks(rows)):
            old = touched.get(key)
            if old is None:
                old = (changes[key] if key in changes else entries.get(key)) or ()
            both = intervals.with_marks(old, new, stable)
            if both is None:
                self._handle_late(_row_of(new), 1)
            elif both is not old:
                touched[key] = both
        builder = BatchBuilder()
        for key, both in touched.items():
            old = (changes[key] if key in changes else entries.get(key)) or ()
            after, cut, unmatched = intervals.read_marks(both, stable)
            before = intervals.read_marks(old)[0] if old else []
            builder.rows += filter(self._is_needed, intervals.changes(before, after))
            self.tally.unmatched += unmatched
            changes[key] = tuple(intervals.emptied(both[cut:], self._skipped)) or None
        return builder.build()

    def kept(self, value: Any) -> Any:
        """Return the marks that still matter."""
        _, cut, unmatched = intervals.read_marks(value, self._published_stable)
        self.tally.unmatched += unmatched
        return tuple(intervals.emptied(value[cut:], self._skipped)) or None

    def _is_needed(self, row: Row) -> bool:
        """Whether an element is still needed. An end never moves to later, so ends before the point stay unneeded."""
        kind, _, ve, vold, _ = row
        needed = (ve if kind == INSERT else max(ve, vold)) >= self._skipped
        self.tally.unneeded += not needed
        return needed

    def _marks(self, rows: Any) -> list[list[intervals.Mark]]:
        """Return the marks of each row."""
        plan = self.plan
        starts = columns.times_of(rows, plan.vs)
        ends = columns.constant_nulls(rows.num_rows) if plan.ve is None else columns.times_of(rows, plan.ve)
        is_abort = [False] * rows.num_rows
        if plan.kind is not None:
            kinds = columns.numbered(rows, plan.kind, MARK_NAMES)
            is_start, nothing = pc.equal(kinds, 0), pa.scalar(None, pa.int64())
            is_abort = pc.equal(kinds, 2).to_pylist()
            starts, ends = pc.if_else(is_start, starts, nothing), pc.if_else(is_start, nothing, ends)
        missing = columns.first_true(pc.and_(pc.is_null(starts), pc.is_null(ends)))
        if missing is not None:
            raise InvalidRow(f"row {missing}: it has neither a start in {plan.vs!r} nor an end in {plan.ve!r}")
        columns.check_order(starts, ends)
        begins = pc.is_valid(starts)
        payloads = iter(self._payloads(rows.filter(begins)))
        return [
            intervals.marks_of(vs, ve, b"" if vs is None else next(payloads), aborts=aborts)
            for vs, ve, aborts in zip(starts.to_pylist(), ends.to_pylist(), is_abort)
        ]


def _row_of(marks: Sequence[intervals.Mark]) -> Row:
    """Return a row's marks as an element, for messages."""
    first, last = marks[0], marks[-1]
    if first[1] < intervals.VOID:
        return (ADJUST, first[0], first[0], INF, b"")
    return (INSERT, first[0], last[0] if last is not first else INF, 0, first[2])


def _inferred(rows: Any, name: str) -> Any:
    columns.column_of(rows, name)
    return schema_of([rows.schema.field(name)]).columns[0]
