"""The native core and Python's codec give the same payloads for the same Arrow tables, and the same errors.

Every type that a schema has, in every type of Arrow that holds it, nested, sliced, in chunks; then payloads back to
tables, damaged ones too. Where Python accepts the rows the native core must not have refused them: otherwise the tests
would compare Python with itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, INSERT
from lmerge.core.engines import selection
from lmerge.errors import InvalidRow, UsageError
from lmerge.wire.arrow import arrow_schema, decode_inserts, decode_table, encode_table, in_zone, insert_columns
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Column, Schema, parse_schema

pytestmark = pytest.mark.skipif(selection.native_problem() is not None, reason="the native core is not built")

SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
ENGINES = (selection.PYTHON, selection.NATIVE)
ZONES = ("UTC", "America/New_York", "+05:30", "Asia/Kolkata")
DAY_MS = 86_400_000
# A day from the ends of the range of Python's datetime: nearer to them the native core calls Python.
MOMENTS = st.integers(-62_135_000_000, 253_402_000_000)
UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class Typed(NamedTuple):
    """A column without its name, the Arrow type of its values, and those."""

    column: Column
    arrow: Any
    values: st.SearchStrategy[Any]


def leaf(kind: str, arrow: Any, values: st.SearchStrategy[Any], **more: Any) -> Typed:
    return Typed(Column("x", kind, **more), arrow, values)


def whole(bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2 ** min(bits, 63) - 1)
    return st.integers(low, high) | st.sampled_from((low, high, max(low, -33), 31, 127))


INTS = {
    getattr(pa, f"{'' if signed else 'u'}int{bits}")(): whole(bits, signed)
    for bits in (8, 16, 32, 64)
    for signed in (True, False)
}
NANS = st.sampled_from(
    [
        struct.unpack(">d", struct.pack(">Q", bits))[0]
        for bits in (0x7FF8 << 48, 0xFFF8 << 48, 0x7FF0 << 48 | 1, 0x7FFF << 48 | 7)
    ]
)
FLOATS = (
    st.floats()
    | NANS
    | st.sampled_from((0.0, -0.0, 2.675, 0.125, 0.5, 2.5, 5e-324, 1.7976931348623157e308))
    | (st.integers(-(10**17), 10**17).map(lambda n: n / 1_000) | st.integers(-(10**6), 10**6).map(lambda n: n / 1_024))
)


@st.composite
def floats(draw: st.DrawFn) -> Typed:
    digits = draw(st.none() | st.integers(-15, 15))
    arrow, values = draw(
        st.sampled_from(
            [
                (pa.float64(), FLOATS),
                (pa.float64(), FLOATS),
                (pa.float32(), st.floats(width=32)),
                (pa.float16(), st.floats(width=16)),
                *INTS.items(),
            ]
        )
    )
    return leaf("float", arrow, values, round_digits=digits)


@st.composite
def decimals(draw: st.DrawFn) -> Typed:
    widths = [(pa.decimal32, 9), (pa.decimal64, 18), (pa.decimal128, 38), (pa.decimal256, 76)]
    make, most = draw(st.sampled_from(widths))
    precision = draw(st.integers(1, most))
    scale = draw(st.integers(0, min(precision, 38)))
    digits = min(precision, 38)  # so that a schema exists that holds them all
    unscaled = st.integers(-(10**digits) + 1, 10**digits - 1) | st.sampled_from((0, 1, -1, 10**digits - 1))
    values = unscaled.map(lambda n: Decimal(n).scaleb(-scale) if abs(n) < 10**28 else Decimal(f"{n}E-{scale}"))
    return leaf("decimal", make(precision, scale), values, scale=scale)


@st.composite
def moments(draw: st.DrawFn) -> Typed:
    unit = draw(st.sampled_from(list(UNITS)))
    finest = min(UNITS[unit], 1_000_000)
    seconds = MOMENTS if unit != "ns" else st.integers(-(2**33), 2**33)
    values = st.builds(
        lambda s, part: (s * finest + part) * (UNITS[unit] // finest), seconds, st.integers(0, finest - 1)
    )
    return leaf("timestamp", pa.timestamp(unit, draw(st.sampled_from(ZONES))), values)


TEXT = st.text(max_size=40) | st.text("ab", min_size=250, max_size=260)
SIMPLE = st.one_of(
    st.just(leaf("bool", pa.bool_(), st.booleans())),
    st.sampled_from([leaf("int", arrow, values) for arrow, values in INTS.items()]),
    floats(),
    st.sampled_from([leaf("string", arrow, TEXT) for arrow in (pa.string(), pa.large_string(), pa.string_view())]),
    st.sampled_from(
        [leaf("bytes", arrow, st.binary(max_size=40)) for arrow in (pa.binary(), pa.large_binary(), pa.binary_view())]
    ),
    st.just(leaf("bytes", pa.binary(3), st.binary(min_size=3, max_size=3))),
    moments(),
    st.just(leaf("timestamp", pa.int64(), whole(64, signed=True))),
    st.just(leaf("date", pa.date32(), st.integers(-719_162, 2_932_896))),
    st.just(leaf("date", pa.date64(), st.integers(-719_162, 2_932_896).map(lambda day: day * DAY_MS))),
    decimals(),
    st.just(leaf("string", pa.dictionary(pa.int8(), pa.string()), TEXT)),
    st.just(leaf("int", pa.dictionary(pa.uint32(), pa.int64()), whole(64, signed=True))),
)


@st.composite
def lists(draw: st.DrawFn, inner: st.SearchStrategy[Typed]) -> Typed:
    element = draw(inner)
    nullable = draw(st.booleans())
    child = element.column
    column = Column("element", child.type, nullable, child.round_digits, child.scale, child.children)
    values = st.none() | element.values if nullable else element.values
    field = pa.field("element", element.arrow)
    arrow, sizes = draw(
        st.sampled_from([(pa.list_(field), (0, 4)), (pa.large_list(field), (0, 4)), (pa.list_(field, 2), (2, 2))])
    )
    return leaf("list", arrow, st.lists(values, min_size=sizes[0], max_size=sizes[1]), children=(column,))


@st.composite
def structs(draw: st.DrawFn, inner: st.SearchStrategy[Typed]) -> Typed:
    fields = draw(st.lists(inner, min_size=1, max_size=3))
    named = [named_column(draw, typed, f"f{at}") for at, typed in enumerate(fields)]
    order = draw(st.permutations(named))
    arrow = pa.struct([pa.field(each.column.name, each.arrow) for each in order])
    values = st.fixed_dictionaries({each.column.name: each.values for each in named})
    return leaf("struct", arrow, values, children=tuple(each.column for each in named))


def named_column(draw: st.DrawFn, typed: Typed, name: str) -> Typed:
    nullable = draw(st.booleans())
    column = typed.column
    column = Column(name, column.type, nullable, column.round_digits, column.scale, column.children)
    return Typed(column, typed.arrow, st.none() | typed.values if nullable else typed.values)


TYPED = st.recursive(SIMPLE, lambda inner: lists(inner) | structs(inner), max_leaves=5)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, Any]:
    """Draw a schema and a table of its rows: perhaps empty, a slice, or in chunks."""
    columns = [named_column(draw, draw(TYPED), f"c{at}") for at in range(draw(st.integers(1, 4)))]
    rows = draw(st.lists(st.tuples(*(each.values for each in columns)), max_size=8))
    arrays = [pa.array([row[at] for row in rows], each.arrow) for at, each in enumerate(columns)]
    table = pa.table(arrays, names=[each.column.name for each in columns])
    start = draw(st.integers(0, table.num_rows))
    shape = draw(st.sampled_from(("whole", "slice", "chunks")))
    if shape == "slice":
        table = table.slice(start, draw(st.integers(0, table.num_rows - start)))
    if shape == "chunks":
        table = pa.concat_tables([table.slice(start), table.slice(0, start), table])
    return Schema(tuple(each.column for each in columns)), table


def outcome(work: Callable[[], Any]) -> Any:
    """Return the result, or the error."""
    try:
        return work()
    except InvalidRow as problem:
        return f"InvalidRow: {problem}"


def on_each(work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return the result or the error on each engine."""
    return [outcome(partial(work, *arguments, engine=engine)) for engine in ENGINES]


