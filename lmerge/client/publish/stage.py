"""Staging: the workers of a replica bring parts of a batch directly to the servers, for its publisher to commit.

    worker      stager = Stager("h1:7171,h2:7171", "flights", "a")
                holders = stager.stage(StageKey(query, batch, partition, attempt), messages)
    publisher   both = frozenset.intersection(*map(frozenset, holders_of_all_parts))
                publisher.publish(batches, Staged(query, batch, parts, both), stable=t)

``messages`` are those of ``frames.encode_publish``, numbered from 1. Staging is a shorter way for the bytes: the
publisher has the elements as well, and sends them to every server that does not hold all parts. So a server that is
away, full or older is no error here; only what the publisher could not send either is one.

The connections belong to the process: one for each server and connector, however many stagers there are. Workers that
are forked before anything is staged make their own. gRPC does not work in a process whose parent has used it, so there
nothing is staged.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import grpc
import grpc.aio

from lmerge.client.connection.background import background_loop, run_blocking
from lmerge.client.connection.faults import error_of, naming
from lmerge.client.connection.streams import Connector, connector_of, parse_targets
from lmerge.client.publish.outbox import Staged
from lmerge.time_limit import time_limit
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.names import check_name

__all__ = ["StageKey", "Staged", "Stager"]

# How long a server may take for a part of some MB; beyond, staging is no shorter way any more.
STAGE_S: Final = 10.0
# How long connecting, and the server's answer that it takes a part, may take together.
ANSWER_S: Final = 5.0
# A server that did not answer in time is not called for 1, 2, 4 .. s: a worker has other parts to bring.
AWAY_S: Final = 1.0
AWAY_MAX_S: Final = 30.0
# Connections that a process keeps; more servers than one query feeds.
LINES_MAX: Final = 32

_METHOD: Final = f"/{pb.DESCRIPTOR.services_by_name['Lmerge'].full_name}/Stage"
# In the trailing metadata of a refusal: the payload is above the limit of the wire, which holds for publishers as well.
_PAYLOAD_LIMIT: Final = ("lmerge-limit", "payload")
# In the initial metadata of a call that takes batches.
_TAKES: Final = ("lmerge-takes", "batches")


@dataclass(frozen=True)
class StageKey:
    """The part of a batch of a query, and the attempt that made it. A part that comes again replaces the one before."""

    query: str
    batch: int
    partition: int
    attempt: int


class Stager:
    """Stages parts of what ``replica`` publishes into ``merge``. Blocking; any thread may use it.

    ``targets`` and ``security``: as for ``Publisher``. ``refusals``: why servers do not hold the part that came last.
    """

    def __init__(
        self, targets: str | Iterable[str], merge: str, replica: str, security: Connector | None = None
    ) -> None:
        self.targets = parse_targets(targets)
        check_name("merge", merge)
        check_name("replica", replica)
        self.merge, self.replica = merge, replica
        self.refusals: dict[str, str] = {}
        self._connector = connector_of(security)

    def stage(self, key: StageKey, messages: Sequence[bytes], timeout_s: float = STAGE_S) -> list[str]:
        """Bring one part to all servers at once; return those that hold all of it. Takes ``timeout_s`` at most.

        Raises the errors with which the publisher would fail as well: PermissionDenied, InvalidBatch, and LimitExceeded
        if a payload is too large; and UsageError if the files of ``security`` cannot be used. The message names the
        server.
        """
        if _parent_lines:
            self.refusals = dict.fromkeys(self.targets, "this process was forked from one that had staged already")
            return []
        return run_blocking(self._stage(key, messages, timeout_s), background_loop())

    async def _stage(self, key: StageKey, messages: Sequence[bytes], timeout_s: float) -> list[str]:
        opened = pb.StageRequest.Open(
            merge=self.merge,
            replica=self.replica,
            query=key.query,
            batch=key.batch,
            partition=key.partition,
            attempt=key.attempt,
            batches=len(messages),
        )
        opening = pb.StageRequest(open=opened).SerializeToString()
        calls = [self._stage_at(target, opening, messages, timeout_s) for target in self.targets]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        self.refusals = {target: str(why) for target, why in zip(self.targets, outcomes, strict=True) if why}
        return [target for target in self.targets if target not in self.refusals]

    async def _stage_at(self, target: str, opening: bytes, messages: Sequence[bytes], timeout_s: float) -> str:
        """Return why the server does not hold the part; empty: it does."""
        line = await _line_to(self._connector, target)
        loop = asyncio.get_running_loop()
        if loop.time() < line.away_until_s:
            return f"the server at {target} has not answered lately"
        call = line.open(timeout_s)
        try:
            async with time_limit(min(ANSWER_S, timeout_s)):
                await _open_part(call, opening)
            for message in messages:
                await call.write(message)
            await call.done_writing()
            await call
        except asyncio.TimeoutError:
            line.was_away(loop.time())
            return f"the server at {target} has not answered in time"
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return await _refusal(call, line, target)
        finally:
            call.cancel()
        line.was_there()
        return ""


class _Line:
    """The process's connection to one server, and whether it has answered lately."""

    def __init__(self, channel: Any, closing: AsyncExitStack) -> None:
        self.away_until_s = 0.0
        self.closing = closing
        self._channel = channel
        self._misses = 0

    def open(self, timeout_s: float) -> Any:
        """Open a call of Stage: write bytes of StageRequest, await the StageResponse."""
        make = self._channel.stream_unary(
            _METHOD, request_serializer=None, response_deserializer=pb.StageResponse.FromString
        )
        return make(timeout=timeout_s)

    def was_away(self, now_s: float) -> None:
        self.away_until_s = now_s + min(AWAY_MAX_S, AWAY_S * 2.0**self._misses)
        self._misses += 1

    def was_there(self) -> None:
        self._misses = 0


async def _open_part(call: Any, opening: bytes) -> None:
    """Return when the server takes what follows, or has ended the call."""
    await call.write(opening)
    if _TAKES not in [(str(name), value) for name, value in await call.initial_metadata() or ()]:
        await call  # it has ended: a write now would hide the reason


async def _refusal(call: Any, line: _Line, target: str) -> str:
    """Return why the call has failed. Raises LmergeError if the publisher would fail as well."""
    code, details = await call.code(), await call.details()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        line.was_away(asyncio.get_running_loop().time())
        return f"the server at {target} has not taken it in time"
    line.was_there()
    error = error_of(code, details, target, attached=True)
    trailing = [(str(name), value) for name, value in await call.trailing_metadata() or ()]
    if _is_final(code) or _PAYLOAD_LIMIT in trailing:
        raise naming(error, target)
    return str(error)


# By connector and server, the one used last at the end. Belongs to the background loop.
_lines: dict[tuple[Connector, str], _Line] = {}
# Lines of the process that this one was forked from. They are kept: closing them would act on the parent's connections.
_parent_lines: list[_Line] = []


async def _line_to(connector: Connector, target: str) -> _Line:
    """Return the line, made if need be. Raises UsageError if the files of a Security cannot be used."""
    line = _lines.pop((connector, target), None)
    if line is None:
        closing = AsyncExitStack()
        line = _Line(await closing.enter_async_context(connector.channel(target)), closing)
    _lines[connector, target] = line
    if len(_lines) > LINES_MAX:
        await _lines.pop(next(iter(_lines))).closing.aclose()
    return line


def _leave_to_parent() -> None:
    _parent_lines.extend(_lines.values())
    _lines.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def _is_final(code: grpc.StatusCode) -> bool:
    """Return whether no publisher could send the part either."""
    return code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED)
