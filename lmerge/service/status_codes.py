"""Maps errors to gRPC status codes. The table is that of docs/wire.md."""

from __future__ import annotations

from typing import Final

import grpc

from lmerge import errors
from lmerge.wire.token import ERROR_KEY, MERGE_RESET

_CODES: Final[tuple[tuple[type[Exception], grpc.StatusCode], ...]] = (  # the first that fits
    (errors.InputViolation, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.PropertiesTooWeak, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.UnknownMerge, grpc.StatusCode.NOT_FOUND),
    (errors.UnknownInput, grpc.StatusCode.NOT_FOUND),
    (errors.InputTaken, grpc.StatusCode.ALREADY_EXISTS),
    (errors.StaleIncarnation, grpc.StatusCode.ABORTED),
    (errors.Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (errors.PermissionDenied, grpc.StatusCode.PERMISSION_DENIED),
    (errors.OutOfRange, grpc.StatusCode.OUT_OF_RANGE),
    (errors.LimitExceeded, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.SubscriberTooSlow, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.UsageError, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.StoreDamaged, grpc.StatusCode.DATA_LOSS),
    (errors.Unavailable, grpc.StatusCode.UNAVAILABLE),
)


def code_of(error: Exception) -> grpc.StatusCode:
    """Return the status code for ``error``. INTERNAL for an error that lmerge did not raise on purpose."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return grpc.StatusCode.INTERNAL


def trailing_metadata(error: Exception) -> tuple[tuple[str, str], ...]:
    """Return the metadata that distinguish errors with the same status code."""
    return ((ERROR_KEY, MERGE_RESET),) if isinstance(error, errors.MergeReset) else ()
