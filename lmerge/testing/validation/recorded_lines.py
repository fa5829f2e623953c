"""Reads recorded streams and sessions (docs/session-format.md) into tables of elements, a million lines a second.

Lines in the form that lmerge writes are split by one expression of RE2 over whole blocks. Every other line, such as one
with an escape in its payload or with its keys in another order, goes through ``lmerge.core.session``, the definition of
the format. So what is read, and the error of a malformed line, are the same.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO, Final

import pyarrow as pa
import pyarrow.compute as pc

from lmerge.core.elements import ADJUST, INF, NEG_INF, STABLE
from lmerge.core.session import AttachLine, ElementLine, Line, parse_line
from lmerge.errors import MalformedLine, UsageError
from lmerge.testing.validation.element_table import ELEMENTS, RecordedStream, table_of_rows
from lmerge.wire.limits import PAYLOAD_BYTES

BLOCK_BYTES: Final = 8 * 2**20
LINE_BYTES_MAX: Final = 64 * PAYLOAD_BYTES
"""As for the commands that read one line at a time (lmerge/cli/lines.py)."""

# Times of more digits, and all else that JSON could spell in another way, are left to the parser.
_TIME: Final = r'(?:0|-?[1-9][0-9]{0,17}|"-?inf")'
_TEXT: Final = r'[^"\\\x00-\x1f]'
# Each byte leaves one way to go on, and there are four groups at most: RE2 then needs one pass, a third of the time.
_LINE: Final = (
    r'^\{"op":"(?:insert|adjust|stable)","'
    rf'(?:input":"(?P<input>{_TEXT}+)",")?'
    rf'(?:payload":"(?P<payload>{_TEXT}*)","vs":(?P<vs>{_TIME}),")?'
    rf'(?P<rest>v(?:old":{_TIME},"ve|e|c)":{_TIME})\}}\r?$'
)
# By kind: the first letter of the operation, and the second one of its rest.
_OPS: Final = (b"i", b"a", b"s")
_RESTS: Final = (b"e", b"o", b"c")
_OP_AT: Final = len('{"op":"')
_END_AT: Final = len('ve":')
_VOLD_AT: Final = len('vold":')
_TIME_MAX: Final = 32
"""Characters; more than any time has."""
_SPECIAL: Final = {'"inf"': INF, '"-inf"': NEG_INF}


@dataclass
class LineBlock:
    """What a block of lines has, by line. ``named``: elements with the column ``input``, NULL in a stream.

    ``others``: the lines that are no elements.
    """

    named: pa.Table
    others: list[tuple[int, Line]] = field(default_factory=list)


def read_streams(source: IO[bytes], only: str | None = None) -> list[RecordedStream]:
    """Return the streams of a file: one without a name, or of a session one for each attach. ``only``: of this input.

    Raises MalformedLine: of a line that no stream or session can have there. Raises UsageError: there is no such input.
    """
    blocks = list(_parsed(source))
    named = pa.concat_tables([block.named for block in blocks] or [_no_elements()])
    others = [item for block in blocks for item in block.others]
    if not others and named["input"].null_count == len(named):
        if only is not None:
            raise UsageError(f"there is no input {only!r}, because the lines have no inputs")
        return [RecordedStream("", named.select(ELEMENTS.names))]
    _refuse_unnamed(named)
    return _of_session(named, others, only)


def _of_session(named: pa.Table, others: list[tuple[int, Line]], only: str | None) -> list[RecordedStream]:
    lives: dict[str, list[tuple[int, AttachLine]]] = {}
    for line, item in others:
        if isinstance(item, AttachLine):
            lives.setdefault(item.input, []).append((line, item))
        elif item.input not in lives:
            raise _never_attached(line, item.input)
    _refuse_unattached(named, lives)
    if only is not None and only not in lives:
        raise UsageError(f"there is no input {only!r}; the inputs are {', '.join(map(repr, lives))}")
    chosen = lives if only is None else {only: lives[only]}
    return [stream for name, begun in chosen.items() for stream in _lives_of(name, begun, named)]


def _lives_of(name: str, begun: list[tuple[int, AttachLine]], named: pa.Table) -> Iterator[RecordedStream]:
    """Yield the stream of each attach of an input."""
    elements = named.filter(pc.equal(named["input"], name)).select(ELEMENTS.names)
    for number, (line, attach) in enumerate(begun, 1):
        is_replaced = number < len(begun)
        of_life = pc.greater(elements["place"], line)
        if is_replaced:
            of_life = pc.and_(of_life, pc.less(elements["place"], begun[number][0]))
        shown = name if len(begun) == 1 else f"{name}, incarnation {number}"
        join_at = NEG_INF if attach.join_at is None else attach.join_at
        yield RecordedStream(shown, elements.filter(of_life), attach.properties, join_at, is_replaced)


def _refuse_unattached(named: pa.Table, lives: Mapping[str, list[tuple[int, AttachLine]]]) -> None:
    """Raise MalformedLine for the first element of an input before that attaches."""
    firsts = named.group_by("input").aggregate([("place", "min")]).sort_by("place_min").to_pylist()
    for first in firsts:
        if first["input"] not in lives or first["place_min"] < lives[first["input"]][0][0]:
            raise _never_attached(first["place_min"], first["input"])


def _never_attached(line: int, name: str | None) -> MalformedLine:
    return MalformedLine(line, f"input {name!r} was never attached")


def _refuse_unnamed(named: pa.Table) -> None:
    if named["input"].null_count:
        without = named.filter(pc.is_null(named["input"]))["place"][0].as_py()
        raise MalformedLine(without, 'an element of a session needs "input"')


def _parsed(source: IO[bytes]) -> Iterator[LineBlock]:
    """Parse blocks side by side, because RE2 runs without the GIL."""
    workers = os.cpu_count() or 1
    pending: deque[Future[LineBlock]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for first, text in _blocks(source):
                pending.append(pool.submit(parsed_block, text, first))
                if len(pending) > workers:
                    yield pending.popleft().result()
        except MalformedLine:
            for future in pending:  # an error of an earlier line is the first one
                future.result()
            raise
        while pending:
            yield pending.popleft().result()


def _blocks(source: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines, and the number of the first of them."""
    first = 1
    while text := source.read(BLOCK_BYTES):
        if not text.endswith(b"\n"):
            rest = source.readline(LINE_BYTES_MAX + 1)
            if len(text) - (text.rfind(b"\n") + 1) + len(rest) > LINE_BYTES_MAX:
                number = first + text.count(b"\n")
                raise MalformedLine(number, f"longer than {LINE_BYTES_MAX} bytes, the limit of a line")
            text += rest
        yield first, text
        first += text.count(b"\n")


