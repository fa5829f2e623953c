"""Judges recorded streams by the rules, and keeps for each fault what explains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import duckdb
import pyarrow as pa

from lmerge.core.batch import element_of
from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.core.properties import PROPERTY_NAMES, closure
from lmerge.errors import InvalidRow, UsageError
from lmerge.testing.validation.element_table import RecordedStream, load, row_at
from lmerge.testing.validation.final_events import FINAL_EVENTS
from lmerge.testing.validation.rules import FAULTS_SHOWN, RULES, StreamRule
from lmerge.wire.arrow import decode_table
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Schema


@dataclass(frozen=True)
class EdgeShape:
    """The shape of edge events: for each key, one event lasts until the next one starts, and the last one goes on.

    ``schema``: of the payloads. ``key``: names of its columns.
    """

    schema: Schema
    key: tuple[str, ...]

    def __post_init__(self) -> None:
        names = [column.name for column in self.schema.columns]
        unknown = [name for name in self.key if name not in names]
        if unknown or not self.key:
            what = f"no column {unknown[0]!r}" if unknown else "no key"
            raise UsageError(f"the shape 'edge' has {what}; the columns are {', '.join(names)}")


_NO_OTHER: Final = ", and no other one of its key starts then"

Shape: TypeAlias = Literal["interval", "point"] | EdgeShape


@dataclass(frozen=True)
class Fault:
    """An element that breaks a rule.

    ``place``: its line or index, 0 for a stream without elements. ``because``: that of the stable that it ignores.
    """

    stream: int
    place: int
    code: str
    element: str
    promised: str
    came: str
    because: int | None = None


@dataclass
class RecordedVerdict:
    """What one stream is. ``promises``: by name whether each is held; ``faults``: the first ones of ``fault_count``."""

    name: str
    inserts: int
    adjusts: int
    stables: int
    stable_point: int
    events: int
    promises: dict[str, bool]
    faults: list[Fault] = field(default_factory=list)
    fault_count: int = 0

    @property
    def is_legal(self) -> bool:
        """Whether no element breaks a rule."""
        return not self.fault_count

    @property
    def is_closed(self) -> bool:
        """Whether the stream has ended with stable(inf)."""
        return self.stable_point == INF


def validated(
    streams: Sequence[RecordedStream], shape: Shape = "interval", *, must_end: bool = False
) -> list[RecordedVerdict]:
    """Return the verdict of each stream.

    ``shape``: what the final events must be; ``must_end``: each stream must have ended with stable(inf), but for those
    that a newer incarnation replaces. Raises InvalidRow: a payload does not fit the schema of ``EdgeShape``.
    """
    with duckdb.connect() as database:
        load(database, streams)
        promised = [(number, name) for number, stream in enumerate(streams) for name in closure(stream.promises)]
        database.register("promises", _promises(promised))
        verdicts = _counted(database, streams)
        for rule in RULES:
            _judge(database, rule, streams, verdicts)
        if shape == "point":
            _judge_points(database, verdicts)
        elif isinstance(shape, EdgeShape):
            _judge_edges(database, shape, verdicts)
    if must_end:
        for number, verdict in enumerate(verdicts):
            if not verdict.is_closed and not streams[number].is_replaced:
                verdict.faults.append(_unended(number, streams[number]))
                verdict.fault_count += 1
    for verdict in verdicts:
        verdict.faults = sorted(verdict.faults, key=lambda fault: fault.place)[:FAULTS_SHOWN]
    return verdicts


def _promises(promised: Sequence[tuple[int, str]]) -> pa.Table:
    numbers, names = [number for number, _ in promised], [name for _, name in promised]
    return pa.table({"stream": pa.array(numbers, pa.int32()), "promise": pa.array(names, pa.string())})


def _counted(database: Any, streams: Sequence[RecordedStream]) -> list[RecordedVerdict]:
    """Return verdicts without faults. Each end that an element gives and none that it takes away is an event."""
    counts = "SELECT stream, kind, count(*), max(vs), count(*) FILTER (ve > vs) FROM elements GROUP BY stream, kind"
    found = {(stream, kind): tuple(counted) for stream, kind, *counted in database.execute(counts).fetchall()}
    unknown = dict(database.execute("SELECT stream, count(*) FROM unknown GROUP BY stream").fetchall())
    inserts, adjusts, stables = (
        [found.get((number, kind), (0, NEG_INF, 0)) for number in range(len(streams))] for kind in range(3)
    )
    return [
        RecordedVerdict(
            name=stream.name,
            inserts=inserts[number][0],
            adjusts=adjusts[number][0],
            stables=stables[number][0],
            stable_point=stables[number][1],
            events=inserts[number][2] + adjusts[number][2] - adjusts[number][0] + unknown.get(number, 0),
            promises={name: True for name in PROPERTY_NAMES if name in closure(stream.promises)},
        )
        for number, stream in enumerate(streams)
    ]


def _judge(database: Any, rule: StreamRule, streams: Sequence[RecordedStream], verdicts: list[RecordedVerdict]) -> None:
    judged = {number for number, stream in enumerate(streams) if rule.is_for(stream.promises)}
    if not judged:
        return
    database.execute(f"CREATE OR REPLACE TEMP TABLE faults AS {rule.sql}")
    for number, count in _fault_counts(database):
        if number in judged:
            verdicts[number].fault_count += count
            if rule.promise is not None:
                verdicts[number].promises[rule.promise] = False
    for found in _first_faults(database):
        number = found["stream"]
        if number in judged:
            error = rule.message(verdicts[number].name, row_at(found), found)
            because = found["because"] if "stable" in rule.code else None
            fault = Fault(number, found["place"], rule.code, error.element, error.promised, error.came, because)
            verdicts[number].faults.append(fault)


def _fault_counts(database: Any) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = database.execute("SELECT stream, count(*) FROM faults GROUP BY stream").fetchall()
    return found


def _first_faults(database: Any) -> list[dict[str, Any]]:
    """Return the first faults of each stream, with their elements and the places of the stables before these."""
    first = f"FROM faults QUALIFY row_number() OVER (PARTITION BY stream ORDER BY place) <= {FAULTS_SHOWN}"
    stable = (
        "SELECT min(s.place) FROM elements AS s WHERE s.stream = e.stream AND s.kind = 2 AND s.vs = e.stable_before"
    )
    answer = database.execute(
        f"SELECT *, ({stable}) AS because FROM ({first}) AS f JOIN elements AS e USING (stream, place) ORDER BY place"
    )
    names = [column[0] for column in answer.description]
    return [dict(zip(names, row)) for row in answer.fetchall()]


def _judge_points(database: Any, verdicts: list[RecordedVerdict]) -> None:
    faults = f"SELECT stream, place, ve AS event_end FROM ({FINAL_EVENTS}) WHERE ve - 1 <> vs"
    promised = "points (Ve = Vs + 1)"
    _judge_shape(database, faults, "no-point", promised, verdicts)


def _judge_edges(database: Any, shape: EdgeShape, verdicts: list[RecordedVerdict]) -> None:
    payloads = [row[0] for row in database.execute(f"SELECT DISTINCT payload FROM ({FINAL_EVENTS})").fetchall()]
    codec = RowCodec(shape.schema)
    try:
        keys = decode_table(codec, payloads).select(list(shape.key))
    except InvalidRow:
        raise _first_invalid(database, codec, verdicts) from None
    named = keys.rename_columns([f"key{at}" for at in range(len(shape.key))])
    database.register("keys", named.append_column("payload", pa.array(payloads, pa.binary())))
    by = ", ".join(["stream", *named.column_names])
    in_turn = f"OVER (PARTITION BY {by} ORDER BY vs, ve, place)"
    each = f"SELECT *, unnest(range(CAST(copies AS BIGINT))) FROM ({FINAL_EVENTS}) JOIN keys USING (payload)"
    next_start = f"coalesce(lead(vs) {in_turn}, {INF}) AS next_start"
    following = f"SELECT stream, place, ve AS event_end, {next_start} FROM ({each})"
    faults = f"SELECT stream, place, min(event_end) AS event_end, min(next_start) AS next_start FROM ({following}) "
    faults += "WHERE event_end <> next_start GROUP BY ALL"
    promised = f"edges by {', '.join(shape.key)} (an event lasts until the next one of its key)"
    _judge_shape(database, faults, "no-edge", promised, verdicts)


def _first_invalid(database: Any, codec: RowCodec, verdicts: list[RecordedVerdict]) -> InvalidRow:
    """Return the error for the first payload that is no row, with the element that brought it."""
    firsts = f"SELECT stream, min(place), payload FROM ({FINAL_EVENTS}) GROUP BY stream, payload ORDER BY ALL"
    for stream, place, payload in database.execute(firsts).fetchall():
        try:
            codec.decode(payload)
        except InvalidRow as problem:
            name = verdicts[stream].name or "the stream"
            what = str(problem).removeprefix("row 0: ")
            return InvalidRow(f"{name}, line {place}: {what}")
    raise AssertionError("a table refused rows that are valid one by one")


def _judge_shape(database: Any, faults: str, code: str, promised: str, verdicts: list[RecordedVerdict]) -> None:
    """Add the final events that have another shape. ``faults``: with their end, and where it should be if it varies."""
    database.execute(f"CREATE OR REPLACE TEMP TABLE faults AS {faults}")
    for number, count in _fault_counts(database):
        verdicts[number].fault_count += count
    for found in _first_faults(database):
        came = f"the event lasts until {show_time(found['event_end'])}"
        if "next_start" in found:
            following = found["next_start"]
            came += f", the next one starts at {show_time(following)}" if following < INF else _NO_OTHER
        element = str(element_of(row_at(found)))
        fault = Fault(found["stream"], found["place"], code, element, promised, came)
        verdicts[fault.stream].faults.append(fault)


def _unended(number: int, stream: RecordedStream) -> Fault:
    place, element = 0, "no element"
    if len(stream.elements):
        last = stream.elements.slice(len(stream.elements) - 1).to_pylist()[0]
        place, element = last["place"], str(element_of(row_at(last)))
    return Fault(number, place, "not-ended", element, "to end with stable(inf)", "nothing came after it")
