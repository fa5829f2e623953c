"""The messages between a hub and the session of a publisher, and the hub's record of an attached input."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from lmerge.core.batch import AnyBatch
from lmerge.core.detaching import DetachCause, InputDetached
from lmerge.core.inputs import InputRole
from lmerge.core.merge import Outcome
from lmerge.errors import InputViolation, LmergeError, StaleIncarnation, UsageError
from lmerge.service.merge.inbox import PublisherSession, Work
from lmerge.service.merge.lifecycle import InputLifecycle
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.schema import Schema


class AttachRequest(NamedTuple):
    """The request of a replica to attach. ``incarnation`` None: the next one."""

    name: str
    incarnation: int | None
    properties: frozenset[str]
    join_at: int | None
    role: InputRole
    schema: pb.Schema | None


class Accepted(NamedTuple):
    """The answer to an attach request."""

    incarnation: int
    stable_point: int
    joined: bool
    algorithm: str
    algorithm_reason: str


class Attached:
    """The hub's record of one attached input. ``attached_at``: a time of the loop's clock."""

    __slots__ = (
        "acked",
        "acked_stable",
        "attached_at",
        "has_schema",
        "incarnation",
        "joined",
        "life",
        "merged",
        "name",
        "role",
        "session",
        "unacked",
    )

    def __init__(
        self,
        name: str,
        incarnation: int,
        session: PublisherSession,
        request: AttachRequest,
        joined: bool,
        stable_point: int,
    ) -> None:
        self.name = name
        self.role = request.role
        self.has_schema = request.schema is not None
        self.incarnation = incarnation
        self.session = session
        self.joined = joined
        self.merged = 0  # the last sequence merged
        self.acked = 0  # the last sequence acked
        self.unacked = False
        self.acked_stable = stable_point
        self.attached_at = asyncio.get_running_loop().time()
        self.life = InputLifecycle()


def elements_read(outcome: Outcome, name: str, batch: AnyBatch) -> int:
    """Return how many elements of ``batch`` the merge read: all, or up to the one that broke a promise."""
    for gone in outcome.detached:
        if gone.input == name and gone.violation is not None:
            return min(gone.violation.index + 1, batch.count)
    return batch.count


def columns_of(schema: pb.Schema) -> str:
    """Return the columns as text, with all that two schemas can differ in. The schema was checked when it came."""
    return str(Schema.from_message(schema))


def detached_message(violation: InputViolation, sequence: int, index_base: int) -> pb.PublishResponse.Detached:
    """Return the last message to a publisher that broke a promise.

    ``index_base``: the index, in its batch, of the first element of the piece that has the violation.
    """
    return pb.PublishResponse.Detached(
        code=violation.code, message=str(violation), sequence=sequence, index=index_base + violation.index
    )


def too_large(error: LmergeError) -> pb.PublishResponse.Detached:
    """Return the last message to the publisher of an input that takes a merge above its limit."""
    return pb.PublishResponse.Detached(code="limit-exceeded", message=str(error))


def ending(
    merge: str, gone: InputDetached, inp: Attached, work: Work | None
) -> tuple[LmergeError, pb.PublishResponse.Detached | None] | None:
    """Return the error and the last message with which the stream of an ended input ends.

    None unless the input broke a promise, by ``work``, or was replaced.
    """
    if gone.violation is not None:
        is_own = work is not None and work.session is inp.session
        number, base = (work.number, work.index_base) if work is not None and is_own else (inp.merged, 0)
        return gone.violation, detached_message(gone.violation, number, base)
    if gone.cause is DetachCause.REPLACED:
        return StaleIncarnation(
            f"input {gone.input!r} of merge {merge!r} is fenced: incarnation {gone.incarnation} was {gone.reason}"
        ), None
    return None


def check_schema(merge: str, request: AttachRequest, schema: pb.Schema | None, *, has_bare_events: bool) -> None:
    """Raise UsageError if the input declares other columns than the merge has.

    ``has_bare_events``: the merge has events of inputs that declared no columns.
    """
    if request.schema is None or request.schema == schema or (schema is None and not has_bare_events):
        return
    has = "events without columns" if schema is None else columns_of(schema)
    raise UsageError(
        f"input {request.name!r} cannot attach to merge {merge!r}: it declares columns {columns_of(request.schema)}, "
        f"but the merge has {has}"
    )