def parsed_block(text: bytes, first: int) -> LineBlock:
    """Return what a block has. ``first``: the number of its first line. Raises MalformedLine."""
    lines = pc.list_flatten(pc.split_pattern(pa.array([text.removesuffix(b"\n")], pa.binary()), "\n"))
    try:
        found = pc.extract_regex(lines.cast(pa.string()), _LINE)
    except pa.ArrowInvalid:  # a line is not UTF-8: the parser finds it
        return _one_by_one(lines.to_pylist(), range(first, first + len(lines)))
    kinds = _kinds(lines, found)
    is_known = kinds.is_valid()
    places = pc.add(pc.indices_nonzero(is_known).cast(pa.int64()), first)
    if not kinds.null_count:
        return LineBlock(_elements(found, kinds, places))
    others = pc.indices_nonzero(kinds.is_null())
    block = _one_by_one(lines.take(others).to_pylist(), (first + at for at in others.to_pylist()))
    if len(places):
        known = _elements(found.filter(is_known), kinds.filter(is_known), places)
        block.named = pa.concat_tables([known, block.named]).sort_by("place")
    return block


def _kinds(lines: pa.Array, found: pa.StructArray) -> pa.Array:
    """Return the kind of each line, NULL if it is no element or has not the keys of its operation."""
    kinds = pc.index_in(pc.binary_slice(lines, _OP_AT, _OP_AT + 1), pa.array(_OPS, pa.binary()))
    of_rest = pc.index_in(pc.binary_slice(_part(found, "rest").cast(pa.binary()), 1, 2), pa.array(_RESTS, pa.binary()))
    has_event = pc.not_equal(_part(found, "vs"), "")
    is_form = pc.and_(pc.equal(kinds, of_rest), pc.equal(has_event, pc.not_equal(kinds, STABLE)))
    return pc.if_else(is_form, kinds, pa.scalar(None, pa.int32())).cast(pa.int8())


def _elements(found: pa.StructArray, kinds: pa.Array, places: pa.Array) -> pa.Table:
    """Return the table of lines that are elements of these kinds."""
    rest = _part(found, "rest")
    end = _sliced(rest, _END_AT)
    is_stable, is_adjust = pc.equal(kinds, STABLE), pc.equal(kinds, ADJUST)
    vold = pa.repeat(pa.scalar(0, pa.int64()), len(kinds))
    if pc.any(is_adjust).as_py():
        both = pc.list_flatten(pc.split_pattern(rest.filter(is_adjust), ',"ve":'))
        end = pc.replace_with_mask(end, is_adjust, both[1::2])
        vold = pc.replace_with_mask(vold, is_adjust, _times(_sliced(both[::2], _VOLD_AT)))
    name, end = _part(found, "input"), _times(end)
    columns = {
        "place": places,
        "kind": kinds,
        "payload": _part(found, "payload").cast(pa.binary()),
        "vs": pc.if_else(is_stable, end, _times(_part(found, "vs"))),
        "vold": vold,
        "ve": pc.if_else(is_stable, pa.scalar(0, pa.int64()), end),
        "input": pc.if_else(pc.equal(name, ""), pa.scalar(None, pa.string()), name),
    }
    return pa.table(columns)


def _part(found: pa.StructArray, name: str) -> pa.Array:
    return pc.struct_field(found, name)


def _sliced(texts: pa.Array, start: int) -> pa.Array:
    """Return what follows ``start`` in texts of ASCII, as bytes because that takes half the time."""
    return pc.binary_slice(texts.cast(pa.binary()), start, _TIME_MAX).cast(pa.string())


def _times(texts: pa.Array) -> pa.Array:
    """Return times as numbers; what is not there as 0."""
    special = pc.index_in(texts, pa.array(["", *_SPECIAL], pa.string()))
    if special.null_count == len(special):
        return texts.cast(pa.int64())
    numbers = pc.take(pa.array([0, *_SPECIAL.values()], pa.int64()), special)
    return pc.coalesce(numbers, pc.if_else(special.is_null(), texts, "0").cast(pa.int64()))


def _one_by_one(lines: Iterable[bytes], numbers: Iterable[int]) -> LineBlock:
    block, rows, inputs = LineBlock(_no_elements()), [], []
    for number, text in zip(numbers, lines):
        item = parse_line(text, number)
        if isinstance(item, ElementLine):
            rows.append((number, *item.row))
            inputs.append(item.input)
        elif item is not None:
            block.others.append((number, item))
    block.named = table_of_rows(rows).append_column("input", pa.array(inputs, pa.string()))
    return block


def _no_elements() -> pa.Table:
    return table_of_rows([]).append_column("input", pa.array([], pa.string()))
