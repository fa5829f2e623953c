"""Values as bytes in the order of rows, against the engine's order of the same values."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from lmerge.temporal.values import NAN, canonical_float, order_of
from lmerge.testing.judging.sort_keys import sort_key, value_key
from lmerge.wire.schema import Column, parse_schema

SCHEMA = parse_schema(
    {
        "b": "bool?",
        "n": "int?",
        "x": "float?",
        "s": "string?",
        "raw": "bytes?",
        "d": "decimal(3)?",
        "list": "list<string?>",
        "place?": {"city": "string", "gate": "int?"},
    }
)
TEXTS = st.text(st.sampled_from("\0\x01a\xff\U0001f600"), max_size=3)
INTS = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2)
FLOATS = st.floats().map(canonical_float) | st.sampled_from([0.0, NAN, 1.0, -1.0])
DECIMALS = st.integers(-(10**20), 10**20).map(lambda n: Decimal(n).scaleb(-3))
VALUES = st.tuples(
    st.none() | st.booleans(),
    st.none() | INTS,
    st.none() | FLOATS,
    st.none() | TEXTS,
    st.none() | TEXTS.map(lambda text: text.encode("latin-1", "replace")),
    st.none() | DECIMALS,
    st.lists(st.none() | TEXTS, max_size=3).map(tuple),
    st.none() | st.tuples(TEXTS, st.none() | INTS),
)


@given(VALUES, VALUES)
def test_bytes_have_the_order_of_rows(one: tuple[object, ...], other: tuple[object, ...]) -> None:
    key = order_of(SCHEMA.columns)
    bytes_of = sort_key(one, SCHEMA.columns), sort_key(other, SCHEMA.columns)
    assert (bytes_of[0] < bytes_of[1]) == (key(one) < key(other))
    assert (bytes_of[0] == bytes_of[1]) == (key(one) == key(other))


@given(VALUES, VALUES)
def test_bytes_of_each_column_have_its_order(one: tuple[object, ...], other: tuple[object, ...]) -> None:
    for column, left, right in zip(SCHEMA.columns, one, other, strict=True):
        key = order_of((column,))
        assert (value_key(left, column) < value_key(right, column)) == (key((left,)) < key((right,)))


@given(st.none() | TEXTS, st.none() | TEXTS)
def test_descending_turns_the_order_around_and_leaves_missing_values_last(one: str | None, other: str | None) -> None:
    column = Column("s", "string", nullable=True)
    keys = [value_key(value, column, descending=True) for value in (one, other)]
    if one is None or other is None:
        assert (keys[0] < keys[1]) == (one is not None and other is None)
    else:
        assert (keys[0] < keys[1]) == (one > other)
