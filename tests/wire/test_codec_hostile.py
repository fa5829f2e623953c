"""Nothing that a peer can send gets past the decoder as a broken batch, and every refusal names what is wrong."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_world import decode, per_engine, plain

from lmerge.errors import InvalidBatch, LimitExceeded
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import BatchLimits


def times(*values: int) -> bytes:
    return array("q", values).tobytes()


def ends(*values: int) -> bytes:
    return array("I", values).tobytes()


# insert("ab", 1, 5), adjust("c", 2, 6, 7), stable(2)
SOUND: dict[str, bytes] = {
    "kinds": b"\0\1\2",
    "vs": times(1, 2, 2),
    "ve": times(5, 7, 0),
    "vold": times(0, 6, 0),
    "payload_ends": ends(2, 3, 3),
    "payloads": b"abc",
}

BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "unknown kind": ({"kinds": b"\0\3\2"}, "column kinds, element 1: unknown kind 3"),
    "vs too short": ({"vs": times(1, 2)}, "column vs has 16 bytes where 3 elements need 24"),
    "vs torn": ({"vs": times(1, 2, 2)[:-1]}, "column vs has 23 bytes"),
    "vs empty": ({"vs": b""}, "column vs has 0 bytes"),
    "ve too long": ({"ve": times(5, 7, 0, 0)}, "column ve has 32 bytes"),
    "ve empty beside an insert": ({"ve": b""}, "column ve has 0 bytes"),
    "vold empty beside an adjust": ({"vold": b""}, "column vold has 0 bytes"),
    "more columns than kinds": ({"kinds": b""}, "column vs has 24 bytes where 0 elements need 0"),
    "vold of an insert": ({"vold": times(4, 6, 0)}, "column vold, element 0: only an adjust has a Vold, but 4 came"),
    "vold of a stable": ({"vold": times(0, 6, 4)}, "column vold, element 2: only an adjust has a Vold, but 4 came"),
    "ve of a stable": ({"ve": times(5, 7, 9)}, "column ve, element 2: a stable has no Ve, but 9 came"),
    "payload of a stable": ({"payload_ends": ends(1, 2, 3)}, "column payloads, element 2: a stable has no payload"),
    "ends too short": ({"payload_ends": ends(2, 3)}, "column payload_ends has 8 bytes where 3 elements need 12"),
    "ends decrease": ({"payload_ends": ends(3, 2, 3)}, "column payload_ends, element 1: 2 is less than 3 before it"),
    "ends fall short": ({"payloads": b"abcd"}, "column payload_ends ends at 3, but column payloads has 4 bytes"),
    "ends point beyond": ({"payloads": b"ab"}, "column payload_ends ends at 3, but column payloads has 2 bytes"),
    "payloads without ends": ({"payload_ends": b""}, "column payload_ends has 0 bytes"),
    "stables with payloads but no ends": (
        {"kinds": b"\2\2\2", "ve": b"", "vold": b"", "payload_ends": b""},
        "column payloads has 3 bytes, but column payload_ends is empty",
    ),
}


def test_the_sound_batch_is_sound(engine: str) -> None:
    assert decode(engine, pb.Batch(**SOUND)).count == 3


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_batch_is_refused_by_column_and_element(name: str, engine: str) -> None:
    change, message = BROKEN[name]
    with pytest.raises(InvalidBatch) as caught:
        decode(engine, pb.Batch(**{**SOUND, **change}))
    assert message in str(caught.value)


def test_too_many_elements_are_refused(engine: str) -> None:
    with pytest.raises(LimitExceeded, match="a batch of 3 elements is above the limit of 2"):
        decode(engine, pb.Batch(**SOUND), BatchLimits(elements=2))


def test_a_payload_above_the_limit_is_refused_by_element(engine: str) -> None:
    with pytest.raises(LimitExceeded, match="column payloads, element 0: 2 bytes are above the limit of 1"):
        decode(engine, pb.Batch(**SOUND), BatchLimits(payload_bytes=1))


def test_many_small_payloads_may_exceed_the_limit_of_one_together(engine: str) -> None:
    assert decode(engine, pb.Batch(**SOUND), BatchLimits(payload_bytes=2)).payloads == [b"ab", b"c", b""]


COLUMN = st.binary(max_size=40)


@per_engine
@given(
    st.builds(
        pb.Batch,
        kinds=st.binary(max_size=4) | st.lists(st.integers(0, 2), max_size=4).map(bytes),
        vs=COLUMN,
        ve=COLUMN,
        vold=COLUMN,
        payload_ends=COLUMN,
        payloads=COLUMN,
    )
)
def test_any_columns_decode_to_a_whole_batch_or_are_refused(engine: str, message: pb.Batch) -> None:
    try:
        batch = plain(decode(engine, message))
    except InvalidBatch:
        return
    assert len({batch.count, len(batch.vs), len(batch.ve), len(batch.vold), len(batch.payloads)}) == 1
    assert b"".join(batch.payloads) == message.payloads


@per_engine
@given(st.sampled_from(sorted(SOUND)), st.integers(0, 23), st.integers(0, 255))
def test_any_one_changed_byte_is_refused_or_changes_one_element(engine: str, column: str, at: int, value: int) -> None:
    data = bytearray(SOUND[column])
    data[at % len(data)] = value
    try:
        batch = decode(engine, pb.Batch(**{**SOUND, column: bytes(data)}))
    except InvalidBatch:
        return
    assert batch.count == 3
    assert set(batch.kinds) <= {0, 1, 2}
