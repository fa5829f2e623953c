"""The errors that gRPC statuses stand for, as the wire document lists them: retryable or final."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import grpc

from lmerge.core.elements import show_payload
from lmerge.errors import (
    InputTaken,
    InputViolation,
    InvalidBatch,
    LimitExceeded,
    LmergeError,
    MergeReset,
    OutOfRange,
    PermissionDenied,
    PropertiesTooWeak,
    ServerGone,
    StaleIncarnation,
    StoreDamaged,
    Unauthenticated,
    UnknownMerge,
    UsageError,
)
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.token import ERROR_KEY, MERGE_RESET

E = TypeVar("E", bound=LmergeError)

# The connection is broken or the server is not there: another attempt can help.
_RETRYABLE: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNKNOWN,
    }
)
_FINAL: Final[dict[grpc.StatusCode, type[LmergeError]]] = {
    grpc.StatusCode.NOT_FOUND: UnknownMerge,
    grpc.StatusCode.ALREADY_EXISTS: InputTaken,
    grpc.StatusCode.ABORTED: StaleIncarnation,
    grpc.StatusCode.FAILED_PRECONDITION: PropertiesTooWeak,  # a violation comes with `detached`
    grpc.StatusCode.RESOURCE_EXHAUSTED: LimitExceeded,
    grpc.StatusCode.OUT_OF_RANGE: OutOfRange,
    grpc.StatusCode.DATA_LOSS: StoreDamaged,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
}


def is_retryable(code: grpc.StatusCode | None, *, was_let_in: bool = False) -> bool:
    """Return whether another attempt can help. Credentials that ``was_let_in`` may have been renewed since."""
    return code in _RETRYABLE or (was_let_in and code is grpc.StatusCode.UNAUTHENTICATED)


def error_of(
    code: grpc.StatusCode | None, details: str | None, target: str, *, attached: bool = False, trailing: Any = None
) -> LmergeError:
    """Return the error that a status stands for; ``details`` are the server's text.

    ``attached``: batches were sent; ``trailing``: metadata that came with the status, if any.
    """
    text = details or "no details"
    if code is None or code in _RETRYABLE:
        return ServerGone(f"the server at {target} cannot be reached: {text}")
    if code is grpc.StatusCode.INVALID_ARGUMENT and attached:
        return InvalidBatch(text)
    if code is grpc.StatusCode.OUT_OF_RANGE and (ERROR_KEY, MERGE_RESET) in (tuple(pair) for pair in trailing or ()):
        return MergeReset(text)
    return _FINAL.get(code, UsageError)(text)


def ending_of(replica: str, detached: pb.PublishResponse.Detached, target: str) -> LmergeError:
    """Return what the server's last message to a publisher stands for: a broken promise, or a final status."""
    if detached.status:
        codes = {code.value[0]: code for code in grpc.StatusCode}
        return error_of(
            codes.get(detached.status, grpc.StatusCode.INVALID_ARGUMENT), detached.message, target, attached=True
        )
    violation = InputViolation(detached.code, replica, "", "", "", index=detached.index)
    violation.args = (detached.message,)
    return violation


def naming(error: E, target: str) -> E:
    """Return the error, with the name of its server appended to the message."""
    error.args = (f"{error} (server {target})",)
    return error


def error_of_kind(kind: type[E], text: str) -> E:
    """Return an error of this kind whose message is ``text``, without the other arguments of its constructor."""
    error = kind.__new__(kind)
    error.args = (text,)
    return error


def payload_of(payload: Any) -> bytes:
    """Return a payload as bytes. Raises UsageError."""
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    kind = type(payload).__name__
    raise UsageError(
        f"a payload is bytes or text, or a row if the publisher has a schema; not {kind}: "
        f"{show_payload(repr(payload).encode())}"
    )
