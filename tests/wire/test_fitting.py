"""The first payload of a batch that is no row: the native core with the codec behind it finds what the codec finds."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmerge.core.batch import Batch
from lmerge.core.elements import Adjust, Element, Insert, Stable
from lmerge.core.engines import selection
from lmerge.errors import InvalidRow
from lmerge.wire.fitting import Fitting
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import parse_schema

SCHEMA = parse_schema(
    {
        "b": "bool",
        "i": "int",
        "f": "float",
        "s": "string?",
        "y": "bytes",
        "t": "timestamp",
        "d": "date",
        "m": "decimal(2)",
        "l": "list<int?>",
        "o": {"a": "int", "n": "decimal"},
    }
)
ROW: list[Any] = [True, 300, 1.5, "x", b"\xff", 10**15, -1, "-1.50", [1, None], [7, "0"]]
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        2**63,
        2**63 - 1,
        -(2**63),
        10**18,
        2_932_897,
        -719_163,
        0.5,
        "",
        "0.00",
        "-0.00",
        "01.00",
        "1.0",
        "9" * 36 + ".00",
        "9" * 37 + ".00",
        "+1.00",
        "1e2",
        "\u0661.00",
        b"",
        [],
        [1],
        [[1]],
        [1, "2"],
        [1, "-0"],
        {},
    ]
)


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """Draw a row, one with a value in another's place, or one damaged in a byte, cut off or followed by bytes."""
    row = list(ROW)
    if draw(st.booleans()):
        row[draw(st.integers(0, len(row) - 1))] = draw(ODD)
    packed = bytearray(msgpack.packb(row, use_single_float=draw(st.booleans())))
    if draw(st.integers(0, 2)) == 0:
        packed[draw(st.integers(0, len(packed) - 1))] = draw(st.integers(0, 255))
    if draw(st.integers(0, 3)) == 0:
        packed = packed[: draw(st.integers(0, len(packed)))] + draw(st.binary(max_size=2))
    return bytes(packed)


def elements() -> st.SearchStrategy[Element]:
    return st.one_of(
        st.builds(Insert, payloads(), st.just(1), st.just(5)),
        st.builds(Adjust, payloads(), st.just(1), st.just(5), st.just(6)),
        st.just(Stable(3)),
    )


def misfit_by_definition(given_elements: list[Element]) -> tuple[int, str] | None:
    codec = RowCodec(SCHEMA)
    for at, element in enumerate(given_elements):
        if not isinstance(element, Stable):
            try:
                codec.decode(element.payload, at)
            except InvalidRow as problem:
                return at, str(problem)
    return None


ENGINES = [
    selection.PYTHON,
    pytest.param(
        selection.NATIVE,
        marks=pytest.mark.skipif(selection.native_problem() is not None, reason="the native core is not built"),
    ),
]


@pytest.mark.parametrize("engine", ENGINES)
@settings(deadline=None)
@given(st.lists(elements(), max_size=4))
def test_the_first_payload_that_does_not_decode_is_found(engine: str, given_elements: list[Element]) -> None:
    found = Fitting(SCHEMA, engine).misfit(Batch.of(given_elements))
    assert (None if found is None else (found.at, str(found.problem))) == misfit_by_definition(given_elements)


@pytest.mark.skipif(selection.native_problem() is not None, reason="the native core is not built")
@settings(deadline=None)
@given(payloads())
def test_the_core_is_sure_of_every_payload_that_decodes(payload: bytes) -> None:
    """A payload that the core leaves to the codec costs 100 times as much: no client may have many of them merged."""
    from lmerge.wire.native_fitting import NativePrecheck

    batch = Batch.of([Stable(1), Insert(payload, 1, 5)])
    is_row = misfit_by_definition([Insert(payload, 1, 5)]) is None
    assert NativePrecheck(SCHEMA).first_doubt(batch, 0) == (None if is_row else 1)
