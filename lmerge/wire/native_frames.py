"""Converts messages that carry batches on the native core: their columns have the bytes of its columns.

The core makes the checks of ``codec.decode_batch``, with the same messages, in one pass without an object per element.
Importing this module imports the compiled core: ``engine_frames`` does so when the native engine is selected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias, cast

from lmerge import _native
from lmerge._native import Columns
from lmerge.core.batch import AnyBatch
from lmerge.core.engines.native_engine import columns_of
from lmerge.errors import InvalidBatch, LimitExceeded
from lmerge.wire.frames import PYTHON_FRAMES, Message, Received
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import BatchLimits

# What ``Message`` is on the native engine.
_NativeMessage: TypeAlias = bytes | _native.Message


class ReceivedColumns(NamedTuple):
    """A batch in the bytes of a message."""

    sequence: int
    received: _native.Received

    def decode(self, limits: BatchLimits) -> AnyBatch:
        try:
            return self.received.decode(limits.elements, limits.payload_bytes)
        except _native.DecodeError as problem:
            raise (LimitExceeded if problem.is_limit else InvalidBatch)(str(problem)) from None


class NativeFrames:
    """Frames that the core reads and writes.

    Batches of Python's lists are accepted as well: the snapshot of an empty merge is one.

    The core reads only the encodings that it and protobuf write. Protobuf reads all others, including batches.
    """

    def read_publish(self, data: Message) -> Received | pb.PublishRequest:
        received = _native.read_publish(cast(_NativeMessage, data))
        return PYTHON_FRAMES.read_publish(data) if received is None else ReceivedColumns(received.sequence, received)

    def read_subscribe(self, data: Message) -> Received | pb.SubscribeResponse:
        received = _native.read_subscribe(cast(_NativeMessage, data))
        return PYTHON_FRAMES.read_subscribe(data) if received is None else ReceivedColumns(0, received)

    def encode_publish(self, sequence: int, batches: Sequence[AnyBatch]) -> bytes:
        return _native.encode_publish(sequence, _columns(batches))

    def encode_subscribe(self, batches: Sequence[AnyBatch]) -> bytes:
        return _native.encode_subscribe(_columns(batches))


NATIVE_FRAMES: Final = NativeFrames()


def _columns(batches: Sequence[AnyBatch]) -> list[Columns]:
    return [columns_of("a message", batch) for batch in batches]
