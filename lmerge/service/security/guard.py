"""The door before every call: who comes in is settled before a handler runs, and looked at again while streams go on.

One interceptor stands before all handlers, health and reflection among them. What a method asks for stands in
``DOORS``; a method that is not there is closed. Publish and Stage name their merge and replica in their first message,
so they ask here (``attaching``, ``staging``) when they have read that.

A stream ends when what it was let in for no longer holds: its token expired, was revoked, or lost the right. Every
``check_interval_s`` the files are looked at and all streams checked, so it ends within twice that.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from lmerge.errors import LimitExceeded, LmergeError, PermissionDenied, TooOften, Unauthenticated, Undecodable
from lmerge.service import log
from lmerge.service.calls.status_codes import code_of, trailing_metadata
from lmerge.service.security.access_file import AccessFile
from lmerge.service.security.auth import ADMIN, PUBLISH, STATUS, SUBSCRIBE, Certificate, Identity
from lmerge.service.security.quota import Buckets, Connections, Places, peer_key
from lmerge.service.security.tls import TlsFiles
from lmerge.service.settings import Settings
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.shown import status_text

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["Lmerge"].full_name
_HEALTH: Final = "grpc.health.v1.Health"
_REFLECTION: Final = "grpc.reflection.v1alpha.ServerReflection"


@dataclass(frozen=True)
class Door:
    """What a method asks for: nothing (``is_open``), to be known (no ``roles``), or one of ``roles`` in the request's
    merge. ``words``: what a caller attempts here.
    """

    words: str
    roles: tuple[str, ...] = ()
    is_open: bool = False


DOORS: Final[dict[str, Door]] = {
    f"/{_SERVICE}/Publish": Door("publish"),  # the rest is asked for in `attaching`
    f"/{_SERVICE}/Stage": Door("stage parts"),  # and here in `staging`
    f"/{_SERVICE}/Subscribe": Door("subscribe to", (SUBSCRIBE,)),
    f"/{_SERVICE}/ListMerges": Door("list merges"),  # shows those that the caller has business with
    f"/{_SERVICE}/DescribeServer": Door("describe the server"),
    f"/{_SERVICE}/DescribeMerge": Door("describe", (PUBLISH, SUBSCRIBE, STATUS, ADMIN)),
    f"/{_SERVICE}/CertifyMerge": Door("see what differs in", (SUBSCRIBE, ADMIN)),  # it shows payloads
    f"/{_SERVICE}/DetachInput": Door("detach an input of", (ADMIN,)),
    f"/{_SERVICE}/ReleaseInput": Door("release an input of", (ADMIN,)),
    f"/{_SERVICE}/Cutover": Door("cut over", (ADMIN,)),
    f"/{_SERVICE}/ResetMerge": Door("reset", (ADMIN,)),
    f"/{_HEALTH}/Check": Door("check the health", is_open=True),
    f"/{_HEALTH}/Watch": Door("watch the health", is_open=True),
    f"/{_HEALTH}/List": Door("list the health", is_open=True),
    f"/{_REFLECTION}/ServerReflectionInfo": Door("ask for the protocol"),
}
# What is not there is not there for strangers either: they cannot ask around.
_ANY_METHOD: Final = "*"
DOORS[_ANY_METHOD] = Door("call a method that is not there")
# A machine may run the workers of several replicas: it may stage so many times as often as one of them.
PEER_STAGES: Final = 4
# Of HTTP; every other path asks for the same as /metrics does: it shows all merges.
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
_WATCHERS: Final = (STATUS, ADMIN)
# Why a call is refused, as metrics say it.
REFUSALS: Final[dict[str, type[LmergeError]]] = {
    "unauthenticated": Unauthenticated, "denied": PermissionDenied, "limit": LimitExceeded, "rate": TooOften,
    "undecodable": Undecodable,
}


class Shown:
    """What a caller shows to be known by. Its text has no secret."""

    def __init__(self, authorization: Sequence[str], certificate: Certificate | None) -> None:
        self.certificate = certificate
        self.token: str | None = None
        if len(authorization) > 1:
            raise Unauthenticated("more than one authorization came")
        if authorization:
            scheme, _, token = authorization[0].strip().partition(" ")
            if scheme.lower() != "bearer" or not token.strip():
                raise Unauthenticated('the authorization must be "Bearer TOKEN"')
            self.token = token.strip()


class Access:
    """What one call was let in for."""

    def __init__(self, guard: Guard, shown: Shown, identities: tuple[Identity, ...], peer: str) -> None:
        self.identities = identities  # all of them must allow what is done; none: nobody is asked who he is
        self.ended: LmergeError | None = None
        self._guard = guard
        self._shown = shown
        self._peer = peer
        self._task = asyncio.current_task()
        self._granted: list[tuple[tuple[str, ...], str, str, str | None]] = []

    def require(self, roles: tuple[str, ...], attempted: str, merge: str, replica: str | None = None) -> None:
        """Raises PermissionDenied; what is granted here must hold as long as the call lasts, if it is a stream."""
        for identity in self.identities:
            identity.must(roles, attempted, merge, replica)
        self._granted.append((roles, attempted, merge, replica))

    def sees(self, merge: str) -> bool:
        """Whether the caller has any business with ``merge``."""
        return all(identity.sees(merge) for identity in self.identities)

    def attaching(self, merge: str, replica: str) -> None:
        """A publisher has said who it wants to be. Raises PermissionDenied, TooOften."""
        self.require((PUBLISH,), f"publish into merge {_cut(merge)} as replica {_cut(replica)}", merge, replica)
        self._guard.count_attach(self._peer, merge, replica)

    def staging(self, merge: str, replica: str) -> AbstractContextManager[None]:
        """A worker has said for whom it stages; it holds a place meanwhile. Raises PermissionDenied, TooOften,
        LimitExceeded.
        """
        self.require((PUBLISH,), f"stage parts for merge {_cut(merge)} as replica {_cut(replica)}", merge, replica)
        return self._guard.one_stage(self._peer, merge, replica)

    def check_again(self) -> None:
        """End the call if it would not be let in now."""
        try:
            self.identities = self._guard.identify(self._shown)
            for roles, attempted, merge, replica in self._granted:
                for identity in self.identities:
                    identity.must(roles, attempted, merge, replica)
        except LmergeError as error:
            self.ended = error
            if self._task is not None:
                self._task.cancel()


_ACCESS: ContextVar[Access] = ContextVar("lmerge_access")


def attaching(merge: str, replica: str) -> None:
    """For the session of a publisher, in its own task. Raises PermissionDenied, TooOften."""
    access = _ACCESS.get(None)
    if access is not None:  # None: a session without a server, which has no strangers
        access.attaching(merge, replica)


def staging(merge: str, replica: str) -> AbstractContextManager[None]:
    """For a call of a worker, in its own task, while it lasts. Raises PermissionDenied, TooOften, LimitExceeded."""
    access = _ACCESS.get(None)
    return nullcontext() if access is None else access.staging(merge, replica)


def may_see(merge: str) -> bool:
    """For what lists merges: whether this call's caller has business with ``merge``."""
    access = _ACCESS.get(None)
    return access is None or access.sees(merge)