def both(codec: RowCodec, table: Any) -> Any:
    """Return the payloads or the error on both engines, and whether the native core refused what Python accepts."""
    from lmerge.wire.native_rows import native_rows

    python, native = on_each(encode_table, codec, table)
    assert native == python
    if isinstance(python, list):
        assert native_rows(codec.schema).payloads(table) == python, "the native core refused, or differs"
    else:
        assert native_rows(codec.schema).payloads(table) is None, "the native core took what Python refuses"
    return python


@SETTINGS
@given(tables())
def test_payloads_are_the_same_on_both_engines_and_come_back(made: tuple[Schema, Any]) -> None:
    schema, table = made
    codec = RowCodec(schema)
    payloads = both(codec, table)
    assert isinstance(payloads, list), payloads
    try:
        rows = table.to_pylist()
    except (ValueError, OverflowError):  # a nanosecond, or a year outside Python's range
        rows = None
    if rows is not None:
        assert payloads == [codec.encode(row) for row in rows]
    back = on_each(decode_table, codec, payloads)
    same_tables(*back)
    if not isinstance(back[0], str):
        assert back[1].schema == arrow_schema(schema)
        assert encode_table(codec, back[1], engine=selection.NATIVE) == payloads


def same_tables(python: Any, native: Any) -> None:
    if isinstance(python, str):
        assert native == python
        return
    assert native.schema == python.schema
    assert repr(native.to_pylist()) == repr(python.to_pylist())
    native.validate(full=True)


