"""Wire batches of the native core: the columns of a message are its columns, byte for byte.

The twin of ``codec.decode_batch`` for merges on the native engine: the same checks in the same words, made by the core
in one pass without an object per element. Importing this module imports the compiled core: ``codec.decoder`` does, for
those who ask for it.
"""

from __future__ import annotations

from lmerge._native import Columns, DecodeError
from lmerge.errors import InvalidBatch, LimitExceeded
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import DEFAULT_LIMITS, BatchLimits


def decode_columns(message: pb.Batch, limits: BatchLimits = DEFAULT_LIMITS) -> Columns:
    """The columns that ``message`` holds. Raises InvalidBatch and LimitExceeded as ``decode_batch`` does."""
    try:
        return Columns.decode(
            message.kinds, message.vs, message.ve, message.vold, message.payload_ends, message.payloads,
            limits.elements, limits.payload_bytes,
        )
    except DecodeError as problem:
        kind = LimitExceeded if problem.is_limit else InvalidBatch
        raise kind(str(problem)) from None