def caller_of(context: Any) -> str:
    """For the log: who calls, as far as callers are identified, and from where."""
    access = _ACCESS.get(None)
    names = [identity.name for identity in access.identities] if access is not None else []
    return " and ".join([*names, str(context.peer())])


class Guard(grpc.aio.ServerInterceptor):
    """Stands before all calls of one server. ``refused``: calls by the word for why."""

    def __init__(self, settings: Settings) -> None:
        """Raises UsageError if a file of the settings cannot be used."""
        self.settings = settings
        self.tls: TlsFiles | None = None
        self.access: AccessFile | None = None
        self.refused: Counter[str] = Counter()
        if settings.tls_cert is not None and settings.tls_key is not None:
            self.tls = TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        if settings.access_path is not None:
            self.access = AccessFile(Path(settings.access_path))
        self._loop = asyncio.get_running_loop()
        self._streams: set[Access] = set()
        self._attaches = Buckets(settings.attach_rate_per_s, settings.attach_burst)
        self._peer_attaches = Buckets(settings.peer_attach_rate_per_s, settings.peer_attach_burst)
        self._stages = Buckets(settings.stage_rate_per_s, settings.stage_burst)
        self._peer_stages = Buckets(PEER_STAGES * settings.stage_rate_per_s, PEER_STAGES * settings.stage_burst)
        self._stage_calls = Places(settings.stage_calls_per_replica)
        self._refusals = Buckets(settings.refusal_rate_per_s, settings.refusal_burst)
        self._connections = Connections(settings.connections_per_peer)
        self._open_calls = Places(settings.open_calls_per_peer)
        self._subscriptions = Places(settings.subscribers_per_identity)

    # Who.

    def identify(self, shown: Shown) -> tuple[Identity, ...]:
        """Who shows this; nobody if callers are not asked. Raises Unauthenticated."""
        if not self.settings.identifies_callers:
            return ()
        found = [self._by_certificate(shown.certificate), self._by_token(shown.token)]
        identities = tuple(identity for identity in found if identity is not None)
        if identities:
            return identities
        if shown.certificate is not None and self.settings.tls_client_ca is not None:
            raise Unauthenticated(
                f"{shown.certificate.shown} has no lmerge:// name and is not in the server's access file, and no token "
                "came with it"
            )
        raise Unauthenticated("no credentials came: this server wants to know who calls")

    def _by_certificate(self, certificate: Certificate | None) -> Identity | None:
        if certificate is None or self.settings.tls_client_ca is None:
            return None
        listed = self.access.by_certificate(certificate) if self.access is not None else None
        return listed or certificate.identity()

    def _by_token(self, token: str | None) -> Identity | None:
        if token is None or self.access is None:
            return None
        try:
            return self.access.by_token(token)
        except Unauthenticated:
            if not self.access.refresh():  # it may have been made a moment ago
                raise
            return self.access.by_token(token)

    # How often.

    def count_attach(self, peer: str, merge: str, replica: str) -> None:
        """Raises TooOften."""
        now_s = self._loop.time()
        self._peer_attaches.must(peer_key(peer), now_s, f"{peer_key(peer)} attaches inputs")
        self._attaches.must((merge, replica), now_s, f"input {_cut(replica)} of merge {_cut(merge)} attaches")

    def one_stage(self, peer: str, merge: str, replica: str) -> AbstractContextManager[None]:
        """A call of Stage. Raises TooOften, LimitExceeded."""
        now_s = self._loop.time()
        self._peer_stages.must(peer_key(peer), now_s, f"{peer_key(peer)} stages parts")
        whose = f"input {_cut(replica)} of merge {_cut(merge)}"
        self._stages.must((merge, replica), now_s, f"parts of {whose} are staged")
        return self._stage_calls.one((merge, replica), f"calls that stage parts of {whose}")

    def _tell(self, error: LmergeError, attempted: str, peer: str) -> LmergeError:
        """Count and log a refused call. The error to answer with: one that says less to who is refused all the time."""
        word = next((word for word, kind in REFUSALS.items() if isinstance(error, kind)), None)
        if word is None:
            return error
        self.refused[word] += 1
        if self._refusals.take(peer_key(peer), self._loop.time()):
            if not isinstance(error, Unauthenticated):
                return error
            return LimitExceeded("too many calls with wrong credentials came from this address; try again later")
        log.event(logging.WARNING, "call refused", attempted=attempted, peer=peer, problem=str(error))
        return error

    # gRPC.

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(details)
        if handler is not None:
            return self.guarded(handler, str(details.method))
        return self.guarded(_NO_METHOD, _ANY_METHOD) if self.settings.identifies_callers else None

    def guarded(self, handler: Any, method: str) -> Any:
        """The handler behind its door."""
        door = DOORS.get(method)
        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[handler.request_streaming, handler.response_streaming]
        serve = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        is_stream = bool(handler.request_streaming or handler.response_streaming)
        read = _reading(handler, method)

        async def call(raw: Any, context: Any) -> Any:
            async with self._entered(door, method, read, raw, context, is_stream) as request:
                return await serve(request, context)

        async def generate(raw: Any, context: Any) -> AsyncIterator[Any]:
            async with self._entered(door, method, read, raw, context, is_stream) as request:
                async for response in serve(request, context):
                    yield response

        behind = generate if inspect.isasyncgenfunction(serve) else call
        return make(behind, None, handler.response_serializer)

    @asynccontextmanager
    async def _entered(
        self, door: Door | None, method: str, read: Callable[[Any], Any], raw: Any, context: Any, is_stream: bool
    ) -> AsyncIterator[Any]:
        """While a call is let in: what it asks for, decoded by ``read``."""
        access: Access | None = None
        try:
            with ExitStack() as places:
                access, request = self._let_in(door, method, read, raw, context, places)
                _ACCESS.set(access)
                if is_stream and access.identities:
                    self._streams.add(access)
                    places.callback(self._streams.discard, access)
                yield request
        except LmergeError as error:
            problem = self._tell(error, method, context.peer())
            await context.abort(code_of(problem), status_text(str(problem)), trailing_metadata(problem))
        except NotImplementedError:  # health's List, in gRPC's own asyncio servicer
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method} is not there")
        except asyncio.CancelledError:
            if access is None or access.ended is None:
                raise
            problem = self._tell(access.ended, method, context.peer())
            await context.abort(code_of(problem), status_text(str(problem)), trailing_metadata(problem))

    def _let_in(
        self, door: Door | None, method: str, read: Callable[[Any], Any], raw: Any, context: Any, places: ExitStack
    ) -> tuple[Access, Any]:
        """Raises Unauthenticated, PermissionDenied, LimitExceeded; Undecodable to those who may call at all."""
        peer = context.peer()
        if door is None:
            raise PermissionDenied(f"{method} is closed: the server has no rule for it")
        places.enter_context(self._connections.one_call(peer))
        if door.is_open:
            what = f"calls of {peer_key(peer)} that need no credentials"
            places.enter_context(self._open_calls.one(peer_key(peer), what))
            return Access(self, Shown((), None), (), peer), read(raw)
        shown = Shown(_authorization(context.invocation_metadata()), Certificate.of_call(context.auth_context()))
        access = Access(self, shown, self.identify(shown), peer)
        request = read(raw)
        if door.roles:
            access.require(door.roles, f"{door.words} merge {_cut(request.merge)}", request.merge)
        if door.roles == (SUBSCRIBE,) and access.identities:
            name = access.identities[-1].name
            places.enter_context(self._subscriptions.one(name, f"subscriptions of {name}"))
        return access, request

    # HTTP.

    def let_in_http(self, path: str, authorization: Sequence[str], certificate: Certificate | None, peer: str) -> None:
        """Raises Unauthenticated, PermissionDenied, LimitExceeded."""
        if path in OPEN_PATHS:
            return
        attempted = f"read {path:.80}"
        try:
            for identity in self.identify(Shown(authorization, certificate)):
                identity.must_everywhere(_WATCHERS, attempted)
        except LmergeError as error:
            raise self._tell(error, attempted, peer) from None

    # Time.

    def check(self) -> bool:
        """Look at the files, then at all streams. Whether other certificates are in force now."""
        renewed = self.tls.refresh() if self.tls is not None else False
        if self.access is not None:
            self.access.refresh()
        for access in list(self._streams):
            access.check_again()
        return renewed


def _reading(handler: Any, method: str) -> Callable[[Any], Any]:
    """What makes a request of what gRPC has read. It raises Undecodable, where gRPC itself would log a traceback and
    answer UNKNOWN; of a stream, when the message in question is due.
    """
    decode = handler.request_deserializer

    def one(data: bytes) -> Any:
        try:
            return decode(data)
        except DecodeError:
            raise Undecodable(f"{method}: a message of {len(data)} bytes is not what this method takes") from None

    async def each(requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        async for data in requests:
            yield one(data)

    if decode is None:  # Publish and Stage read bytes
        return lambda raw: raw
    return each if handler.request_streaming else one


async def _no_method(_requests: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "there is no such method")


_NO_METHOD: Final[Any] = grpc.stream_stream_rpc_method_handler(_no_method)


def _authorization(metadata: Sequence[tuple[str, str | bytes]] | None) -> list[str]:
    return [str(value) for key, value in metadata or () if key == "authorization"]


def _cut(name: str) -> str:
    """A name that a peer has sent, for a message: quoted, and short."""
    return repr(name) if len(name) <= 100 else f"{name[:100]!r}..."


