"""The batch codec: a batch comes out as it went in; hostile columns are refused, naming column and element."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_world import COLUMNS, decode, encode, own, per_engine, plain

from lmerge.core.batch import EMPTY, Batch
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Insert, Stable
from lmerge.errors import InvalidBatch, LimitExceeded
from lmerge.wire.codec import encode_batch, slice_batch, split_batch
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import ELEMENT_BYTES, MESSAGE_OVERHEAD_BYTES, BatchLimits

times = st.integers(NEG_INF, INF)
payloads = st.binary(max_size=20)
elements = st.one_of(
    st.builds(Insert, payloads, times, times),
    st.builds(Adjust, payloads, times, times, times),
    st.builds(Stable, times),
)
batches = st.builds(Batch.of, st.lists(elements, max_size=30))

SAMPLE: list[Element] = [Insert(b"p", 1, 5), Stable(2), Adjust(b"qq", 3, 4, 6)]


@per_engine
@given(batches)
def test_a_batch_survives_the_wire(engine: str, batch: Batch) -> None:
    assert plain(decode(engine, encode(engine, own(engine, batch)))) == batch


@per_engine
@given(batches, st.integers(1, 7))
def test_pieces_are_within_the_limits_and_make_up_the_whole(engine: str, batch: Batch, count: int) -> None:
    room = MESSAGE_OVERHEAD_BYTES + 3 * ELEMENT_BYTES + 20
    limits = BatchLimits(elements=count, payload_bytes=20, message_bytes=room)
    pieces = list(split_batch(own(engine, batch), limits))
    assert [e for piece in pieces for e in piece.elements()] == list(batch.elements())
    for piece in pieces:
        assert 0 < piece.count <= count
        message = encode(engine, piece)
        assert message.ByteSize() <= limits.message_bytes
        decode(engine, message, limits)


def test_a_batch_that_fits_is_not_copied() -> None:
    batch = Batch.of(SAMPLE)
    assert next(split_batch(batch)) is batch
    assert list(split_batch(EMPTY)) == []


def test_a_payload_that_fits_no_batch_is_named_before_anything_is_given(engine: str) -> None:
    batch = own(engine, Batch.of([Insert(b"ok", 1, 2), Insert(b"x" * 11, 1, 2)]))
    with pytest.raises(LimitExceeded, match="element 1 has 11 bytes, above the limit of 10"):
        next(split_batch(batch, BatchLimits(payload_bytes=10)))


def test_a_slice_is_all_columns_cut_alike(engine: str) -> None:
    assert list(slice_batch(own(engine, Batch.of(SAMPLE)), 1, 3).elements()) == SAMPLE[1:]


def test_the_columns_are_little_endian_as_documented(engine: str) -> None:
    message = encode(engine, own(engine, Batch.of(SAMPLE)))
    assert message.kinds == b"\x00\x02\x01"
    assert message.vs == struct.pack("<3q", 1, 2, 3)
    assert message.ve == struct.pack("<3q", 5, 0, 6)
    assert message.vold == struct.pack("<3q", 0, 0, 4)
    assert message.payload_ends == struct.pack("<3I", 1, 1, 3)
    assert message.payloads == b"pqq"


def test_columns_that_hold_nothing_are_left_out(engine: str) -> None:
    stables = encode(engine, own(engine, Batch.of([Stable(1), Stable(2)])))
    assert stables == pb.Batch(kinds=b"\x02\x02", vs=stables.vs)
    assert not encode(engine, own(engine, Batch.of([Insert(b"p", 1, 2)]))).vold


def column(name: str, value: bytes) -> Callable[[pb.Batch], None]:
    return lambda message: setattr(message, name, value)


def stables_with_payloads(message: pb.Batch) -> None:
    message.kinds, message.ve, message.vold, message.payload_ends = b"\x02\x02\x02", b"", b"", b""


HOSTILE: dict[str, tuple[Callable[[pb.Batch], None], str]] = {
    "a kind that is none": (column("kinds", b"\x00\x02\x09"), "column kinds, element 2: unknown kind 9"),
    "fewer kinds": (column("kinds", b"\x00\x02"), "column vs has 24 bytes where 2 elements need 16"),
    "more kinds": (column("kinds", b"\x00\x02\x01\x01"), "column vs has 24 bytes where 4 elements need 32"),
    "a torn time": (column("vs", b"\0" * 23), "column vs has 23 bytes"),
    "no vs": (column("vs", b""), "column vs has 0 bytes"),
    "no ve": (column("ve", b""), "column ve has 0 bytes"),
    "no vold beside an adjust": (column("vold", b""), "column vold has 0 bytes"),
    "no payload ends": (column("payload_ends", b""), "column payload_ends has 0 bytes"),
    "ends that go back": (
        column("payload_ends", struct.pack("<3I", 2, 1, 3)),
        "column payload_ends, element 1: 1 is less than 2",
    ),
    "ends beyond the payloads": (column("payload_ends", struct.pack("<3I", 1, 1, 9)), "ends at 9"),
    "payloads beyond the ends": (column("payloads", b"pqqq"), "column payloads has 4 bytes"),
    "a stable with a payload": (
        column("payload_ends", struct.pack("<3I", 1, 2, 3)),
        "column payloads, element 1: a stable has no payload",
    ),
    "a stable with an end": (
        column("ve", struct.pack("<3q", 5, 7, 6)),
        "column ve, element 1: a stable has no Ve, but 7 came",
    ),
    "an insert with a Vold": (
        column("vold", struct.pack("<3q", 8, 0, 4)),
        "column vold, element 0: only an adjust has a Vold, but 8 came",
    ),
    "payloads that no element has": (stables_with_payloads, "column payloads has 3 bytes, but column payload_ends"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_columns_are_refused_by_name(name: str, engine: str) -> None:
    spoil, problem = HOSTILE[name]
    message = encode_batch(Batch.of(SAMPLE))
    spoil(message)
    with pytest.raises(InvalidBatch) as caught:
        decode(engine, message)
    assert problem in str(caught.value)


@per_engine
@given(st.builds(pb.Batch, **dict.fromkeys(COLUMNS, st.binary(max_size=24))))
def test_any_columns_give_a_batch_or_an_error_of_ours(engine: str, message: pb.Batch) -> None:
    try:
        batch = plain(decode(engine, message, BatchLimits(elements=10, payload_bytes=8)))
    except (InvalidBatch, LimitExceeded):
        return
    lengths = {len(batch.vs), len(batch.ve), len(batch.vold), len(batch.payloads)}
    assert lengths == {batch.count}
    assert plain(decode(engine, encode_batch(batch))) == batch


def test_limits_are_kept_on_arrival(engine: str) -> None:
    message = encode_batch(Batch.of(SAMPLE))
    assert decode(engine, message, BatchLimits(elements=3, payload_bytes=2)).count == 3
    with pytest.raises(LimitExceeded, match="a batch of 3 elements is above the limit of 2"):
        decode(engine, message, BatchLimits(elements=2))
    with pytest.raises(LimitExceeded, match="column payloads, element 2: 2 bytes are above the limit of 1"):
        decode(engine, message, BatchLimits(payload_bytes=1))


def test_what_cannot_be_encoded_is_refused_by_name() -> None:
    with pytest.raises(InvalidBatch, match="column ve, element 0: 9223372036854775808 is not a 64-bit integer"):
        encode_batch(Batch(b"\x00", [1], [INF + 1], [0], [b""]))
    with pytest.raises(InvalidBatch, match="column ve has 0 elements where kinds has 1"):
        encode_batch(Batch(b"\x00", [1], [], [0], [b""]))
    with pytest.raises(InvalidBatch, match="column payloads, element 0: str is not bytes"):
        encode_batch(Batch(b"\x00", [1], [2], [0], ["text"]))  # type: ignore[list-item]  # wrong on purpose
