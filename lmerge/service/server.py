"""The server: gRPC for the merges, and HTTP for probes and metrics. A shell around the other modules.

    server = Server(Settings(port=7654))
    await server.start()
    await server.wait_closed()      # until stop(), or until a merge has failed

Subscribe, Publish and Stage are registered with raw bytes on the side that carries the elements. A message to
subscribers is serialized once for all of them. What publishers and workers send is measured before it is parsed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection
from prometheus_client import CollectorRegistry

from lmerge import native_build
from lmerge.process_metrics import register_process
from lmerge.service import log
from lmerge.service.admin import commands, status
from lmerge.service.admin.departure import Departure
from lmerge.service.admin.http_server import HttpServer
from lmerge.service.admin.metrics import MergeCollector
from lmerge.service.admin.metrics_page import Pages
from lmerge.service.admin.metrics_server import AccessCollector, ServerCollector
from lmerge.service.admin.status_feed import StatusFeed
from lmerge.service.admin.status_page import StatusPage
from lmerge.service.call_context import CallContext, StageContext
from lmerge.service.calls.publish import PublishSession
from lmerge.service.calls.staging import StageCall
from lmerge.service.calls.subscribe import serve_subscriber
from lmerge.service.merge.live_limit import GrowthWatch
from lmerge.service.merge.registry import Registry
from lmerge.service.port.any_port import AnyPort, port_of
from lmerge.service.security.guard import Guard, caller_of, may_see
from lmerge.service.settings import Settings
from lmerge.time_limit import time_limit
from lmerge.wire.generated import lmerge_pb2 as pb

SERVICE: Final = pb.DESCRIPTOR.services_by_name["Lmerge"].full_name
# The longest time for ending all streams, when a signal or a call of Drain ends the server.
DRAIN_S: Final = 10.0


class Server:
    """One server. ``port`` and ``http_port`` are the bound ones after ``start``."""

    def __init__(self, settings: Settings, metrics: CollectorRegistry | None = None) -> None:
        """Make the server. Raises UsageError if the settings are impossible, or do not fit together."""
        settings.validate()
        self.settings = settings
        self.port = settings.port
        self.http_port = settings.http_port
        self._has_own_metrics = metrics is None  # another registry may have those of the process already
        self.metrics = metrics if metrics is not None else CollectorRegistry()
        self._started_at = time.monotonic()
        self._failure: BaseException | None = None
        self._closed: asyncio.Event | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen. Raises AddressInUse, UsageError; all resources are released then."""
        self._closed = asyncio.Event()
        self._guard = Guard(self.settings)
        self._growth = GrowthWatch(self.settings.live_events_max)
        self._watch: asyncio.Task[None] | None = None
        self._registry = Registry(self.settings, self._on_crash)
        self._departure = Departure(self._registry)
        self._health: Any = health.aio.HealthServicer()
        self._grpc = self._grpc_port()
        self._http: HttpServer | None = None
        try:
            self._registry.declare()
            self.port = self._grpc.bind()
            merges = MergeCollector(self._registry, self.settings.resolved_engine)
            if self.settings.http_port is not None:
                pages = Pages(self.metrics, merges)
                http = self._http_server(self.settings.http_port, pages)
                await http.start()
                self._http, self.http_port = http, http.port
            self.metrics.register(merges)
            self.metrics.register(AccessCollector(self._guard))
            self.metrics.register(ServerCollector(self.settings, self._guard, self._registry))
            if self._has_own_metrics:
                register_process(self.metrics)
            await self._grpc.start()
        except BaseException:
            await self._grpc.stop(None)
            if self._http is not None:
                await self._http.stop()
            await self._registry.close()
            self._closed = None
            raise
        for service in ("", SERVICE):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        self._watch = asyncio.create_task(self._keep_watch(), name="watch")
        log.event(
            logging.INFO,
            "engine chosen",
            engine=self.settings.resolved_engine,
            asked=self.settings.engine,
            reason=native_build.reason(self.settings.engine),
        )
        log.event(
            logging.INFO,
            "server started",
            host=self.settings.host,
            port=self.port,
            http_port=self.http_port,
            transport=self._grpc.name,
            transport_security=self.settings.transport_security,
            callers_identified=self.settings.identifies_callers,
        )

    async def stop(self, grace_s: float = 5.0) -> None:
        """Drain: take nothing new, merge and send what was received, end all streams. Use force after ``grace_s``."""
        if self._closed is None:
            return
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(grace_s))
        await asyncio.shield(self._stopping)

    async def wait_closed(self) -> None:
        """Wait until the server has stopped. If a merge failed, raise its error."""
        if self._closed is not None:
            await self._closed.wait()
        if self._failure is not None:
            raise self._failure

    async def _stop(self, grace_s: float) -> None:
        assert self._closed is not None
        log.event(logging.INFO, "server draining", grace_s=grace_s)
        deadline = time.monotonic() + grace_s
        await self._health.enter_graceful_shutdown()
        with suppress(asyncio.TimeoutError):
            async with time_limit(grace_s):
                await self._registry.drain()
        await self._grpc.stop(max(0.0, deadline - time.monotonic()))
        if self._http is not None:
            await self._http.stop()
        if self._watch is not None:
            self._watch.cancel()
        await self._registry.close()
        log.event(logging.INFO, "server stopped")
        self._closed.set()

    def _why_not_ready(self) -> str | None:
        """Return why publishers should not connect now; None if they may."""
        if self._registry.draining or self._departure.is_announced:
            return "draining"
        problems = (hub.state.store_problem for hub in self._registry.hubs.values())
        return next((problem for problem in problems if problem is not None), None)

    def _on_crash(self, bug: BaseException) -> None:
        """Stop the server: a bug ended a merge. The other merges drain, and ``wait_closed`` raises the error."""
        self._failure = self._failure or bug
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(1.0))

    async def _keep_watch(self) -> None:
        """Check the server at every interval.

        Use new certificates for new connections. End streams that would be refused now, and inputs that take a merge
        above its limit. Drop staged parts that were not committed for long.
        """
        try:
            while True:
                await asyncio.sleep(self.settings.check_interval_s)
                renewed = self._guard.check()
                if renewed and self._http is not None:
                    await self._http.renew()
                self._growth.look(self._registry.hubs)
                self._registry.measure_store()
                self._registry.staging.sweep(asyncio.get_running_loop().time())
        except Exception as bug:
            log.logger.exception("the watch failed")
            self._on_crash(bug)

    def _http_server(self, port: int, pages: Pages) -> HttpServer:
        feed = StatusFeed(self._registry, self.settings, self._why_not_ready)
        page = StatusPage(feed, self._guard, self.settings)
        return HttpServer(self.settings, port, pages, page, self._guard, self._why_not_ready)

    # gRPC.

    def _grpc_port(self) -> AnyPort:
        settings = self.settings
        port = port_of(settings, self._guard)
        port.add_service(SERVICE, self._handlers())
        port.add_health(self._health)
        if settings.reflection if settings.reflection is not None else not settings.identifies_callers:
            port.add_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME))
        return port

    def _handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        return {
            "Publish": grpc.stream_stream_rpc_method_handler(
                self._publish, response_serializer=pb.PublishResponse.SerializeToString
            ),
            "Stage": grpc.stream_unary_rpc_method_handler(
                self._stage, response_serializer=pb.StageResponse.SerializeToString
            ),
            "Subscribe": grpc.unary_stream_rpc_method_handler(
                self._subscribe, request_deserializer=pb.SubscribeRequest.FromString
            ),
            "ListMerges": grpc.unary_unary_rpc_method_handler(
                self._list_merges, pb.ListMergesRequest.FromString, pb.ListMergesResponse.SerializeToString
            ),
            "DescribeMerge": grpc.unary_unary_rpc_method_handler(
                self._describe_merge, pb.DescribeMergeRequest.FromString, pb.DescribeMergeResponse.SerializeToString
            ),
            "DescribeServer": grpc.unary_unary_rpc_method_handler(
                self._describe_server, pb.DescribeServerRequest.FromString, pb.DescribeServerResponse.SerializeToString
            ),
            "CertifyMerge": grpc.unary_unary_rpc_method_handler(
                self._certify_merge, pb.CertifyMergeRequest.FromString, pb.CertifyMergeResponse.SerializeToString
            ),
            "DetachInput": grpc.unary_unary_rpc_method_handler(
                self._detach_input, pb.DetachInputRequest.FromString, pb.DetachInputResponse.SerializeToString
            ),
            "ReleaseInput": grpc.unary_unary_rpc_method_handler(
                self._release_input, pb.ReleaseInputRequest.FromString, pb.ReleaseInputResponse.SerializeToString
            ),
            "ChangeRole": grpc.unary_unary_rpc_method_handler(
                self._change_role, pb.ChangeRoleRequest.FromString, pb.ChangeRoleResponse.SerializeToString
            ),
            "ResetMerge": grpc.unary_unary_rpc_method_handler(
                self._reset_merge, pb.ResetMergeRequest.FromString, pb.ResetMergeResponse.SerializeToString
            ),
            "Cutover": grpc.unary_stream_rpc_method_handler(
                self._cutover, pb.CutoverRequest.FromString, pb.CutoverProgress.SerializeToString
            ),
            "Drain": grpc.unary_unary_rpc_method_handler(
                self._drain, pb.DrainRequest.FromString, pb.DrainResponse.SerializeToString
            ),
        }

    # The guard runs before all of these. It turns an error of lmerge into its status.

    async def _publish(self, _requests: object, context: CallContext) -> None:
        await PublishSession(context, self._registry, self.settings).run()

    async def _stage(self, _requests: object, context: StageContext) -> pb.StageResponse:
        return await StageCall(context, self._registry, self.settings).run()

    async def _subscribe(self, request: pb.SubscribeRequest, context: CallContext) -> None:
        await serve_subscriber(request, context, self._registry, self.settings)

    async def _list_merges(self, _request: pb.ListMergesRequest, _context: CallContext) -> pb.ListMergesResponse:
        merges = status.list_merges(self._registry).merges
        return pb.ListMergesResponse(merges=[merge for merge in merges if may_see(merge.merge)])

    async def _describe_merge(
        self, request: pb.DescribeMergeRequest, _context: CallContext
    ) -> pb.DescribeMergeResponse:
        described = status.describe_merge(self._registry.get(request.merge))
        described.staged_parts, described.staged_bytes = self._registry.staging.of_merge(request.merge)
        return described

    async def _certify_merge(self, request: pb.CertifyMergeRequest, _context: CallContext) -> pb.CertifyMergeResponse:
        return await commands.certify_merge(self._registry.get(request.merge))

    async def _detach_input(self, request: pb.DetachInputRequest, _context: CallContext) -> pb.DetachInputResponse:
        return await commands.detach_input(self._registry.get(request.merge), request)

    async def _release_input(self, request: pb.ReleaseInputRequest, _context: CallContext) -> pb.ReleaseInputResponse:
        return await commands.release_input(self._registry.get(request.merge), request)

    async def _change_role(self, request: pb.ChangeRoleRequest, _context: CallContext) -> pb.ChangeRoleResponse:
        return await commands.change_role(self._registry.get(request.merge), request)

    async def _reset_merge(self, request: pb.ResetMergeRequest, context: CallContext) -> pb.ResetMergeResponse:
        return await commands.reset_merge(self._registry, request, caller_of(context))

    async def _cutover(self, request: pb.CutoverRequest, context: CallContext) -> None:
        await commands.cut_over(self._registry.get(request.merge), request, context, self.settings)

    async def _drain(self, request: pb.DrainRequest, context: CallContext) -> pb.DrainResponse:
        self._departure.announce(request.wait_seconds, caller_of(context))
        await self._health.enter_graceful_shutdown()
        answer = await self._departure.wait(request.wait_seconds)
        if self._stopping is None and not request.wait_only:
            self._stopping = asyncio.create_task(self._stop(DRAIN_S))
        return answer

    async def _describe_server(
        self, _request: pb.DescribeServerRequest, _context: CallContext
    ) -> pb.DescribeServerResponse:
        described = status.describe_server(self.settings, self._started_at)
        described.transport_security = self.settings.transport_security
        described.tokens_required = self.settings.access_path is not None
        return described
