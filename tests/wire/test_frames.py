"""Messages that carry batches: both engines write the same bytes, and read or refuse the same messages."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st
from wire_world import COLUMNS, batch_of, decode, own, per_engine, plain, shapes

from lmerge.core.batch import EMPTY, AnyBatch, Batch
from lmerge.core.elements import Adjust, Insert, Stable
from lmerge.core.engines import selection
from lmerge.errors import LimitExceeded, LmergeError
from lmerge.wire.codec import encode_batch, slice_batch
from lmerge.wire.engine_frames import frames_of
from lmerge.wire.frames import PYTHON_FRAMES, Frames, groups
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import ELEMENT_BYTES, MESSAGE_OVERHEAD_BYTES, BatchLimits

SEQUENCES = st.sampled_from((0, 1, 127, 128, 2**32, 2**63, 2**64 - 1)) | st.integers(0, 2**64 - 1)
LIMITS = BatchLimits(elements=10, payload_bytes=50)
MIXED = Batch.of([Insert(b"ab", 1, 5), Adjust(b"c", 2, 6, 7), Stable(2)])


def publish_message(sequence: int, batches: list[Batch]) -> bytes:
    """Return what protobuf writes."""
    rows = [row for batch in batches for row in batch.rows()]
    batch = pb.PublishRequest.SequencedBatch(sequence=sequence, batch=encode_batch(batch_of(rows)))
    return pb.PublishRequest(batch=batch).SerializeToString()


def subscribe_message(batches: list[Batch]) -> bytes:
    rows = [row for batch in batches for row in batch.rows()]
    return pb.SubscribeResponse(batch=encode_batch(batch_of(rows))).SerializeToString()


@per_engine
@given(SEQUENCES, st.lists(shapes, min_size=1, max_size=4))
@example(0, [EMPTY])
@example(0, [Batch.of([Stable(1)]), Batch.of([Insert(b"", 1, 2)])])
@example(7, [Batch.of([Insert(b"x" * 200, 1, 2)]), EMPTY, Batch.of([Adjust(b"", 1, 2, 3)])])
def test_a_message_is_byte_for_byte_what_protobuf_writes(engine: str, sequence: int, batches: list[Batch]) -> None:
    frames = frames_of(engine)
    written = [own(engine, batch) for batch in batches]
    came = [decode(engine, encode_batch(batch)) for batch in batches]  # columns that hold nothing may be left out
    for mine in (written, came, [*came[:1], *written[1:]]):
        assert frames.encode_publish(sequence, mine) == publish_message(sequence, batches)
        assert frames.encode_subscribe(mine) == subscribe_message(batches)


@per_engine
@given(SEQUENCES, shapes.filter(len), st.data())
def test_a_part_of_a_batch_is_written_like_a_batch_of_its_own(
    engine: str, sequence: int, batch: Batch, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, batch.count))
    stop = data.draw(st.integers(start, batch.count))
    alone = batch_of(list(batch.rows())[start:stop])
    for whole in (own(engine, batch), decode(engine, encode_batch(batch))):
        message = frames_of(engine).encode_publish(sequence, [slice_batch(whole, start, stop), whole])
        assert message == publish_message(sequence, [alone, batch])


@per_engine
@given(SEQUENCES, shapes)
def test_what_one_engine_writes_the_other_reads(engine: str, sequence: int, batch: Batch) -> None:
    for writer, reader in ((engine, selection.PYTHON), (selection.PYTHON, engine)):
        frames, mine = frames_of(writer), [own(writer, batch)]
        received: Any = frames_of(reader).read_publish(frames.encode_publish(sequence, mine))
        assert (received.sequence, plain(received.decode(BatchLimits()))) == (sequence, batch)
        received = frames_of(reader).read_subscribe(frames.encode_subscribe(mine))
        assert (received.sequence, plain(received.decode(BatchLimits()))) == (0, batch)


def test_other_messages_are_protobufs_own(engine: str) -> None:
    frames = frames_of(engine)
    for request in (
        pb.PublishRequest(),
        pb.PublishRequest(leave=pb.PublishRequest.Leave()),
        pb.PublishRequest(attach=pb.Attach(merge="m", replica="r", join_at=3)),
    ):
        assert frames.read_publish(request.SerializeToString()) == request
    for response in (
        pb.SubscribeResponse(),
        pb.SubscribeResponse(snapshot_end=pb.SubscribeResponse.SnapshotEnd()),
        pb.SubscribeResponse(progress=pb.SubscribeResponse.Progress(stable_point=9)),
        pb.SubscribeResponse(snapshot_begin=pb.SubscribeResponse.SnapshotBegin(events=4)),
    ):
        assert frames.read_subscribe(response.SerializeToString()) == response


# What each engine reads from bytes.


def verdict(frames: Frames, message: bytes, *, subscribe: bool = False) -> object:
    read: Callable[[bytes], Any] = frames.read_subscribe if subscribe else frames.read_publish
    try:
        received = read(message)
        if isinstance(received, pb.PublishRequest | pb.SubscribeResponse):
            return received.SerializeToString(deterministic=True)
        return received.sequence, plain(received.decode(LIMITS))
    except DecodeError as error:
        return type(error)  # the message is protobuf's
    except LmergeError as error:
        return type(error), str(error)


def assert_same_verdict(engine: str, message: bytes) -> None:
    frames = frames_of(engine)
    for subscribe in (False, True):
        expected = verdict(PYTHON_FRAMES, message, subscribe=subscribe)
        assert verdict(frames, message, subscribe=subscribe) == expected


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, wire: int, body: bytes) -> bytes:
    return varint(number << 3 | wire) + (varint(len(body)) if wire == 2 else b"") + body


COLUMNS_BYTES = encode_batch(MIXED).SerializeToString()
SEQUENCED = field(1, 0, b"\5") + field(2, 2, COLUMNS_BYTES)
BATCH = field(2, 2, SEQUENCED)
ATTACH = pb.PublishRequest(attach=pb.Attach(merge="m", replica="r")).SerializeToString()
LEAVE = pb.PublishRequest(leave=pb.PublishRequest.Leave()).SerializeToString()
ONLY_KINDS, ONLY_VS = field(1, 2, b"\2"), field(2, 2, bytes(8))

ODD = {
    "nothing": b"",
    "a batch": BATCH,
    "the same batch twice: merged": BATCH + BATCH,
    "a batch in two parts: merged": field(2, 2, field(1, 0, b"\7")) + field(2, 2, field(2, 2, COLUMNS_BYTES)),
    "columns in two parts: merged": field(2, 2, field(2, 2, ONLY_KINDS) + field(2, 2, ONLY_VS)),
    "a later column of the same name counts": field(2, 2, field(2, 2, COLUMNS_BYTES + field(6, 2, b"xyz"))),
    "a batch, then an attach: the last counts": BATCH + ATTACH,
    "an attach, then a batch: the last counts": ATTACH + BATCH,
    "a batch, a leave, and a batch: only the last": field(2, 2, field(1, 0, b"\7")) + LEAVE + field(2, 2, b""),
    "an attach that is none, then a batch": field(1, 2, b"\xff") + BATCH,
    "a batch, then an attach that is none": BATCH + field(1, 2, b"\xff"),
    "an unknown field beside the batch": BATCH + field(99, 2, b"later"),
    "an unknown field within the batch": field(2, 2, SEQUENCED + field(9, 0, b"\1")),
    "an unknown column": field(2, 2, field(2, 2, COLUMNS_BYTES + field(7, 2, b"later"))),
    "an unknown field that is torn": BATCH + field(99, 2, b"later")[:-1],
    "field number 0": BATCH + b"\0\0",
    "the largest field number": BATCH + field(2**29 - 1, 0, b"\1"),
    "a field number that is too large": BATCH + varint(2**33) + b"\1",
    "a group": BATCH + b"\x1b\x1c",
    "an open group": BATCH + b"\x1b",
    "a group that was never opened": BATCH + b"\x1c",
    "wire type 6": BATCH + b"\x1e",
    "the batch is a number": field(2, 0, b"\1"),
    "the batch is a number beside one that is not": BATCH + field(2, 0, b"\1"),
    "the columns are eight bytes": field(2, 2, field(2, 1, bytes(8))),
    "a column is a number": field(2, 2, field(2, 2, COLUMNS_BYTES + field(1, 0, b"\1"))),
    "the sequence is bytes": field(2, 2, field(1, 2, b"\1") + field(2, 2, COLUMNS_BYTES)),
    "the sequence is bytes beside one that is not": field(2, 2, SEQUENCED + field(1, 2, b"\1")),
    "the sequence twice": field(2, 2, SEQUENCED + field(1, 0, b"\x09")),
    "a sequence of eleven bytes": field(2, 2, field(1, 0, b"\xff" * 10 + b"\1") + field(2, 2, COLUMNS_BYTES)),
    "a sequence of ten bytes that overflows": field(2, 2, field(1, 0, b"\xff" * 9 + b"\x7f")),
    "a sequence that is longer than it need be": field(2, 2, field(1, 0, b"\x85\x80\0") + field(2, 2, COLUMNS_BYTES)),
    "a sequence of 0 that is there": field(2, 2, field(1, 0, b"\0") + field(2, 2, COLUMNS_BYTES)),
    "a column that is there and empty": field(2, 2, field(2, 2, field(1, 2, b""))),
    "columns before the sequence": field(2, 2, field(2, 2, COLUMNS_BYTES) + field(1, 0, b"\5")),
    "a length that is longer than it need be": b"\x12" + varint(len(SEQUENCED))[:-1] + b"\xb8\x80\0" + SEQUENCED,
    "a length beyond the end": b"\x12\x7f" + SEQUENCED,
    "a length beyond all memory": b"\x12" + varint(2**63) + SEQUENCED,
    "no columns": field(2, 2, field(1, 0, b"\5")),
    "a batch of a subscriber": field(2, 2, COLUMNS_BYTES),
    "a subscriber's batch twice": field(2, 2, ONLY_KINDS) + field(2, 2, ONLY_VS),
    "a subscriber's batch, then an end": field(2, 2, COLUMNS_BYTES) + field(3, 2, b""),
}


@pytest.mark.parametrize("name", ODD)
def test_both_engines_read_the_same_in_an_odd_message(name: str, engine: str) -> None:
    assert_same_verdict(engine, ODD[name])


def test_a_batch_that_is_written_oddly_is_still_a_batch(engine: str) -> None:
    """A batch that the native reader leaves to protobuf must not be lost on the way."""
    for name in ("an unknown field beside the batch", "the sequence is bytes beside one that is not", "a group"):
        assert verdict(frames_of(engine), ODD[name]) == (5, MIXED), name


@per_engine
@given(st.binary(max_size=60))
def test_of_random_bytes_both_engines_make_the_same(engine: str, message: bytes) -> None:
    assert_same_verdict(engine, message)


@per_engine
@given(shapes, st.integers(0, 2**32))
def test_of_torn_and_changed_messages_both_engines_make_the_same(engine: str, batch: Batch, seed: int) -> None:
    random = Random(seed)
    for whole in (publish_message(random.choice((0, 5, 300)), [batch]), subscribe_message([batch])):
        message = bytearray(whole)
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(message) + 1)
            chance = random.random()
            if chance < 0.25:
                del message[at:]
            elif chance < 0.5:
                message[at:at] = random.randbytes(random.randint(1, 3))
            elif chance < 0.7:
                del message[at : at + random.randint(1, 9)]
            elif message[at:]:
                message[at] = random.choice((message[at] ^ 1 << random.randrange(8), random.randrange(256)))
        assert_same_verdict(engine, bytes(message))


@per_engine
@given(
    st.builds(
        pb.Batch,
        kinds=st.lists(st.integers(0, 3), max_size=4).map(bytes),
        vs=st.integers(0, 5).map(lambda n: bytes(8 * n)),
        **dict.fromkeys(COLUMNS[2:], st.binary(max_size=33)),
    )
)
def test_of_columns_that_disagree_both_engines_report_the_same(engine: str, message: pb.Batch) -> None:
    assert_same_verdict(engine, pb.SubscribeResponse(batch=message).SerializeToString())


# Groups.


def ends_of(pieces: list[list[AnyBatch]]) -> list[tuple[int, int]]:
    return [(sum(b.count for b in group), sum(b.payload_sizes[0] for b in group)) for group in pieces]


@per_engine
@given(st.lists(shapes, max_size=8), st.integers(1, 9), st.integers(0, 200))
def test_groups_lose_nothing_keep_the_order_and_fit_into_messages(
    engine: str, batches: list[Batch], elements: int, room: int
) -> None:
    limits = BatchLimits(elements, 200, MESSAGE_OVERHEAD_BYTES + ELEMENT_BYTES + 200 + room)
    frames, pieces = frames_of(engine), list(groups([own(engine, batch) for batch in batches], limits))
    assert [row for group in pieces for piece in group for row in piece.rows()] == [
        row for batch in batches for row in batch.rows()
    ]
    for group in pieces:
        assert 0 < sum(piece.count for piece in group) <= elements
        assert len(frames.encode_publish(2**64 - 1, group)) <= limits.message_bytes
        received: Any = frames.read_subscribe(frames.encode_subscribe(group))
        assert received.decode(limits).count == sum(piece.count for piece in group)


def test_batches_are_grouped_as_long_as_there_is_room_for_the_next(engine: str) -> None:
    batches = [own(engine, Batch.of([Insert(b"x" * 10, at, 99)] * 3)) for at in range(6)]
    assert ends_of(list(groups(batches, BatchLimits(elements=7)))) == [(6, 60)] * 3
    room = MESSAGE_OVERHEAD_BYTES + 9 * (ELEMENT_BYTES + 10)
    assert ends_of(list(groups(batches, BatchLimits(payload_bytes=10, message_bytes=room)))) == [(9, 90)] * 2
    tight = BatchLimits(payload_bytes=10, message_bytes=room - 1)
    assert ends_of(list(groups(batches, tight))) == [(6, 60)] * 3
    assert ends_of(list(groups(batches, BatchLimits()))) == [(18, 180)]


def test_a_batch_that_fits_no_message_is_split_alone_and_those_around_it_stay_whole(engine: str) -> None:
    large = own(engine, Batch.of([Insert(b"x", at, 99) for at in range(8)]))
    small = own(engine, Batch.of([Stable(5)]))
    assert ends_of(list(groups([small, small, large, small], BatchLimits(elements=3)))) == [
        (2, 0),
        (3, 3),
        (3, 3),
        (2, 2),
        (1, 0),
    ]


def test_empty_batches_make_no_message(engine: str) -> None:
    empty = own(engine, EMPTY)
    large = own(engine, Batch.of([Stable(at) for at in range(4)]))
    assert list(groups([], BatchLimits())) == list(groups([empty, empty], BatchLimits())) == []
    assert ends_of(list(groups([empty, large, empty], BatchLimits(elements=2)))) == [(2, 0), (2, 0)]
    assert ends_of(list(groups([empty, large, empty], BatchLimits(elements=4)))) == [(4, 0)]


def test_a_payload_above_the_limit_is_refused_by_element_though_the_message_had_room(engine: str) -> None:
    batch = own(engine, Batch.of([Insert(b"ok", 1, 2), Insert(b"x" * 11, 1, 2)]))
    with pytest.raises(LimitExceeded, match="element 1 has 11 bytes, above the limit of 10"):
        list(groups([batch], BatchLimits(payload_bytes=10)))
    assert len(list(groups([batch], BatchLimits(payload_bytes=11)))) == 1


def test_limits_are_kept_on_arrival_in_bytes_too(engine: str) -> None:
    received: Any = frames_of(engine).read_publish(publish_message(1, [MIXED]))
    assert received.decode(BatchLimits(elements=3, payload_bytes=2)).count == 3
    with pytest.raises(LimitExceeded, match=r"^a batch of 3 elements is above the limit of 2$"):
        received.decode(BatchLimits(elements=2))
    with pytest.raises(LimitExceeded, match=r"^column payloads, element 0: 2 bytes are above the limit of 1$"):
        received.decode(BatchLimits(payload_bytes=1))