ODD = st.one_of(
    st.just(leaf("int", pa.uint64(), st.integers(2**63 - 1, 2**64 - 1))),
    st.just(leaf("int", pa.float64(), FLOATS)),
    st.just(leaf("int", pa.timestamp("us", "UTC"), st.integers(0, 10))),
    st.just(leaf("float", pa.string(), TEXT)),
    st.just(leaf("float", pa.bool_(), st.booleans())),
    st.just(leaf("string", pa.binary(), st.binary())),
    st.just(leaf("bytes", pa.string(), TEXT)),
    st.just(leaf("timestamp", pa.timestamp("us"), st.integers(0, 10))),
    st.just(leaf("timestamp", pa.timestamp("ns", "UTC"), st.integers(999, 1_001))),
    st.just(leaf("timestamp", pa.timestamp("s", "UTC"), st.sampled_from((0, 2**62)))),
    st.just(leaf("date", pa.date32(), st.sampled_from((-719_162, -719_163, 2_932_896, 2_932_897, 2**31 - 1)))),
    st.just(leaf("date", pa.timestamp("us", "UTC"), st.integers(0, 10))),
    st.just(leaf("decimal", pa.decimal128(38, 3), st.sampled_from((Decimal("1.500"), Decimal("1.505"))), scale=2)),
    st.just(leaf("decimal", pa.decimal256(76, 0), st.sampled_from((Decimal(10**38 - 1), Decimal(10**38))))),
    st.just(leaf("decimal", pa.int64(), whole(64, signed=True), scale=20)),
    st.just(leaf("decimal", pa.float64(), FLOATS)),
    st.just(leaf("bool", pa.int8(), st.integers(0, 1))),
    st.just(leaf("list", pa.string(), TEXT, children=(Column("element", "string"),))),
    st.just(leaf("string", pa.list_(pa.string()), st.lists(TEXT))),
    st.just(
        leaf(
            "struct",
            pa.struct([("a", pa.int64()), ("z", pa.int64())]),
            st.fixed_dictionaries({"a": st.integers(0, 9)}),
            children=(Column("a", "int"),),
        )
    ),
    st.just(
        leaf(
            "struct",
            pa.struct([("z", pa.int64())]),
            st.fixed_dictionaries({"z": st.integers(0, 9)}),
            children=(Column("z", "int"), Column("a", "int", nullable=True)),
        )
    ),
    st.just(leaf("int", pa.duration("us"), st.integers(0, 9))),
    st.just(leaf("string", pa.null(), st.none())),
    st.just(leaf("string", pa.dictionary(pa.int8(), pa.binary()), st.binary(max_size=3))),
)


