"""The forms that one batch may take on the wire: nothing at all, optional columns, another machine's byte order."""

from __future__ import annotations

import pytest
from wire_world import decode, encode, own, plain

from lmerge.core.batch import EMPTY, Batch
from lmerge.core.elements import Adjust, Insert, Stable
from lmerge.wire import codec
from lmerge.wire.codec import decode_batch, encode_batch
from lmerge.wire.generated import lmerge_pb2 as pb


def test_the_empty_batch_is_no_bytes(engine: str) -> None:
    assert encode(engine, own(engine, EMPTY)).SerializeToString() == b""
    assert plain(decode(engine, pb.Batch())) == EMPTY


def test_columns_that_could_be_left_out_are_understood_when_they_are_there(engine: str) -> None:
    stable = encode_batch(Batch.of([Stable(7)]))
    stable.ve, stable.vold, stable.payload_ends = bytes(8), bytes(8), bytes(4)
    assert plain(decode(engine, stable)) == Batch.of([Stable(7)])
    insert = encode_batch(Batch.of([Insert(b"a", 1, 2)]))
    insert.vold = bytes(8)
    assert plain(decode(engine, insert)) == Batch.of([Insert(b"a", 1, 2)])


def test_a_machine_of_the_other_byte_order_writes_and_reads_the_same_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch.of([Adjust(b"ab", 1, 2, 258), Insert(b"c", -1, 0)])
    plain = encode_batch(batch)
    monkeypatch.setattr(codec, "_IS_LITTLE", not codec._IS_LITTLE)
    swapped = encode_batch(batch)
    assert swapped.vs == b"".join(plain.vs[at : at + 8][::-1] for at in (0, 8))
    assert swapped.payload_ends == b"".join(plain.payload_ends[at : at + 4][::-1] for at in (0, 4))
    assert decode_batch(swapped) == batch
