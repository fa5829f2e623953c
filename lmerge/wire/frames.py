"""Converts messages that carry batches: from the bytes of gRPC to an engine's kind of batch, and back.

Service and client choose the frames of their engine through ``engine_frames``. They read and write these messages as
bytes, so that the native engine never copies a batch element by element: ``NativeFrames`` (``native_frames``) reads the
columns where they lie in the message, and writes each byte once. ``PythonFrames`` converts through protobuf's objects.
Protobuf reads and writes all other messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from lmerge.core.batch import AnyBatch, Batch
from lmerge.wire.codec import concat_batches, decode_batch, encode_batch, split_batch
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import ELEMENT_BYTES, MESSAGE_OVERHEAD_BYTES, BatchLimits


class ReceivedMessage(Protocol):
    """A message as the native port has received it; ``bytes`` makes a copy."""

    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes: ...


Message: TypeAlias = bytes | ReceivedMessage


class Received(Protocol):
    """A batch that was received. ``decode`` checks its columns and raises InvalidBatch and LimitExceeded."""

    @property
    def sequence(self) -> int: ...
    def decode(self, limits: BatchLimits) -> AnyBatch: ...


class Frames(Protocol):
    """Reads and writes an engine's batches in messages. The batches given to ``encode_*`` become one."""

    def read_publish(self, data: Message) -> Received | pb.PublishRequest:
        """Read a publisher's message. Raises protobuf's DecodeError."""

    def read_subscribe(self, data: Message) -> Received | pb.SubscribeResponse:
        """Read a server's message to a subscriber. Raises protobuf's DecodeError."""

    def encode_publish(self, sequence: int, batches: Sequence[AnyBatch]) -> bytes: ...
    def encode_subscribe(self, batches: Sequence[AnyBatch]) -> bytes: ...


def groups(batches: Sequence[AnyBatch], limits: BatchLimits) -> Iterator[list[AnyBatch]]:
    """Yield ``batches`` in groups, in order, each of which fits into a message as one batch.

    A batch that alone does not fit is split. Raises LimitExceeded if a single payload is above its limit.
    """
    room = limits.message_bytes - MESSAGE_OVERHEAD_BYTES
    group: list[AnyBatch] = []
    elements = used = 0
    for batch in batches:
        payloads, largest = batch.payload_sizes
        size = batch.count * ELEMENT_BYTES + payloads
        if elements and (elements + batch.count > limits.elements or used + size > room):
            yield group
            group, elements, used = [], 0, 0
        if batch.count > limits.elements or size > room or largest > limits.payload_bytes:
            yield from ([piece] for piece in split_batch(batch, limits))
            continue
        group.append(batch)
        elements += batch.count
        used += size
    if elements:
        yield group


class ReceivedLists(NamedTuple):
    """A batch in a parsed message."""

    sequence: int
    message: pb.Batch

    def decode(self, limits: BatchLimits) -> AnyBatch:
        return decode_batch(self.message, limits)


class PythonFrames:
    """Frames that are read and written through protobuf."""

    def read_publish(self, data: Message) -> Received | pb.PublishRequest:
        request = pb.PublishRequest.FromString(bytes(data))
        if request.WhichOneof("message") != "batch":
            return request
        return ReceivedLists(request.batch.sequence, request.batch.batch)

    def read_subscribe(self, data: Message) -> Received | pb.SubscribeResponse:
        response = pb.SubscribeResponse.FromString(bytes(data))
        return response if response.WhichOneof("message") != "batch" else ReceivedLists(0, response.batch)

    def encode_publish(self, sequence: int, batches: Sequence[AnyBatch]) -> bytes:
        batch = pb.PublishRequest.SequencedBatch(sequence=sequence, batch=_encoded(batches))
        return pb.PublishRequest(batch=batch).SerializeToString()

    def encode_subscribe(self, batches: Sequence[AnyBatch]) -> bytes:
        return pb.SubscribeResponse(batch=_encoded(batches)).SerializeToString()


PYTHON_FRAMES: Final = PythonFrames()


def _encoded(batches: Sequence[AnyBatch]) -> pb.Batch:
    lists = [batch for batch in batches if isinstance(batch, Batch)]
    assert len(lists) == len(batches), "the Python engine has no other batches"
    return encode_batch(concat_batches(lists))