@SETTINGS
@given(ODD, st.booleans(), st.sampled_from(("top", "list", "struct")), st.data())
def test_a_misfit_is_refused_with_the_same_message(typed: Typed, nullable: bool, place: str, data: Any) -> None:
    column, arrow = typed.column, typed.arrow
    column = Column("x", column.type, nullable, column.round_digits, column.scale, column.children)
    rows = data.draw(st.lists(st.none() | typed.values, max_size=4))
    if place == "list":
        element = Column("element", column.type, nullable, column.round_digits, column.scale, column.children)
        column, arrow, rows = Column("x", "list", children=(element,)), pa.list_(arrow), [rows, []]
    if place == "struct":
        column, arrow = Column("x", "struct", children=(column,)), pa.struct([("x", arrow)])
        rows = [{"x": value} for value in rows]
    table = pa.table({"x": pa.array(rows, arrow)})
    codec = RowCodec(Schema((column,)))
    python, native = on_each(encode_table, codec, table)
    assert native == python


@SETTINGS
@given(tables(), st.data())
def test_damaged_payloads_are_rows_or_errors_alike(made: tuple[Schema, Any], data: Any) -> None:
    codec = RowCodec(made[0])
    payloads = encode_table(codec, made[1])
    if not payloads:
        return
    damaged = bytearray(data.draw(st.sampled_from(payloads)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged)))
        damaged[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    same_tables(*on_each(decode_table, codec, [payloads[0], bytes(damaged)]))


ROWS = pa.table(
    {
        "carrier": pa.array(["UA", "DL", None]),
        "delay": pa.array([2.0, -0.0, None]),
        "from": pa.array([10, 11, 12], pa.timestamp("ms", "UTC")),
        "to": pa.array([20, 21, 22], pa.uint16()),
    }
)
CODEC = RowCodec({"carrier": "string?", "delay": "float(1)?"})


@pytest.mark.parametrize(
    "rows",
    [ROWS, ROWS.to_batches()[0], ROWS.slice(1), pa.concat_tables([ROWS, ROWS.slice(2)])],
    ids=["table", "batch", "slice", "chunks"],
)
@pytest.mark.parametrize("ve", ["to", None])
def test_inserts_are_the_same_on_both_engines(rows: Any, ve: str | None) -> None:
    rows = rows if ve else rows.select(["carrier", "delay", "from"])
    python, native = (insert_columns(CODEC, rows, "from", ve, engine=engine) for engine in ENGINES)
    assert isinstance(python, Batch)
    assert not isinstance(native, Batch), "the native core refused"
    assert list(native.rows()) == list(python.rows())
    assert native.kinds == bytes([INSERT]) * len(rows)
    assert ve is not None or set(native.ve) == {INF}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.drop_columns(["from"]), "no column 'from'"),
        (lambda rows: rows.append_column("more", rows["to"]), "column 'more' too many"),
        (lambda rows: rows.drop_columns(["delay"]), "no column 'delay'"),
        (lambda rows: rows.set_column(2, "from", pa.array([1, None, 3])), "'from' of times has 1 nulls"),
        (lambda rows: rows.set_column(2, "from", pa.array(["x", "y", "z"])), "'from' of times is string"),
        (lambda rows: rows.set_column(2, "from", pa.array([1, 2, 3], pa.timestamp("us"))), "has no time zone"),
        (lambda rows: rows.set_column(2, "from", pa.array([1, 2, 3], pa.timestamp("ns", "UTC"))), "would lose data"),
        (
            lambda rows: rows.set_column(0, "carrier", pa.array([1, 2, 3])),
            "row 0, column 'carrier' .*: 1 is not a string",
        ),
        (lambda rows: rows.slice(3).set_column(2, "from", pa.array([], pa.string())), "'from' of times is string"),
    ],
    ids=["no vs", "more", "fewer", "null", "text", "no zone", "nanoseconds", "wrong type", "empty"],
)
def test_invalid_inserts_are_refused_with_the_same_message(change: Any, message: str) -> None:
    rows = change(ROWS)
    messages = []
    for engine in ENGINES:
        with pytest.raises(InvalidRow, match=message) as caught:
            insert_columns(CODEC, rows, "from", "to", engine=engine)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_a_time_of_the_lifetime_stays_in_the_payload_if_the_schema_has_it() -> None:
    codec = RowCodec({"from": "timestamp", "carrier": "string?", "delay": "float?"})
    python, native = (insert_columns(codec, ROWS, "from", "to", engine=engine) for engine in ENGINES)
    assert not isinstance(native, Batch)
    assert list(native.rows()) == list(python.rows())
    assert codec.decode(native.payloads[0])["from"] == datetime(1970, 1, 1, 0, 0, 0, 10_000, timezone.utc)


