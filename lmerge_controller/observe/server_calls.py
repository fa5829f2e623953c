"""Calls to servers: how they are, in parallel and with a time limit, and what is done about their inputs.

A server that does not answer is a fact for the plan, not an error. One channel for each address stays open, and all
queries of a controller share it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final

import grpc
import grpc.aio

from lmerge.addresses import check_address
from lmerge.client.connection.faults import error_of
from lmerge.client.connection.security import Security
from lmerge.client.connection.streams import connector_of
from lmerge.errors import LmergeError, StaleIncarnation, UnknownMerge
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.generated import lmerge_pb2_grpc as pb_grpc
from lmerge_controller.observe.status import observed_server, silent_server
from lmerge_controller.plan.actions import DemoteInput, DetachInput, InputAction, PromoteInput
from lmerge_controller.plan.observed import ObservedServer

# A healthy server answers within some 10 ms. Waiting longer for one that is gone would delay what the others need.
TIMEOUT_S: Final = 2.0
# Calls in flight, over all queries: each is a stream and some kilobytes.
CALLS_MAX: Final = 64


class ServerCalls:
    """Calls to the servers of merged queries. An async context manager. ``security``: None: without encryption."""

    def __init__(self, security: Security | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._connector = connector_of(security)
        self._timeout_s = timeout_s
        self._channels: dict[str, Any] = {}
        self._places = asyncio.Semaphore(CALLS_MAX)

    async def __aenter__(self) -> ServerCalls:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        channels, self._channels = list(self._channels.values()), {}
        await asyncio.gather(*(channel.close() for channel in channels))

    async def observe(self, addresses: Sequence[str], merge: str) -> tuple[ObservedServer, ...]:
        """Return how the servers are, in the order of ``addresses``. Takes ``timeout_s`` seconds at most; no errors."""
        return tuple(await asyncio.gather(*(self._observe(address, merge) for address in addresses)))

    async def act(self, merge: str, action: InputAction) -> None:
        """Do something about an input at one server. Does nothing if it is so already. Raises LmergeError."""
        stub, name = self._stub(action.server), action.replica
        try:
            if isinstance(action, PromoteInput | DemoteInput):
                role = pb.ROLE_ACTIVE if isinstance(action, PromoteInput) else pb.ROLE_OBSERVE
                change = pb.ChangeRoleRequest(merge=merge, replica=name, role=role, incarnation=action.incarnation)
                await self._call(action.server, stub.ChangeRole, change)
            elif isinstance(action, DetachInput):
                detach = pb.DetachInputRequest(merge=merge, replica=name, reason=action.reason)
                await self._call(action.server, stub.DetachInput, detach)
            else:
                release = pb.ReleaseInputRequest(merge=merge, replica=name)
                await self._call(action.server, stub.ReleaseInput, release)
        except (StaleIncarnation, UnknownMerge):
            return  # another incarnation is attached, or none: the fact is over

    async def _observe(self, address: str, merge: str) -> ObservedServer:
        if not address:
            return silent_server(address, "it has no address yet")
        try:
            check_address(address)
            stub = self._stub(address)
            about = await self._call(address, stub.DescribeServer, pb.DescribeServerRequest())
            try:
                described = await self._call(address, stub.DescribeMerge, pb.DescribeMergeRequest(merge=merge))
            except UnknownMerge:
                described = None
        except LmergeError as error:
            return silent_server(address, str(error))
        return observed_server(address, about.version, described)

    async def _call(self, address: str, method: Any, request: Any) -> Any:
        async with self._places:
            try:
                return await method(request, timeout=self._timeout_s)
            except grpc.aio.AioRpcError as problem:
                trailing = problem.trailing_metadata()
                raise error_of(problem.code(), problem.details(), address, trailing=trailing) from None

    def _stub(self, address: str) -> Any:
        if address not in self._channels:
            self._channels[address] = self._connector.channel(address)
        return pb_grpc.LmergeStub(self._channels[address])
