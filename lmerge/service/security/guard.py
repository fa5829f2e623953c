"""The guard of every call: it checks access before a handler runs, and again while streams run.

One interceptor runs before all handlers, including health and reflection. ``ACCESS_RULES`` lists what each method
requires. A method that is not in the list is closed. Publish and Stage name their merge and replica in their first
message, so they call the guard (``attaching``, ``staging``) when they have read that message.

A stream ends when its access no longer holds: its token expired, was revoked, or lost the right. Every
``check_interval_s`` the files are read if they changed, and all streams are checked. So such a stream ends within twice
that time.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from lmerge.errors import LimitExceeded, LmergeError, PermissionDenied, TooOften, Unauthenticated, Undecodable
from lmerge.service import log
from lmerge.service.call_context import CallContext
from lmerge.service.choices import AccessRole
from lmerge.service.security.access_file import AccessFile
from lmerge.service.security.auth import CallerIdentity, Certificate
from lmerge.service.security.quota import Connections, Places, TokenBuckets, peer_key
from lmerge.service.security.tls import TlsFiles
from lmerge.service.settings import Settings
from lmerge.service.status_codes import code_of, trailing_metadata
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.shown import status_text

PUBLISH, SUBSCRIBE, STATUS, ADMIN = AccessRole
_SERVICE: Final = pb.DESCRIPTOR.services_by_name["Lmerge"].full_name
_HEALTH: Final = "grpc.health.v1.Health"
_REFLECTION: Final = "grpc.reflection.v1alpha.ServerReflection"


@dataclass(frozen=True)
class AccessRule:
    """What a method requires of its caller.

    Nothing (``is_open``), to be identified (no ``roles``), or one of ``roles`` in the request's merge, or in every
    merge (``everywhere``). ``attempt``: what a caller attempts by the method, for messages.
    """

    attempt: str
    roles: tuple[AccessRole, ...] = ()
    is_open: bool = False
    everywhere: bool = False


ACCESS_RULES: Final[dict[str, AccessRule]] = {
    f"/{_SERVICE}/Publish": AccessRule("publish"),  # the rest is asked for in `attaching`
    f"/{_SERVICE}/Stage": AccessRule("stage parts"),  # and here in `staging`
    f"/{_SERVICE}/Subscribe": AccessRule("subscribe to", (SUBSCRIBE,)),
    f"/{_SERVICE}/ListMerges": AccessRule("list merges"),  # lists the merges in which the caller has rights
    f"/{_SERVICE}/DescribeServer": AccessRule("describe the server"),
    f"/{_SERVICE}/DescribeMerge": AccessRule("describe", tuple(AccessRole)),
    f"/{_SERVICE}/CertifyMerge": AccessRule("see what differs in", (SUBSCRIBE, ADMIN)),  # it shows payloads
    f"/{_SERVICE}/DetachInput": AccessRule("detach an input of", (ADMIN,)),
    f"/{_SERVICE}/ReleaseInput": AccessRule("release an input of", (ADMIN,)),
    f"/{_SERVICE}/ChangeRole": AccessRule("change the role of an input of", (ADMIN,)),
    f"/{_SERVICE}/Cutover": AccessRule("cut over", (ADMIN,)),
    f"/{_SERVICE}/ResetMerge": AccessRule("reset", (ADMIN,)),
    f"/{_SERVICE}/Drain": AccessRule("drain the server", (ADMIN,), everywhere=True),
    f"/{_HEALTH}/Check": AccessRule("check the health", is_open=True),
    f"/{_HEALTH}/Watch": AccessRule("watch the health", is_open=True),
    f"/{_HEALTH}/List": AccessRule("list the health", is_open=True),
    f"/{_REFLECTION}/ServerReflectionInfo": AccessRule("ask for the protocol"),
}
# Methods that do not exist have a rule too, so that an unidentified caller cannot find out which methods exist.
_ANY_METHOD: Final = "*"
ACCESS_RULES[_ANY_METHOD] = AccessRule("call a method that is not there")
# A machine may run the workers of several replicas. So one peer may stage this many times as often as one replica.
PEER_STAGES: Final = 4
# The open paths of HTTP: probes, and the files of the status page, which contain no data. Every other path requires
# what /metrics requires, which shows all merges.
_PAGE_FILES: Final = ("", "page.css", "icon.svg", "main.js", "live.js", "dom.js", "format.js", "merges.js", "merge.js")
_PAGE_PATHS: Final = tuple(f"/status/{file}" for file in (*_PAGE_FILES, "chart.js", "samples.js", "timeline.js"))
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", *_PAGE_PATHS})
_WATCHERS: Final = (STATUS, ADMIN)
# The reasons for which a call is refused, as the metrics name them.
REFUSALS: Final[dict[str, type[LmergeError]]] = {
    "unauthenticated": Unauthenticated,
    "denied": PermissionDenied,
    "limit": LimitExceeded,
    "rate": TooOften,
    "undecodable": Undecodable,
}


class ShownCredentials:
    """The credentials that a caller shows. Their text contains no secret."""

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


class CallAccess:
    """The access of one call: its identities, and what they were granted."""

    def __init__(
        self, guard: Guard, shown: ShownCredentials, identities: tuple[CallerIdentity, ...], peer: str
    ) -> None:
        self.identities = identities  # all of them must allow what the call does; none: callers are not identified
        self.ended: LmergeError | None = None
        self._guard = guard
        self._shown = shown
        self._peer = peer
        task = asyncio.current_task()
        self.end: Callable[[], object] = task.cancel if task is not None else lambda: None  # ends what the call does
        self._granted: list[Callable[[CallerIdentity], None]] = []

    def require(self, roles: tuple[AccessRole, ...], attempted: str, merge: str, replica: str | None = None) -> None:
        """Raise PermissionDenied unless the identities allow this. For a stream it must hold as long as the call."""
        self._grant(lambda identity: identity.must(roles, attempted, merge, replica))

    def require_everywhere(self, roles: tuple[AccessRole, ...], attempted: str) -> None:
        """Raise PermissionDenied unless the identities have one of ``roles`` in every merge. It holds as above."""
        self._grant(lambda identity: identity.must_everywhere(roles, attempted))

    def may(self, roles: tuple[AccessRole, ...], merge: str) -> bool:
        """Whether the identities have one of ``roles`` in ``merge``, without a refusal if they have not."""
        try:
            for identity in self.identities:
                identity.must(roles, "", merge)
        except PermissionDenied:
            return False
        return True

    def _grant(self, check: Callable[[CallerIdentity], None]) -> None:
        """Check all identities, now and whenever files have changed. ``check`` raises PermissionDenied."""
        for identity in self.identities:
            check(identity)
        self._granted.append(check)

    def sees(self, merge: str) -> bool:
        """Whether the caller has any rights in ``merge``."""
        return all(identity.sees(merge) for identity in self.identities)

    def attaching(self, merge: str, replica: str) -> None:
        """Check a publisher that has named its merge and replica. Raises PermissionDenied, TooOften."""
        self.require((PUBLISH,), f"publish into merge {_cut(merge)} as replica {_cut(replica)}", merge, replica)
        self._guard.count_attach(self._peer, merge, replica)

    def staging(self, merge: str, replica: str) -> AbstractContextManager[None]:
        """Check a worker that has named its merge and replica. It holds a place inside the context.

        Raises PermissionDenied, TooOften, LimitExceeded.
        """
        self.require((PUBLISH,), f"stage parts for merge {_cut(merge)} as replica {_cut(replica)}", merge, replica)
        return self._guard.one_stage(self._peer, merge, replica)

    def check_again(self) -> None:
        """End the call if it would be refused now."""
        try:
            self.identities = self._guard.identify(self._shown)
            for check in self._granted:
                for identity in self.identities:
                    check(identity)
        except LmergeError as error:
            self.ended = error
            self.end()


_ACCESS: ContextVar[CallAccess] = ContextVar("lmerge_access")


def attaching(merge: str, replica: str) -> None:
    """Check the publisher of the call in this task. Raises PermissionDenied, TooOften."""
    access = _ACCESS.get(None)
    if access is not None:  # None: a session without a server, whose caller is trusted
        access.attaching(merge, replica)


def staging(merge: str, replica: str) -> AbstractContextManager[None]:
    """Check the worker of the call in this task; to be held while the call lasts.

    Raises PermissionDenied, TooOften, LimitExceeded.
    """
    access = _ACCESS.get(None)
    return nullcontext() if access is None else access.staging(merge, replica)


def may_see(merge: str) -> bool:
    """Whether the caller of this call has any rights in ``merge``, for lists of merges."""
    access = _ACCESS.get(None)
    return access is None or access.sees(merge)


def present_access() -> CallAccess:
    """Return the access of the call in this task."""
    return _ACCESS.get()


def caller_of(context: CallContext) -> str:
    """Return who calls, as far as callers are identified, and from where, for the log."""
    access = _ACCESS.get(None)
    names = [identity.name for identity in access.identities] if access is not None else []
    return " and ".join([*names, str(context.peer())])


class Guard(grpc.aio.ServerInterceptor):
    """Guards all calls of one server. ``refused``: how many calls were refused, by reason."""

    def __init__(self, settings: Settings) -> None:
        """Read the files of the settings. Raises UsageError if one cannot be used."""
        self.settings = settings
        self.tls: TlsFiles | None = None
        self.access: AccessFile | None = None
        self.refused: Counter[str] = Counter()
        if settings.tls_cert is not None and settings.tls_key is not None:
            self.tls = TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        if settings.access_path is not None:
            self.access = AccessFile(Path(settings.access_path))
        self._loop = asyncio.get_running_loop()
        self._streams: set[CallAccess] = set()
        self._attaches = TokenBuckets(settings.attach_rate_per_s, settings.attach_burst)
        self._peer_attaches = TokenBuckets(settings.peer_attach_rate_per_s, settings.peer_attach_burst)
        self._stages = TokenBuckets(settings.stage_rate_per_s, settings.stage_burst)
        self._peer_stages = TokenBuckets(PEER_STAGES * settings.stage_rate_per_s, PEER_STAGES * settings.stage_burst)
        self._stage_calls = Places(settings.stage_calls_per_replica)
        self._refusals = TokenBuckets(settings.refusal_rate_per_s, settings.refusal_burst)
        self._connections = Connections(settings.connections_per_peer)
        self._open_calls = Places(settings.open_calls_per_peer)
        self._subscriptions = Places(settings.subscribers_per_identity)

    # Identity.

    def identify(self, shown: ShownCredentials) -> tuple[CallerIdentity, ...]:
        """Return the identities of these credentials; none if callers are not identified. Raises Unauthenticated."""
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
        raise Unauthenticated("no credentials came: this server requires a certificate or a token")

    def _by_certificate(self, certificate: Certificate | None) -> CallerIdentity | None:
        if certificate is None or self.settings.tls_client_ca is None:
            return None
        listed = self.access.by_certificate(certificate) if self.access is not None else None
        return listed or certificate.identity()

    def _by_token(self, token: str | None) -> CallerIdentity | None:
        if token is None or self.access is None:
            return None
        try:
            return self.access.by_token(token)
        except Unauthenticated:
            if not self.access.refresh():  # the token may have been made a moment ago
                raise
            return self.access.by_token(token)

    # Rates.

    def count_attach(self, peer: str, merge: str, replica: str) -> None:
        """Count an attach. Raises TooOften."""
        now_s = self._loop.time()
        self._peer_attaches.must(peer_key(peer), now_s, f"{peer_key(peer)} attaches inputs")
        self._attaches.must((merge, replica), now_s, f"input {_cut(replica)} of merge {_cut(merge)} attaches")

    def one_stage(self, peer: str, merge: str, replica: str) -> AbstractContextManager[None]:
        """Count a call of Stage; it holds a place inside the context. Raises TooOften, LimitExceeded."""
        now_s = self._loop.time()
        self._peer_stages.must(peer_key(peer), now_s, f"{peer_key(peer)} stages parts")
        whose = f"input {_cut(replica)} of merge {_cut(merge)}"
        self._stages.must((merge, replica), now_s, f"parts of {whose} are staged")
        return self._stage_calls.one((merge, replica), f"calls that stage parts of {whose}")

    def _count_refusal(self, error: LmergeError, attempted: str, peer: str) -> LmergeError:
        """Count and log a refused call; return the error to answer with.

        A peer that sends wrong credentials too often gets an error without the reason.
        """
        reason = next((reason for reason, kind in REFUSALS.items() if isinstance(error, kind)), None)
        if reason is None:
            return error
        self.refused[reason] += 1
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
        """Return a handler that runs ``handler`` behind the rule of ``method``."""
        rule = ACCESS_RULES.get(method)
        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[handler.request_streaming, handler.response_streaming]
        serve = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        is_stream = bool(handler.request_streaming or handler.response_streaming)
        read = _reading(handler, method)

        async def call(raw: Any, context: CallContext) -> Any:
            async with self._entered(rule, method, read, raw, context, is_stream) as request:
                return await serve(request, context)

        async def generate(raw: Any, context: CallContext) -> AsyncIterator[Any]:
            async with self._entered(rule, method, read, raw, context, is_stream) as request:
                async for response in serve(request, context):
                    yield response

        behind = generate if inspect.isasyncgenfunction(serve) else call
        return make(behind, None, handler.response_serializer)

    @asynccontextmanager
    async def _entered(
        self,
        rule: AccessRule | None,
        method: str,
        read: Callable[[Any], Any],
        raw: Any,
        context: CallContext,
        is_stream: bool,
    ) -> AsyncIterator[Any]:
        """Let a call in; give its request, decoded by ``read``. The call holds its places inside the context."""
        access: CallAccess | None = None
        try:
            with ExitStack() as places:
                access, request = self._let_in(rule, method, read, raw, context, places)
                _ACCESS.set(access)
                if is_stream and access.identities:
                    self._streams.add(access)
                    places.callback(self._streams.discard, access)
                yield request
        except LmergeError as error:
            problem = self._count_refusal(error, method, context.peer())
            await context.abort(code_of(problem), status_text(str(problem)), trailing_metadata(problem))
        except NotImplementedError:  # health's List, in gRPC's own asyncio servicer
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method} is not there")
        except asyncio.CancelledError:
            if access is None or access.ended is None:
                raise
            problem = self._count_refusal(access.ended, method, context.peer())
            await context.abort(code_of(problem), status_text(str(problem)), trailing_metadata(problem))

    def _let_in(
        self,
        rule: AccessRule | None,
        method: str,
        read: Callable[[Any], Any],
        raw: Any,
        context: CallContext,
        places: ExitStack,
    ) -> tuple[CallAccess, Any]:
        """Check a call; return its access and its request.

        Raises Unauthenticated, PermissionDenied, LimitExceeded; and Undecodable to callers that may use the method.
        """
        peer = context.peer()
        if rule is None:
            raise PermissionDenied(f"{method} is closed: the server has no rule for it")
        places.enter_context(self._connections.one_call(peer))
        if rule.is_open:
            what = f"calls of {peer_key(peer)} that need no credentials"
            places.enter_context(self._open_calls.one(peer_key(peer), what))
            return CallAccess(self, ShownCredentials((), None), (), peer), read(raw)
        certificate = Certificate.of_call(context.auth_context())
        shown = ShownCredentials(_authorization(context.invocation_metadata()), certificate)
        access = CallAccess(self, shown, self.identify(shown), peer)
        request = read(raw)
        if rule.everywhere:
            for identity in access.identities:
                identity.must_everywhere(rule.roles, rule.attempt)
        elif rule.roles:
            access.require(rule.roles, f"{rule.attempt} merge {_cut(request.merge)}", request.merge)
        if rule.roles == (SUBSCRIBE,) and access.identities:
            name = access.identities[-1].name
            places.enter_context(self._subscriptions.one(name, f"subscriptions of {name}"))
        return access, request

    # HTTP.

    def let_in_http(self, path: str, authorization: Sequence[str], certificate: Certificate | None, peer: str) -> None:
        """Check a request of HTTP, for ``present_access``. Raises Unauthenticated, PermissionDenied, LimitExceeded."""
        if path in OPEN_PATHS:
            return
        attempted = f"read {path:.80}"
        try:
            shown = ShownCredentials(authorization, certificate)
            access = CallAccess(self, shown, self.identify(shown), peer)
            access.require_everywhere(_WATCHERS, attempted)
        except LmergeError as error:
            raise self._count_refusal(error, attempted, peer) from None
        _ACCESS.set(access)

    @contextmanager
    def watching(self, access: CallAccess, end: Callable[[], object]) -> Iterator[None]:
        """Check the access of a stream of HTTP again while it lasts. ``end``: ends the stream; ``access`` has why."""
        access.end = end
        if access.identities:
            self._streams.add(access)
        try:
            yield
        finally:
            self._streams.discard(access)

    # Time.

    def check(self) -> bool:
        """Read the files that changed, then check all streams. Return whether other certificates are in force now."""
        renewed = self.tls.refresh() if self.tls is not None else False
        if self.access is not None:
            self.access.refresh()
        for access in list(self._streams):
            access.check_again()
        return renewed


def _reading(handler: Any, method: str) -> Callable[[Any], Any]:
    """Return the function that decodes what gRPC has read.

    It raises Undecodable, where gRPC itself would log a traceback and answer UNKNOWN. For a stream it raises when the
    message in question is due.
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


async def _no_method(_requests: Any, context: CallContext) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "there is no such method")


_NO_METHOD: Final[Any] = grpc.stream_stream_rpc_method_handler(_no_method)


def _authorization(metadata: Iterable[tuple[str, str | bytes]] | None) -> list[str]:
    return [str(value) for key, value in metadata or () if key == "authorization"]


def _cut(name: str) -> str:
    """Quote and shorten a name that a peer has sent, for a message."""
    return repr(name) if len(name) <= 100 else f"{name[:100]!r}..."