def test_rows_of_a_batch_are_read_where_they_lie() -> None:
    for engine in ENGINES:
        batch = insert_columns(CODEC, ROWS, "from", "to", engine=engine)
        expected = decode_table(CODEC, batch.payloads, engine=selection.PYTHON)
        assert decode_inserts(CODEC, batch, engine=engine).equals(expected)
    with pytest.raises(InvalidRow, match="row 0"):
        decode_inserts(RowCodec({"a": "int"}), batch)


def test_text_that_is_no_utf8_is_refused_by_both() -> None:
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(struct.pack("<ii", 0, 1)), pa.py_buffer(b"\xff")])
    assert "column 'x'" in both(RowCodec({"x": "string"}), pa.table({"x": bad}))


def test_types_that_the_native_core_does_not_support_are_pythons() -> None:
    storage = pa.array([b"0123456789abcdef"], pa.binary(16))
    uuid = pa.ExtensionArray.from_storage(pa.uuid(), storage)
    assert "is not bytes" in both(RowCodec({"x": "bytes"}), pa.table({"x": uuid}))
    codec, pairs = RowCodec({"x": "list<list<string>>"}), pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string()))
    expected = [codec.encode({"x": [["a", "b"]]})]
    assert all(encode_table(codec, pa.table({"x": pairs}), engine=engine) == expected for engine in ENGINES)
    views = pa.array([["a"], []], pa.list_view(pa.string()))
    codec = RowCodec({"x": "list<string>"})
    expected = [codec.encode({"x": x}) for x in (["a"], [])]
    assert all(encode_table(codec, pa.table({"x": views}), engine=engine) == expected for engine in ENGINES)


def test_local_times_become_moments_of_their_zone() -> None:
    rows = pa.table({"t": pa.array([datetime(2013, 7, 1, 12)], pa.timestamp("us")), "i": [1]})
    codec = RowCodec({"t": "timestamp", "i": "int"})
    moment = datetime(2013, 7, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    for batch in (rows, rows.to_batches()[0]):
        moved = in_zone(batch, "Europe/Berlin")
        assert on_each(encode_table, codec, moved) == [[codec.encode({"t": moment, "i": 1})]] * 2
        assert in_zone(moved, "UTC").equals(moved), "what names a moment stays"
    with pytest.raises(UsageError, match=r"column 't'.*'Nowhere/Town'"):
        in_zone(rows, "Nowhere/Town")
    skipped = pa.table({"t": pa.array([datetime(2013, 3, 31, 2, 30)], pa.timestamp("us"))})
    with pytest.raises(InvalidRow, match=r"column 't'.*'Europe/Berlin'"):
        in_zone(skipped, "Europe/Berlin")


def test_empty_tables_have_no_payloads_and_no_rows() -> None:
    schema = parse_schema({"a": "int", "l": "list<string>"})
    empty = arrow_schema(schema).empty_table()
    for engine in ENGINES:
        assert encode_table(RowCodec(schema), empty, engine=engine) == []
        assert decode_table(RowCodec(schema), [], engine=engine).equals(empty)
